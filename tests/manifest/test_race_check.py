"""What a pass has found, although other passes write into the same folders beside it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from offload_tool.io.file_digests import CHANGED, Fingerprints
from offload_tool.manifest.race_check import RaceCheck, Start

SPELLINGS = ["one/x.h", "first/../one/x.h", "two/../one/../one/x.h", "./one/x.h"]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Make three folders and a header just before a pass that knows these folders."""
    monkeypatch.chdir(tmp_path)
    for folder in ("one", "two", "first"):
        (tmp_path / folder).mkdir()
    (tmp_path / "one/x.h").touch()
    return Start.now("marker", ["one", "two", "first"])


@pytest.mark.parametrize("name", SPELLINGS)
def test_folder_that_others_write_into(start: Start, tmp_path: Path, name: str) -> None:
    """Under each of its names it was there before: a new file in it changes its time alone."""
    (tmp_path / "one/another.o").touch()
    assert RaceCheck(start).is_old(name, was_reachable=False)


@pytest.mark.parametrize("name", SPELLINGS)
def test_folder_that_came(start: Start, tmp_path: Path, name: str) -> None:
    """Another folder of that name with an old header in it was not there before."""
    (tmp_path / "other").mkdir()
    (tmp_path / "one/x.h").rename(tmp_path / "other/x.h")  # its own time of change is now
    later = Start.now("marker", ["one", "two", "first"])
    (tmp_path / "one").rename(tmp_path / "before")
    (tmp_path / "other").rename(tmp_path / "one")
    assert not RaceCheck(later).is_old(name, was_reachable=False)
    assert not RaceCheck(start).is_old(name, was_reachable=False)


def test_folder_on_the_way(start: Start, tmp_path: Path) -> None:
    """A name led nowhere before a folder on its way came, though it ends in a known folder."""
    (tmp_path / "late").mkdir()
    assert not RaceCheck(start).is_old("late/../one/x.h", was_reachable=False)


def test_hard_link(start: Start, tmp_path: Path) -> None:
    """A new hard link, as of another variant directory, is no change if the digest was known."""
    prints = Fingerprints()
    digest = prints.digest("one/x.h")
    os.link("one/x.h", "two/x.h")
    assert RaceCheck(start).digest_as_read("one/x.h", prints) == CHANGED
    known = start._replace(digests={"one/x.h": digest})
    assert RaceCheck(known).digest_as_read("one/x.h", prints) == digest
