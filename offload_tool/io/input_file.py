"""Read files: open them safely, and map them.

Only three kinds of files are opened: regular files, descriptors that the process inherited
(``/dev/stdin``, ``/dev/fd/63`` of a shell's ``<(...)``), and ``/dev/null``, which build tools use
as an empty file. Others could block forever or never end; the error names their type.

Small files are read and large ones mapped, so memory does not grow with their size. If a mapped
file is truncated, access behind its new end raises SIGBUS and ends the process, as in LLVM's tools.
No output is completed then: `check_maps` compares sizes first, so truncation after reading is an
error as well.
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
from offload_tool.io.limits import Limits, run_budget
from offload_tool.io.paths import StrPath, closing, naming

SHORTER = "became shorter while it was read; try again"
SMALL = 1 << 18
"""Bytes up to which a file is read, not mapped."""
_maps: dict[weakref.ref[mmap.mmap], StrPath] = {}
_INHERITED = r"/dev/(stdin|fd/[0-9]+)|/proc/(self|thread-self|[0-9]+)/fd/[0-9]+"
_NULL = os.makedev(1, 3)
_KINDS = (
    (stat.S_ISDIR, "Is a directory"),
    (stat.S_ISFIFO, "is a FIFO; expected a regular file"),
    (stat.S_ISSOCK, "is a socket; expected a regular file"),
    (stat.S_ISCHR, "is a device; expected a regular file"),
    (stat.S_ISBLK, "is a block device; expected a regular file"),
)
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # a FIFO that replaced it would block
_CHUNK = 1 << 20
_BLOCK = 512  # bytes per unit of ``st_blocks``


def describe_file(status: os.stat_result) -> str:
    """Return the type of a file that is not regular, and what was expected."""
    for is_kind, text in _KINDS:
        if is_kind(status.st_mode):
            return text
    return "expected a regular file"


def open_regular(path: StrPath) -> tuple[int, int]:
    """Open a file, and add its size to the budget; return descriptor and size, -1 for a pipe."""
    with naming(path):
        _check(path, os.stat(path))
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
    budget = run_budget()
    if budget is not None:
        # Holes contain no compressed data, so they do not count.
        used = status.st_blocks * _BLOCK or status.st_size
        identity = status.st_dev, status.st_ino
        budget.add_input(min(status.st_size, used), identity, status.st_size)
    return descriptor, status.st_size


def _check(path: StrPath, status: os.stat_result) -> None:
    """Raise unless a file is regular, inherited or ``/dev/null``."""
    if stat.S_ISREG(status.st_mode) or re.fullmatch(_INHERITED, os.fspath(path)):
        return
    if not (stat.S_ISCHR(status.st_mode) and status.st_rdev == _NULL):
        raise FileError(path, describe_file(status))


def read_all(path: StrPath, descriptor: int) -> bytes:
    """Read an open file to its end, up to the run's limit; raise FileError."""
    budget = run_budget()
    most = (budget.limits if budget is not None else Limits()).unpacked
    chunks, size = [], 0
    with naming(path):
        while chunk := os.read(descriptor, _CHUNK):
            chunks.append(chunk)
            size += len(chunk)
            if size > most:
                message = f"expected at most {most} bytes where there is no file, found more"
                raise FileError(path, f"{message}; give a file, or raise OFFLOAD_MAX_UNPACKED")
    if budget is not None and not stat.S_ISREG(os.fstat(descriptor).st_mode):
        budget.add_input(size)
    return b"".join(chunks)


def load(path: StrPath, descriptor: int, size: int) -> memoryview:
    """Return the first `size` bytes of an open file, read or mapped; raise FileError."""
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
    # No weakref callback: an exception that a signal raises in one would be lost.
    for reference in [reference for reference in _maps if reference() is None]:
        del _maps[reference]
    _maps[weakref.ref(mapped)] = path
    return memoryview(mapped)


def check_maps() -> None:
    """Raise FileError if a mapped file has become shorter."""
    for reference, path in list(_maps.items()):
        kept = reference()
        if kept is not None and kept.size() < len(kept):
            raise FileError(path, SHORTER)


