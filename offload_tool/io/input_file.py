"""Files that are read: opened by this module or not at all, and mapped.

A regular file is opened. So is what the process was given open already (``/dev/stdin``,
``/dev/fd/63`` of a shell's ``<(...)``), and ``/dev/null``, which build tools give for an empty
file. Anything else, which could block for ever or never end, is refused by what it is.

Small files are read, large ones mapped, so that memory does not grow with their size. A file that
becomes shorter while it is mapped has no bytes behind its new end: reading them ends the process
with SIGBUS, as it does LLVM's tools. No output is completed then: `check_maps` compares sizes
before, so that a file that was cut after it was read is an error, too.
"""

from __future__ import annotations

import mmap
import os
import re
import stat
import weakref
from collections.abc import Callable
from typing import NamedTuple

from offload_tool.errors import FileError
from offload_tool.io.limits import Limits, running
from offload_tool.io.paths import StrPath

SHORTER = "became shorter while it was read; try again"
SMALL = 1 << 18
"""Bytes up to which a file is read instead."""
_maps: dict[weakref.ref[mmap.mmap], StrPath] = {}
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


def open_regular(path: StrPath) -> tuple[int, int]:
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


def _check(path: StrPath, status: os.stat_result) -> None:
    """Refuse what is neither a regular file nor open already, nor empty."""
    if stat.S_ISREG(status.st_mode) or re.fullmatch(_GIVEN, os.fspath(path)):
        return
    if not (stat.S_ISCHR(status.st_mode) and status.st_rdev == _NULL):
        raise FileError(path, describe_file(status))


def read_all(path: StrPath, descriptor: int) -> bytes:
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


def load(path: StrPath, descriptor: int, size: int) -> memoryview:
    """Return the first `size` bytes of an open file, read or mapped; `descriptor` stays open.

    :raises FileError: the file has not so many bytes any more, or cannot be mapped.
    """
    try:
        if size <= SMALL:
            data = os.pread(descriptor, size, 0)
            if len(data) < size:
                raise FileError(path, SHORTER)
            return memoryview(data)
        mapped = mmap.mmap(descriptor, size, access=mmap.ACCESS_READ)
    except ValueError as error:
        raise FileError(path, SHORTER) from error
    except OSError as error:
        raise FileError(path, error) from error
    # No callback: what a signal raises in one would be lost.
    for reference in [reference for reference in _maps if reference() is None]:
        del _maps[reference]
    _maps[weakref.ref(mapped)] = path
    return memoryview(mapped)


def check_maps() -> None:
    """Refuse to go on where a file that is mapped now has become shorter.

    :raises FileError: one has.
    """
    for reference, path in list(_maps.items()):
        kept = reference()
        if kept is not None and kept.size() < len(kept):
            raise FileError(path, SHORTER)


