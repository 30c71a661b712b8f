"""The view of kernels: a table of all of them."""

from __future__ import annotations

from offload_tool.operations.kernel_table import (
    COLUMNS,
    UNKNOWN,
    WAVES,
    WAVES_PER_SIMD,
    KernelColumns,
)
from offload_tool.report.sizes import short_names
from offload_tool.report.tables import Column, Tables

TITLES = {
    field: title[:1].upper() + title[1:]
    for title, field in {**COLUMNS, WAVES: WAVES_PER_SIMD}.items()
}
"""Titles of the numbers, by the keys of ``list --kernels --json``."""


def add_kernels(kernels: KernelColumns, tables: Tables) -> None:
    """Add the table of kernels, if there are any; without columns of which nothing is known."""
    if not len(kernels):
        return
    libraries = short_names((image.file, image.member) for image in kernels.images)
    texts = {
        "Target ID": [image.target_id or image.triple for image in kernels.images],
        "Kind": [image.kind for image in kernels.images],
        "Image": [image.image_kind or "" for image in kernels.images],
        "Library": [libraries[image.file, image.member] for image in kernels.images],
    }
    names = [*kernels.names]
    columns = [Column("name", "Kernel", "kernel", [names[number] for number in kernels.name])]
    for title, values in texts.items():
        each = [
            one for one, count in zip(values, kernels.counts, strict=True) for _ in range(count)
        ]
        columns.append(Column(title.split()[0].lower(), title, "text", each))
    for key, title in TITLES.items():
        numbers = [None if one == UNKNOWN else one for one in kernels.numbers[key]]
        if any(one is not None for one in numbers):
            columns.append(Column(key, title, "number", numbers))
    tables.add("kernels", "all-kernels", "All kernels", columns, "code_size")
