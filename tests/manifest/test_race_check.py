"""What a pass has read and found, although files change and other passes write beside it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from offload_tool.io.file_digests import CHANGED, DigestCache
from offload_tool.manifest.race_check import RaceCheck, Start
from tests.manifest.test_pass_run import shell

FOLDERS = ["one", "two", "first"]
SPELLINGS = ["one/x.h", "first/../one/x.h", "two/../one/../one/x.h", "./one/x.h"]
LAYOUT = """
mkdir -p one/lib/deep one/other/deep two first
touch one/x.h one/lib/x.h one/other/x.h one/lib/deep/x.h one/other/deep/x.h two/x.h
ln -s one link; ln -s link/lib place; ln -s ../one/x.h first/x.h
"""


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Make folders and headers just before a pass that knows three of the folders."""
    monkeypatch.chdir(tmp_path)
    shell(LAYOUT)
    return Start.now("marker", FOLDERS)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ("touch one/x.h", "one/x.h"),
        ("cp -p one/x.h copy; mv copy one/x.h", "one/x.h"),
        ("rm one/x.h", "one/x.h"),
        ("ln -sfn ../two/x.h first/x.h", "first/x.h"),
        ("ln -sfn two link", "link/x.h"),
        ("ln -sfn two link", "place/x.h"),
        ("mv one old; mv two one", "one/x.h"),
        ("mv one/lib old; mv one/other one/lib", "one/lib/x.h"),
        ("mv one/lib old; mv one/other one/lib", "one/lib/deep/x.h"),
        ("mv one/lib old; mv one/other one/lib", "place/deep/x.h"),
    ],
)
def test_change_during_a_pass(start: Start, change: str, name: str) -> None:
    """A file is not recorded as read if it, a link or a folder on its path changes."""
    assert RaceCheck(start).digest_as_read(name, DigestCache()) != CHANGED
    shell(change)
    assert RaceCheck(start).digest_as_read(name, DigestCache()) == CHANGED


@pytest.mark.parametrize("name", SPELLINGS)
def test_folder_that_others_write_into(start: Start, name: str) -> None:
    """Under each of its names it was there before: a new file in it changes its time alone."""
    Path("one/another.o").touch()
    assert RaceCheck(start).is_old(name, was_reachable=False)


@pytest.mark.parametrize("name", SPELLINGS)
def test_folder_that_came(start: Start, name: str) -> None:
    """Another folder of that name with an old header in it was not there before."""
    shell("mkdir new; mv one/x.h new/x.h")  # its own time of change is now
    later = Start.now("marker", FOLDERS)
    shell("mv one before; mv new one")
    assert not RaceCheck(later).is_old(name, was_reachable=False)
    assert not RaceCheck(start).is_old(name, was_reachable=False)


def test_folder_on_the_way(start: Start) -> None:
    """A name led nowhere before a folder on its way came, though it ends in a known folder."""
    Path("late").mkdir()
    assert not RaceCheck(start).is_old("late/../one/x.h", was_reachable=False)


def test_hard_link(start: Start) -> None:
    """A new hard link, as of another variant directory, is no change if the digest was known."""
    digests = DigestCache()
    digest = digests.digest("one/x.h")
    os.link("one/x.h", "two/another.h")
    assert RaceCheck(start).digest_as_read("one/x.h", digests) == CHANGED
    known = start._replace(digests={"one/x.h": digest})
    assert RaceCheck(known).digest_as_read("one/x.h", digests) == digest
