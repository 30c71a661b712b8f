"""The cut-off in ``offload-tool compile``, compared with a compile of one stage."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from offload_tool.io import process
from offload_tool.run import cut_off, driverless
from tests.cli.conftest import run, state
from tests.cli.test_compile import GFX906

SOURCE = """\
#include "h.h"
struct dim3 { unsigned x, y, z; };
extern "C" int hipLaunchKernel(const void*, dim3, dim3, void**, unsigned long, struct stream*);
__attribute__((global)) void kernel(float* p, float x) { *p = *p * x + scaled(*p); }
int host_value() { return 1; }
"""
HEADER = "static inline __attribute__((device)) float scaled(float x) { return x * 3.5f; }\n"
FLAGS = ("-nogpuinc", "-nogpulib", "-O2", "-I.")
FRONT_END, ONE_STAGE, TWO_STAGES = 1, 2, 3
"""Number of programs that run."""


@pytest.fixture
def compiled(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Return a function that compiles with flags, and returns the number of programs run."""
    monkeypatch.setattr(cut_off, "_TOO_SHORT", 0)
    jobs = []

    def counted(*arguments: Any) -> int:
        jobs.append(arguments)
        return process.run(*arguments)

    monkeypatch.setattr(driverless, "process", SimpleNamespace(run=counted))

    def call(*flags: str, words: tuple[str, ...] = ()) -> int:
        jobs.clear()
        assert run(*GFX906, *words, "--", *FLAGS, *flags) == 0
        count = len(jobs)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("OFFLOAD_CUTOFF", "0")
            words = tuple("clean.co" if word == "k.co" else word for word in GFX906)
            Path("clean.co").unlink(missing_ok=True)
            assert run(*words, "--", *FLAGS, *flags) == 0
        assert Path("k.co").read_bytes() == Path("clean.co").read_bytes()
        return count

    (folder / "h.h").write_text(HEADER)
    (folder / "k.hip").write_text(SOURCE)
    assert call() == ONE_STAGE
    (folder / "k.hip").write_text(SOURCE + "// the second compile is of two stages\n")
    assert call() == TWO_STAGES
    return call


def test_edits(compiled: Callable[..., int]) -> None:
    """If device code does not change, only the front end runs, and the output stays untouched."""
    before = state("k.co")
    for name, text in (
        ("k.hip", SOURCE + "// another comment\n"),
        ("k.hip", SOURCE.replace("return 1", "return 2")),
        ("h.h", HEADER + "// a comment\n"),
        ("h.h", HEADER + "static inline __attribute__((device)) int unused() { return 9; }\n"),
    ):
        Path(name).write_text(text)
        assert compiled(words=("--depfile", "k.d", "--stamp", "k.stamp")) == FRONT_END
        assert state("k.co") == before
        assert "h.h" in Path("k.d").read_text()
        assert compiled() == 0
    Path("h.h").write_text(HEADER.replace("3.5", "4.5"))
    assert compiled() == TWO_STAGES
    assert state("k.co") != before
    Path("k.hip").write_text(SOURCE.replace("* x +", "* x -"))
    assert compiled() == TWO_STAGES
    assert compiled("-O3") == TWO_STAGES
    assert compiled("-O3", "-DX=1") == TWO_STAGES
    for flag in ("-ffast-math", "-ffp-contract=fast", "-O0"):
        assert compiled(flag) == ONE_STAGE
