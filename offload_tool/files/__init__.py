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
from typing import TYPE_CHECKING, NamedTuple

from offload_tool.errors import FileError, UsageError
from offload_tool.files import mapped
from offload_tool.files.budget import running
from offload_tool.files.interruption import check_stopped, shielded
from offload_tool.files.regular import open_regular, read_all

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import TypeAlias

    from offload_tool.files.budget import Budget

StrPath: TypeAlias = "str | os.PathLike[str]"

__all__ = [
    "STDIN",
    "STDOUT",
    "FileRange",
    "InputFile",
    "OutputFile",
    "StrPath",
    "have_same_content",
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
_GATHERED = 1 << 18  # bytes; stays in the processor's cache
_SMALL = 1 << 16  # bytes; larger ranges are faster copied inside the kernel
_RESERVED = 1 << 16  # bytes; nothing is gained for smaller files
_DESCRIPTORS = "/proc/self/fd"
_PERMISSIONS = 0o777  # a file of new content does not run as someone else
_WRITABLE = 0o222


class InputFile:
    """A file opened for reading; `data` is its content, mapped (bytes on disk stay there).

    Use as a context manager; see `offload_tool.files.regular` for what is opened. What is not a
    regular file (standard input) is read into memory.

    :raises FileError: it cannot be opened or read, or is of no kind that can be.
    """

    def __init__(self, path: StrPath) -> None:
        self.path = path
        self._whole: InputFile | None = None
        self._start = 0
        self._descriptor: int | None = None
        self._data: memoryview | None = None
        mapped.forget(path)
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
        """Give `data`, which was made from the file at `path`, the form of a file."""
        return cls._make(path, len(data), data=data)

    @classmethod
    def from_descriptor(cls, path: StrPath, descriptor: int) -> InputFile:
        """Read a file that is open (and may still grow); `descriptor` stays the caller's."""
        size = os.fstat(descriptor).st_size
        return cls._make(path, size, descriptor=os.dup(descriptor))

    def part(self, path: StrPath, offset: int, size: int) -> InputFile:
        """Give `size` bytes from `offset` on as a file, which `path` names; it ends with this one.

        They are copied from where they are: inside the kernel, if this is a file on disk.
        """
        whole = self if self._whole is None else self._whole
        return self._make(path, size, whole=whole, start=self._start + offset)

    def range(self, offset: int, size: int) -> FileRange:
        """Give bytes as a range of the file that this is, or is a part of."""
        return FileRange(self if self._whole is None else self._whole, self._start + offset, size)

    @property
    def data(self) -> memoryview:
        """The content. It is mapped, or read if it is small, when it is first asked for.

        :raises FileError: the file became shorter since it was opened.
        """
        if self._data is None:
            if self._whole is not None:
                self._data = self._whole.data[self._start : self._start + self._size]
                return self._data
            if self._descriptor is None or not self._size:  # an empty file cannot be mapped
                return memoryview(b"")
            self._data = mapped.load(self.path, self._descriptor, self._size)
        return self._data

    def __len__(self) -> int:
        return self._size

    def read(self, offset: int, size: int) -> bytes | memoryview:
        """Give `size` bytes from `offset` on, read anew: this maps nothing.

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
            raise FileError(self.path, mapped.SHORTER)
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
            raise FileError(self.path, mapped.SHORTER)

    def grow(self) -> None:
        """Take in what was added to the file since it was opened."""
        if self._descriptor is not None:
            self._data, self._size = None, os.fstat(self._descriptor).st_size

    def forget(self) -> None:
        """Give the memory of mapped pages back; they are read again when they are needed."""
        if self._whole is not None:
            self._whole.forget()
        elif self._data is not None and isinstance(self._data.obj, mmap.mmap):
            self._data.obj.madvise(mmap.MADV_DONTNEED)

    def fileno(self) -> int | None:
        """Give the descriptor of all of the content; None where `data` or another file has it."""
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
        shorter = descriptor is not None and mapped.is_broken(self.path, descriptor, size)
        self.close()
        if shorter and (error is None or isinstance(error, Exception)):
            mapped.forget(self.path)
            raise FileError(self.path, mapped.SHORTER) from error  # whatever that led to


class FileRange(NamedTuple):
    """Bytes of an input: `size` of them from `offset` on."""

    source: InputFile
    offset: int
    size: int

    @property
    def data(self) -> memoryview:
        """The bytes, mapped where the file is."""
        return self.source.data[self.offset : self.offset + self.size]


class OutputFile:
    """A file being written from the front: bytes, zeros, and ranges of other files.

    Made by `replace_file`. `position` is in bytes from the beginning.
    """

    def __init__(
        self,
        path: StrPath,
        descriptor: int,
        *,
        seekable: bool,
        budget: Budget | None = None,
    ) -> None:
        self.path = path
        self._budget = budget
        self.position = 0
        self.mode: int | None = None
        """Permission bits; None: the usual ones."""
        self.kept = False
        """Whether the old file, which was equal, stayed; known after `replace_file`'s block."""
        self._descriptor = descriptor
        self._seekable = seekable

    def write(self, data: bytes | memoryview) -> None:
        """Append `data`.

        :raises LimitError: this and all other methods that write: the run's budget is used up.
        """
        self._charge(len(data))
        self._write(data)

    def _charge(self, size: int) -> None:
        if self._budget is not None and size > 0:
            self._budget.write(size, self.path)

    def _write(self, data: bytes | memoryview) -> None:
        view = memoryview(data)
        try:
            while view:
                written = os.write(self._descriptor, view[:_COPY_CHUNK])
                self.position += written
                view = view[written:]
        except OSError as error:
            raise FileError(self.path, error) from error

    def append(self, pieces: Iterable[bytes | memoryview | FileRange | int]) -> None:
        """Append many pieces; small ones are gathered, so that there are few system calls.

        A number stands for so many zeros.

        :raises FileError: an input became shorter since it was opened.
        """
        room = memoryview(bytearray(_GATHERED))
        used = 0
        for piece in pieces:
            if isinstance(piece, int):
                size = piece
            else:
                size = piece.size if isinstance(piece, FileRange) else len(piece)
            if used + size > _GATHERED or size > _SMALL:
                self.write(room[:used])
                used = 0
            if size > _SMALL:
                if isinstance(piece, int):
                    self.pad_to(self.position + size)
                elif isinstance(piece, FileRange):
                    self.copy(*piece)
                else:
                    self.write(piece)
            elif size:
                part = room[used : used + size]
                if isinstance(piece, FileRange):
                    piece.source.read_into(part, piece.offset)
                else:
                    part[:] = bytes(size) if isinstance(piece, int) else piece
                used += size
        self.write(room[:used])

    @property
    def seekable(self) -> bool:
        """Tell whether bytes already written can still be changed (not in a pipe)."""
        return self._seekable

    def patch(self, position: int, data: bytes) -> None:
        """Put `data` over bytes already written at `position`; needs `seekable`."""
        view = memoryview(data)
        with _naming(self.path):
            while view:
                written = os.pwrite(self._descriptor, view, position)
                position += written
                view = view[written:]

    def set_mode(self, mode: int) -> None:
        """Give the file these permission bits instead of the usual ones, or the old file's.

        Set-user-ID, set-group-ID and sticky bits are not among them.
        """
        self.mode = mode & _PERMISSIONS
        with _naming(self.path):
            os.fchmod(self._descriptor, self.mode)

    def reserve(self, size: int) -> None:
        """Make room for `size` more bytes, so that a full disk is found out now.

        :raises LimitError: they are more than the run's budget has left.
        """
        if self._budget is not None:
            self._budget.check_write(size, self.path)
        self._allocate(self.position, size)

    def _allocate(self, position: int, size: int) -> None:
        if self._seekable and size >= _RESERVED:
            try:
                os.posix_fallocate(self._descriptor, position, size)
            except OSError as error:
                if error.errno not in _NO_KERNEL_COPY:
                    raise FileError(self.path, error) from error

    def pad_to(self, position: int) -> None:
        """Append zeros up to `position`, as a hole where the file system has them."""
        gap = position - self.position
        self._charge(gap)
        if self._seekable and gap > 0:
            with _naming(self.path):
                os.lseek(self._descriptor, position, os.SEEK_SET)
            self.position = position
        while not self._seekable and gap > 0:
            self._write(bytes(min(gap, _READ_CHUNK)))
            gap = position - self.position

    def finish(self) -> None:
        """Give the file its size: zeros may be its end, and more may be reserved."""
        if self._seekable:
            # ext4 would write out blocks that have no place yet before it replaces a file.
            self._allocate(0, self.position)
            with _naming(self.path):
                os.ftruncate(self._descriptor, self.position)

    def copy(self, source: InputFile, offset: int = 0, size: int | None = None) -> None:
        """Append `size` bytes of `source` from `offset` (default: all up to its end).

        :raises FileError: `source` became shorter since it was opened.
        """
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
                raise FileError(self.path, error) from error
            if count == 0:
                break
            done += count
            self.position += count
        return done


@contextmanager
def replace_file(path: StrPath, *, keep_equal: bool = False) -> Iterator[OutputFile]:
    """Write the file at `path`: it appears, or is replaced, when the block ends well.

    On an exception the old file stays as it was and nothing new is left behind. A
    symbolic link is followed; what is not a regular file (``/dev/null``, a pipe) is
    written directly. The new file has the old one's permissions, without set-user-ID,
    set-group-ID and sticky bits. A read-only file is not replaced. With `keep_equal`, an old
    file of the very same content is left
    untouched, its times too; the output's `kept` tells so after the block.

    :raises FileError: the file cannot be created or written, or an input became shorter.
    """
    with replace_all([path], keep_equal=keep_equal) as (output,):
        yield output


@contextmanager
def replace_all(
    paths: Sequence[StrPath], *, keep_equal: bool = False
) -> Iterator[list[OutputFile]]:
    """Write several files as `replace_file` does: when one cannot be written, none is replaced.

    :raises UsageError: two of them are one file.
    """
    outputs: list[OutputFile] = []
    replacements: list[_Replacement] = []
    with ExitStack() as stack:
        for path in paths:
            with _naming(path):
                if _is_direct(path):
                    outputs.append(stack.enter_context(_open_directly(path)))
                else:
                    with shielded():
                        replacements.append(stack.enter_context(_Replacement(path)))
                    outputs.append(replacements[-1].file)
        _refuse_equal(replacements)
        try:
            yield outputs
        except OSError as error:  # of what is not written through an OutputFile
            raise FileError(error.filename or paths[0], error) from error
        # Only when nothing can fail any more for want of room, the first is replaced.
        for replacement in replacements:
            replacement.complete(keep_equal=keep_equal)
        mapped.check_maps()
        check_stopped()
        with shielded():
            for replacement in replacements:
                replacement.link()
            for replacement in replacements:
                replacement.take_name()


def _is_direct(path: StrPath) -> bool:
    """Tell whether what is there is written as it is: no regular file, or standard output.

    :raises OSError: a link leads nowhere, round in circles say.
    """
    if str(path) == STDOUT:
        return True
    try:
        return not stat.S_ISREG(Path(path).stat().st_mode)
    except FileNotFoundError:
        return False


def _refuse_equal(replacements: Sequence[_Replacement]) -> None:
    paths: dict[Path, StrPath] = {}
    for replacement in replacements:
        other = paths.setdefault(replacement.final, replacement.path)
        if other is not replacement.path:
            raise UsageError(
                f"'{other}' and '{replacement.path}' are one output; give each a file of its own"
            )


@contextmanager
def _naming(path: StrPath) -> Iterator[None]:
    """Make errors of the operating system such that name `path`."""
    try:
        yield
    except OSError as error:
        raise FileError(path, error) from error


@contextmanager
def _open_directly(path: StrPath) -> Iterator[OutputFile]:
    # Standard output is not opened anew: that would write over what is in it already.
    own = str(path) == STDOUT
    descriptor = os.dup(1) if own else os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        yield OutputFile(path, descriptor, seekable=False, budget=running())
    finally:
        os.close(descriptor)


class _Replacement:
    """A new file beside the one that it will replace, until it has that one's name."""

    def __init__(self, path: StrPath) -> None:
        self.path = path
        self.final = Path(os.path.realpath(path))
        old = stat.S_IMODE(self.final.stat().st_mode) if self.final.exists() else None
        self._is_read_only = old is not None and not old & _WRITABLE
        name = f".{self.final.name[:200]}.{os.urandom(6).hex()}.tmp"
        self._temporary = self.final.with_name(name)
        self._descriptor, self._named = _open_temporary(self._temporary)
        self.file = OutputFile(path, self._descriptor, seekable=True, budget=running())
        self.file.mode = None if old is None else old & _PERMISSIONS

    def complete(self, *, keep_equal: bool) -> None:
        """Give the file its size and permissions, or find that the old one can stay."""
        self.file.finish()
        if keep_equal and _same_content(self._descriptor, self.final):
            self.file.kept = True
            return
        if self._is_read_only:
            raise FileError(self.path, "is read-only; make it writable, or remove it")
        if self.file.mode is not None:
            with _naming(self.path):
                os.fchmod(self._descriptor, self.file.mode)

    def link(self) -> None:
        """Give the file a name, for now that of the temporary."""
        if not self._named and not self.file.kept:
            with _naming(self.path):
                # Python follows the link only when it is given a folder, which is not used.
                own = f"{_DESCRIPTORS}/{self._descriptor}"
                os.link(own, self._temporary, src_dir_fd=self._descriptor)
            self._named = True

    def take_name(self) -> None:
        """Replace the old file."""
        if not self.file.kept:
            with _naming(self.path):
                self._temporary.replace(self.final)
            self._named = False

    def __enter__(self) -> _Replacement:
        return self

    def __exit__(self, *_: object) -> None:
        with shielded():
            os.close(self._descriptor)
            if self._named:
                self._temporary.unlink(missing_ok=True)


def _open_temporary(path: Path) -> tuple[int, bool]:
    """Open a file beside `path`: without a name where possible, else named `path`.

    A file without a name is gone with the process, even one that is killed.
    """
    if Path(_DESCRIPTORS).is_dir():  # it is named through this folder later
        with suppress(OSError):  # the file system cannot do it
            flags = os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC
            return os.open(path.parent, flags, 0o666), False
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    return os.open(path, flags, 0o666), True


def have_same_content(path: StrPath, other: StrPath) -> bool:
    """Tell whether the file at `other` can be read, is not a link, and has the bytes of `path`.

    :raises FileError: the file at `path` cannot be read.
    """
    if not stat.S_ISREG(_mode_of(other)):
        return False
    with InputFile(path) as source:
        descriptor = source.fileno()
        return descriptor is not None and _same_content(descriptor, Path(other))


def _mode_of(path: StrPath) -> int:
    try:
        return os.lstat(path).st_mode
    except OSError:
        return 0


def _same_content(descriptor: int, path: Path) -> bool:
    """Tell whether the file at `path` can be read and has the bytes of the one that is open."""
    size = os.fstat(descriptor).st_size
    try:
        with path.open("rb", buffering=0) as other:
            if os.fstat(other.fileno()).st_size != size:
                return False
            ours, theirs = bytearray(_READ_CHUNK), bytearray(_READ_CHUNK)
            for position in range(0, size, _READ_CHUNK):
                wanted = min(size - position, _READ_CHUNK)
                if os.preadv(descriptor, [ours], position) != wanted:
                    return False
                if os.preadv(other.fileno(), [theirs], position) != wanted or ours != theirs:
                    return False
            return True
    except OSError:
        return False
