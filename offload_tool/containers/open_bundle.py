r"""Open a bundle of any layout, compressed or not, one or several in a file.

What is found depends on the file type, as clang-offload-bundler 22.1.8 does it:

    text types          the entries between comment markers
    bc, gch, ast        the binary layout; a file without its magic has no entries
    o                   sections of an object file, else the binary layout

Modules for object files and for compression are imported where they are used: most runs
need neither, and start in half the time without.

Each may be compressed as a whole. In the binary layout several bundles may follow each
other, with zeros between (what a linker makes of several ``.hip_fatbin`` sections); each
is bounded by its own sizes.

By `open_passing`, one compressed bundle is decompressed while it is copied, and not kept::

    compressed bundle --> begin: the table --> which entries are wanted?
                     \
                      --> the rest --+--> hash
                                     +--> outputs that have their names only when the hash is right

So a bundle of any size needs no temporary file, and is never in memory as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from offload_tool.containers.entries import (
    StoredEntry,
    begun_bundle,
    binary_bundle,
    decompressed,
    object_entries,
    text_entries,
)
from offload_tool.containers.file_format import next_content
from offload_tool.errors import FormatError, UsageError
from offload_tool.formats.bundle.binary import is_bundle
from offload_tool.formats.bundle.text import COMMENT_MARKS
from offload_tool.formats.magic import COMPRESSED_BUNDLE
from offload_tool.io import InputFile, OutputFile, StrPath
from offload_tool.util.frozen import frozen, replaced

if TYPE_CHECKING:
    from offload_tool.formats.bundle.compressed import CompressionReport

BINARY_TYPES = ("bc", "gch", "ast")
FILE_TYPES = (*COMMENT_MARKS, *BINARY_TYPES, "o")
"""The file types that can be bundled; ``a`` can only be unbundled."""
DEFAULT_FILE_TYPE = "o"
"""What clang's driver says of its fat binaries: an object bundle, or the binary layout."""

_SMALLEST_COMPRESSED = 8  # bytes; LLVM takes a shorter file for no compressed bundle


class PassingContent:
    """The content of the compressed bundle at `position` of `source`.

    It has been checked after `check` or `copy`, or when the data of `file` was asked for, and not
    before.

    :raises FormatError: it is damaged, as far as that is seen at its beginning.
    :raises UnsupportedError: it is of a version or sort that is not read.
    """

    def __init__(self, source: InputFile, position: int, *, path: StrPath) -> None:
        from offload_tool.formats.bundle.compressed import (
            CompressionReport,
            Passing,
            decompress,
            read_compressed_header,
        )

        data = source.data
        header = read_compressed_header(data, position, path=path)
        self._passing = Passing(data, header, path=path)
        self.begin = memoryview(self._passing.begin)
        """The first bytes of it; at least one, if there are any."""
        self.end = self._passing.end
        """Where the bundle ends in `source`; None where only decompressing tells that."""
        self.report = CompressionReport(header, (self.end or 0) - header.offset - header.size, 0.0)
        """What was decompressed, but for the time."""

        def make() -> memoryview:
            return decompress(data, header, path=path).data

        self.file = InputFile.made_later(path, header.uncompressed_size, make)
        """All of it, decompressed once more when it is looked into."""

    def check(self) -> None:
        """Decompress it for its hash alone.

        :raises FormatError: it is damaged.
        :raises LimitError: it is greater than the run's budget allows.
        """
        self.copy([])

    def copy(self, ranges: Sequence[tuple[int, int, OutputFile]]) -> None:
        """Append ranges of it, (offset, size) in bytes, each to a file of its own.

        That, or `check`, works once.

        :raises FormatError: it is damaged, and the files have bytes that cannot be trusted.
        :raises LimitError: it is greater than the run's budget allows.
        :raises FileError: a file cannot be written.
        """
        self._passing.to(_Parts(ranges))


class _Parts:
    """Writes each part of a stream to its file."""

    def __init__(self, ranges: Sequence[tuple[int, int, OutputFile]]) -> None:
        self._ranges = ranges
        self._position = 0

    def write(self, data: bytes | memoryview, /) -> None:
        start, end = self._position, self._position + len(data)
        for offset, size, file in self._ranges:
            if offset < end and start < offset + size:
                if offset >= start:  # what was unpacked till now is in the budget for it
                    file.reserve(size)
                file.write(data[max(offset - start, 0) : offset + size - start])
        self._position = end


@frozen
class Container:
    """One bundle of a file: its entries in file order, and how it was decompressed."""

    entries: tuple[StoredEntry, ...]
    report: CompressionReport | None = None
    """None where the bundle is not compressed."""


