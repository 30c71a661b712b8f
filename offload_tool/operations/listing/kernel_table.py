"""The kernels of many images, column by column: a million of them in some 100 MB."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING

from offload_tool.formats.kernel_info.kernel import Kernel
from offload_tool.formats.kernel_info.occupancy import waves_per_simd

if TYPE_CHECKING:
    from offload_tool.operations.listing.list_images import DeviceImage

KEYS_OF_PLACE = (
    *("file", "member", "container", "index", "id", "kind", "triple", "target_id", "offset"),
    *("container_offset", "section", "image_kind", "image_index"),
)
"""The keys of ``list --json`` that say where an image is, and for what."""
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
"""In a column, for None."""


class KernelColumns:
    """Kernels in the order in which they were added; all columns have one entry for each."""

    def __init__(self) -> None:
        self.images: list[DeviceImage] = []
        """Those that list kernels."""
        self.counts: list[int] = []
        """Of kernels of each image."""
        self.names: dict[str, int] = {}
        """Each name once, with its number."""
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
        """Return the kernels of all other files than `files`."""
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