class InputFile:
    """A file opened for reading; `data` is its content, mapped (bytes on disk stay there).

    Use as a context manager. What is not a regular file (standard input) is read into memory.

    :raises FileError: it cannot be opened or read, or is of no kind that can be.
    """

    _make_data: Callable[[], memoryview] | None = None

    def __init__(self, path: StrPath) -> None:
        self.path = path
        self._whole: InputFile | None = None
        self._start = 0
        self._descriptor: int | None = None
        self._data: memoryview | None = None
        descriptor, self._size = open_regular(path)
        if self._size >= 0:
            self._descriptor = descriptor
            return
        try:
            self._data = memoryview(read_all(path, descriptor))
        finally:
            os.close(descriptor)
        self._size = len(self._data)

    @classmethod
    def _make(
        cls,
        path: StrPath,
        size: int,
        *,
        data: memoryview | None = None,
        descriptor: int | None = None,
        whole: InputFile | None = None,
        start: int = 0,
    ) -> InputFile:
        made = cls.__new__(cls)
        made.path, made._size, made._data, made._descriptor = path, size, data, descriptor
        made._whole, made._start = whole, start
        return made

    @classmethod
    def from_data(cls, path: StrPath, data: memoryview) -> InputFile:
        """Return `data`, which was made from the file at `path`, the form of a file."""
        return cls._make(path, len(data), data=data)

    @classmethod
    def made_later(cls, path: StrPath, size: int, make: Callable[[], memoryview]) -> InputFile:
        """Return `size` bytes the form of a file, which are made when they are first asked for."""
        made = cls._make(path, size)
        made._make_data = make
        return made

    @classmethod
    def from_descriptor(cls, path: StrPath, descriptor: int) -> InputFile:
        """Read a file that is open (and may still grow); `descriptor` stays the caller's."""
        size = os.fstat(descriptor).st_size
        return cls._make(path, size, descriptor=os.dup(descriptor))

    def part(self, path: StrPath, offset: int, size: int) -> InputFile:
        """Return `size` bytes from `offset` on as a file called `path`; it ends with this one.

        They are copied from where they are: inside the kernel, if this is a file on disk.
        """
        whole = self if self._whole is None else self._whole
        return self._make(path, size, whole=whole, start=self._start + offset)

    def range(self, offset: int, size: int) -> FileRange:
        """Return bytes as a range of the file that this is, or is a part of."""
        return FileRange(self if self._whole is None else self._whole, self._start + offset, size)

    @property
    def data(self) -> memoryview:
        """The content. It is mapped, or read if it is small, when it is first asked for.

        :raises FileError: the file became shorter since it was opened.
        """
        if self._data is None:
            if self._make_data is not None:
                self._data = self._make_data()
                return self._data
            if self._whole is not None:
                self._data = self._whole.data[self._start : self._start + self._size]
                return self._data
            if self._descriptor is None or not self._size:  # an empty file cannot be mapped
                return memoryview(b"")
            self._data = load(self.path, self._descriptor, self._size)
        return self._data

    def __len__(self) -> int:
        return self._size

    def read(self, offset: int, size: int) -> bytes | memoryview:
        """Return `size` bytes from `offset` on, read anew: this maps nothing.

        :raises FileError: the file became shorter since it was opened.
        """
        if self._whole is not None:
            return self._whole.read(self._start + offset, size)
        if self._descriptor is None:
            found: bytes | memoryview = self.data[offset : offset + size]
        else:
            try:
                found = os.pread(self._descriptor, size, offset)
            except OSError as error:
                raise FileError(self.path, error) from error
        if len(found) < size:
            raise FileError(self.path, SHORTER)
        return found

    def grow(self) -> None:
        """Take in what was added to the file since it was opened."""
        if self._descriptor is not None:
            self._data, self._size = None, os.fstat(self._descriptor).st_size

    def forget(self) -> None:
        """Release the memory of mapped pages; they are read again when they are needed."""
        if self._whole is not None:
            self._whole.forget()
        elif self._data is not None and isinstance(self._data.obj, mmap.mmap):
            self._data.obj.madvise(mmap.MADV_DONTNEED)

    def fileno(self) -> int | None:
        """Return the descriptor of all of the content; None where `data` or another file has it."""
        return self._descriptor

    def close(self) -> None:
        """Close the file; slices of `data` that are still in use stay valid."""
        self._data, self._size = None, 0  # the map ends with the last slice
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> InputFile:
        return self

    def __exit__(
        self, _: type[BaseException] | None, error: BaseException | None, __: object
    ) -> None:
        descriptor, size = self._descriptor, self._size
        shorter = descriptor is not None and os.fstat(descriptor).st_size < size
        self.close()
        if shorter and (error is None or isinstance(error, Exception)):
            raise FileError(self.path, SHORTER) from error  # whatever that led to


class FileRange(NamedTuple):
    """Bytes of an input: `size` of them from `offset` on."""

    source: InputFile
    offset: int
    size: int

    @property
    def data(self) -> memoryview:
        """The bytes, mapped where the file is."""
        return self.source.data[self.offset : self.offset + self.size]
