"""Files without a name, for programs to write to: nothing of them is left if a run is killed."""

from __future__ import annotations

import os
from typing import IO


def file_in_memory(folder: str) -> IO[bytes]:
    """Return a file for messages, in memory, or in `folder` with an older C library."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("offload"), "w+b", 0)
    return file_without_name(folder)


def file_without_name(folder: str) -> IO[bytes]:
    """Return a new unnamed file in a directory."""
    flags = os.O_TMPFILE | os.O_RDWR | os.O_EXCL | os.O_CLOEXEC
    try:
        return os.fdopen(os.open(folder, flags, 0o600), "w+b", 0)
    except OSError:  # e.g. the file system does not support O_TMPFILE
        import tempfile  # loads slower than a small file compiles

        return tempfile.TemporaryFile(buffering=0, dir=folder)


def written_bytes(file: IO[bytes]) -> bytes:
    """Return all bytes of an open file, wherever its position is."""
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0)
