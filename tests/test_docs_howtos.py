"""Pages that are followed step by step, run as printed in an empty folder."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from offload_tool.errors import CompilerError, UsageError
from offload_tool.passes.choose_compiler import find_toolchain
from offload_tool.run.validate_flags import check_flags
from offload_tool.scons.variables import VARIABLES
from tests.conftest import ROOT, NvidiaFile, missing, program, try_tool

BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


HOWTOS = ROOT / "docs/howto"
ELSEWHERE = {"index", "sharding"}
"""Pages without steps, or with a workflow that tests/scons/test_shards.py runs."""
PAGES = [
    ROOT / "docs/tutorial.md",
    *(page for page in sorted(HOWTOS.glob("*.md")) if page.stem not in ELSEWHERE),
]


def run(command: str, folder: Path) -> list[str]:
    """Return what a command prints, on both streams."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "COLUMNS": "100"}
    done = try_tool("sh", "-c", f"{command} 2>&1", cwd=folder, env=environment)
    return done.stdout.splitlines()


def fits(line: str, expected: str) -> bool:
    """Return whether a line is as printed; three dots stand for anything."""
    return re.fullmatch(re.escape(expected).replace(r"\.\.\.", ".*"), line) is not None


def assert_as_printed(given: list[str], expected: list[str]) -> None:
    """Check output line by line; a line of three dots stands for any number of lines."""
    position, is_open = 0, False
    for line in expected:
        if line == "...":
            is_open = True
            continue
        rest = given[position:] if is_open else given[position : position + 1]
        found = next((at for at, each in enumerate(rest) if fits(each, line)), None)
        assert found is not None, f"{line!r} is not in {given[position:]}"
        position, is_open = position + found + 1, False
    assert is_open or position == len(given), given[position:]


def needed_by_a_page(page: str) -> None:
    """Skip a page whose compiler or runtime this machine lacks."""
    try:
        find_toolchain()
    except CompilerError as error:
        missing(f"a compiler ({error})")
    if page == "openmp" and not list(Path("/usr/lib").glob("llvm-*/lib/libomptarget.so")):
        missing("LLVM's offload runtime (liboffload-dev, libomp-dev)")
    if page == "assembly" and not shutil.which("clang-22"):
        missing("clang-22")
    if page in {"cmake", "meson"}:
        for name in (page, "ninja", "clang++-22"):
            program(name)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nvidia: NvidiaFile
) -> None:
    needed_by_a_page(page.stem)
    if page.stem == "cuda":
        monkeypatch.setenv("CUDA_PATH", str(nvidia("ptxas").parents[1]))
    steps = 0
    for language, name, text in BLOCK.findall(page.read_text()):
        if name:
            (tmp_path / name).write_text(text)
        elif language == "console":
            for step in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
                command, *expected = step.splitlines()
                assert_as_printed(run(command, tmp_path), expected)
                steps += 1
    assert steps > 1


def test_every_page_is_in_the_index() -> None:
    index = (HOWTOS / "index.md").read_text()
    names = {page.stem for page in HOWTOS.glob("*.md")} - {"index"}
    assert {*re.findall(r"\((\w[\w-]*)\.md\)", index)} == names
    assert {*re.findall(r"^([\w-]+)$", index.partition("{toctree}")[2], re.MULTILINE)} == names


def test_other_tools() -> None:
    """Flags of other tools are answered, and the variables in their place exist."""
    page = (ROOT / "docs/coming-from.md").read_text()
    assert {*re.findall(r"OFFLOAD_[A-Z_]+", page)} <= {*VARIABLES}
    for flag in ("-arch=sm_80", "-Xcompiler", "-rdc=true", "-fgpu-rdc", "--offload-arch=gfx906"):
        with pytest.raises(UsageError, match="among the flags"):
            check_flags([flag])
