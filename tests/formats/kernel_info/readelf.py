"""What LLVM's ``llvm-readelf`` says of the kernels of a code object."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from offload_tool.formats.kernel import Kernel

FIELDS = {
    "vgprs": ".vgpr_count",
    "agprs": ".agpr_count",
    "sgprs": ".sgpr_count",
    "lds": ".group_segment_fixed_size",
    "scratch": ".private_segment_fixed_size",
    "vgpr_spills": ".vgpr_spill_count",
    "sgpr_spills": ".sgpr_spill_count",
    "wavefront_size": ".wavefront_size",
    "max_workgroup_size": ".max_flat_workgroup_size",
}


def kernels_by_readelf(readelf: str, code: Path) -> list[Kernel]:
    """Read the file `code` with ``llvm-readelf --notes --symbols``."""
    command = [readelf, "--notes", "--symbols", "--wide", str(code)]
    raw = subprocess.run(command, check=True, capture_output=True).stdout
    text = raw.decode("utf-8", "surrogateescape")
    functions = re.findall(r"^ +\d+: [0-9a-f]+ +(\d+) FUNC .* (\S+)$", text, re.MULTILINE)
    sizes = {name: int(size) for size, name in functions}
    kernels = []
    for block in re.split(r"^  - ", text, flags=re.MULTILINE)[1:]:
        rows = dict(re.findall(r"^ {0,4}(\.\w+): +(.*)$", block, re.MULTILINE))
        if ".kernarg_segment_size" in rows:  # a list of something else has none
            name = rows[".name"].strip("'")
            needs = {key: int(rows[row]) for key, row in FIELDS.items() if row in rows}
            kernels.append(Kernel(name, sizes.get(name), **needs))
    return kernels
