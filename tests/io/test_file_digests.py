"""Digests of files: believed only while nobody can have written to them."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from offload_tool.io import file_digests
from offload_tool.io.file_digests import DigestCache, FileStat, file_stat, is_cacheable, make_marker

SETTLED = 0.05
"""Seconds after which a change would show in a file's times."""


def test_equal_content_has_equal_digests(tmp_path: Path) -> None:
    digests = DigestCache()
    for name, content in (("a", b"x" * 3_000_000), ("b", b"x" * 3_000_000), ("c", b"")):
        (tmp_path / name).write_bytes(content)
    one, two, three = (digests.digest(str(tmp_path / name)) for name in "abc")
    assert one == two != three
    assert three


@pytest.mark.parametrize("kind", ["missing", "folder", "fifo", "nul"])
def test_what_is_no_file(tmp_path: Path, kind: str) -> None:
    path = str(tmp_path / "it")
    if kind == "folder":
        Path(path).mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "nul":
        path = "a\0b"
    assert DigestCache().digest(path) == ""


@pytest.mark.parametrize("is_renamed", [False, True])
def test_change_that_hides(tmp_path: Path, *, is_renamed: bool) -> None:
    """Content of the same size is seen, with its time put back, or in a file renamed to it."""
    path, other, digests = tmp_path / "f", tmp_path / "g", DigestCache()
    path.write_text("one")
    other.write_text("two")
    before = path.stat()
    time.sleep(SETTLED)
    first = digests.digest(str(path))
    if is_renamed:
        other.replace(path)
    else:
        path.write_text("two")
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert digests.digest(str(path)) != first


@pytest.mark.parametrize(
    ("changed", "seconds", "expected"),
    [(5, 0.01, False), (5, 0.1, True), (0, 0.1, False), (0, 1.9, False), (0, 2.1, True)],
)
def test_steps_of_the_clock(
    monkeypatch: pytest.MonkeyPatch, changed: int, seconds: float, *, expected: bool
) -> None:
    """Whole seconds may be of a file system without parts of them: others can follow unseen."""
    moment = 1_700_000_000_000_000_000 + changed
    monkeypatch.setattr(time, "time_ns", lambda: moment + int(seconds * 1e9))
    assert is_cacheable(FileStat(moment, moment, 1, 1)) is expected


def test_writes_in_quick_succession(tmp_path: Path) -> None:
    path, digests = tmp_path / "f", DigestCache()
    for number in range(300):
        path.write_text(f"{number:03}")
        expected = DigestCache().digest(str(path))
        assert digests.digest(str(path)) == expected
    assert digests.digest(str(path)) != DigestCache().digest(__file__)


def test_settled_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, digests = tmp_path / "f", DigestCache()
    path.write_text("one")
    time.sleep(SETTLED)
    first = digests.digest(str(path))
    monkeypatch.setattr("offload_tool.io.file_digests.digest_of_file", lambda _: "read again")
    assert digests.digest(str(path)) == first
    path.touch()
    assert digests.digest(str(path)) == "read again"


def test_believed_look(tmp_path: Path) -> None:
    """What an earlier run found is believed while the file looks the same, and no longer."""
    path, digests = tmp_path / "f", DigestCache()
    path.write_text("one")
    look = file_stat(str(path))
    assert look is not None
    digests.add(str(path), look, "earlier")
    assert digests.digest(str(path)) == "earlier"
    for part in range(len(look)):
        other = DigestCache()
        numbers = [number + (index == part) for index, number in enumerate(look)]
        other.add(str(path), FileStat(*numbers), "earlier")
        assert other.digest(str(path)) != "earlier"


def test_names_in_a_folder(tmp_path: Path) -> None:
    folder, digests = tmp_path / "d", DigestCache()
    assert digests.names(str(folder)) == frozenset()
    folder.mkdir()
    for number in range(100):
        (folder / f"{number}").touch()
        assert len(digests.names(str(folder))) == number + 1
    time.sleep(SETTLED)
    assert len(digests.names(str(folder))) == 100
    (folder / "1").unlink()
    assert "1" not in digests.names(str(folder))
    assert digests.names(str(folder / "2")) == frozenset()


def test_marker_tells_the_time(tmp_path: Path) -> None:
    """The marker is later than a file that was written just before, and no later than the next."""
    for number in range(200):
        (tmp_path / "before").write_text(str(number))
        moment = make_marker(str(tmp_path / "marker"))
        (tmp_path / "after").write_text(str(number))
        before, after = file_stat(str(tmp_path / "before")), file_stat(str(tmp_path / "after"))
        assert before is not None
        assert after is not None
        assert before.changed < moment <= after.changed


def test_marker_with_a_slow_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the clock of files advances in steps, the marker waits for the next one."""
    step = 4_000_000
    monkeypatch.setattr(file_digests, "_change_time", lambda _: time.monotonic_ns() // step * step)
    for _ in range(20):
        before = time.monotonic_ns() // step * step
        assert make_marker("marker") > before
    monkeypatch.setattr(file_digests, "_change_time", lambda _: 7)
    assert make_marker("marker") == 7  # steps of seconds
