"""Answers that are kept on disk: when they are believed."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from offload_tool.compiler.answer_cache import cache_folder, cached_answer

_STEPS = 0.05
"""Seconds: the kernel's clock for files has steps."""


class _Oracle:
    """Has another answer each time, which depends on a file."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.asked = 0
        self.changes_meanwhile = False

    def find(self) -> int:
        self.asked += 1
        if self.changes_meanwhile:
            time.sleep(_STEPS)
            self.file.write_text("new")
        return self.asked

    def answer(self) -> object:
        time.sleep(_STEPS)  # what has just changed may change again, unseen
        return cached_answer(["what?"], self.find, lambda _: [str(self.file)])


@pytest.fixture
def oracle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _Oracle:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    cache_folder.cache_clear()
    (tmp_path / "witness").write_text("old")
    return _Oracle(tmp_path / "witness")


def test_kept_until_a_witness_changes(oracle: _Oracle) -> None:
    """Writing to it is seen, also where its size is the same and its time is put back."""
    assert [oracle.answer(), oracle.answer()] == [1, 1]
    before = oracle.file.stat()
    oracle.file.write_text("new")
    os.utime(oracle.file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert [oracle.answer(), oracle.answer()] == [2, 2]
    oracle.file.unlink()
    assert [oracle.answer(), oracle.answer()] == [3, 3]


def test_not_kept_when_found_while_a_witness_changed(oracle: _Oracle) -> None:
    """Whether it is about the old file or the new one, nobody knows."""
    oracle.changes_meanwhile = True
    assert oracle.answer() == 1
    oracle.changes_meanwhile = False
    assert [oracle.answer(), oracle.answer()] == [2, 2]