class InputFile:
    """A file opened for reading; `data` is its content, mapped.

    Use it as a context manager. A file that is not regular (standard input) is read into memory.

    :raises FileError: it cannot be opened or read, or its type is not supported.
    """

    _whole: InputFile | None = None
    """The file of which this is a part, from `_start` on."""
    _start = 0
    _descriptor: int | None = None
    _data: memoryview | None = None
    _make_data: Callable[[], memoryview] | None = None

    def __init__(self, path: StrPath) -> None:
        self.path = path
        descriptor, self._size = open_regular(path)
        if self._size >= 0:
            self._descriptor = descriptor
            return
        with closing(descriptor):
            self._data = memoryview(read_all(path, descriptor))
        self._size = len(self._data)

    @classmethod
    def _make(cls, path: StrPath, size: int) -> InputFile:
        made = cls.__new__(cls)
        made.path, made._size = path, size
        return made

    @classmethod
    def from_data(cls, path: StrPath, data: memoryview) -> InputFile:
        """Return a file object with the content `data`, made from the file at `path`."""
        made = cls._make(path, len(data))
        made._data = data
        return made

    @classmethod
    def lazy(cls, path: StrPath, size: int, make: Callable[[], memoryview]) -> InputFile:
        """Return a file object of `size` bytes; `make` produces them on first access."""
        made = cls._make(path, size)
        made._make_data = make
        return made

    @classmethod
    def from_descriptor(cls, path: StrPath, descriptor: int) -> InputFile:
        """Return a file object for an open file, which may grow; the caller closes `descriptor`."""
        made = cls._make(path, os.fstat(descriptor).st_size)
        made._descriptor = os.dup(descriptor)
        return made

    def part(self, path: StrPath, offset: int, size: int) -> InputFile:
        """Return a range as a file called `path`; copies of it stay in the kernel."""
        made = self._make(path, size)
        made._whole, made._start, _ = self.range(offset, size)
        return made

    def range(self, offset: int, size: int) -> FileRange:
        """Return bytes as a range of the underlying file."""
        return FileRange(self if self._whole is None else self._whole, self._start + offset, size)

    @property
    def data(self) -> memoryview:
        """The content, mapped (or read, if small) on first access; raise FileError if shorter."""
        if self._data is None:
            if self._make_data is not None:
                self._data = self._make_data()
            elif self._whole is not None:
                self._data = self._whole.data[self._start : self._start + self._size]
            elif self._descriptor is None or not self._size:  # mmap refuses an empty file
                return memoryview(b"")
            else:
                self._data = load(self.path, self._descriptor, self._size)
        return self._data

    def __len__(self) -> int:
        return self._size

    def read(self, offset: int, size: int) -> bytes | memoryview:
        """Read `size` bytes from `offset` on, without mapping; raise FileError if shorter now."""
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
        """Include bytes that were appended since the file was opened."""
        if self._descriptor is not None:
            self._data, self._size = None, os.fstat(self._descriptor).st_size

    def forget(self) -> None:
        """Release the memory of mapped pages; the next access reads them again."""
        if self._whole is not None:
            self._whole.forget()
        elif self._data is not None and isinstance(self._data.obj, mmap.mmap):
            self._data.obj.madvise(mmap.MADV_DONTNEED)

    def fileno(self) -> int | None:
        """Return the descriptor of the whole content; None if `data` or another file has it."""
        return self._descriptor

    def close(self) -> None:
        """Close the file; slices of `data` that are in use stay valid."""
        self._data, self._size = None, 0  # the map ends with its last slice
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
            raise FileError(self.path, SHORTER) from error  # the likely cause of `error`


class FileRange(NamedTuple):
    """`size` bytes of an input from `offset` on."""

    source: InputFile
    offset: int
    size: int

    @property
    def data(self) -> memoryview:
        """The bytes; mapped if the file is."""
        return self.source.data[self.offset : self.offset + self.size]
