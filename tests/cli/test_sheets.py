"""Tables on narrow terminals."""

from __future__ import annotations

import re
import sys

import pytest

from offload_tool.cli.list import KERNELS_LESS_NEEDED
from offload_tool.cli.tables import Sheet, print_sheet
from tests.conftest import Capture

ID = "gfx90a:sramecc+:xnack-"
NUMBERS = ("1,048,576", "65,536", "12,345")
KERNEL = "void ns::reduce<float, 128>(float const*, float*, std::array<unsigned long, 4ul>)"
COLUMNS = ("in", "target ID", "code (bytes)", "LDS", "scratch", "kernel")


def printed_at(width: int, table: Sheet, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> str:
    """Return the output for a terminal of that width, without styles."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(width))
    print_sheet(table)
    return re.sub("\x1b\\[[0-9;]*m", "", capsys.readouterr().out)


@pytest.mark.parametrize("rows", [1, 2001], ids=["ruled", "plain"])
def test_numbers_and_ids_are_whole(
    rows: int, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """At each width, numbers and IDs are whole, and a note lists the columns left out."""
    row = ("lib/python3/site-packages/libsomething.so", ID, *NUMBERS, KERNEL)
    numbers = frozenset(COLUMNS[2:5])
    table = Sheet("a.so", COLUMNS, [row] * rows, numbers, KERNELS_LESS_NEEDED)
    seen = set()
    for width in range(20, 201) if rows == 1 else (60, 100):
        whole = printed_at(width, table, monkeypatch, capsys)
        printed, _, note = whole.partition("  left out")
        left_out = " ".join(note.split()).partition("room: ")[2].partition(" (a wider")[0]
        dropped = set(left_out.split(", ")) if note else set()
        for name, cell in zip(COLUMNS[1:5], row[1:5], strict=True):
            assert (cell in printed) == (name not in dropped), (width, name)
        assert "…" not in printed
        assert rows > 1 or max(map(len, printed.splitlines())) <= width
        seen.add(frozenset(dropped))
    assert len(seen) > 1


def test_overflow(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    """The last column overflows a terminal that is narrower than its IDs."""
    table = Sheet("a.so", ("triple", "target ID"), [("x", ID)], less_needed=("triple",))
    assert ID in printed_at(20, table, monkeypatch, capsys)


def test_pipe(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    """In a pipe, rows are whole lines with all columns, whatever COLUMNS is."""
    monkeypatch.setenv("COLUMNS", "40")
    print_sheet(Sheet("a.so", ("in", "kernel"), [("p" * 150, KERNEL)], less_needed=("in",)))
    printed = capsys.readouterr().out
    assert f"{'p' * 150}   {KERNEL}" in printed
    assert "left out" not in printed