@frozen
class OpenedBundle:
    """All bundles of a file, in file order."""

    content: InputFile
    """The whole file; what it decompresses to where it is one compressed bundle."""
    containers: tuple[Container, ...]
    passing: PassingContent | None = None
    """What is yet to be decompressed, and checked, by `check` or `write`."""

    @property
    def entries(self) -> list[StoredEntry]:
        """The entries of all bundles."""
        return [entry for container in self.containers for entry in container.entries]

    def check(self) -> None:
        """Decompress what has not been, for its hash alone.

        :raises FormatError: it is damaged.
        """
        if self.passing is not None:
            self.passing.check()

    def write(self, rows: Sequence[tuple[StoredEntry, OutputFile]]) -> None:
        """Append the content of entries, each to a file of its own; or check, if there are none.

        :raises FormatError: it is damaged.
        :raises FileError: a file cannot be written.
        """
        # What is written directly (standard output) cannot be taken back when the hash is wrong.
        if self.passing is not None and all(file.seekable for _, file in rows):
            self.passing.copy([(entry.offset, entry.size, file) for entry, file in rows])
            return
        if self.passing is not None:
            _ = self.content.data  # which is checked, also where the entries are empty
        for entry, file in rows:
            entry.write_to(file)


def check_file_type(file_type: str) -> None:
    """Refuse what is not in `FILE_TYPES`.

    :raises UsageError: with LLVM's message.
    """
    if file_type not in FILE_TYPES:
        raise UsageError(f"'{file_type}': invalid file type specified")


def open_passing(
    source: InputFile, file_type: str, *, wanted: Callable[[str], bool] | None = None
) -> OpenedBundle:
    """Do what `open_bundle` does, but leave one compressed bundle that is all of the file packed.

    By `check`, or `write`, which works once, it is decompressed.

    :raises FormatError: it is a broken bundle.
    :raises UnsupportedError: it is of a version or sort that is not read.
    """
    if file_type not in COMMENT_MARKS and _is_compressed(source.data, 0):
        passing = PassingContent(source, 0, path=source.path)
        is_all = passing.end is not None and next_content(source.data, passing.end) is None
        if is_all and is_bundle(passing.begin):
            try:
                found = begun_bundle(passing.file, passing.begin, path=source.path)
            except FormatError:
                passing.check()  # damage comes first
                raise
            if found is not None:
                entries = tuple(replaced(entry, is_decompressed=True) for entry in found)
                containers = (Container(entries, passing.report),)
                return OpenedBundle(passing.file, containers, passing)
    return open_bundle(source, file_type, wanted=wanted)


def open_bundle(
    source: InputFile,
    file_type: str,
    *,
    start: int = 0,
    wanted: Callable[[str], bool] | None = None,
) -> OpenedBundle:
    """Find the entries of `source` from `start` on; it must stay open while they are used.

    `wanted` says which IDs are to be unbundled; without it all are listed (see
    `read_text_bundle`). A file that is not a bundle has no entries.

    :raises FormatError: it is a broken bundle.
    :raises UnsupportedError: it is of a version or sort that is not read.
    """
    containers: list[Container] = []
    contents: list[InputFile] = []
    position: int | None = start
    while position is not None:
        if _is_compressed(source.data, position):
            content, report = decompressed(source, position, path=source.path)
            entries, _ = _read_plain(content, 0, file_type, wanted)
            end = report.end
        else:
            content, report = source, None
            entries, end = _read_plain(source, position, file_type, wanted)
            if end == position:  # no bundle
                _check_rest(source, position, containers)
                break
        if report is not None:
            entries = [replaced(entry, is_decompressed=True) for entry in entries]
        containers.append(Container(tuple(entries), report))
        contents.append(content)
        position = next_content(source.data, end)
    return OpenedBundle(contents[0] if len(contents) == 1 else source, tuple(containers))


def _read_plain(
    source: InputFile, position: int, file_type: str, wanted: Callable[[str], bool] | None
) -> tuple[list[StoredEntry], int]:
    """Read the uncompressed bundle at `position`; return its entries and where it ends."""
    path = source.path
    if file_type in COMMENT_MARKS:
        comment = COMMENT_MARKS[file_type]
        return text_entries(source, comment, path=path, wanted=wanted), len(source)
    if not is_bundle(source.data, position):
        entries = None
        if file_type == "o" and position == 0:
            entries = _object_entries(source, unbundling=wanted is not None)
        return ([], position) if entries is None else (entries, len(source))
    bundle, found = binary_bundle(source, position, path=path)
    return found, position + bundle.size


def _object_entries(source: InputFile, *, unbundling: bool) -> list[StoredEntry] | None:
    """Read an object bundle; None if the file is not an object file."""
    from offload_tool.formats.bundle.object_file import is_object_file, refuse_merged

    if is_object_file(source.data) is None:
        return None
    return object_entries(source, path=source.path, check=refuse_merged if unbundling else None)


def _check_rest(source: InputFile, position: int, containers: Sequence[Container]) -> None:
    """Accept bytes after uncompressed bundles, as LLVM does; nothing follows a compressed one."""
    if containers and containers[-1].report is not None:
        found = bytes(source.data[position : position + 8])
        message = f"expected zeros or another bundle after a compressed one, found {found!r}"
        raise FormatError(message, path=source.path, offset=position)


def _is_compressed(data: memoryview, position: int) -> bool:
    found = data[position : position + _SMALLEST_COMPRESSED]
    return (
        len(found) == _SMALLEST_COMPRESSED and found[: len(COMPRESSED_BUNDLE)] == COMPRESSED_BUNDLE
    )
