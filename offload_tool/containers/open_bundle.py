r"""Open a bundle of any layout, compressed or not, one or several in a file.

The file type decides what to read (as in clang-offload-bundler 22.1.8):

    text types          the entries between comment markers
    bc, gch, ast        the binary layout; a file without its magic has no entries
    o                   sections of an object file, else the binary layout

Each layout may be compressed as a whole. A file may have several bundles in the binary layout, with
zeros between them (a linker joins ``.hip_fatbin`` sections); their sizes delimit them.

`open_bundle_stream` decompresses a single compressed bundle while it is copied::

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
    bundle_entries,
    decompressed,
    object_entries,
    text_entries,
)
from offload_tool.errors import FormatError, UsageError
from offload_tool.formats.bundle.binary import read_bundle, read_partial_bundle
from offload_tool.formats.bundle.text import COMMENT_MARKS
from offload_tool.formats.magic import BUNDLE, COMPRESSED_BUNDLE, begins, next_content
from offload_tool.io import InputFile, OutputFile
from offload_tool.util.frozen import frozen, replaced

if TYPE_CHECKING:
    from offload_tool.formats.bundle.compressed import BundleStream, CompressionReport

FILE_TYPES = (*COMMENT_MARKS, "bc", "gch", "ast", "o")
"""The file types that can be bundled; ``a`` can only be unbundled."""
DEFAULT_FILE_TYPE = "o"
"""clang's type for its fat binaries: an object bundle, or the binary layout."""

_SMALLEST_COMPRESSED = 8  # bytes; LLVM takes no shorter file for a compressed bundle


def _range_writer(
    rows: Sequence[tuple[StoredEntry, OutputFile]],
) -> Callable[[bytes | memoryview], None]:
    """Return a function that receives a stream and writes each entry's range to its own file."""
    end = 0

    def write(data: bytes | memoryview) -> None:
        nonlocal end
        start, end = end, end + len(data)
        for entry, file in rows:
            offset, size = entry.offset, entry.size
            if offset < end and start < offset + size:
                if offset >= start:  # the budget now includes the data unpacked so far
                    file.reserve(size)
                file.write(data[max(offset - start, 0) : offset + size - start])

    return write


@frozen
class OpenedBundle:
    """All bundles of a file, in file order."""

    content: InputFile
    """The whole file, or the decompressed content of a single compressed bundle."""
    entries: list[StoredEntry]
    """The entries of all bundles."""
    reports: list[CompressionReport | None]
    """For each bundle: statistics of its decompression; None if it is not compressed, or not
    decompressed yet."""
    stream: BundleStream | None = None
    """The compressed bundle that `check` or `write` will decompress and verify."""

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
        if self.stream is not None and all(file.seekable for _, file in rows):
            self.stream.to(_range_writer(rows))
            return
        if self.stream is not None:
            _ = self.content.data  # access verifies it, even if the entries are empty
        for entry, file in rows:
            entry.write_to(file)


def check_file_type(file_type: str) -> None:
    """Check that `file_type` is in `FILE_TYPES`.

    :raises UsageError: with LLVM's message.
    """
    if file_type not in FILE_TYPES:
        raise UsageError(f"'{file_type}': invalid file type specified")


def open_bundle_stream(
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
            BundleStream,
            decompress,
            read_compressed_header,
        )

        header = read_compressed_header(data, path=path)
        stream = BundleStream(data, header, path=path)
        is_all = stream.end is not None and next_content(data, stream.end) is None
        if is_all and begins(stream.begin, BUNDLE):
            content = InputFile.lazy(
                path, header.uncompressed_size, lambda: decompress(data, header, path=path)[0]
            )
            try:
                bundle = read_partial_bundle(stream.begin, len(content), path=path)
            except FormatError:
                stream.to(_range_writer([]))  # report damage first
                raise
            if bundle is not None:
                entries = bundle_entries(bundle, content)
                entries = [replaced(entry, is_decompressed=True) for entry in entries]
                return OpenedBundle(content, entries, [None], stream)
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
    found: list[StoredEntry] = []
    reports: list[CompressionReport | None] = []
    contents: list[InputFile] = []
    position: int | None = 0
    while position is not None:
        if _is_compressed(source.data, position):
            content, report = decompressed(source.data, position, path=source.path)
            entries, _ = _read_plain(content, 0, file_type, wanted)
            end = report.end
        else:
            content, report = source, None
            entries, end = _read_plain(source, position, file_type, wanted)
            if end == position:  # not a bundle
                # LLVM accepts bytes after uncompressed bundles.
                if reports and reports[-1] is not None:
                    begin = bytes(source.data[position : position + 8])
                    message = "expected zeros or another bundle after a compressed one, found "
                    message += repr(begin)
                    raise FormatError(message, path=source.path, offset=position)
                break
        if report is not None:
            entries = [replaced(entry, is_decompressed=True) for entry in entries]
        found += entries
        reports.append(report)
        contents.append(content)
        position = next_content(source.data, end)
    return OpenedBundle(contents[0] if len(contents) == 1 else source, found, reports)


def _read_plain(
    source: InputFile, position: int, file_type: str, wanted: Callable[[str], bool] | None
) -> tuple[list[StoredEntry], int]:
    """Read the uncompressed bundle at `position`; return its entries and its end."""
    path = source.path
    if file_type in COMMENT_MARKS:
        comment = COMMENT_MARKS[file_type]
        return text_entries(source, comment, path=path, wanted=wanted), len(source)
    if not begins(source.data, BUNDLE, position):
        if file_type == "o" and position == 0:
            from offload_tool.formats.bundle.object_file import is_object_file

            if is_object_file(source.data):
                unbundling = wanted is not None
                return object_entries(source, path=path, unbundling=unbundling), len(source)
        return [], position
    bundle = read_bundle(source.data, position, path=path)
    return bundle_entries(bundle, source), position + bundle.size


def _is_compressed(data: memoryview, position: int) -> bool:
    is_long = len(data) - position >= _SMALLEST_COMPRESSED
    return is_long and begins(data, COMPRESSED_BUNDLE, position)
