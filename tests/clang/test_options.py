"""The table of clang's options: clang knows each, and all that ask agree."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from offload_tool.clang import options
from offload_tool.clang.options import (
    BESIDE,
    ELSEWHERE,
    LIBRARY,
    LINKER,
    NEXT,
    WRITES,
    beginnings,
    does,
    values,
)
from offload_tool.manifest.output_state import WRITES_FILES
from offload_tool.sccache_dist.eligibility import why_local

ASKED_OTHERWISE = {
    *("--load-pass-plugin", "--library", "-l"),  # of linkers
    *("--autocomplete", "-cc1", "@"),  # used below, and in each build
}
NAMES = [name for name, bits in options._OPTIONS.items() if not bits & LINKER]


@pytest.mark.llvm
@pytest.mark.parametrize("name", [name for name in NAMES if name not in ASKED_OTHERWISE])
def test_clang_knows_it(llvm: Callable[[str], str], name: str) -> None:
    """Clang completes it, or takes it (some spellings are not completed)."""
    clang = llvm("clang")

    def said(*words: str) -> str:
        done = subprocess.run([clang, *words], capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    for word in (name, f"-cc1,{name}"):
        if any(line.startswith(name) for line in said(f"--autocomplete={word}").splitlines()):
            return
    if options._OPTIONS[name] & WRITES:
        assert "unknown argument" not in said(
            "-cc1", "-Eonly", f"{name}/dev/null", "-x", "c", "/dev/null"
        )
        return
    assert "unknown argument" not in said("-###", name, "-x", "c", "-c", "/dev/null")


@pytest.mark.parametrize("name", beginnings(BESIDE | ELSEWHERE | LINKER))
def test_what_writes_stays(name: str) -> None:
    """A compile that writes another file is not kept without it, nor sent to another machine."""
    assert does(name, WRITES_FILES)
    command = ["clang++", "--cuda-device-only", "-x", "hip", "-c", "k.hip", "-o", "k.o"]
    assert why_local(command) == ""
    said = why_local([*command, name])
    assert "on the server" in said or name.endswith("-dependency-file")


@pytest.mark.llvm
def test_which_take_the_next_word(tmp_path: Path, llvm: Callable[[str], str]) -> None:
    """Clang says of each option that takes the next word, and of no other, that it is missing."""
    (tmp_path / "a.c").write_text("int x;\n")
    command = [llvm("clang"), "-###", "-c", "a.c"]

    def wants_value(option: str) -> bool:
        words = [*command, option]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        return f"argument to '{option}' is missing" in done.stderr

    wanting = {name for name in options._OPTIONS if wants_value(name)}
    taking = {name: bits for name, bits in options._OPTIONS.items() if bits & NEXT}
    assert wanting <= taking.keys()
    of_jobs = taking.keys() - wanting
    assert of_jobs
    for name in of_jobs:
        assert taking[name] & WRITES
        done = subprocess.run(
            [command[0], "-cc1", name], capture_output=True, text=True, check=False
        )
        assert f"argument to '{name}' is missing" in done.stderr


def test_values() -> None:
    """A value is the next word, or behind the name, as the driver's plan has it."""
    job = ["-cc1", "-split-dwarf-output", "k.dwo", "-ftime-trace=k.json", "-o", "k.o"]
    assert [*values(job, WRITES)] == ["k.dwo", "k.json"]
    assert [*values(job, LIBRARY)] == []
