"""``python -m benchmarks [NAME...]``: measure rows of the table of aims against LLVM 22.

Names are those of the modules here, such as ``archive``. Without a name, all benchmarks run except
``ggml FOLDER`` and ``replay CHECKOUT``, which measure a real project and need HIP. Requires LLVM
22's clang-offload-bundler and libraries, and 4 GB in the temporary folder. On an idle machine, it
takes some minutes.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks import (
    archive,
    bundle,
    command_line,
    compile_overhead,
    compress,
    first_build,
    ggml,
    launch,
    null_build,
    reading,
    replay,
    scheduling,
    small_sources,
)

BENCHMARKS: dict[str, Callable[[Path, str], None]] = {
    "bundle": bundle.main,
    "archive": archive.main,
    "compress": compress.main,
    "scheduling": scheduling.main,
    "first_build": first_build.main,
    "null_build": null_build.main,
    "reading": reading.main,
    "small_sources": small_sources.main,
    "compile_overhead": compile_overhead.main,
    "command_line": command_line.main,
    "launch": launch.main,
}
PROJECTS = {"ggml": ggml.main, "replay": replay.main}
"""Benchmarks with arguments of their own."""


def main(names: list[str]) -> int:
    """Run the named benchmarks, or all."""
    # An installed package has compiled modules; without this, each call might compile them.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if names and names[0] in PROJECTS:
        return PROJECTS[names[0]](names[1:])
    if unknown := [name for name in names if name not in BENCHMARKS]:
        known = ", ".join([*BENCHMARKS, *PROJECTS])
        print(f"benchmarks: {unknown[0]!r} is none of {known}", file=sys.stderr)
        return 1
    llvm = shutil.which("/usr/lib/llvm-22/bin/clang-offload-bundler")
    llvm = llvm or shutil.which("clang-offload-bundler-22")
    if llvm is None:
        print("benchmarks: clang-offload-bundler 22 is not installed", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        for name in names or BENCHMARKS:
            own = Path(folder, name)
            own.mkdir(exist_ok=True)
            BENCHMARKS[name](own, llvm)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
