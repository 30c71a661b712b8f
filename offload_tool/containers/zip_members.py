"""Read the files in a zip file (a wheel) without unpacking it into a folder.

A stored member is a range of the zip file. A compressed member is unpacked into an anonymous file,
one at a time, if its first bytes are of interest. It may not exceed the size in the zip file's
directory, which is requested from the run's budget first.

A member's neighbours are those of the tree after installation:

::

    demo/lib/a.so          in demo-1.0-...whl
    .kpack/demo_*.kpack    in it, or in another wheel that is installed over it

Members are read on demand. All compressed ones are unpacked once each, into a common anonymous file
within the run's budget. Only members are found, whatever the path.
"""

from __future__ import annotations

import bisect
import os
import posixpath
import shutil
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from typing import BinaryIO, NamedTuple

from offload_tool.containers.file_format import FileFormat, recognise
from offload_tool.errors import ContentError, FileError, FormatError, OffloadError, UnsupportedError
from offload_tool.formats.wheel import installed_path
from offload_tool.formats.zip_writer import content_offset
from offload_tool.io import InputFile, StrPath
from offload_tool.io.limits import effective_budget
from offload_tool.io.spool import Spool
from offload_tool.io.temporary_directory import system_temp_folder

_PEEK = 4096
_ROW = 64  # smallest row of the directory assumed, in bytes; the format needs 46 without a name
_CHUNK = 1 << 20
_ENCRYPTED = 1


@contextmanager
def open_zip(source: InputFile, label: str) -> Iterator[zipfile.ZipFile]:
    """Read a zip file's directory; messages call it `label`. Raise FormatError if it is broken."""
    with ExitStack() as stack:
        with _reading(label):
            stream = _Directory(_stream(source, stack), len(source), label)
            archive = zipfile.ZipFile(stream)
            stream.is_read = True
        yield archive


