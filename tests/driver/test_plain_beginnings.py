"""Random edits of C and C++ sources with precompiled headers: fixed seeds, and whether it sees."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.driver.beginnings import WrongError
from tests.driver.plain_beginnings import PlainBeginnings
from tests.driver.test_driver import clang

__all__ = ["clang"]

_WRONG = """\
from offload_tool.compiler import pch
words = pch.UsablePch.words
pch.UsablePch.words = lambda usable: [*words(usable), "-DTHIRD=9", "-w"]
"""


@pytest.mark.parametrize("seed", [3, 4])
def test_random_edits(tmp_path: Path, clang: Path, seed: int) -> None:
    """After each change, both folders are alike, in C and in C++."""
    trial = PlainBeginnings(seed, tmp_path / "project", str(clang))
    trial.run(4)
    assert trial.used
    assert trial.compared


def test_the_judge_sees_a_wrong_precompiled_header(tmp_path: Path, clang: Path) -> None:
    """A compile that makes something else with a precompiled header is found out."""
    trial = PlainBeginnings(4, tmp_path / "project", str(clang))
    trial.script = _WRONG + trial.script
    trial._save()
    with pytest.raises(WrongError, match=r"not alike: .*k0\.o"):
        trial.build()
