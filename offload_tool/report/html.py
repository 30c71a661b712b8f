"""HTML helpers. All foreign text goes through `escaped`, all data through `data_script`."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files

from offload_tool.util.escape import printable


def package_text(name: str) -> str:
    """Return the text of a file in this package."""
    return (files(__package__) / name).read_text(encoding="utf-8")


def inline(script: str) -> str:
    """Escape end tags in a script, so that it cannot end its element; strings keep their value."""
    return script.replace("</script", r"<\/script").replace("<!--", r"<\!--")


def digest(script: str) -> str:
    """Return a script's hash for the Content-Security-Policy."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def data_script(name: str, data: object) -> str:
    """Return a JSON element, which the data cannot end and browsers do not run."""
    text = json.dumps(data, separators=(",", ":")).replace("<", r"\u003c")
    return f'<script type="application/json" id="{name}">{text}</script>\n'


def escaped(text: str) -> str:
    """Escape `text` for HTML; unprintable characters become Python escapes."""
    return escape(printable(text))


def breakable(text: str) -> str:
    """Return escaped text with break opportunities for long paths."""
    return text.replace("/", "/<wbr>").replace("_", "_<wbr>")


def readable(size: int) -> str:
    """Return a number of bytes in the largest unit that gives at least 1."""
    value, unit = float(size), "bytes"
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{size} bytes" if unit == "bytes" else f"{value:.1f} {unit}"


def percent(part: int, whole: int) -> str:
    """Return a share in percent."""
    return f"{part / whole if whole else 0:.1%}"


def plural(count: int, noun: str) -> str:
    """Return a count with its noun."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def as_class(name: str) -> str:
    """Return a class attribute; "" without a class."""
    return f' class="{name}"' if name else ""


def number_cell(value: object, form: str = ",") -> str:
    """Return a table cell with its number for sorting; an empty one for anything else."""
    shown = format(value, form) if isinstance(value, int) else ""
    return f'<td class="number" data-value="{value if shown else 0}">{shown}</td>'


def head_cells(columns: Iterable[tuple[str, str]], descending: str = "") -> str:
    """Return the heads of `columns` (see `plain_table`); `descending` names the sorted one."""
    cells = []
    for title, kind in columns:
        order = ' aria-sort="descending"' if title == descending else ""
        css_class = as_class(kind.replace("signed", "number"))
        cells.append(f'<th scope="col"{css_class}{order}>{escaped(title)}</th>')
    return "".join(cells)


def row_cells(
    values: Sequence[str | int | None], columns: Iterable[tuple[str, str]], mark: str = ""
) -> str:
    """Return the cells of a row; the first is its head if it is a text, with the HTML `mark`."""
    cells = []
    for position, (value, (_, kind)) in enumerate(zip(values, columns, strict=True)):
        if kind in ("number", "signed"):
            cells.append(number_cell(value, "+," if kind == "signed" else ","))
            continue
        tag, scope, before = ("th", ' scope="row"', mark) if position == 0 else ("td", "", "")
        shown = breakable(escaped(str(value or "")))
        cells.append(f"<{tag}{scope}{as_class(kind)}>{before}{shown}</{tag}>")
    return "".join(cells)


def plain_table(
    name: str,
    title: str,
    caption: str,
    columns: Sequence[tuple[str, str]],
    rows: Iterable[Sequence[str | int | None]],
) -> str:
    """Return a section with a table.

    `columns` are (title, class); a class is that of text, ``number``, or ``signed`` (differences).
    """
    lines = [f"<tr>{row_cells(row, columns)}</tr>\n" for row in rows]
    return framed_table(name, 3, title, caption, head_cells(columns), lines)


def framed_table(
    name: str, level: int, title: str, caption: str, heads: str, rows: Iterable[str], foot: str = ""
) -> str:
    """Return a section with a table; `level` is the heading's, the last three are HTML."""
    return (
        "<section>\n"
        f'<h{level} id="{name}-title">{escaped(title)}</h{level}>\n'
        f'<div class="scroll" role="region" aria-labelledby="{name}-title" tabindex="0">\n'
        f'<table class="static" id="{name}">\n<caption>{escaped(caption)}</caption>\n'
        f"<thead><tr>{heads}</tr></thead>\n<tbody>\n{''.join(rows)}</tbody>\n"
        f"{foot}</table>\n</div>\n</section>\n"
    )
