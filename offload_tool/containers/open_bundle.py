r"""Open a bundle of any layout, compressed or not, one or several in a file.

The file type decides what to read (as in clang-offload-bundler 22.1.8):

    text types          the entries between comment markers
    bc, gch, ast        the binary layout; a file without its magic has no entries
    o                   sections of an object file, else the binary layout

Modules for object files and for compression are imported lazily: most runs do not need them, and
start twice as fast without them.

Each layout may be compressed as a whole. A file may have several bundles in the binary layout, with
zeros between them (a linker joins ``.hip_fatbin`` sections); their sizes delimit them.

`open_passing` decompresses a single compressed bundle while it is copied, without storing it::

    compressed bundle --> begin: the table --> which entries are wanted?
                     \
                      --> the rest --+--> hash
                                     +--> outputs, renamed into place only if the hash is right

So a bundle of any size needs neither a temporary file nor much memory.
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
from offload_tool.io import InputFile, OutputFile
from offload_tool.util.frozen import frozen, replaced

if TYPE_CHECKING:
    from offload_tool.formats.bundle.compressed import CompressionReport, Passing

BINARY_TYPES = ("bc", "gch", "ast")
FILE_TYPES = (*COMMENT_MARKS, *BINARY_TYPES, "o")
"""The file types that can be bundled; ``a`` can only be unbundled."""
DEFAULT_FILE_TYPE = "o"
"""clang's type for its fat binaries: an object bundle, or the binary layout."""

_SMALLEST_COMPRESSED = 8  # bytes; LLVM takes no shorter file for a compressed bundle


class _Parts:
    """Writes ranges of a stream, (offset, size) in bytes, each to its own file."""

    def __init__(self, ranges: Sequence[tuple[int, int, OutputFile]]) -> None:
        self._ranges = ranges
        self._position = 0

    def write(self, data: bytes | memoryview, /) -> None:
        start, end = self._position, self._position + len(data)
        for offset, size, file in self._ranges:
            if offset < end and start < offset + size:
                if offset >= start:  # the budget now includes the data unpacked so far
                    file.reserve(size)
                file.write(data[max(offset - start, 0) : offset + size - start])
        self._position = end


@frozen
class Container:
    """One bundle of a file: its entries in file order, and statistics of its decompression."""

    entries: tuple[StoredEntry, ...]
    report: CompressionReport | None = None
    """None if the bundle is not compressed, or not decompressed yet."""


@frozen
class OpenedBundle:
    """All bundles of a file, in file order."""

    content: InputFile
    """The whole file, or the decompressed content of a single compressed bundle."""
    containers: tuple[Container, ...]
    passing: Passing | None = None
    """The compressed bundle that `check` or `write` will decompress and verify."""

    @property
    def entries(self) -> list[StoredEntry]:
        """The entries of all bundles."""
        return [entry for container in self.containers for entry in container.entries]

    def check(self) -> None:
        """Decompress a remaining compressed bundle only to verify its hash.

        :raises FormatError: the bundle is damaged.
        """
        self.write([])

    def write(self, rows: Sequence[tuple[StoredEntry, OutputFile]]) -> None:
        """Append each entry's content to its own file; without entries, only check.

        :raises FormatError: the bundle is damaged.
        :raises FileError: a file cannot be written.
        """
        # Direct output (standard output) cannot be undone if the hash is wrong.
        if self.passing is not None and all(file.seekable for _, file in rows):
            self.passing.to(_Parts([(entry.offset, entry.size, file) for entry, file in rows]))
            return
        if self.passing is not None:
            _ = self.content.data  # access verifies it, even if the entries are empty
        for entry, file in rows:
            entry.write_to(file)


def check_file_type(file_type: str) -> None:
    """Check that `file_type` is in `FILE_TYPES`.

    :raises UsageError: with LLVM's message.
    """
    if file_type not in FILE_TYPES:
        raise UsageError(f"'{file_type}': invalid file type specified")


def open_passing(
    source: InputFile, file_type: str, *, wanted: Callable[[str], bool] | None = None
) -> OpenedBundle:
    """Open a bundle as `open_bundle` does, but do not yet decompress a single compressed one.

    Either `check` or `write` decompresses it; each works once.

    :raises FormatError: the bundle is broken.
    :raises UnsupportedError: its version or variant is not supported.
    """
    data, path = source.data, source.path
    if file_type not in COMMENT_MARKS and _is_compressed(data, 0):
        from offload_tool.formats.bundle.compressed import (
            Passing,
            decompress,
            read_compressed_header,
        )

        header = read_compressed_header(data, path=path)
        passing = Passing(data, header, path=path)
        is_all = passing.end is not None and next_content(data, passing.end) is None
        if is_all and is_bundle(passing.begin):
            content = InputFile.lazy(
                path, header.uncompressed_size, lambda: decompress(data, header, path=path)[0]
            )
            try:
                found = begun_bundle(content, passing.begin, path=path)
            except FormatError:
                passing.to(_Parts([]))  # report damage first
                raise
            if found is not None:
                entries = tuple(replaced(entry, is_decompressed=True) for entry in found)
                return OpenedBundle(content, (Container(entries),), passing)
    return open_bundle(source, file_type, wanted=wanted)


def open_bundle(
    source: InputFile, file_type: str, *, wanted: Callable[[str], bool] | None = None
) -> OpenedBundle:
    """Read the entries of `source`; it must stay open while they are used.

    `wanted` selects the IDs to unbundle; without it, all are listed (see `read_text_bundle`). A
    file that is not a bundle has no entries.

    :raises FormatError: the bundle is broken.
    :raises UnsupportedError: its version or variant is not supported.
    """
    containers: list[Container] = []
    contents: list[InputFile] = []
    position: int | None = 0
    while position is not None:
        if _is_compressed(source.data, position):
            content, report = decompressed(source, position, path=source.path)
            entries, _ = _read_plain(content, 0, file_type, wanted)
            end = report.end
        else:
            content, report = source, None
            entries, end = _read_plain(source, position, file_type, wanted)
            if end == position:  # not a bundle
                # LLVM accepts bytes after uncompressed bundles.
                if containers and containers[-1].report is not None:
                    found = bytes(source.data[position : position + 8])
                    message = (
                        f"expected zeros or another bundle after a compressed one, found {found!r}"
                    )
                    raise FormatError(message, path=source.path, offset=position)
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
    """Read the uncompressed bundle at `position`; return its entries and its end."""
    path = source.path
    if file_type in COMMENT_MARKS:
        comment = COMMENT_MARKS[file_type]
        return text_entries(source, comment, path=path, wanted=wanted), len(source)
    if not is_bundle(source.data, position):
        if file_type == "o" and position == 0:
            from offload_tool.formats.bundle.object_file import is_object_file

            if is_object_file(source.data):
                unbundling = wanted is not None
                return object_entries(source, path=path, unbundling=unbundling), len(source)
        return [], position
    bundle, found = binary_bundle(source, position, path=path)
    return found, position + bundle.size


def _is_compressed(data: memoryview, position: int) -> bool:
    found = data[position : position + _SMALLEST_COMPRESSED]
    return (
        len(found) == _SMALLEST_COMPRESSED and found[: len(COMPRESSED_BUNDLE)] == COMPRESSED_BUNDLE
    )
