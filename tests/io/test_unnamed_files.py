"""Files without a name, in memory and in a folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

from offload_tool.io.process import file_in_memory, file_without_name, written_bytes


@pytest.mark.parametrize("new_file", [file_in_memory, file_without_name])
def test_a_file_has_no_name(tmp_path: Path, new_file: Callable[[str], IO[bytes]]) -> None:
    with new_file(str(tmp_path)) as file:
        file.write(b"first ")
        os.write(file.fileno(), b"second")
        file.seek(3)
        assert written_bytes(file) == b"first second"
        assert not list(tmp_path.iterdir())


def test_old_c_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python has no `memfd_create` if it was built for a C library without one."""
    monkeypatch.delattr(os, "memfd_create", raising=False)
    with file_in_memory(str(tmp_path)) as file:
        file.write(b"messages")
        assert os.fstat(file.fileno()).st_dev == tmp_path.stat().st_dev
        assert written_bytes(file) == b"messages"
        assert not list(tmp_path.iterdir())


def test_file_system_without_unnamed_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = os.open

    def without_tmpfile(path: str, flags: int, mode: int = 0o777, **options: int) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(95, "Operation not supported")
        return opened(path, flags, mode, **options)

    monkeypatch.setattr(os, "open", without_tmpfile)
    with file_without_name(str(tmp_path)) as file:
        file.write(b"messages")
        assert written_bytes(file) == b"messages"
        assert not list(tmp_path.iterdir())
