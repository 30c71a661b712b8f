"""Text tables for all commands: ruled by rich, or in plain columns if they are long.

Numbers and IDs are never cut. If a table is too wide for the terminal, its names are folded, then
columns are left out, and a note below lists them.
"""

from __future__ import annotations

import io
import itertools
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from offload_tool.cli.printing import print_lines, print_text
from offload_tool.errors import UsageError
from offload_tool.util.escape import printable

if TYPE_CHECKING:
    from rich.table import Table

_MOST_RULED = 2000
"""Rows up to which rich rules a table, at 1 ms a row."""
_WIDE = 10_000  # columns without a terminal: lines in a pipe are not folded
_NAMES = frozenset({"in", "library", "kernel"})
"""Columns of file names and kernels, folded at any character."""
_TEXTS = frozenset({"covers", "loaded by", "needs"})
"""Columns folded between words."""
_LEAST_NAME = 10  # columns


class Sheet(NamedTuple):
    """A table of text."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    numbers: frozenset[str] = frozenset()
    """Columns aligned right."""
    less_needed: tuple[str, ...] = ()
    """Columns that a narrow terminal may leave out, the least important first."""

    def showing(self, is_shown: Iterable[bool]) -> Sheet:
        """Return the table with only the columns for which `is_shown` is true, in order."""
        shown = list(is_shown)
        columns = tuple(itertools.compress(self.columns, shown))
        rows = [tuple(itertools.compress(row, shown)) for row in self.rows]
        return self._replace(columns=columns, rows=rows)


def print_sheet(table: Sheet) -> None:
    """Print a table on standard output; raise UsageError if rich is not installed."""
    # Imported here: it is half of the start-up time, and only tables need it.
    try:
        from rich.console import Console
    except ImportError as error:  # a copy of this package within a project, without rich
        raise UsageError("tables need the package 'rich'; install it, or use --json") from error

    is_terminal = sys.stdout.isatty()
    width = None if is_terminal else _WIDE
    # rich must not write to the stream: `printing` does.
    buffer = io.StringIO()
    console = Console(file=buffer, force_terminal=is_terminal, width=width, highlight=False)
    table = table._replace(rows=[tuple(map(printable, row)) for row in table.rows])
    terminal_width = console.width
    widths, left_out = _widths(table, terminal_width)
    table = table.showing(name in widths for name in table.columns)
    if len(table.rows) > _MOST_RULED:
        _print_plain(table)
    else:
        # Rows wider than the terminal overflow it: rich would cut them.
        console.width = max(terminal_width, sum(widths.values()) + _ruled_width(len(widths)))
        console.print(_ruled(table, widths))
    if left_out:
        console.width = max(terminal_width, _LEAST_NAME)
        console.print(
            f"  left out, as {terminal_width} columns have no room: {', '.join(left_out)} "
            "(a wider terminal, a pipe or --json has all)",
            markup=False,
        )
    lines = (line.rstrip() for line in buffer.getvalue().splitlines())
    print_text("".join(f"{line}\n" for line in lines), sys.stdout)


def _widths(table: Sheet, terminal_width: int) -> tuple[dict[str, int], list[str]]:
    """Return the widths of the shown columns, and the columns that are left out."""
    from rich.cells import cell_len

    columns = dict(zip(table.columns, zip(table.columns, *table.rows, strict=True), strict=True))
    widest = {name: max(map(cell_len, cells)) for name, cells in columns.items()}
    widths = dict(widest)
    for name in _NAMES & widths.keys():
        widths[name] = min(widest[name], _LEAST_NAME)
    for name in _TEXTS & widths.keys():
        widths[name] = max(cell_len(part) for cell in columns[name] for part in cell.split())
    left_out = []
    for name in table.less_needed:
        if sum(widths.values()) + _ruled_width(len(widths)) <= terminal_width:
            break
        if name in widths:
            left_out.append(name)
            del widths[name]
    room = terminal_width - sum(widths.values()) - _ruled_width(len(widths))
    folded = sorted(widths, key=lambda name: widest[name] - widths[name])
    for count, name in zip(range(len(folded), 0, -1), folded, strict=True):
        more = max(0, min(widest[name] - widths[name], room // count))
        widths[name] += more
        room -= more
    return widths, left_out


def _ruled_width(columns: int) -> int:
    """Return the terminal columns that rules and padding of a table take."""
    return 3 * columns + 1


def _ruled(table: Sheet, widths: dict[str, int]) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    title = Text(printable(table.title))  # rich would parse a string as markup
    ruled = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for name, width in widths.items():
        ruled.add_column(
            name,
            justify="right" if name in table.numbers else "left",
            style="cyan" if name == "target ID" else None,
            width=width,
            overflow="fold",
        )
    for row in table.rows:
        ruled.add_row(*map(Text, row))
    return ruled


def _print_plain(table: Sheet) -> None:
    rows = [table.columns, *table.rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = [">" if name in table.numbers else "<" for name in rows[0]]
    form = "  ".join(f"{{:{side}{width}}}" for side, width in zip(sides, widths, strict=True))
    print_lines(["", table.title, ""], sys.stdout)
    print_lines((f"  {form.format(*row)}".rstrip() for row in rows), sys.stdout)
    print_lines([""], sys.stdout)
