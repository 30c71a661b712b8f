"""A driver that is asked removes what a compile has written, unless it is not told of that."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from offload_tool.clang.driver import front_end_jobs
from offload_tool.clang.temporary_outputs import without_removed

COMPILE = (sys.executable, "-m", "offload_tool", "compile")


def test_words() -> None:
    """They go with their values, others stay; a response file that is missing is a word."""
    words = ["c", "-MJ", "a.json", "-O1", "-MJb.json", "--serialize-diagnostics", "d", "-MD", "@no"]
    assert without_removed(words) == ["c", "-O1", "-MD", "@no"]
    assert without_removed(["c", "-O1", "@no"]) == ["c", "-O1", "@no"]


def test_response_file(tmp_path: Path) -> None:
    """Words in a response file count, too."""
    (tmp_path / "words").write_text("-g -MJ a.json -O1")
    assert without_removed(["c", f"@{tmp_path}/words", "-w"]) == ["c", "-g", "-O1", "-w"]


@pytest.mark.llvm
@pytest.mark.parametrize("words", [["-MJ", "report"], ["--serialize-diagnostics", "report"]])
def test_question(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    llvm: Callable[[str], str],
) -> None:
    """A question lets a report be."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "report").write_text("written")
    assert front_end_jobs([llvm("clang"), "-c", "-x", "c", *words], dict(os.environ))
    assert (tmp_path / "report").exists()


@pytest.mark.llvm
@pytest.mark.parametrize(
    "words", [["-MJ", "report"], ["-MJreport"], ["-serialize-diagnostics", "report"], ["@words"]]
)
def test_report_of_a_compile(words: list[str], tmp_path: Path, llvm: Callable[[str], str]) -> None:
    """It is there after the first compile, for which the driver is asked, and after the second."""
    (tmp_path / "s.hip").write_text("__attribute__((global)) void kernel() {}\n")
    (tmp_path / "words").write_text("-MJ report")
    command = [*COMPILE, "s.hip", "-o", "k.o", "--target-id", "gfx906", "--depfile", "k.d"]
    for _ in range(2):
        subprocess.run(
            [*command, "--", "-nogpuinc", "-nogpulib", *words],
            cwd=tmp_path,
            env={**os.environ, "OFFLOAD_CLANG": llvm("clang")},
            check=True,
        )
        (tmp_path / "report").unlink()
