"""The view of sizes: totals, the picture's data, and tables that are complete without scripts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import NamedTuple

from offload_tool.operations.size_report import SizeReport, SizeRow, fold_smallest
from offload_tool.report.html import (
    data_script,
    escaped,
    framed_table,
    head_cells,
    number_cell,
    percent,
    plural,
    readable,
    row_cells,
)
from offload_tool.util.escape import printable

_TILES = 500  # more are indistinguishable, and a browser takes seconds to draw them

_REST = "smaller ones"  # than those tiles

# White text on each is readable (4.5:1), and each contrasts with the page in both schemes.
_COLORS = (
    *("#2f6fae", "#a85b12", "#2c7d4f", "#b0407f", "#6a5ac0", "#7d6f14"),
    *("#157a80", "#b64a3e", "#5b7420", "#8a4fb0", "#4a6f8f", "#8c6239"),
)


def colors_of(report: SizeReport) -> dict[str, str]:
    """Return the colour of each target ID."""
    return {row.target: _COLORS[index % len(_COLORS)] for index, row in enumerate(report.targets)}


def totals_of(report: SizeReport) -> str:
    """Return the sums as items of a description list."""
    is_smaller = report.stored < report.size  # else padding and tables dominate: see the notes
    part = f" ({percent(report.stored, report.size)})" if is_smaller else ""
    sizes = [("Uncompressed", report.size), (f"In the files{part}", report.stored)]
    counts = [
        ("Device images", report.images),
        ("Target IDs", len(report.targets)),
        ("Containers", len(report.containers)),
        ("Files", len(report.files)),
    ]
    lines = [_total(label, readable(size), f"{size:,} bytes") for label, size in sizes]
    lines += [_total(label, f"{count:,}", "") for label, count in counts]
    return "".join(lines)


def _total(label: str, value: str, exact: str) -> str:
    small = f"<small>{exact}</small>" if exact else ""
    return f"<div><dt>{label}</dt><dd>{value}{small}</dd></div>\n"


def picture_summary(report: SizeReport) -> str:
    """Return a sentence that describes the picture, for readers who cannot see it."""
    largest = ", ".join(
        f"{row.target} {percent(row.size, report.size)}" for row in report.targets[:3]
    )
    return escaped(
        f"Treemap of {plural(report.images, 'device image')}, {readable(report.size)} in all. "
        f"Largest target IDs: {largest}."
    )


def picture_data(report: SizeReport, colors: dict[str, str]) -> str:
    """Return an element with the data of the picture."""
    cells = fold_smallest(report.cells, _TILES)
    names = short_names({(cell.file, cell.member) for cell in cells})
    files = short_names({(cell.file, None) for cell in cells})
    data = {
        "cells": [
            {
                "file": printable(files[cell.file, None]),
                "member": cell.member and printable(names[cell.file, cell.member]),
                "place": printable(names[cell.file, cell.member]),
                "target": printable(cell.target),
                "color": colors[cell.target],
                "images": cell.images,
                "bytes": cell.size,
            }
            for cell in cells
        ],
        "severalFiles": len(report.files) > 1,
    }
    return data_script("cells", data)


def short_names(places: Iterable[tuple[str, str | None]]) -> dict[tuple[str, str | None], str]:
    """Return the last part of each (file, member) path; the whole path if it is ambiguous."""
    lasts = {place: PurePath(place[1] or place[0]).name for place in places}
    count = Counter(lasts.values())
    return {
        (file, member): (
            _REST
            if not file
            else last
            if last and count[last] == 1
            else f"{file}({member})"
            if member
            else file
        )
        for (file, member), last in lasts.items()
    }


def notes_of(report: SizeReport) -> str:
    """Return notes that explain the numbers."""
    notes = ["Uncompressed: what a device loads. In the files: what is stored of it there."]
    if any(row.container == "compressed-bundle" for row in report.containers):
        notes.append("Images compressed together are given parts in proportion to their sizes.")
    if report.overhead > 0:
        notes.append(
            f"{report.overhead:,} bytes of the containers belong to no image: "
            "headers, tables and padding."
        )
    if report.host:
        notes.append(f"{report.host:,} bytes of host entries are not counted as device code.")
    return "".join(f"<p>{note}</p>\n" for note in notes)


# -- tables ------------------------------------------------------------------------------


class _Column(NamedTuple):
    title: str
    field: str
    """The field of `SizeRow` with its values."""
    css_class: str = "name"
    """See `plain_table`."""


_TARGET = _Column("Target ID", "target")
_KINDS = _Column("Kind", "kinds", "")
_FILE = _Column("File", "file")
_MEMBER = _Column("Member", "member")
_CONTAINERS = _Column("Containers", "containers", "number")
_INDEX = _Column("Number", "index", "number")
_CONTAINER = _Column("Container", "container", "")
_SORTED = "Uncompressed"
_SUMS = (("Images", "number"), (_SORTED, "number"), ("Share", "share"), ("In the files", "number"))
"""The last columns of all tables, as (title, class)."""


def size_tables(report: SizeReport, colors: Mapping[str, str]) -> str:
    """Return all non-empty tables; rows of target IDs begin with their colours."""
    tables: tuple[tuple[str, str, tuple[_Column, ...], tuple[SizeRow, ...]], ...] = (
        ("targets", "By target ID", (_TARGET, _KINDS), report.targets),
        ("files", "By file", (_FILE, _CONTAINERS), report.files),
        ("members", "By member", (_FILE, _MEMBER, _CONTAINERS), report.members),
        ("containers", "By container", (_FILE, _MEMBER, _INDEX, _CONTAINER), report.containers),
        ("places", "By place and target ID", (_FILE, _MEMBER, _TARGET), report.cells),
    )
    return "".join(
        _table(name, title, columns, rows, colors, report.size)
        for name, title, columns, rows in tables
        if rows
    )


def _table(
    name: str,
    title: str,
    columns: Sequence[_Column],
    rows: Sequence[SizeRow],
    colors: Mapping[str, str],
    whole: int,
) -> str:
    """Return a table; shares are those of `whole` bytes."""
    heads = [(column.title, column.css_class) for column in columns]
    largest = max(row.size for row in rows)
    lines = []
    for row in rows:
        values = [getattr(row, column.field) for column in columns]
        texts = [", ".join(value) if isinstance(value, tuple) else value for value in values]
        swatch = _swatch(colors[row.target]) if columns[0] is _TARGET else ""
        cells = row_cells(texts, heads, swatch)
        lines.append(f"<tr>{cells}{_sum_cells(row, whole, largest)}</tr>\n")
    total = SizeRow(
        images=sum(row.images for row in rows),
        size=sum(row.size for row in rows),
        stored=sum(row.stored for row in rows),
    )
    foot = (
        f'<tfoot><tr><th scope="row" colspan="{len(columns)}">All</th>'
        f"{_sum_cells(total, whole)}</tr></tfoot>\n"
    )
    caption = f"{plural(len(rows), 'row')}, sizes in bytes"
    return framed_table(name, 2, title, caption, head_cells([*heads, *_SUMS], _SORTED), lines, foot)


def _sum_cells(row: SizeRow, whole: int, largest: int = 0) -> str:
    """Return the cells of `_SUMS`; with `largest`, a bar whose full length is that size."""
    filled = f'<rect width="{100 * row.size / largest:.1f}" height="12"/>' if largest else ""
    bar = (
        '<svg class="bar" viewBox="0 0 100 12" preserveAspectRatio="none" aria-hidden="true">'
        f"{filled}</svg>"
    )
    return (
        f"{number_cell(row.images)}{number_cell(row.size)}"
        f'<td class="share" data-value="{row.size}">{bar}{percent(row.size, whole)}</td>'
        f"{number_cell(row.stored)}"
    )


def _swatch(color: str) -> str:
    return (
        '<svg class="swatch" viewBox="0 0 12 12" aria-hidden="true">'
        f'<rect width="12" height="12" fill="{color}"/></svg>'
    )
