"""Random edits of sources with precompiled headers: one fixed seed, and whether the judge sees."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.driver.beginnings import Beginnings, WrongError

SEED, STEPS = 20, 6


@pytest.fixture
def wrong(tmp_path: Path, clang: Path) -> str:
    """Return a compiler that makes something else with a precompiled header."""
    script = tmp_path / "clang"
    script.write_text(
        f'#!/bin/sh\ncase "$*" in *-include-pch*) set -- -DTHIRD=9 -w "$@";; esac\n'
        f'exec {clang} "$@"\n'
    )
    script.chmod(0o755)
    return str(script)


def test_random_edits(tmp_path: Path, clang: Path) -> None:
    """After each change, all is as the compiler makes it without precompiled headers."""
    trial = Beginnings(SEED, tmp_path / "project", str(clang))
    trial.run(STEPS)
    assert trial.used
    assert trial.compared


def test_the_judge_sees_a_wrong_precompiled_header(tmp_path: Path, wrong: str) -> None:
    """A compiler that makes something else with a precompiled header is found out."""
    with pytest.raises(WrongError, match="not what the compiler makes"):
        Beginnings(SEED, tmp_path / "project", wrong).build()


def test_check_sees_it_too(tmp_path: Path, wrong: str) -> None:
    """``OFFLOAD_PCH_CHECK`` finds such a compile by itself, and names the output."""
    with pytest.raises(WrongError, match=r"k\d\.\S+': with a precompiled header it has other"):
        Beginnings(SEED, tmp_path / "project", wrong, check=1).build()
