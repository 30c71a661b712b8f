"""The record of a pass is read as it was written; `test_pass_run` has the verdicts."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offload_tool.io.file_digests import DigestCache
from offload_tool.manifest import manifest_path
from offload_tool.manifest.include_search import Lookups
from offload_tool.manifest.key import Cause, Key, Part, Reason
from offload_tool.manifest.manifest import (
    Inputs,
    OutputRecord,
    PassRecord,
    State,
    files_in_order,
    judge,
    read_output_record,
    read_record,
    record_pass_result,
    write_output_record,
    write_record,
)
from offload_tool.manifest.race_check import Start

KEY = Key({Part.COMMAND: "1", Part.COMPILER: "2"}, {"flags.txt": ""})
TEXTS = st.text(st.characters(exclude_characters="\0"), max_size=8)
DIGESTS = st.text("0123456789abcdef", min_size=1, max_size=32)
TUPLES = st.lists(TEXTS, max_size=3).map(tuple)
RECORDS = st.builds(
    PassRecord,
    st.builds(Key, st.dictionaries(TEXTS, TEXTS, max_size=4), st.dictionaries(TEXTS, DIGESTS)),
    st.dictionaries(TEXTS, DIGESTS, max_size=4),
    st.builds(Lookups, TUPLES, TUPLES, TUPLES, st.booleans()),
    DIGESTS,
    why=st.none() | st.builds(Reason, st.sampled_from(Cause), TEXTS, TEXTS),
    earlier=st.tuples(st.dictionaries(TEXTS, DIGESTS)),
)
VALUE = {
    "version": 10,
    "key": {},
    "files": {},
    "inputs": {},
    "places": [],
    "lookups": Lookups()._asdict(),
    "output": "",
    "beside": {},
    "same files": {},
    "same folders": {},
    "why": None,
    "bitcode": "",
    "earlier": [],
}
"""An empty record, as JSON."""
OUTSIDE = '{"inputs": {"/a": "1"}, "names": []}'


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PassRecord:
    """Return the record of a pass that has read two files of the current folder."""
    monkeypatch.chdir(tmp_path)
    for name in ("k.hip", "include/k.h", "k.co"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(name)
    start = Start.now("marker")
    lookups = Lookups(("", "include"), ("k.h", "sub/k.h"), ())
    names = ["k.hip", "include/k.h"]
    return record_pass_result(KEY, names, lookups, "k.co", start, DigestCache())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder for all examples of a test."""
    return tmp_path_factory.mktemp("records")


@given(record=RECORDS)
def test_round_trip(folder: Path, record: PassRecord) -> None:
    """A record is read as it was written, whatever its texts are."""
    path = str(folder / "m")
    write_record(path, record, DigestCache(), None)
    assert read_record(path, DigestCache()) == record


