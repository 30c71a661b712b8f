"""docs/launch.md: each row of its table is run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.launch.compiles import CUID, LAUNCH, TARGETS, make_project, run

PAGE = (ROOT / "docs/launch.md").read_text()
ROWS = re.findall(r"^\| `(.+)` \| (split|passed through) \| ", PAGE, re.MULTILINE)


@pytest.mark.llvm
@pytest.mark.parametrize(("command", "done"), ROWS)
def test_row(command: str, done: str, tmp_path: Path, llvm: Callable[[str], str]) -> None:
    """A command is split or passed through, as its row says, and does what the compiler does."""
    make_project(tmp_path)
    (tmp_path / "other.hip").write_text("")
    (tmp_path / "plain.cpp").write_text("int main() {}\n")
    clang = llvm("clang++")
    run([clang, "-c", "plain.cpp", "-o", "s.o"], tmp_path)
    flags = ["-nogpuinc", "-nogpulib", CUID, *TARGETS] if ".hip" in command else []
    ours = run([*LAUNCH, clang, *flags, *shlex.split(command)], tmp_path)
    assert ours.stderr.startswith(f"offload-tool launch: {done}: ")
    assert ours.returncode == 0, ours.stderr


def test_both_sorts_are_there() -> None:
    """The table has rows of both sorts."""
    assert len(ROWS) == PAGE.count("| split |") + PAGE.count("| passed through |")
    assert {done for _, done in ROWS} == {"split", "passed through"}
