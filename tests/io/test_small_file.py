"""Small files: complete or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from offload_tool.io.paths import replace_small_file


def test_replaced(tmp_path: Path) -> None:
    """A file is created or replaced, and nothing else is left."""
    path = tmp_path / "file"
    for text in (b"one", b"", b"other" * 100_000):
        replace_small_file(str(path), text)
        assert path.read_bytes() == text
        assert list(tmp_path.iterdir()) == [path]


def test_not_replaced(tmp_path: Path) -> None:
    """A name that cannot be replaced is an error, and nothing is left of the new file."""
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        replace_small_file(str(tmp_path / "folder"), b"text")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
