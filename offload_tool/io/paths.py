"""Paths and descriptors: errors that name the path, hidden files next to outputs, small files."""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TypeAlias

from offload_tool.errors import FileError

StrPath: TypeAlias = "str | os.PathLike[str]"

STDIN = "/dev/stdin"
STDOUT = "/dev/stdout"
_OTHERS_WRITE = 0o022
_LONGEST = 200  # longest prefix of a file name that is kept, in bytes; file systems allow 255


def check_name(path: StrPath) -> None:
    """Raise FileError for a NUL character, for which Python raises a ValueError."""
    if "\0" in os.fspath(path):
        raise FileError(path, "no file has a name with a NUL character; give another name")


@contextmanager
def naming(path: StrPath) -> Iterator[None]:
    """Convert an `OSError` of the block to a `FileError` that names `path`."""
    check_name(path)
    try:
        yield
    except OSError as error:
        raise FileError(path, error) from error


@contextmanager
def closing(descriptor: int) -> Iterator[int]:
    """Close a descriptor after the block."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def reserve_streams(*, writes_fail: bool) -> None:
    """Reserve the descriptors of closed standard streams, so that no opened file gets them.

    Python has no object for such a stream; writes to the new one fail, or have no effect.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDONLY if number and writes_fail else os.O_WRONLY)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            if number:
                stream = open(number, "w", closefd=False)  # noqa: SIM115 - stays open
                setattr(sys, name, stream)
                setattr(sys, f"__{name}__", stream)  # SCons returns to this one


def removed_folder() -> str:
    """Return a message if the current folder was removed, else ""."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return "'.': the current folder was removed; change to another"
    return ""


def is_writable_by_others(status: os.stat_result, *owners: int) -> bool:
    """Return whether users other than this one and `owners` can have written a file or folder."""
    return status.st_uid not in (os.getuid(), *owners) or bool(status.st_mode & _OTHERS_WRITE)


def sibling(output: str, suffix: str) -> str:
    """Return the path of a hidden file in the folder of an output."""
    folder, name = os.path.split(output)
    encoded = os.fsencode(name)
    if len(encoded) > _LONGEST:
        import binascii

        start = os.fsdecode(encoded[:_LONGEST])
        name = f"{start}.{binascii.crc32(encoded):08x}"
    return os.path.join(folder, f".{name}{suffix}")


def is_standard_output(output: StrPath) -> bool:
    """Return whether a written output is standard output, not a file that replaced that one."""
    if str(output) == STDOUT:
        return True
    with suppress(OSError):
        status = os.stat(output)
        return not stat.S_ISREG(status.st_mode) and os.path.samestat(status, os.fstat(1))
    return False


def is_same_file(first: StrPath, second: StrPath) -> bool:
    """Return whether two names are of one file or folder, which this process may reach."""
    with suppress(OSError):
        return os.path.samefile(first, second)
    return False


def names_in(folder: StrPath) -> list[str]:
    """Return the names in a folder; [] if it is none, or not readable."""
    with suppress(OSError, ValueError):  # ValueError: a name with a NUL
        return os.listdir(folder)
    return []


def remove_unused(folder: str, seconds: float, but: tuple[str, ...] = ()) -> None:
    """Remove files that were last read or written so long ago, but not those with such an end."""
    for name in names_in(folder):
        path = os.path.join(folder, name)
        with suppress(OSError):  # others remove them, too
            found = os.stat(path)
            used = max(found.st_atime, found.st_mtime)
            if time.time() - used > seconds and not name.endswith(but):
                os.unlink(path)


def remove(name: str) -> None:
    """Remove a file if it exists."""
    with suppress(FileNotFoundError):
        os.unlink(name)


def is_within(path: StrPath, folder: StrPath) -> bool:
    """Return whether a file is in a folder or below it, after resolving symbolic links."""
    inside = os.path.realpath(folder)
    return os.path.commonpath([inside, os.path.realpath(path)]) == inside


def replace_small_file(name: str, data: bytes) -> None:
    """Write a file by renaming a temporary one, with few modules loaded; or raise OSError."""
    temporary = sibling(name, f".{os.urandom(6).hex()}.tmp")
    try:
        with open(temporary, "xb", buffering=0) as file:
            view = memoryview(data)
            while view:
                view = view[file.write(view) :]
        os.replace(temporary, name)
    finally:
        remove(temporary)
