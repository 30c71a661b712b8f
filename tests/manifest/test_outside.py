"""What passes have read outside of the folder of the build: told in full, judged once."""

from __future__ import annotations

from pathlib import Path

import pytest

from offload_tool.io.file_digests import DigestCache
from offload_tool.manifest.include_search import Lookups
from offload_tool.manifest.key import Key, Part
from offload_tool.manifest.manifest import (
    Inputs,
    PassRecord,
    State,
    files_in_order,
    judge,
    read_record,
    record_pass_result,
    write_record,
)
from offload_tool.manifest.race_check import Start

KEY = Key({Part.COMMAND: "1"})


@pytest.fixture
def toolkit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with headers outside of the current one, which has a pass's record `m`."""
    (tmp_path / "build").mkdir()
    monkeypatch.chdir(tmp_path / "build")
    folder = tmp_path / "toolkit"
    folder.mkdir()
    for name in ("k.hip", "k.co", "own.h", str(folder / "a.h"), str(folder / "b.h")):
        Path(name).write_text(name)
    _record("m", ["k.hip", f"{folder}/b.h", "own.h", f"{folder}/a.h"], folder)
    return folder


def _record(file: str, read: list[str], folder: Path) -> None:
    start, digests = Start.now("marker"), DigestCache()
    lookups = Lookups(("", str(folder)), ("k.hip", "own.h"), (), outside=("a.h", "b.h"))
    write_record(
        file, record_pass_result(KEY, read, lookups, "k.co", start, digests), digests, "k.co"
    )


def _read(digests: DigestCache, file: str = "m") -> PassRecord:
    record = read_record(file, digests, "k.co")
    assert record is not None
    return record


def _state(digests: DigestCache) -> State:
    return judge(_read(digests), KEY, digests, "k.co").state


def test_order(toolkit: Path) -> None:
    """The files are told in the order in which they were read."""
    names = ["k.hip", f"{toolkit}/b.h", "own.h", f"{toolkit}/a.h"]
    assert files_in_order(_read(DigestCache())) == names


def test_equal_texts_are_one(toolkit: Path) -> None:
    """What two passes have read outside is one object where it is the same, and else is not."""
    _record("same", ["own.h", f"{toolkit}/b.h", f"{toolkit}/a.h"], toolkit)
    _record("other", ["own.h", f"{toolkit}/b.h"], toolkit)
    found = [_read(DigestCache(), name).inputs for name in ("m", "same", "other")]
    outside = [inputs.outside for inputs in found if isinstance(inputs, Inputs)]
    assert outside[0] is outside[1]
    assert outside[0] is not outside[2]


def test_looked_at_once(toolkit: Path) -> None:
    """A folder that no build writes to is looked at once, until it is looked at again."""
    digests = DigestCache(str(toolkit).__eq__)
    assert _state(digests) is State.CURRENT
    (toolkit / "a.h").write_text("other")
    assert _state(digests) is State.CURRENT
    digests.clear_listings()
    assert _state(digests) is State.OUTDATED


def test_looked_at_each_time(toolkit: Path) -> None:
    """A header in any other folder is looked at for each pass, and so by who has to look now."""
    once = DigestCache(str(toolkit).__eq__)
    each = DigestCache()
    assert _state(each) is _state(once) is State.CURRENT
    (toolkit / "a.h").write_text("other")
    assert _state(each) is _state(once.with_current_listings()) is State.OUTDATED


def test_appeared_outside(toolkit: Path) -> None:
    """A header that appears under a name of one outside, in a folder of the build, is seen."""
    digests = DigestCache(str(toolkit).__eq__)
    assert _state(digests) is State.CURRENT
    Path("a.h").write_text("")
    assert _state(digests) is State.UNSURE
