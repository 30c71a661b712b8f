"""Files that are read: mapped, so that memory does not grow with their size."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from offload_tool.errors import FileError
from offload_tool.io import mapped_file
from offload_tool.io.open_regular import open_regular, read_all

if TYPE_CHECKING:
    from offload_tool.io.paths import StrPath


class InputFile:
    """A file opened for reading; `data` is its content, mapped (bytes on disk stay there).

    Use as a context manager; see `offload_tool.io.open_regular` for what is opened. What is not a
    regular file (standard input) is read into memory.

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
            self._data = mapped_file.load(self.path, self._descriptor, self._size)
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
            raise FileError(self.path, mapped_file.SHORTER)
        return found

    def read_into(self, room: memoryview, offset: int) -> None:
        """Fill `room` with the bytes from `offset` on, as `read` reads them.

        :raises FileError: the file became shorter since it was opened.
        """
        if self._descriptor is None:
            room[:] = self.read(offset, len(room))
            return
        try:
            count = os.preadv(self._descriptor, [room], offset)
        except OSError as error:
            raise FileError(self.path, error) from error
        if count < len(room):
            raise FileError(self.path, mapped_file.SHORTER)

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
            raise FileError(self.path, mapped_file.SHORTER) from error  # whatever that led to


class FileRange(NamedTuple):
    """Bytes of an input: `size` of them from `offset` on."""

    source: InputFile
    offset: int
    size: int

    @property
    def data(self) -> memoryview:
        """The bytes, mapped where the file is."""
        return self.source.data[self.offset : self.offset + self.size]