class _Directory:
    """The bytes of a zip file; `zipfile` reads the directory at once, so this checks the budget."""

    def __init__(self, stream: BinaryIO, size: int, label: str) -> None:
        self._stream = stream
        self._size = size
        self._label = label
        self.is_read = False
        self.seek, self.tell, self.close = stream.seek, stream.tell, stream.close

    def read(self, size: int = -1) -> bytes:
        """Read bytes as a file does; raise LimitError if they can have too many directory rows."""
        if not self.is_read and size > _PEEK:
            effective_budget(self._size).check_members(size // _ROW, self._label)
        return self._stream.read(size)

    def seekable(self) -> bool:
        return True


@contextmanager
def open_zip_member(
    archive: zipfile.ZipFile,
    row: zipfile.ZipInfo,
    source: InputFile,
    label: str,
    wanted: Callable[[memoryview], bool],
) -> Iterator[tuple[InputFile, int | None] | None]:
    """Yield a member's content and its offset in `source` (None if it is compressed).

    Yields None for a compressed member whose first bytes are not `wanted`; `label` is for messages.
    Raises FormatError, UnsupportedError or LimitError: it is broken, encrypted, or too large.
    """
    if row.compress_type == zipfile.ZIP_STORED and not row.flag_bits & _ENCRYPTED:
        # Nothing is decompressed, but many rows can refer to the same bytes.
        effective_budget(len(source)).unpack(row.file_size, label)
        offset = content_offset(source, row, row.file_size, label=label)
        yield source.part(label, offset, row.file_size), offset
        return
    with _reading(label), archive.open(row) as member:
        begin = member.read(_PEEK)
    if not wanted(memoryview(begin)):
        yield None
        return
    with Spool() as spool:
        free = shutil.disk_usage(system_temp_folder()).free
        if row.file_size > free:
            raise FormatError(
                f"unpacking needs {row.file_size} bytes, only {free} are free", path=label
            )
        effective_budget(row.compress_size).unpack(row.file_size, label)
        with _reading(label), archive.open(row) as member:
            while chunk := member.read(_CHUNK):  # at most the size in the directory
                spool.out.write(chunk)
        if spool.out.position != row.file_size:
            message = f"expected {row.file_size} bytes, found {spool.out.position}"
            raise FormatError(message, path=label)
        with spool.read(label) as content:
            yield content, None


@contextmanager
def _reading(label: str) -> Iterator[None]:
    """Convert the exceptions of `zipfile` to those of this package."""
    try:
        yield
    except OffloadError:
        raise
    except OSError as error:
        raise FileError(label, error) from error
    except (NotImplementedError, RuntimeError) as error:  # an unknown method, or encryption
        message = f"cannot be read from the zip file: {error}"
        raise UnsupportedError(message, path=label) from error
    except Exception as error:
        # Broken data: zlib.error, struct.error, BadZipFile, EOFError, ...
        raise FormatError(f"cannot be read from the zip file: {error}", path=label) from error


def _stream(source: InputFile, stack: ExitStack) -> BinaryIO:
    """Return the bytes of a zip file as a stream."""
    descriptor = source.fileno()
    if descriptor is None:  # a zip file stored in another
        effective_budget(len(source)).unpack(len(source), source.path)
        spool = stack.enter_context(Spool())
        spool.out.write(source.data)
        descriptor = spool.descriptor
        os.lseek(descriptor, 0, os.SEEK_SET)
    return stack.enter_context(os.fdopen(os.dup(descriptor), "rb"))


# -- neighbours of a member ------------------------------------------------------------------


class _Member(NamedTuple):
    archive: zipfile.ZipFile
    source: InputFile
    label: str
    row: zipfile.ZipInfo


class ZipOverlay:
    """The members of a zip file and, after them, of the readable `others` installed over it."""

    def __init__(
        self,
        archive: zipfile.ZipFile,
        source: InputFile,
        label: str,
        others: Sequence[StrPath] = (),
    ) -> None:
        self._own = archive, source, label
        self._others = others
        self._stack = ExitStack()
        self._unpacked: dict[str, InputFile] = {}
        self.where = f"from its folder in the zip file{'s' if others else ''}"

    @cached_property
    def _members(self) -> dict[str, _Member]:
        found: dict[str, _Member] = {}
        for path in reversed(self._others):
            try:
                source = self._stack.enter_context(InputFile(path))
                if recognise(source.data) is FileFormat.ZIP:
                    archive = self._stack.enter_context(open_zip(source, str(path)))
                    found.update(_tree_members(archive, source, str(path)))
            except (ContentError, FileError):
                continue
        found.update(_tree_members(*self._own))
        return found

    @cached_property
    def _names(self) -> list[str]:
        return sorted(self._members)

    @cached_property
    def _spool(self) -> Spool:
        return self._stack.enter_context(Spool())

    def has(self, path: str) -> bool:
        """Return whether a file exists at a path."""
        return path in self._members

    def matching(self, prefix: str, suffix: str) -> Iterator[str]:
        """Yield the sorted paths without a slash between `prefix` and `suffix`."""
        shortest = len(prefix) + len(suffix)
        for at in range(bisect.bisect_left(self._names, prefix), len(self._names)):
            name = self._names[at]
            if not name.startswith(prefix):
                return
            if len(name) >= shortest and name.endswith(suffix):
                middle = name[len(prefix) : len(name) - len(suffix)]
                if "/" not in middle:
                    yield name

    def open(self, path: str) -> InputFile:
        """Return a file, valid while the overlay is open; errors are those of `open_zip_member`."""
        if path not in self._unpacked:
            archive, source, label, row = self._members[path]
            label = f"{label}({row.filename})"
            with open_zip_member(archive, row, source, label, lambda _: True) as member:
                assert member is not None  # noqa: S101 - all are wanted
                content, offset = member
                if offset is None:
                    copy = self._spool.append(lambda out: out.copy(content))
                    content = copy.source.part(label, copy.offset, copy.size)
                self._unpacked[path] = content
        return self._unpacked[path]

    def __enter__(self) -> ZipOverlay:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


class ZipFolder:
    """The folder of a member in the tree; implements `Neighbours`."""

    def __init__(self, overlay: ZipOverlay, name: str) -> None:
        self.folder = posixpath.dirname(_tree_path(name) or name)
        self.where = overlay.where
        self.has, self.matching, self.open = overlay.has, overlay.matching, overlay.open


def _tree_members(
    archive: zipfile.ZipFile, source: InputFile, label: str
) -> Iterator[tuple[str, _Member]]:
    for row in archive.infolist():
        path = _tree_path(row.filename)
        if path is not None and not row.filename.endswith("/"):
            yield path, _Member(archive, source, label, row)


def _tree_path(name: str) -> str | None:
    """Return the path of a member in the tree; None if it is not installed there."""
    path = installed_path(name)
    return None if path is None else posixpath.normpath(path)
