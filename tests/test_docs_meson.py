"""docs/meson.md: what it quotes is in the examples, and its Ninja rule builds."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.conftest import ROOT, run_tool
from tests.test_meson import PAGE, ROWS, compiles_since, counting_environment, program

BLOCKS = re.findall(r"^```(\S+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
MESON = ROOT / "examples/meson_saxpy"
NODES = (MESON / "nodes/meson.build").read_text()
EXAMPLES = {
    "meson": (MESON / "meson.build").read_text() + NODES,
    "make": (ROOT / "examples/make_saxpy/Makefile").read_text(),
}


@pytest.mark.parametrize("language", EXAMPLES)
def test_quotations(language: str) -> None:
    """Each quoted piece of an example is in its file, in the order of the file."""
    text = EXAMPLES[language]
    position = 0
    pieces = [block for name, block in BLOCKS if name == language]
    assert pieces
    for piece in pieces:
        found = text.find(piece, position)
        assert found >= 0, piece
        position = found + len(piece)


def test_nothing_of_the_example_is_left_out() -> None:
    """The lines of the nodes that are not quoted are the first one, loops and comments."""
    quoted = "".join(block for name, block in BLOCKS if name == "meson").splitlines()
    lines = [line for line in NODES.splitlines() if line.strip()]
    left = [line.strip() for line in lines if line not in quoted and line.strip()[0] != "#"]
    loops = ("project(", "foreach", "endforeach", "objects = []", "images = []", "entries = [")
    assert [line for line in left if not line.startswith(loops)] == []


def test_every_row_is_tested() -> None:
    """The table of the page has the rows that tests/test_meson.py runs, and no others."""
    table = re.search(r"^\| change \|.*\n\|-.*\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    assert table is not None
    assert {row.split("|")[1].strip() for row in table[1].splitlines()} == set(ROWS)


def test_ninja_rule(tmp_path: Path) -> None:
    """The Ninja rule builds, builds nothing twice, and follows headers."""
    (rules,) = [block for name, block in BLOCKS if name == "ninja"]
    (tmp_path / "build.ninja").write_text(rules)
    shutil.copy(ROOT / "examples/saxpy/saxpy.hip", tmp_path / "k.hip")
    header = tmp_path / "hip_declarations.h"
    shutil.copy(ROOT / "examples/saxpy/hip_declarations.h", header)
    environment = counting_environment(tmp_path)

    def build() -> list[str]:
        run_tool(program("ninja"), cwd=tmp_path, env=environment)
        return compiles_since(tmp_path)

    assert build() == ["k gfx90a:xnack+", "k host"]
    assert build() == []
    header.write_text(header.read_text() + "// a comment\n")
    assert build() == ["k gfx90a:xnack+", "k host"]
    assert build() == []
