"""The one way in which files are opened to be read: by this, or not at all.

A regular file is. So is what the process was given open already (``/dev/stdin``, ``/dev/fd/63``
of a shell's ``<(...)``), and ``/dev/null``, which build tools give for an empty file. Anything
else, which could block for ever or never end, is refused by what it is, and not opened.
"""

from __future__ import annotations

import os
import re
import stat

from offload_tool.errors import FileError
from offload_tool.io.limits import Limits, running

_GIVEN = r"/dev/(stdin|fd/[0-9]+)|/proc/(self|thread-self|[0-9]+)/fd/[0-9]+"
_NULL = os.makedev(1, 3)
_KINDS = (
    (stat.S_ISDIR, "Is a directory"),
    (stat.S_ISFIFO, "is a FIFO; expected a regular file"),
    (stat.S_ISSOCK, "is a socket; expected a regular file"),
    (stat.S_ISCHR, "is a device; expected a regular file"),
    (stat.S_ISBLK, "is a block device; expected a regular file"),
)
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # lest a FIFO that was just put there blocks
_CHUNK = 1 << 20
_BLOCK = 512
"""Bytes of what st_blocks counts."""


def describe_file(status: os.stat_result) -> str:
    """Return what is no regular file, and what was expected."""
    for is_kind, text in _KINDS:
        if is_kind(status.st_mode):
            return text
    return "expected a regular file"


def open_regular(path: str | os.PathLike[str]) -> tuple[int, int]:
    """Open a file; return its descriptor and its size in bytes: -1 is what has none, a pipe.

    What it brings to the run's budget is noted.

    :raises FileError: it is neither a regular file nor given, or cannot be opened.
    """
    try:
        status = os.stat(path)
        _check(path, status)
        descriptor = os.open(path, _FLAGS)
        try:
            status = os.fstat(descriptor)
            _check(path, status)
            if not stat.S_ISREG(status.st_mode):
                os.set_blocking(descriptor, True)
                return descriptor, -1
        except BaseException:
            os.close(descriptor)
            raise
    except OSError as error:
        raise FileError(path, error) from error
    budget = running()
    if budget is not None:
        # Holes are no bytes that something could be packed into.
        used = status.st_blocks * _BLOCK or status.st_size
        identity = status.st_dev, status.st_ino
        budget.opened(min(status.st_size, used), identity, status.st_size)
    return descriptor, status.st_size


def _check(path: str | os.PathLike[str], status: os.stat_result) -> None:
    """Refuse what is neither a regular file nor open already, nor empty."""
    if stat.S_ISREG(status.st_mode) or re.fullmatch(_GIVEN, os.fspath(path)):
        return
    if not (stat.S_ISCHR(status.st_mode) and status.st_rdev == _NULL):
        raise FileError(path, describe_file(status))


def read_all(path: str | os.PathLike[str], descriptor: int) -> bytes:
    """Read what is open to its end, up to the limit of a run: what has no size, say.

    :raises FileError: it cannot be read, or does not end.
    """
    budget = running()
    most = (budget.limits if budget is not None else Limits()).unpacked
    chunks, size = [], 0
    try:
        while chunk := os.read(descriptor, _CHUNK):
            chunks.append(chunk)
            size += len(chunk)
            if size > most:
                message = f"expected at most {most} bytes where there is no file, found more"
                raise FileError(path, f"{message}; give a file, or raise OFFLOAD_MAX_UNPACKED")
    except OSError as error:
        raise FileError(path, error) from error
    if budget is not None and not stat.S_ISREG(os.fstat(descriptor).st_mode):
        budget.opened(size)
    return b"".join(chunks)


def is_within(path: str | os.PathLike[str], folder: str | os.PathLike[str]) -> bool:
    """Return whether a file is in a folder or one below it, wherever links lead."""
    inside = os.path.realpath(folder)
    return os.path.commonpath([inside, os.path.realpath(path)]) == inside
