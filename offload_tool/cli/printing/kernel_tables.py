"""What ``offload-tool list --kernels`` prints: tables for people, JSON for programs."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from offload_tool.cli.printing.as_json import print_json_list
from offload_tool.cli.printing.lines import print_lines
from offload_tool.cli.printing.tables import Sheet, place_of, print_sheet
from offload_tool.formats.kernel_info.kernel import Kernel
from offload_tool.formats.kernel_info.occupancy import waves_per_simd
from offload_tool.operations.kernel_table import COLUMNS, KEYS_OF_PLACE, WAVES

if TYPE_CHECKING:
    from offload_tool.operations.list_images import ImageKernels

LESS_NEEDED = (
    *("#", "wave", "group", "AGPRs", "SGPRs", "SGPR spills", WAVES, "LDS", "scratch", "in"),
    *("VGPR spills", "VGPRs", "code (bytes)", "target ID"),
)


def print_kernels_json(images: Iterable[ImageKernels], names: Mapping[str, str] | None) -> None:
    """Print a list with one object for each kernel, each in a line; `names` demangles."""
    print_json_list(_objects(images, names))


def _objects(
    images: Iterable[ImageKernels], names: Mapping[str, str] | None
) -> Iterator[dict[str, object]]:
    for found in images:
        place = {key: getattr(found.image, key) for key in KEYS_OF_PLACE}
        for kernel in found.kernels:
            name, *needs = kernel
            yield {
                **place,
                "kernel": name,
                "demangled": None if names is None else names[name],
                **dict(zip(kernel._fields[1:], needs, strict=True)),
            }


def print_kernel_tables(
    listed: Sequence[tuple[str, Sequence[ImageKernels]]], names: Mapping[str, str] | None
) -> None:
    """Print for each file a table with one row for each kernel, and what they add up to."""
    for file, images in listed:
        print_sheet(_table(file, images, names))
        print_lines([f"  {_summary(images)}"], sys.stdout)


def _table(file: str, images: Sequence[ImageKernels], names: Mapping[str, str] | None) -> Sheet:
    rows = []
    for found in images:
        image = found.image
        place = (place_of(file, image), str(image.index), image.target_id or "-")
        for kernel in found.kernels:
            needs = [getattr(kernel, field) for field in COLUMNS.values()]
            cells = (*needs, waves_per_simd(kernel, image.target_id))
            name = kernel.name if names is None else names[kernel.name]
            rows.append((*place, *("" if n is None else f"{n:,}" for n in cells), name))
    columns = ("in", "#", "target ID", *COLUMNS, WAVES, "kernel")
    # What no kernel has is left out, and what all have in common of their places.
    is_shown = [len({row[at] for row in rows} | {""}) > 1 for at in range(len(columns))]
    is_shown[1] = len({(found.image.file, found.image.index) for found in images}) > 1
    shown = [tuple(itertools.compress(row, is_shown)) for row in rows]
    numbers = frozenset(("#", *COLUMNS, WAVES))
    return Sheet(file, tuple(itertools.compress(columns, is_shown)), shown, numbers, LESS_NEEDED)


def _summary(images: Sequence[ImageKernels]) -> str:
    kernels = [kernel for found in images for kernel in found.kernels]
    text = f"{_count(len(kernels), 'kernel')} in {_count(len(images), 'device image')}"
    spilling = sum(map(_spills, kernels))
    return f"{text}; {_count(spilling, 'kernel')} with spilled registers" if spilling else text


def _spills(kernel: Kernel) -> bool:
    return bool(kernel.vgpr_spills or kernel.sgpr_spills)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("" if number == 1 else "s")
