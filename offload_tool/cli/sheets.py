"""Tables of text: ruled by rich, or where they are long, in plain columns."""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING, NamedTuple

from offload_tool.cli.terminal import print_lines, print_text, printable
from offload_tool.errors import UsageError

if TYPE_CHECKING:
    from rich.table import Table

    from offload_tool.operations.listing import DeviceImage

__all__ = ["Sheet", "place_of", "print_sheet"]

_MOST_RULED = 2000
"""Rows of a table up to which rich measures and rules it; that takes 1 ms a row."""
_WIDE = 10_000  # columns, where no terminal says how many: lines in a pipe are not cut


class Sheet(NamedTuple):
    """Text in columns."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    numbers: frozenset[str] = frozenset()
    """The columns that are aligned at their right."""


def print_sheet(table: Sheet) -> None:
    """Print a table on standard output.

    :raises UsageError: rich is not installed.
    """
    if len(table.rows) > _MOST_RULED:
        _print_plain(table)
        return
    # Imported here: half of a command's start-up time, and only a table needs it.
    try:
        from rich.console import Console
    except ImportError as error:  # a copy of this package within a project
        raise UsageError("tables need the package 'rich'; install it, or use --json") from error

    is_terminal = sys.stdout.isatty()
    width = None if is_terminal else _WIDE
    # Not its own way to the stream, which is that of the one printer.
    kept = io.StringIO()
    Console(file=kept, force_terminal=is_terminal, width=width, highlight=False).print(
        _ruled(table)
    )
    lines = (line.rstrip() for line in kept.getvalue().splitlines())
    print_text("\n".join([*lines, ""]), sys.stdout)


def _ruled(table: Sheet) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    def text(cell: str) -> Text:
        return Text(printable(cell))  # a plain string would be read as markup

    made = Table(
        title=text(table.title), title_justify="left", title_style="bold", box=box.SIMPLE_HEAD
    )
    for name in table.columns:
        made.add_column(
            name,
            justify="right" if name in table.numbers else "left",
            style="cyan" if name == "target ID" else None,
        )
    for row in table.rows:
        made.add_row(*map(text, row))
    return made


def _print_plain(table: Sheet) -> None:
    """Print columns that are as wide as their widest cell, without any more art."""
    rows = [table.columns, *(tuple(map(printable, row)) for row in table.rows)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = [">" if name in table.numbers else "<" for name in table.columns]
    form = "  ".join(f"{{:{side}{width}}}" for side, width in zip(sides, widths, strict=True))
    print_lines(["", table.title, ""], sys.stdout)
    print_lines((f"  {form.format(*row)}".rstrip() for row in rows), sys.stdout)
    print_lines([""], sys.stdout)


def place_of(file: str, image: DeviceImage) -> str:
    """Say where in `file` the image is: a file of a folder, a member."""
    inner = [] if image.file == file else [os.path.relpath(image.file, file)]
    inner += [image.member] if image.member else []
    return "(".join(inner) + ")" * (len(inner) - 1)
