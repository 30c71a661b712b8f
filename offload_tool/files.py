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
    from typing import TypeAlias

StrPath: TypeAlias = "str | os.PathLike[str]"

__all__ = [
    "STDIN",
    "STDOUT",
    "InputFile",
    "OutputFile",
    "StrPath",
    "replace_all",
    "replace_file",
]

STDIN = "/dev/stdin"
STDOUT = "/dev/stdout"

_NO_KERNEL_COPY = frozenset(
    {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF, errno.ETXTBSY}
)
_COPY_CHUNK = 1 << 30
_READ_CHUNK = 1 << 20
_RESERVED = 1 << 16  # bytes; nothing is gained for smaller files
_DESCRIPTORS = "/proc/self/fd"


class InputFile:
    """A file opened for reading; `data` is its content, mapped (bytes on disk stay there).

    Use as a context manager. What is no regular file (a pipe) is read into memory.

    :raises FileError: it cannot be opened or read.
    """

    def __init__(self, path: StrPath) -> None:
        self.path = path
        self._descriptor: int | None = None
        self._data: memoryview | None = None
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                status = os.fstat(descriptor)
                if stat.S_ISREG(status.st_mode):
                    self._size = status.st_size
                    self._descriptor = descriptor
                    return
                with os.fdopen(os.dup(descriptor), "rb", buffering=0) as file:
                    self._data = memoryview(file.readall())
                self._size = len(self._data)
            finally:
                if self._descriptor is None:
                    os.close(descriptor)
        except OSError as error:
            raise FileError(path, error) from error

    @classmethod
    def from_data(cls, path: StrPath, data: memoryview) -> InputFile:
        """Give `data`, which was made from the file at `path`, the form of a file."""
        made = cls.__new__(cls)
        made.path, made._descriptor = path, None
        made._data, made._size = data, len(data)
        return made

    @classmethod
    def from_descriptor(cls, path: StrPath, descriptor: int) -> InputFile:
        """Read a file that is open (and may still grow); `descriptor` stays the caller's."""
        made = cls.__new__(cls)
        made.path, made._descriptor = path, os.dup(descriptor)
        made._data, made._size = None, os.fstat(descriptor).st_size
        return made

    @property
    def data(self) -> memoryview:
        """The content. It is mapped when it is first asked for."""
        if self._data is None:
            if self._descriptor is None or not self._size:  # an empty file cannot be mapped
                return memoryview(b"")
            try:
                mapped = mmap.mmap(self._descriptor, self._size, access=mmap.ACCESS_READ)
            except (OSError, ValueError) as error:  # ValueError: it became shorter
                raise FileError(self.path, str(error)) from error
            self._data = memoryview(mapped)
        return self._data

    def __len__(self) -> int:
        return self._size

    def forget(self) -> None:
        """Give the memory of mapped pages back; they are read again when they are needed."""
        if self._descriptor is not None and self._data is not None:
            self._data.obj.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]

    def fileno(self) -> int | None:
        """Give the descriptor to copy from, or None where only `data` holds the content."""
        return self._descriptor

    def close(self) -> None:
        """Close the file; slices of `data` that are still in use stay valid."""
        self._data, self._size = None, 0  # the map ends with the last slice
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> InputFile:
        return self

    def __exit__(self, *_: object) -> None:
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

    @property
    def seekable(self) -> bool:
        """Tell whether bytes already written can still be changed (not in a pipe)."""
        return self._seekable

    def patch(self, position: int, data: bytes) -> None:
        """Put `data` over bytes already written at `position`; needs `seekable`."""
        view = memoryview(data)
        while view:
            written = os.pwrite(self._descriptor, view, position)
            position += written
            view = view[written:]

    def set_mode(self, mode: int) -> None:
        """Give the file these permission bits instead of the usual ones."""
        os.fchmod(self._descriptor, mode)

    def reserve(self, size: int) -> None:
        """Make room for `size` more bytes, so that a full disk is found out now."""
        self._allocate(self.position, size)

    def _allocate(self, position: int, size: int) -> None:
        if self._seekable and size >= _RESERVED:
            try:
                os.posix_fallocate(self._descriptor, position, size)
            except OSError as error:
                if error.errno not in _NO_KERNEL_COPY:
                    raise

    def pad_to(self, position: int) -> None:
        """Append zeros up to `position`, as a hole where the file system has them."""
        gap = position - self.position
        if self._seekable and gap > 0:
            os.lseek(self._descriptor, position, os.SEEK_SET)
            self.position = position
        while not self._seekable and gap > 0:
            self.write(bytes(min(gap, _READ_CHUNK)))
            gap = position - self.position

    def finish(self) -> None:
        """Give the file its size: zeros may be its end, and more may be reserved."""
        if self._seekable:
            # ext4 would write out blocks that have no place yet before it replaces a file.
            self._allocate(0, self.position)
            os.ftruncate(self._descriptor, self.position)

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
        if str(path) == STDOUT or (Path(path).exists() and not Path(path).is_file()):
            with _open_directly(path) as output:
                yield output
            return
        mode = stat.S_IMODE(final.stat().st_mode) if final.exists() else None
        temporary = final.with_name(f".{final.name[:200]}.{os.urandom(6).hex()}.tmp")
        descriptor, named = _open_temporary(temporary)
    except OSError as error:
        raise FileError(path, error) from error
    try:
        try:
            output = OutputFile(path, descriptor, seekable=True)
            yield output
            output.finish()
            if mode is not None:
                os.fchmod(descriptor, mode)
            if not named:
                # Python follows the link only when it is given a folder, which is not used.
                os.link(f"{_DESCRIPTORS}/{descriptor}", temporary, src_dir_fd=descriptor)
        finally:
            os.close(descriptor)
        temporary.replace(final)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise FileError(path, error) from error
        raise


def _open_temporary(path: Path) -> tuple[int, bool]:
    """Open a file beside `path`: without a name where possible, else named `path`.

    A file without a name is gone with the process, even one that is killed.
    """
    if Path(_DESCRIPTORS).is_dir():  # it is named through this folder later
        with suppress(OSError):  # the file system cannot do it
            flags = os.O_WRONLY | os.O_TMPFILE | os.O_CLOEXEC
            return os.open(path.parent, flags, 0o666), False
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    return os.open(path, flags, 0o666), True


@contextmanager
def _open_directly(path: StrPath) -> Iterator[OutputFile]:
    # Standard output is not opened anew: that would write over what is in it already.
    own = str(path) == STDOUT
    descriptor = os.dup(1) if own else os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        yield OutputFile(path, descriptor, seekable=False)
    finally:
        os.close(descriptor)


@contextmanager
def replace_all(paths: Sequence[StrPath]) -> Iterator[list[OutputFile]]:
    """Write several files: all are replaced when the block ends well, none otherwise."""
    with ExitStack() as stack:
        yield [stack.enter_context(replace_file(path)) for path in paths]
