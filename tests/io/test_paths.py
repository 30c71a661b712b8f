"""Folders and names: what they say of the current folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from offload_tool.io.paths import removed_folder


def test_removed_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A current folder that was removed has a message, any other has none."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    assert removed_folder() == ""
    gone.rmdir()
    assert removed_folder() == "'.': the current folder was removed; change to another"
