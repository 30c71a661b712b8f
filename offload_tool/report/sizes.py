"""The view of sizes: tables, notes, and the tiles of the chart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import PurePath

from offload_tool.operations.size_report import SizeReport, SizeRow, fold_smallest
from offload_tool.report.tables import Column, Tables, shown

_TILES = 500
"""More are indistinguishable, and a browser takes seconds to draw them."""
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
_SUMS = ("images", "size", "share", "stored")
"""The last columns of all tables."""


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
