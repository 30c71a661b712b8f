"""Random compositions of constructs, the table in the documentation, and whether the judge sees."""

from __future__ import annotations

import os
import random
import re
from pathlib import Path

import pytest

from offload_tool.pch import pch
from tests.conftest import ROOT
from tests.pch_constructs.compositions import Composition, alone, composed
from tests.pch_constructs.constructs import CONSTRUCTS
from tests.pch_constructs.projects import Project
from tests.pch_constructs.trial import Trial

SEED = 3
GROUPS, IN_EACH = (5, 13) if os.environ.get("CI") else (2, 12)
"""With the constructs of the table, 205 in CI; each takes a fifth of a second."""
_PAGE = (ROOT / "docs/precompiled-headers.md").read_text()


def _rows() -> dict[str, str]:
    """Return what the tables of the page say of each construct: kept or refused."""
    found = {}
    for row in re.findall(r"(?m)^\|.*\|$", _PAGE):
        for verdict, names in re.findall(r"\b(kept|refused)[^:;|]*: (`[^|;]*)", row):
            found.update(dict.fromkeys(re.findall(r"`(\w+: [^`]+)`", names), verdict))
    return found


ROWS = _rows()


def _composition(number: int) -> Composition:
    return composed(random.Random(f"{SEED} {number}"), list(CONSTRUCTS))


@pytest.fixture
def trial(tmp_path: Path, clang: Path, monkeypatch: pytest.MonkeyPatch) -> Trial:
    monkeypatch.setenv("OFFLOAD_CLANG", str(clang))
    return Trial(tmp_path)


@pytest.mark.parametrize("group", range(GROUPS))
def test_compositions(trial: Trial, group: int) -> None:
    """Each composition has the same bytes and messages with a PCH, or none, for a reason."""
    for number in range(group * IN_EACH, (group + 1) * IN_EACH):
        composition = _composition(number)
        outcome = trial.judge(composition)
        assert outcome.what != "different", (
            f"{composition}\n{outcome.why}\n\nOnce more: python -m tests.pch_constructs "
            f"--seed {SEED} --only {number} --keep FOLDER"
        )


def test_project(tmp_path: Path, clang: Path) -> None:
    """Through SCons it is so; a second checkout gets from a CacheDir what it would make."""
    named = alone("gnu: builtin file in a template", "hip", "host")
    project = Project(tmp_path, [named, _composition(5), _composition(7)], str(clang))
    assert project.judge() == []
    assert project.used()


@pytest.mark.parametrize("name", ROWS)
def test_table(trial: Trial, name: str) -> None:
    """Each construct that a table of the documentation names is kept or refused as it says."""
    stage = "device" if "implicit host device" in name or _is_of_devices(name) else "host"
    outcome = trial.judge(alone(name, "hip", stage))
    assert outcome.what == {"kept": "same", "refused": "refused"}[ROWS[name]], outcome


def _is_of_devices(name: str) -> bool:
    return bool(re.search(rf"refused for devices: [^|;]*`{re.escape(name)}`", _PAGE))


def test_page_counts() -> None:
    """The documentation says how many constructs there are."""
    assert f"composes {len(CONSTRUCTS)} constructs" in " ".join(_PAGE.split())


def test_the_judge_sees_another_output(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    """A PCH with which something else comes out is found out."""
    args = pch.UsablePch.args
    wrong = ["-DNUMBER=2", "-w"]
    monkeypatch.setattr(pch.UsablePch, "args", lambda usable: [*args(usable), *wrong])
    composition = alone("standard: inline function", "hip", "host")
    composition.files["k.hip"] += "#ifdef NUMBER\nint more;\n#endif\n"
    assert trial.judge(composition).what == "different"
