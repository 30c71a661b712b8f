"""Paths as they are given, hidden ones beside outputs, and errors that name them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeAlias

from offload_tool.errors import FileError

StrPath: TypeAlias = "str | os.PathLike[str]"

STDIN = "/dev/stdin"
STDOUT = "/dev/stdout"
_OTHERS_WRITE = 0o022
_LONGEST = 200
"""Bytes of a name that is taken over; file systems have names of 255."""


@contextmanager
def naming(path: StrPath) -> Iterator[None]:
    """Make errors of the operating system such that name `path`."""
    try:
        yield
    except OSError as error:
        raise FileError(path, error) from error


def is_of_others(status: os.stat_result, *owners: int) -> bool:
    """Return whether others than this user and `owners` can have written a file or folder."""
    return status.st_uid not in (os.getuid(), *owners) or bool(status.st_mode & _OTHERS_WRITE)


def beside(output: str, suffix: str) -> str:
    """Name a hidden file beside an output."""
    folder, name = os.path.split(output)
    encoded = os.fsencode(name)
    if len(encoded) > _LONGEST:
        import binascii

        start = os.fsdecode(encoded[:_LONGEST])
        name = f"{start}.{binascii.crc32(encoded):08x}"
    return os.path.join(folder, f".{name}{suffix}")


def remove(name: str) -> None:
    """Remove a file, if it is there."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name)


def is_within(path: StrPath, folder: StrPath) -> bool:
    """Return whether a file is in a folder or one below it, wherever links lead."""
    inside = os.path.realpath(folder)
    return os.path.commonpath([inside, os.path.realpath(path)]) == inside
