"""The kernels of many images, stored by column: a million of them take some 100 MB.

A demangler of the machine turns mangled C++ names into source names. It runs as a separate
process: names are untrusted input, and some names have crashed demanglers.
"""

from __future__ import annotations

import os
import re
from array import array
from collections.abc import Iterable, Sequence

from offload_tool.errors import UsageError
from offload_tool.formats.kernel import Kernel, waves_per_simd
from offload_tool.io.process import capture
from offload_tool.operations.list_images import DeviceImage
from offload_tool.util.which import which

LOCATION_KEYS = (
    *("file", "member", "container", "index", "id", "kind", "triple", "target_id", "offset"),
    *("container_offset", "section", "image_kind", "image_index"),
)
"""Keys of ``list --json`` that locate an image and name its target."""
COLUMNS = {
    "code (bytes)": "code_size",
    "VGPRs": "vgprs",
    "AGPRs": "agprs",
    "SGPRs": "sgprs",
    "LDS": "lds",
    "scratch": "scratch",
    "VGPR spills": "vgpr_spills",
    "SGPR spills": "sgpr_spills",
    "wave": "wavefront_size",
    "group": "max_workgroup_size",
}
"""Titles, and the fields of `Kernel`."""
WAVES = "waves/SIMD"

WAVES_PER_SIMD = "waves_per_simd"
NUMBERS = (*Kernel._fields[1:], WAVES_PER_SIMD)
"""The columns of numbers."""
UNKNOWN = -1
"""Stands for None in a column."""


class KernelColumns:
    """Kernels in the order of addition; all columns have one entry for each."""

    def __init__(self) -> None:
        self.images: list[DeviceImage] = []
        self.counts: list[int] = []
        self.names: dict[str, int] = {}
        """Each distinct name, with its number."""
        self.name: array[int] = array("q")
        """The numbers of the names."""
        self.numbers: dict[str, array[int]] = {key: array("q") for key in NUMBERS}

    def __len__(self) -> int:
        return len(self.name)

    def add(self, image: DeviceImage, kernels: Sequence[Kernel]) -> None:
        """Add the kernels of an image."""
        if not kernels:
            return
        self.images.append(image)
        self.counts.append(len(kernels))
        for kernel in kernels:
            self.name.append(self.names.setdefault(kernel.name, len(self.names)))
            numbers = (*kernel[1:], waves_per_simd(kernel, image.target_id))
            for column, number in zip(self.numbers.values(), numbers, strict=True):
                column.append(UNKNOWN if number is None else number)

    def without(self, files: set[str]) -> KernelColumns:
        """Return the kernels of all files except `files`."""
        kept = KernelColumns()
        kept.names = self.names
        start = 0
        for image, count in zip(self.images, self.counts, strict=True):
            if image.file not in files:
                kept.images.append(image)
                kept.counts.append(count)
                kept.name.extend(self.name[start : start + count])
                for key, column in kept.numbers.items():
                    column.extend(self.numbers[key][start : start + count])
            start += count
        return kept


_PROGRAMS = ("llvm-cxxfilt", "c++filt")
"""The compiler's own first: it knows the newest manglings. ``c++filt`` is in GNU's binutils."""
_MANGLED = re.compile(r"_{1,4}Z[\w$.]+", re.ASCII)
_TIMEOUT = 60  # seconds; a million names take two


def demangled_names(names: Iterable[str]) -> dict[str, str]:
    """Return names demangled, if they are mangled; raise UsageError without a demangler."""
    known = dict.fromkeys(names)
    mangled = [name for name in known if _MANGLED.fullmatch(name)]
    demangled = _run_demangler(mangled) if mangled else []
    return {**{name: name for name in known}, **dict(zip(mangled, demangled, strict=True))}


def _run_demangler(mangled: list[str]) -> list[str]:
    program = next(filter(None, map(which, _PROGRAMS)), None)
    if program is None:
        raise UsageError(
            f"names are demangled by {' or '.join(_PROGRAMS)}, and neither is on PATH; install "
            "binutils, or leave --demangle out"
        )
    lines = "".join(f"{name}\n" for name in mangled)
    try:
        done = capture([program], os.environ, given=lines.encode(), timeout=_TIMEOUT)
    except OSError as error:
        raise UsageError(
            f"'{program}' did not demangle {len(mangled)} names: {error}; leave --demangle out"
        ) from error
    demangled = done.output.decode(errors="replace").splitlines()
    if done.status or len(demangled) != len(mangled):
        raise UsageError(
            f"'{program}' ended with status {done.status} after {len(demangled)} of "
            f"{len(mangled)} names; leave --demangle out"
        )
    return demangled
