"""The views: sizes with tiles for the chart, kernels, and the changes that ``diff`` finds.

All foreign text is shortened and printable. A table has one list for each column, or one value if
all rows have the same. Texts are stored once, in the order of their first use; columns of text have
their numbers.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import NamedTuple

from offload_tool.formats.kernel import Kernel, waves_per_simd
from offload_tool.operations import kernel_table
from offload_tool.operations.diff import Comparison, KernelChange, TargetChange
from offload_tool.operations.size_report import SizeReport, SizeRow, fold_smallest
from offload_tool.util.escape import printable

_LONGEST = 10_000  # characters of a text; the longest demangled names of cuBLAS have 4,263
_CHANGED_SUMS = {"images": "Images", "kernels": "Kernels", "loaded": "Loaded (bytes)"}
"""Fields of `TargetSums`, and the titles of their columns."""
TITLES = {
    field: title[:1].upper() + title[1:]
    for title, field in {
        **kernel_table.COLUMNS,
        kernel_table.WAVES: kernel_table.WAVES_PER_SIMD,
    }.items()
}
"""Titles of the numbers, by the keys of ``list --kernels --json``."""
_TILES = 500  # more are indistinguishable, and a browser takes seconds to draw them
_REST = "smaller ones"  # than those tiles
_COLUMNS = {
    "target": ("Target ID", "text"),
    "kinds": ("Kind", "text"),
    "file": ("File", "text"),
    "member": ("Member", "text"),
    "index": ("Number", "number"),
    "container": ("Container", "text"),
    "containers": ("Containers", "sum"),
    "images": ("Images", "sum"),
    "size": ("Uncompressed", "sum"),
    "share": ("Share", "share"),
    "stored": ("In the files", "sum"),
}
"""Titles and kinds of the fields of `SizeRow`; ``share`` is that of its `size`."""
_SUMS = ("images", "size", "share", "stored")  # the last columns of all tables


def add_sizes(report: SizeReport, tables: Tables) -> None:
    """Add all tables that have rows."""
    for name, title, keys, rows in (
        ("targets", "By target ID", ("target", "kinds"), report.targets),
        ("files", "By file", ("file", "containers"), report.files),
        ("members", "By member", ("file", "member", "containers"), report.members),
        ("containers", "By container", ("file", "member", "index", "container"), report.containers),
        ("places", "By place and target ID", ("file", "member", "target"), report.cells),
    ):
        if rows:
            columns = [Column(key, *_COLUMNS[key], _values(key, rows)) for key in (*keys, *_SUMS)]
            tables.add("sizes", name, title, columns, "size")


def _values(key: str, rows: Sequence[SizeRow]) -> list[str | int | None]:
    if key == "kinds":
        return [", ".join(row.kinds) for row in rows]
    return [getattr(row, "size" if key == "share" else key) for row in rows]


def notes_of(report: SizeReport) -> list[str]:
    """Return notes that explain the numbers."""
    notes = [
        "Sizes are in bytes. Uncompressed: what a device loads.",
        "In the files: what is stored of it there.",
    ]
    if any(row.container == "compressed-bundle" for row in report.containers):
        notes.append("Images compressed together are given parts in proportion to their sizes.")
    if report.overhead > 0:
        notes.append(
            f"{report.overhead:,} bytes of the containers belong to no image: "
            "headers, tables and padding."
        )
    if report.host:
        notes.append(f"{report.host:,} bytes of host entries are not counted as device code.")
    return notes


def chart_data(report: SizeReport) -> list[dict[str, object]]:
    """Return the tiles of the chart, largest first."""
    cells = fold_smallest(report.cells, _TILES)
    names = short_names((cell.file, part) for cell in cells for part in (None, cell.member))
    return [
        {
            "file": shown(names[cell.file, None]),
            "member": cell.member and shown(names[cell.file, cell.member]),
            "target": shown(cell.target),
            "images": cell.images,
            "bytes": cell.size,
        }
        for cell in cells
    ]


def short_names(places: Iterable[tuple[str, str | None]]) -> dict[tuple[str, str | None], str]:
    """Return the last part of each (file, member) path; the whole path if it is ambiguous."""
    lasts = {place: PurePath(place[1] or place[0]).name for place in places}
    count = Counter(lasts.values())
    names = {}
    for (file, member), last in lasts.items():
        whole = f"{file}({member})" if member else file or _REST
        names[file, member] = last if last and count[last] == 1 else whole
    return names


def add_kernels(kernels: kernel_table.KernelColumns, tables: Tables) -> None:
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
        numbers = [None if one == kernel_table.UNKNOWN else one for one in kernels.numbers[key]]
        if any(one is not None for one in numbers):
            columns.append(Column(key, title, "number", numbers))
    tables.add("kernels", "all-kernels", "All kernels", columns, "code_size")


def change_counts(found: Comparison) -> str:
    """Return how many targets and kernels changed, and by how many bytes."""
    if found.is_equal:
        return "Nothing changed."
    counts = f"{_counts(found.targets, 'Targets')} {_counts(found.kernels, 'Kernels')}"
    return f"{counts} A changed kernel without a difference has other instructions."


def _counts(rows: Sequence[TargetChange | KernelChange], what: str) -> str:
    counts = Counter(row.change for row in rows)
    parts = [f"{counts[change]:,} {change}" for change in ("added", "removed", "changed")]
    return f"{what}: {', '.join(parts)}, {sum(row.grown for row in rows):+,} bytes."


def add_changes(found: Comparison, tables: Tables) -> None:
    """Add the tables of kernels and targets that have rows, in the order of ``diff``."""
    tables.views["changes"] = []
    if found.kernels:
        names = Column("name", "Kernel", "kernel", [row.name for row in found.kernels])
        columns = [names, *_first_columns(found.kernels), *_resources(found.kernels)]
        tables.add("changes", "changed-kernels", "Kernels", columns)
    if found.targets:
        columns = _first_columns(found.targets)
        for key, title in _CHANGED_SUMS.items():
            after = [row.after and getattr(row.after, key) for row in found.targets]
            before = [row.before and getattr(row.before, key) for row in found.targets]
            columns.append(Column(key, title, "pair", after, before))
        tables.add("changes", "changed-targets", "Targets", columns)


def _first_columns(rows: Sequence[TargetChange] | Sequence[KernelChange]) -> list[Column]:
    return [
        Column("target", "Target ID", "text", [row.target for row in rows]),
        Column("library", "Library", "text", [row.library for row in rows]),
        Column("change", "Change", "text", [row.change for row in rows]),
        Column("grown", "Grown (bytes)", "signed", [row.grown for row in rows]),
    ]


def _resources(rows: Sequence[KernelChange]) -> list[Column]:
    """Return a column for each resource that differs in a changed kernel."""
    columns = []
    for key, title in TITLES.items():
        after = [_number(row.after, key, row.target) for row in rows]
        before = [_number(row.before, key, row.target) for row in rows]
        pairs = zip(rows, after, before, strict=True)
        if any(row.change == "changed" and one != other for row, one, other in pairs):
            columns.append(Column(key, title, "pair", after, before))
    return columns


def _number(kernel: Kernel | None, key: str, target: str) -> int | None:
    if kernel is None:
        return None
    number: int | None = getattr(kernel, key, None)
    return waves_per_simd(kernel, target) if key == kernel_table.WAVES_PER_SIMD else number


class Column(NamedTuple):
    """A column of a table; None is an unknown number."""

    key: str
    """Its name in links."""
    title: str
    kind: str
    """``text``, or ``kernel`` for its name; ``number``, ``sum`` for one that has a total, ``share``
    of the total, ``signed`` for a difference, ``pair`` for a number and that of `before`."""
    values: Sequence[str | int | None]
    before: Sequence[int | None] = ()


class Tables:
    """The tables of each view, and their texts."""

    def __init__(self) -> None:
        self.views: dict[str, list[object]] = {"sizes": []}
        self.texts: dict[str, int] = {}
        """The numbers of all texts, in their order."""

    def number(self, text: str) -> int:
        """Return the number of a text."""
        return self.texts.setdefault(shown(text), len(self.texts))

    def add(
        self, view: str, name: str, title: str, columns: Sequence[Column], order: str = ""
    ) -> None:
        """Add a table, which is sorted by falling numbers of the column `order`."""
        data = [
            {
                **column._asdict(),
                "values": _one_or_all(
                    column.values
                    if column.kind not in ("text", "kernel")
                    else [self.number(str(one or "")) for one in column.values]
                ),
                "before": _one_or_all(column.before),
            }
            for column in columns
        ]
        count = len(columns[0].values)
        table = {"name": name, "title": title, "order": order, "count": count, "columns": data}
        self.views.setdefault(view, []).append(table)


def shown(text: str) -> str:
    """Return a printable text; for a very long one, the beginning and a digest."""
    if len(text) <= _LONGEST:
        return printable(text)
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{printable(text[:_LONGEST])}... ({len(text):,} characters, SHA-256 {digest})"


def _one_or_all(values: Sequence[object]) -> object:
    first = values[0] if values else None
    return first if all(value == first for value in values) else values
