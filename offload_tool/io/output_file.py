"""Write a file sequentially; ranges of other files are copied inside the kernel."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable

from offload_tool.errors import FileError
from offload_tool.io.input_file import FileRange, InputFile
from offload_tool.io.limits import Budget
from offload_tool.io.paths import StrPath, naming

PERMISSIONS = 0o777
"""No set-user-ID or set-group-ID bits: new content must not run as another user."""

_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_COPY_CHUNK = 1 << 30
_READ_CHUNK = 1 << 20
_GATHERED = 1 << 18  # bytes; fits into the processor's cache
_SMALL = 1 << 16  # bytes; the kernel copies larger ranges faster
_CLOSE = 1 << 12  # bytes; smaller gaps are read and skipped
_MAX_PARTS = 4096  # gathered pieces, each an object
_RESERVED = 1 << 16  # bytes; reserving less gains nothing


def set_permissions(descriptor: int, mode: int) -> None:
    """Set the permission bits; if the system refuses, fewer may stay. Raise OSError."""
    try:
        os.fchmod(descriptor, mode)
    except OSError:
        if os.fstat(descriptor).st_mode & PERMISSIONS & ~mode:
            raise


class OutputFile:
    """A file that `replace_file` makes; `position` is in bytes from the beginning."""

    def __init__(
        self, path: StrPath, descriptor: int, *, seekable: bool, budget: Budget | None = None
    ) -> None:
        self.path = path
        self._budget = budget
        self.position = 0
        self.mode: int | None = None
        """Permission bits; None for the default."""
        self.unchanged = False
        """Whether the old file was equal and stayed; set after the block of `replace_file`."""
        self._descriptor = descriptor
        self.seekable = seekable
        """Whether written bytes can still be changed (not in a pipe)."""

    def write(self, data: bytes | memoryview) -> None:
        """Append `data`; like all that write, raise LimitError if the run's budget is exhausted."""
        self._charge(len(data))
        self._write(data)

    def _charge(self, size: int) -> None:
        if self._budget is not None and size > 0:
            self._budget.write(size, self.path)

    def _write(self, data: bytes | memoryview) -> None:
        view = memoryview(data)
        try:  # not `naming`, which would double the time of a small write
            while view:
                written = os.write(self._descriptor, view[:_COPY_CHUNK])
                self.position += written
                view = view[written:]
        except OSError as error:
            raise FileError(self.path, error) from error

    def append(self, pieces: Iterable[bytes | memoryview | FileRange | int]) -> None:
        """Append many pieces; small ones are gathered to save system calls. Raise FileError.

        An integer is a number of zeros. Small ranges that are close to each other in a file are
        read together.
        """
        parts: list[bytes | memoryview] = []
        used = 0
        kept: bytes | memoryview = b""  # of the source `last`, from `start` to `end`
        last, start, end = None, 0, 0
        for piece in pieces:
            if isinstance(piece, FileRange):
                source, offset, size = piece
            else:
                size = piece if isinstance(piece, int) else len(piece)
            if not size:
                continue
            if size > _SMALL:
                self._flush(parts)
                used = 0
                if isinstance(piece, FileRange):
                    self.copy(*piece)
                elif isinstance(piece, int):
                    self.pad_to(self.position + size)
                else:
                    self.write(piece)
                continue
            if isinstance(piece, FileRange):
                if source is not last or offset < start or offset + size > end:
                    is_close = source is last and start <= offset < end + _CLOSE
                    ahead = min(_GATHERED, len(source) - offset) if is_close else size
                    kept = source.read(offset, max(ahead, size))
                    last, start, end = source, offset, offset + len(kept)
                parts.append(kept[offset - start : offset - start + size])
            else:
                parts.append(bytes(size) if isinstance(piece, int) else piece)
            used += size
            if used > _GATHERED or len(parts) >= _MAX_PARTS:
                self._flush(parts)
                used = 0
        self._flush(parts)

    def _flush(self, parts: list[bytes | memoryview]) -> None:
        self.write(b"".join(parts))
        parts.clear()

    def patch(self, position: int, data: bytes) -> None:
        """Overwrite bytes at `position` with `data`; needs `seekable`."""
        view = memoryview(data)
        with naming(self.path):
            while view:
                written = os.pwrite(self._descriptor, view, position)
                position += written
                view = view[written:]

    def set_mode(self, mode: int) -> None:
        """Set these permission bits, without set-user-ID, set-group-ID and sticky bits."""
        self.mode = mode & PERMISSIONS
        with naming(self.path):
            set_permissions(self._descriptor, self.mode)

    def reserve(self, size: int) -> None:
        """Reserve disk space for `size` more bytes, to detect a full disk now; raise LimitError."""
        if self._budget is not None:
            self._budget.check_write(size, self.path)
        self._allocate(self.position, size)

    def _allocate(self, position: int, size: int) -> None:
        if self.seekable and size >= _RESERVED:
            try:
                os.posix_fallocate(self._descriptor, position, size)
            except OSError as error:
                if error.errno in _NO_SPACE:
                    raise FileError(self.path, error) from error

    def pad_to(self, position: int) -> None:
        """Append zeros up to `position`, as a hole if the file system supports it."""
        gap = position - self.position
        self._charge(gap)
        if self.seekable and gap > 0:
            with naming(self.path):
                os.lseek(self._descriptor, position, os.SEEK_SET)
            self.position = position
        while not self.seekable and gap > 0:
            self._write(bytes(min(gap, _READ_CHUNK)))
            gap = position - self.position

    def finish(self) -> None:
        """Set the file's size, which may include trailing zeros or exclude reserved space."""
        if self.seekable:
            # Otherwise ext4 writes out unallocated blocks before it replaces a file.
            self._allocate(0, self.position)
            with naming(self.path):
                os.ftruncate(self._descriptor, self.position)

    def copy(self, source: InputFile, offset: int = 0, size: int | None = None) -> None:
        """Append `size` bytes of `source` (default: up to its end); raise FileError if shorter."""
        remaining = len(source) - offset if size is None else size
        source, offset, _ = source.range(offset, remaining)
        self._charge(remaining)
        descriptor = source.fileno()
        if descriptor is not None:
            done = self._copy_in_kernel(descriptor, offset, remaining)
            offset += done
            remaining -= done
        while remaining:
            chunk = source.read(offset, min(remaining, _READ_CHUNK))
            self._write(chunk)
            offset += len(chunk)
            remaining -= len(chunk)

    def _copy_in_kernel(self, descriptor: int, offset: int, size: int) -> int:
        """Copy as much as the file systems allow; return the number of bytes copied."""
        done = 0
        while done < size:
            try:
                count = os.copy_file_range(
                    descriptor, self._descriptor, min(size - done, _COPY_CHUNK), offset + done
                )
            except OSError:  # refused, or an error that reading or writing meets again
                break
            if count == 0:
                break
            done += count
            self.position += count
        return done