def test_looks_are_kept(made: PassRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was digested once is believed by the next run, without reading."""
    digests = DigestCache()
    time.sleep(0.05)
    for name in (*made.inputs, "k.co"):
        digests.digest(name)
    write_record("m", made, digests, "k.co")
    monkeypatch.setattr("offload_tool.io.file_digests.digest_of_file", lambda _: "read again")
    fresh = DigestCache()
    record = read_record("m", fresh, "k.co")
    assert judge(record, KEY, fresh, "k.co").state is State.CURRENT


@settings(max_examples=20)
@given(
    passes=st.dictionaries(TEXTS, RECORDS, max_size=3),
    texts=st.dictionaries(TEXTS, TEXTS),
    data=st.data(),
)
def test_round_trip_of_an_output(
    folder: Path, passes: dict[str, PassRecord], texts: dict[str, str], data: st.DataObject
) -> None:
    """So is the record of an output that several passes make; one that is cut is none.

    Whatever else is done to it, reading it raises nothing.
    """
    path = folder / "o"
    record = OutputRecord("digest", passes, texts)
    write_output_record(str(path), record, DigestCache(), "k.o")
    assert read_output_record(str(path), DigestCache(), "k.o") == record
    first, *others = path.read_text().splitlines(keepends=True)
    other = first.replace('"version": ', '"version": 9')
    content = path.read_bytes()
    for damaged in ([first, *others[:-1]], others, [other, *others], [first]):
        path.write_text("".join(damaged))
        assert read_output_record(str(path), DigestCache(), "k.o") is None
    at = data.draw(st.integers(0, len(content) - 1))
    piece = data.draw(st.sampled_from([b"", b"\0", b"[", b"\n", b"null", b"{}", b"1e999"]))
    path.write_bytes(content[:at] + piece + content[at + 1 :])
    read_output_record(str(path), DigestCache(), "k.o")


def test_part_of_a_key() -> None:
    """A key without a part has the others, and its files."""
    assert KEY.without(Part.COMMAND) == Key({Part.COMPILER: "2"}, KEY.files)


@given(data=st.data())
def test_broken_records(folder: Path, data: st.DataObject) -> None:
    """A record with any byte changed, or cut off, is none or is one of the same shape."""
    path = folder / "broken"
    record = data.draw(RECORDS)
    write_record(str(path), record, DigestCache(), None)
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content[at] ^= data.draw(st.integers(1, 255))
    else:
        del content[at:]
    path.write_bytes(content)
    read = read_record(str(path), DigestCache(), "k.co")
    assert read is None or all(
        isinstance(text, str)
        for text in (
            *(*read.key.parts, *read.key.parts.values(), *read.key.files.values()),
            *(*read.inputs.values(), *read.lookups.names),
        )
    )
    assert read is None or at > 0


@pytest.mark.parametrize(
    "value",
    [
        *(None, [], 1, "text", {}, {"version": 2}, "[" * 200_000),
        VALUE | {"version": 1},
        VALUE | {"key": []},
        VALUE | {"inputs": {"a": 1}, "places": [0]},
        VALUE | {"inputs": {"a": "1"}},
        VALUE | {"inputs": {"/a": "1"}, "places": [0]},
        VALUE | {"lookups": {}},
        VALUE | {"output": 1},
        *(VALUE | {"why": why} for why in ("", ["UNKNOWN", "", ""], ["KEY", ""])),
        *((VALUE, text) for text in ("{}", "[]", '{"inputs": {}, "names": 1}', '{"inputs": 1}')),
    ],
    ids=lambda value: str(value)[:60],
)
def test_other_json(tmp_path: Path, value: object) -> None:
    """JSON that is not a record of this version, with its line of what is outside, is none."""
    value, outside = value if isinstance(value, tuple) else (value, OUTSIDE)
    first = value if isinstance(value, str) else json.dumps(value)
    path = tmp_path / "m"
    path.write_text(f"{first}\n{{}}\n{outside}\n{{}}\n")
    assert read_record(str(path), DigestCache(), "k.co") is None
    path.write_text(f"{json.dumps(VALUE)}\n{{}}\n{OUTSIDE}\n{{}}\n")
    assert read_record(str(path), DigestCache(), "k.co") is not None


@pytest.mark.parametrize("looks", ["", "[]", '{"": 1}', '{"": [1, 2]}', '{"": "text"}', "{"])
def test_broken_looks(made: PassRecord, looks: str) -> None:
    """A second line that is not a list of looks makes no output current that is not."""
    write_record("m", made, DigestCache(), "k.co")
    first = Path("m").read_text().splitlines()[0]
    Path("m").write_text(f"{first}\n{looks}\n")
    Path("k.co").write_text("other")
    digests = DigestCache()
    record = read_record("m", digests, "k.co")
    assert judge(record, KEY, digests, "k.co").state is not State.CURRENT


@pytest.mark.parametrize("text", ["[", '["a" "b"]', "[1]", "[" * 200_000])
def test_broken_command(text: str) -> None:
    """A command that is damaged is another one."""
    now, before = Key({Part.COMMAND: '["a"]'}), Key({Part.COMMAND: text})
    assert str(now.change_from(before)).startswith("its command changed")


@pytest.mark.parametrize("name", ["k.co", "sub/k.co", "/abs/k.co", "x" * 250, "é" * 120])
def test_name_of_the_manifest(name: str) -> None:
    """The manifest is hidden beside its output, and its name is no longer than names may be."""
    folder, base = os.path.split(manifest_path(name))
    assert folder == name.rpartition("/")[0]
    assert base.startswith(".")
    assert len(os.fsencode(base)) <= 255


# -- what was read outside of the folder of the build: told in full, judged once ----------

OF_ALL = Key({Part.COMMAND: "1"})


@pytest.fixture
def toolkit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with headers outside of the current one, which has a pass's record `m`."""
    (tmp_path / "build").mkdir()
    monkeypatch.chdir(tmp_path / "build")
    folder = tmp_path / "toolkit"
    folder.mkdir()
    for name in ("k.hip", "k.co", "own.h", str(folder / "a.h"), str(folder / "b.h")):
        Path(name).write_text(name)
    _record_of("m", ["k.hip", f"{folder}/b.h", "own.h", f"{folder}/a.h"], folder)
    return folder


def _record_of(file: str, read: list[str], folder: Path) -> None:
    start, digests = Start.now("marker"), DigestCache()
    lookups = Lookups(("", str(folder)), ("k.hip", "own.h"), (), outside=("a.h", "b.h"))
    write_record(
        file, record_pass_result(OF_ALL, read, lookups, "k.co", start, digests), digests, "k.co"
    )


def _record_in(digests: DigestCache, file: str = "m") -> PassRecord:
    record = read_record(file, digests, "k.co")
    assert record is not None
    return record


def _state(digests: DigestCache) -> State:
    return judge(_record_in(digests), OF_ALL, digests, "k.co").state


def test_order(toolkit: Path) -> None:
    """The files are told in the order in which they were read."""
    names = ["k.hip", f"{toolkit}/b.h", "own.h", f"{toolkit}/a.h"]
    assert files_in_order(_record_in(DigestCache())) == names


def test_equal_texts_are_one(toolkit: Path) -> None:
    """What two passes have read outside is one object where it is the same, and else is not."""
    _record_of("same", ["own.h", f"{toolkit}/b.h", f"{toolkit}/a.h"], toolkit)
    _record_of("other", ["own.h", f"{toolkit}/b.h"], toolkit)
    found = [_record_in(DigestCache(), name).inputs for name in ("m", "same", "other")]
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
