"""What a pass has found, although other passes write into the same folders beside it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from offload_tool.manifest.race_check import RaceCheck, Start

SPELLINGS = ["one/x.h", "first/../one/x.h", "two/../one/../one/x.h", "./one/x.h"]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Make three folders and a header, a while before a pass that knows these folders."""
    monkeypatch.chdir(tmp_path)
    for folder in ("one", "two", "first"):
        (tmp_path / folder).mkdir()
    (tmp_path / "one/x.h").touch()
    time.sleep(0.02)
    return Start.now("marker", [], ["one", "two", "first"])


@pytest.mark.parametrize("name", SPELLINGS)
def test_folder_that_others_write_into(start: Start, tmp_path: Path, name: str) -> None:
    """Under each of its names it was there before: a new file in it changes its time alone."""
    (tmp_path / "one/another.o").touch()
    assert RaceCheck(start).was_there(name)


@pytest.mark.parametrize("name", SPELLINGS)
def test_folder_that_came(start: Start, tmp_path: Path, name: str) -> None:
    """Another folder of that name with an old header in it was not there before."""
    (tmp_path / "other").mkdir()
    (tmp_path / "one/x.h").rename(tmp_path / "other/x.h")  # its own time of change is now
    time.sleep(0.02)
    later = Start.now("marker", [], ["one", "two", "first"])
    (tmp_path / "one").rename(tmp_path / "before")
    (tmp_path / "other").rename(tmp_path / "one")
    assert not RaceCheck(later).was_there(name)
    assert not RaceCheck(start).was_there(name)


def test_folder_on_the_way(start: Start, tmp_path: Path) -> None:
    """A name led nowhere before a folder on its way came, though it ends in a known folder."""
    (tmp_path / "late").mkdir()
    assert not RaceCheck(start).was_there("late/../one/x.h")
