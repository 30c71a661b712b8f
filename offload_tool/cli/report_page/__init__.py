"""The page of ``offload-tool report``: one HTML file, with all that it needs in it.

Styles, scripts and the plotting library are in the page, and its Content-Security-Policy
lets a browser fetch nothing and run only the scripts whose hashes it names. The tables are
complete without scripts; ``page.js`` makes them sortable and draws the picture. Nothing in
the page depends on the time or the machine: equal inputs give equal bytes.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from html import escape
from importlib.resources import files
from pathlib import PurePath
from string import Template
from typing import TYPE_CHECKING

from offload_tool.frozen import frozen
from offload_tool.operations.reporting import fold_smallest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from offload_tool.errors import OffloadError
    from offload_tool.operations.reporting import SizeReport

__all__ = ["render_page"]

_TILES = 500  # more cannot be told apart, and a browser takes seconds to draw them

_REST = "smaller ones"  # than those tiles

# White text on each is readable (4.5:1), and each stands out from the page in both schemes.
_COLORS = (
    *("#2f6fae", "#a85b12", "#2c7d4f", "#b0407f", "#6a5ac0", "#7d6f14"),
    *("#157a80", "#b64a3e", "#5b7420", "#8a4fb0", "#4a6f8f", "#8c6239"),
)


def render_page(
    paths: Sequence[str],
    report: SizeReport,
    problems: Sequence[OffloadError] = (),
    *,
    library: str,
) -> str:
    """Give the page, in HTML.

    `paths` are what the user named, `problems` what could not be read, `library` is the
    source of plotly.js.
    """
    colors = {row.target: _COLORS[index % len(_COLORS)] for index, row in enumerate(report.targets)}
    scripts = [library, _part("page.js")] if report.size else [_part("page.js")]
    scripts = [_inline(script) for script in scripts]
    hashes = " ".join(f"'sha256-{_digest(script)}'" for script in scripts)
    # Styles: plotly.js sets them as it draws.
    policy = f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'"
    data = [f'<script type="application/json" id="cells">{_tiles(report, colors)}</script>\n']
    picture = Template(_part("picture.html")).substitute(summary=_summary(report))
    return Template(_part("page.html")).substitute(
        policy=f"{policy}; base-uri 'none'; form-action 'none'",
        title=_text(f"Device code by size: {', '.join(paths)}"),
        inputs="\n".join(map(_text, paths)),
        problems=_problems(problems),
        style=_part("page.css"),
        totals=_totals(report),
        picture=picture if report.size else "<p>There are no bytes of device code.</p>\n",
        tables="".join(_table(table, report) for table in _tables(report, colors) if table.rows),
        notes=_notes(report),
        scripts="".join([*data, *(f"<script>{script}</script>\n" for script in scripts)]),
    )


def _part(name: str) -> str:
    return (files(__name__) / name).read_text(encoding="utf-8")


def _inline(script: str) -> str:
    """Make sure that a script cannot end its element; both forms mean the same in a string."""
    return script.replace("</script", r"<\/script").replace("<!--", r"<\!--")


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _text(text: str) -> str:
    """Escape `text` for HTML; what cannot be printed is shown as Python writes it."""
    return escape(_printable(text))


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _readable(size: int) -> str:
    value, unit = float(size), "bytes"
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{size} bytes" if unit == "bytes" else f"{value:.1f} {unit}"


def _percent(part: int, whole: int) -> str:
    return f"{part / whole if whole else 0:.1%}"


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


# -- the parts of the page ---------------------------------------------------------------


def _totals(report: SizeReport) -> str:
    part = f" ({_percent(report.stored, report.size)})" if report.size else ""
    sizes = [("Uncompressed", report.size), (f"In the files{part}", report.stored)]
    counts = [
        ("Device images", report.images),
        ("Target IDs", len(report.targets)),
        ("Containers", len(report.containers)),
        ("Files", len(report.files)),
    ]
    lines = [_total(label, _readable(size), f"{size:,} bytes") for label, size in sizes]
    lines += [_total(label, f"{count:,}", "") for label, count in counts]
    return "".join(lines)


def _total(label: str, value: str, exact: str) -> str:
    small = f"<small>{exact}</small>" if exact else ""
    return f"<div><dt>{label}</dt><dd>{value}{small}</dd></div>\n"


def _summary(report: SizeReport) -> str:
    """Give the picture in a sentence, for those who do not see it."""
    largest = ", ".join(
        f"{row.target} {_percent(row.size, report.size)}" for row in report.targets[:3]
    )
    return _text(
        f"Treemap of {_plural(report.images, 'device image')}, {_readable(report.size)} in all. "
        f"Largest target IDs: {largest}."
    )


def _tiles(report: SizeReport, colors: dict[str, str]) -> str:
    """Give the data of the picture as JSON that cannot end its element."""
    cells = fold_smallest(report.cells, _TILES)
    places = _short({(cell.file, cell.member) for cell in cells})
    files = _short({(cell.file, None) for cell in cells})
    data = {
        "cells": [
            {
                "file": _printable(files[cell.file, None]),
                "member": cell.member and _printable(places[cell.file, cell.member]),
                "place": _printable(places[cell.file, cell.member]),
                "target": _printable(cell.target),
                "color": colors[cell.target],
                "images": cell.images,
                "bytes": cell.size,
            }
            for cell in cells
        ],
        "severalFiles": len(report.files) > 1,
    }
    return json.dumps(data, separators=(",", ":")).replace("<", r"\u003c")


def _short(places: Iterable[tuple[str, str | None]]) -> dict[tuple[str, str | None], str]:
    """Name each (file, member) by the last part of its path, or by all where two end alike."""
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


def _problems(problems: Sequence[OffloadError]) -> str:
    if not problems:
        return ""
    lines = "".join(f"<li>{_text(str(problem))}</li>\n" for problem in problems)
    title = f"Not counted, because broken or unreadable: {_plural(len(problems), 'file')}"
    return f'<div class="notice">\n<p>{title}</p>\n<ul>\n{lines}</ul>\n</div>\n'


def _notes(report: SizeReport) -> str:
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


@frozen
class _Table:
    """A table: by what, its columns, and one row of cells for each row of the report."""

    id: str
    title: str
    columns: Sequence[tuple[str, Callable[[Any], str | int | None]]]
    rows: Sequence[Any]
    swatch: Callable[[Any], str] | None = None
    """Gives the colour before the first cell."""


def _tables(report: SizeReport, colors: dict[str, str]) -> list[_Table]:
    place: list[tuple[str, Callable[[Any], str | int | None]]] = [
        ("File", lambda row: row.file),
        ("Member", lambda row: row.member),
    ]
    return [
        _Table(
            "targets",
            "By target ID",
            [("Target ID", lambda row: row.target), ("Kind", lambda row: ", ".join(row.kinds))],
            report.targets,
            lambda row: colors[row.target],
        ),
        _Table(
            "files",
            "By file",
            [place[0], ("Containers", lambda row: row.containers)],
            report.files,
        ),
        _Table(
            "members",
            "By member",
            [*place, ("Containers", lambda row: row.containers)],
            report.members,
        ),
        _Table(
            "containers",
            "By container",
            [*place, ("Number", lambda row: row.index), ("Container", lambda row: row.container)],
            report.containers,
        ),
        _Table(
            "places",
            "By place and target ID",
            [*place, ("Target ID", lambda row: row.target)],
            report.cells,
        ),
    ]


_NUMBERS = ("Containers", "Number")  # columns of numbers, beside the sums that each table has
_SUMS = ("Images", "Uncompressed", "Share", "In the files")
_CLASSES = {"File": "name", "Member": "name", "Target ID": "name", "Share": "share"}


def _table(table: _Table, report: SizeReport) -> str:
    heads = [name for name, _ in table.columns]
    largest = max((row.size for row in table.rows), default=0)
    rows = [_row(table, row, report, largest) for row in table.rows]
    stored = sum(row.stored for row in table.rows)
    images, size = (sum(getattr(row, name) for row in table.rows) for name in ("images", "size"))
    return (
        "<section>\n"
        f'<h2 id="{table.id}-title">{table.title}</h2>\n'
        f'<div class="scroll" role="region" aria-labelledby="{table.id}-title" tabindex="0">\n'
        f'<table id="{table.id}">\n'
        f"<caption>{_plural(len(rows), 'row')}, sizes in bytes</caption>\n"
        f"<thead><tr>{''.join(_head(name) for name in [*heads, *_SUMS])}</tr></thead>\n"
        f"<tbody>\n{''.join(rows)}</tbody>\n"
        f'<tfoot><tr><th scope="row" colspan="{len(heads)}">All</th>'
        f"{_sum_cells(images, size, stored, report.size)}</tr></tfoot>\n"
        "</table>\n</div>\n</section>\n"
    )


def _head(name: str) -> str:
    number = name in _NUMBERS or (name in _SUMS and name != "Share")
    kind = "number" if number else _CLASSES.get(name, "")
    order = ' aria-sort="descending"' if name == "Uncompressed" else ""
    return f'<th scope="col"{_class(kind)}{order}>{name}</th>'


def _row(table: _Table, row: Any, report: SizeReport, largest: int) -> str:
    cells = []
    for position, (name, value) in enumerate(table.columns):
        content = value(row)
        if name in _NUMBERS:
            cells.append(_number(int(content or 0)))
            continue
        tag, scope = ("th", ' scope="row"') if position == 0 else ("td", "")
        swatch = _swatch(table.swatch(row)) if table.swatch and position == 0 else ""
        text = "" if content is None else _text(str(content))
        # Where a long path may be broken; no escape holds these characters.
        text = text.replace("/", "/<wbr>").replace("_", "_<wbr>")
        cells.append(f"<{tag}{scope}{_class(_CLASSES.get(name, ''))}>{swatch}{text}</{tag}>")
    sums = _sum_cells(row.images, row.size, row.stored, report.size, largest)
    return f"<tr>{''.join(cells)}{sums}</tr>\n"


def _sum_cells(images: int, size: int, stored: int, whole: int, largest: int = 0) -> str:
    """Give the cells of `_SUMS`; with `largest`, a bar that is full at that size."""
    filled = f'<rect width="{100 * size / largest:.1f}" height="12"/>' if largest else ""
    bar = (
        '<svg class="bar" viewBox="0 0 100 12" preserveAspectRatio="none" aria-hidden="true">'
        f"{filled}</svg>"
    )
    return (
        f"{_number(images)}{_number(size)}"
        f'<td class="share" data-value="{size}">{bar}{_percent(size, whole)}</td>'
        f"{_number(stored)}"
    )


def _number(value: int) -> str:
    return f'<td class="number" data-value="{value}">{value:,}</td>'


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""


def _swatch(color: str) -> str:
    return (
        '<svg class="swatch" viewBox="0 0 12 12" aria-hidden="true">'
        f'<rect width="12" height="12" fill="{color}"/></svg>'
    )
