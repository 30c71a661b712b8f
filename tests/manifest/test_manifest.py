"""The record of a pass: read as it was written, and any single change is found."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload_tool.io.file_digests import CHANGED, DigestCache
from offload_tool.manifest import manifest_path
from offload_tool.manifest.include_search import Lookups
from offload_tool.manifest.key import Cause, Key, Part, Reason
from offload_tool.manifest.manifest import (
    PassRecord,
    State,
    confirmed,
    judge,
    read_record,
    record_pass_result,
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
)
VALUE = {
    "version": 7,
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
    monkeypatch.setattr("offload_tool.io.file_digests._read", lambda _: "read again")
    fresh = DigestCache()
    record = read_record("m", fresh, "k.co")
    assert judge(record, KEY, fresh, "k.co").state is State.CURRENT


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
        *(None, [], 1, "text", {}, {"version": 2}),
        VALUE | {"version": 1},
        VALUE | {"key": []},
        VALUE | {"inputs": {"a": 1}, "places": [0]},
        VALUE | {"inputs": {"a": "1"}},
        VALUE | {"inputs": {"/a": "1"}, "places": [0]},
        VALUE | {"lookups": {}},
        VALUE | {"output": 1},
        *(VALUE | {"why": why} for why in ("", ["UNKNOWN", "", ""], ["KEY", ""])),
    ],
)
def test_other_json(tmp_path: Path, value: object) -> None:
    """JSON that is not a record of this version is as good as none."""
    path = tmp_path / "m"
    path.write_text(json.dumps(value) + "\n{}\n" + OUTSIDE + "\n{}\n")
    assert read_record(str(path), DigestCache(), "k.co") is None
    path.write_text(json.dumps(VALUE) + "\n{}\n" + OUTSIDE + "\n{}\n")
    assert read_record(str(path), DigestCache(), "k.co") is not None


@pytest.mark.parametrize("text", ["{}", "[]", '{"inputs": {}, "names": 1}', '{"inputs": 1}'])
def test_other_json_outside(tmp_path: Path, text: str) -> None:
    """A record whose line of what is outside is not one is as good as none."""
    path = tmp_path / "m"
    path.write_text(json.dumps(VALUE) + "\n{}\n" + text + "\n{}\n")
    assert read_record(str(path), DigestCache(), "k.co") is None


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


def test_deep_nesting(tmp_path: Path) -> None:
    """Nesting without end is not a record, and not a crash."""
    path = tmp_path / "m"
    path.write_text("[" * 200_000)
    assert read_record(str(path), DigestCache()) is None


def test_current(made: PassRecord) -> None:
    """Where nothing has changed, the output is current."""
    assert judge(made, KEY, DigestCache(), "k.co").state is State.CURRENT
    assert judge(made, KEY, DigestCache()).state is State.CURRENT


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        (KEY._replace(parts={**KEY.parts, Part.COMMAND: "other"}), "its command changed"),
        (KEY.without(Part.COMPILER), "the compiler changed"),
        (KEY._replace(parts={**KEY.parts, Part.FOLDER: ""}), "the folder of the build changed"),
        (KEY._replace(files={}), "'flags.txt' changed"),
    ],
)
def test_other_key(made: PassRecord, key: Key, reason: str) -> None:
    """A part of the key that is another, gone, or new makes the output outdated, by name."""
    judgement = judge(made, key, DigestCache(), "k.co")
    assert (judgement.state, str(judgement.reason)) == (State.OUTDATED, reason)


@pytest.mark.parametrize("name", ["k.hip", "include/k.h", "k.co"])
@pytest.mark.parametrize("how", ["other", "longer", "empty", "gone", "folder"])
def test_other_file(made: PassRecord, name: str, how: str) -> None:
    """Any other content of an input or the output, or none, makes the output outdated."""
    path = Path(name)
    if how in ("gone", "folder"):
        path.unlink()
    if how == "folder":
        path.mkdir()
    elif how != "gone":
        texts = {"other": name.swapcase(), "longer": f"{name}!", "empty": ""}
        path.write_text(texts[how])
    assert judge(made, KEY, DigestCache(), "k.co").state is State.OUTDATED


def test_link_that_becomes_a_copy(made: PassRecord) -> None:
    """Two inputs that were one file and are two of equal content make the output outdated."""
    Path("link.h").symlink_to("include/k.h")
    start, digests = Start.now("marker"), DigestCache()
    record = record_pass_result(KEY, ["include/k.h", "link.h"], Lookups(), "k.co", start, digests)
    assert judge(record, KEY, DigestCache(), "k.co").state is State.CURRENT
    Path("link.h").unlink()
    Path("link.h").write_bytes(Path("include/k.h").read_bytes())
    assert judge(record, KEY, DigestCache(), "k.co").state is State.OUTDATED


@pytest.mark.parametrize("name", ["k.h", "include/sub/k.h", "sub/k.h"])
def test_file_that_appears(made: PassRecord, name: str) -> None:
    """A file under a name that is looked up makes it unsure; the preprocessor settles that."""
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).touch()
    judgement = judge(made, KEY, DigestCache(), "k.co")
    assert (judgement.state, judgement.appeared) == (State.UNSURE, (name,))
    assert confirmed(made, [*made.inputs, name], judgement, DigestCache(), Lookups) is None
    assert confirmed(made, ["k.hip"], judgement, DigestCache(), Lookups) is None
    surer = confirmed(made, made.inputs, judgement, DigestCache(), Lookups)
    assert judge(surer, KEY, DigestCache(), "k.co").state is State.CURRENT


def test_other_folders(made: PassRecord) -> None:
    """Where the compiler may look in other folders, it is unsure, and has new lookups then."""
    lookups = made.lookups._replace(origins="another digest")
    judgement = judge(made._replace(lookups=lookups), KEY, DigestCache(), "k.co")
    assert (judgement.state, judgement.search_path_changed) == (State.UNSURE, True)
    new = Lookups(("elsewhere",))
    surer = confirmed(made, made.inputs, judgement, DigestCache(), lambda: new)
    assert surer is not None
    assert surer.lookups == new


def test_unknown_lookup(made: PassRecord) -> None:
    """Where a name is looked up that nobody knows, the output is never sure."""
    unknown = made._replace(lookups=made.lookups._replace(unknown=True))
    assert judge(unknown, KEY, DigestCache(), "k.co").state is State.UNSURE


def test_no_record() -> None:
    """Without a record an output is outdated."""
    assert judge(None, KEY, DigestCache(), "k.co").state is State.OUTDATED


@pytest.mark.parametrize("moment", ["before the digest", "before the start", "equal content"])
def test_written_during_the_pass(made: PassRecord, moment: str) -> None:
    """A file that may have been written after a pass began is not recorded as read."""
    assert made.is_sure
    if moment == "before the start":
        Path("k.hip").write_text("new")
    start = Start.now("marker")
    if moment != "before the start":
        Path("k.hip").write_text("new" if moment == "before the digest" else "k.hip")
    digests = DigestCache()
    record = record_pass_result(KEY, ["k.hip"], Lookups(), "k.co", start, digests)
    if moment == "before the start":
        assert record.is_sure
        return
    assert record.inputs == {"k.hip": CHANGED}
    assert judge(record, KEY, digests, "k.co").state is State.OUTDATED
    write_record("m", record, digests, "k.co")
    fresh = DigestCache()
    assert judge(read_record("m", fresh, "k.co"), KEY, fresh, "k.co").state is State.OUTDATED


def test_input_that_is_gone(made: PassRecord) -> None:
    """A file that was read and is gone when the pass ends is not recorded as read."""
    start = Start.now("marker")
    Path("k.hip").unlink()
    record = record_pass_result(KEY, ["k.hip"], Lookups(), "k.co", start, DigestCache())
    assert record.inputs == {"k.hip": CHANGED}


@pytest.mark.parametrize("name", ["k.co", "sub/k.co", "/abs/k.co", "x" * 250, "é" * 120])
def test_name_of_the_manifest(name: str) -> None:
    """The manifest is hidden beside its output, and its name is no longer than names may be."""
    folder, base = os.path.split(manifest_path(name))
    assert folder == name.rpartition("/")[0]
    assert base.startswith(".")
    assert len(os.fsencode(base)) <= 255
