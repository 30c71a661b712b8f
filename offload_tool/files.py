"""Files: mapped for reading, replaced in one step when written, copied inside the kernel.

Memory does not grow with the size of a file: inputs are mapped, and their bytes go to
an output by ``copy_file_range``. An output appears under its name only when it is
complete: it is written to a temporary beside it and renamed.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from offload_tool.errors import FileError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType
    from typing import TypeAlias

StrPath: TypeAlias = "str | os.PathLike[str]"

__all__ = ["InputFile", "OutputFile", "StrPath", "replace_all", "replace_file"]

_NO_KERNEL_COPY = frozenset(
    {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF, errno.ETXTBSY}
)
_COPY_CHUNK = 1 << 30
_READ_CHUNK = 1 << 20


class InputFile:
    """A file opened for reading; `data` is its content, mapped (bytes on disk stay there).

    Use as a context manager. What is no regular file (a pipe) is read into memory.

    :raises FileError: it cannot be opened or mapped.
    """

    def __init__(self, path: StrPath) -> None:
        self.path = path
        try:
            self._file = Path(path).open("rb", buffering=0)  # noqa: SIM115 - see close()
        except OSError as error:
            raise FileError(path, error) from error
        try:
            self._map, self.data = self._read()
        except OSError as error:
            self._file.close()
            raise FileError(path, error) from error

    def _read(self) -> tuple[mmap.mmap | None, memoryview]:
        status = os.fstat(self._file.fileno())
        if not stat.S_ISREG(status.st_mode):
            return None, memoryview(self._file.readall() or b"")
        if status.st_size == 0:  # an empty file cannot be mapped
            return None, memoryview(b"")
        mapped = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        return mapped, memoryview(mapped)

    def __len__(self) -> int:
        return len(self.data)

    def fileno(self) -> int | None:
        """Give the descriptor to copy from, or None where only `data` holds the content."""
        return self._file.fileno() if self._map is not None else None

    def close(self) -> None:
        """Close the file; slices of `data` that are still in use stay valid."""
        self.data = memoryview(b"")
        if self._map is not None:
            with suppress(BufferError):  # slices are in use: the map ends with the last of them
                self._map.close()
        self._file.close()

    def __enter__(self) -> InputFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class OutputFile:
    """A file being written from the front: bytes, zeros, and ranges of other files.

    Made by `replace_file`. `position` is in bytes from the beginning.
    """

    def __init__(self, path: StrPath, descriptor: int, *, seekable: bool) -> None:
        self.path = path
        self.position = 0
        self._descriptor = descriptor
        self._seekable = seekable

    def write(self, data: bytes | memoryview) -> None:
        """Append `data`."""
        view = memoryview(data)
        while view:
            written = os.write(self._descriptor, view[:_COPY_CHUNK])
            self.position += written
            view = view[written:]

    def set_mode(self, mode: int) -> None:
        """Give the file these permission bits instead of the usual ones."""
        os.fchmod(self._descriptor, mode)

    def pad_to(self, position: int) -> None:
        """Append zeros up to `position`, as a hole where the file system has them."""
        gap = position - self.position
        if not self._seekable:
            while gap > 0:
                self.write(bytes(min(gap, _READ_CHUNK)))
                gap = position - self.position
        elif gap > 0:
            os.ftruncate(self._descriptor, position)
            os.lseek(self._descriptor, position, os.SEEK_SET)
            self.position = position

    def copy(self, source: InputFile, offset: int = 0, size: int | None = None) -> None:
        """Append `size` bytes of `source` from `offset` (default: all up to its end).

        :raises FileError: `source` became shorter since it was opened.
        """
        remaining = len(source) - offset if size is None else size
        descriptor = source.fileno()
        if descriptor is not None:
            done = self._copy_in_kernel(descriptor, offset, remaining)
            offset += done
            remaining -= done
        while remaining:
            chunk = self._read(source, descriptor, offset, min(remaining, _READ_CHUNK))
            if not chunk:
                raise FileError(source.path, "became shorter while it was read; try again")
            self.write(chunk)
            offset += len(chunk)
            remaining -= len(chunk)

    @staticmethod
    def _read(
        source: InputFile, descriptor: int | None, offset: int, size: int
    ) -> bytes | memoryview:
        if descriptor is None:
            return source.data[offset : offset + size]
        return os.pread(descriptor, size, offset)  # keeps mapped pages out of memory

    def _copy_in_kernel(self, descriptor: int, offset: int, size: int) -> int:
        """Copy as much as the file systems allow; give the number of bytes copied."""
        done = 0
        while done < size:
            try:
                count = os.copy_file_range(
                    descriptor, self._descriptor, min(size - done, _COPY_CHUNK), offset + done
                )
            except OSError as error:
                if error.errno in _NO_KERNEL_COPY:
                    break
                raise
            if count == 0:
                break
            done += count
            self.position += count
        return done


@contextmanager
def replace_file(path: StrPath) -> Iterator[OutputFile]:
    """Write the file at `path`: it appears, or is replaced, when the block ends well.

    On an exception the old file stays as it was and nothing new is left behind. A
    symbolic link is followed; what is no regular file (``/dev/null``, a pipe) is
    written directly.

    :raises FileError: the file cannot be created or written.
    """
    final = Path(os.path.realpath(path))
    try:
        if final.exists() and not final.is_file():
            with _open_directly(path, final) as output:
                yield output
            return
        mode = stat.S_IMODE(final.stat().st_mode) if final.exists() else None
        temporary = final.with_name(f".{final.name[:200]}.{os.urandom(6).hex()}.tmp")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, 0o666)
    except OSError as error:
        raise FileError(path, error) from error
    try:
        try:
            yield OutputFile(path, descriptor, seekable=True)
            if mode is not None:
                os.fchmod(descriptor, mode)
        finally:
            os.close(descriptor)
        temporary.replace(final)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise FileError(path, error) from error
        raise


@contextmanager
def _open_directly(path: StrPath, final: Path) -> Iterator[OutputFile]:
    descriptor = os.open(final, os.O_WRONLY | os.O_CLOEXEC)
    try:
        yield OutputFile(path, descriptor, seekable=False)
    finally:
        os.close(descriptor)


@contextmanager
def replace_all(paths: Sequence[StrPath]) -> Iterator[list[OutputFile]]:
    """Write several files: all are replaced when the block ends well, none otherwise."""
    with ExitStack() as stack:
        yield [stack.enter_context(replace_file(path)) for path in paths]
