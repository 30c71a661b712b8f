r"""The entries of bundles and other containers, and access to their content.

A bundle may have any layout. The file type decides what to read (as in clang-offload-bundler
22.1.8):

    text types          the entries between comment markers
    bc, gch, ast        the binary layout; a file without its magic has no entries
    o                   sections of an object file, else the binary layout

Each layout may be compressed as a whole. A file may have several bundles in the binary layout, with
zeros between them (a linker joins ``.hip_fatbin`` sections); their sizes delimit them.

With `stream`, `open_bundle` decompresses a single compressed bundle while it is copied::

    compressed bundle --> begin: the table --> which entries are wanted?
                     \
                      --> the rest --+--> hash
                                     +--> outputs, renamed into place only if the hash is right

So a bundle of any size needs neither a temporary file nor much memory.

Modules for object files and for compression are imported lazily: most runs do not need them, and
start twice as fast without them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from offload_tool.errors import FormatError, UsageError
from offload_tool.formats.bundle.binary import Bundle, read_bundle, read_partial_bundle
from offload_tool.formats.bundle.text import COMMENT_MARKS, read_text_bundle
from offload_tool.formats.magic import BUNDLE, COMPRESSED_BUNDLE, begins, next_content
from offload_tool.io import FileRange, InputFile, OutputFile, StrPath
from offload_tool.io.limits import run_budget
from offload_tool.io.write_plan import FilePlan
from offload_tool.util.frozen import frozen, replaced

if TYPE_CHECKING:
    from offload_tool.formats.bundle.compressed import BundleStream, CompressionReport
    from offload_tool.formats.cuda.fatbin import CudaImage, Packed
    from offload_tool.formats.kpack.archive import KpackImage


@frozen
class CudaContent:
    """One image of a CUDA fat binary, with the payload that it may share with others."""

    image: CudaImage
    payloads: PayloadCache

    def view(self, source: InputFile) -> memoryview:
        """Return the decompressed image without padding; raise ContentError if it is damaged."""
        from offload_tool.formats.cuda.fatbin import image_content

        return image_content(source.data, self.image, self.payloads.unpacked)


@frozen
class PackedFrame:
    """A code object of a kpack archive that is a compressed frame of its own."""

    image: KpackImage
    label: str

    def begin(self, source: InputFile, size: int) -> memoryview:
        """Return the code object's first `size` bytes; decompress no more. Raise FormatError."""
        from offload_tool.formats.codec import ZstdStream

        end = self.image.offset + self.image.stored_size
        stream = ZstdStream(source.data[:end], self.image.offset, None, self.label)
        return memoryview(bytes(next(iter(stream), b"")[:size]))

    def view(self, source: InputFile) -> memoryview:
        """Return the code object; raise FormatError if the frame is damaged."""
        from offload_tool.formats.kpack.archive import unpacked_kpack_image

        return unpacked_kpack_image(source.data, self.image, path=self.label)


class PayloadCache:
    """Holds the last decompressed payload of a file, for images that are compressed together."""

    def __init__(self, source: InputFile, label: str) -> None:
        self._source = source
        self._label = label
        self._packed: Packed | None = None
        self._content: bytes | memoryview = b""

    def unpacked(self, packed: Packed) -> bytes | memoryview:
        """Return the decompressed content of a payload; raise FormatError if it is damaged."""
        from offload_tool.formats.cuda.fatbin import decompressed

        if packed != self._packed:
            self._packed, self._content = None, b""  # free the old content first
            self._content = decompressed(self._source.data, packed, path=self._label)
            self._packed = packed
        return self._content


@frozen
class StoredEntry:
    """An entry of a container, by its ID as stored; its content is `size` bytes of `source`."""

    id: str
    source: InputFile
    offset: int
    size: int
    is_host_object: bool = False
    """Whether the content is `source`, an object file, without the bundle's sections."""
    is_decompressed: bool = False
    """Whether `source` is not a part of the file itself."""
    cuda: CudaContent | None = None
    frame: PackedFrame | None = None

    @property
    def range(self) -> FileRange:
        """The content as a range that the kernel can copy."""
        return self.source.range(self.offset, self.size)

    def begin(self, size: int) -> memoryview:
        """Return the first bytes of the content, at most `size`; of CUDA images, as stored."""
        if self.frame is not None:
            return self.frame.begin(self.source, size)
        return self.source.data[self.offset : self.offset + min(self.size, size)]

    def view(self) -> memoryview:
        """Return the content, mapped or in memory; raise ContentError or LimitError."""
        if run := run_budget():
            run.reread(self.size, self.source.path)
        if unpacker := self.cuda or self.frame:
            return unpacker.view(self.source)
        if not self.is_host_object:
            return self.range.data
        return memoryview(b"".join(self._host_plan().chunks()))

    def write_to(self, out: OutputFile) -> None:
        """Append the content to `out`; raise ContentError if it cannot be separated."""
        if unpacker := self.cuda or self.frame:
            content = unpacker.view(self.source)
            out.reserve(len(content))
            if self.cuda is not None and not self.cuda.image.is_compressed:
                out.copy(self.source, self.offset, len(content))
            else:
                out.write(content)
        elif self.is_host_object:
            self._host_plan().write_to(out)
        else:
            out.reserve(self.size)
            out.copy(*self.range)

    def _host_plan(self) -> FilePlan:
        from offload_tool.formats.bundle.object_file import plan_host

        return plan_host(self.source.data, path=self.source.path).bound(self.source)


def bundle_entries(bundle: Bundle, source: InputFile) -> list[StoredEntry]:
    """Return a bundle's entries. Of equal IDs LLVM takes the last, at the first's position."""
    rows = {entry.id: entry for entry in bundle.entries}
    return [
        StoredEntry(row.id, source, bundle.offset + row.offset, row.size) for row in rows.values()
    ]


# -- all bundles of a file ------------------------------------------------------------------------

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
    reports: list[CompressionReport | None]
    """For each bundle: statistics of its decompression; None if it is not compressed, or not
    decompressed yet."""
    stream: BundleStream | None = None
    """The compressed bundle that `check` or `write` will decompress and verify."""

    def check(self) -> None:
        """Decompress a remaining compressed bundle to verify it; raise FormatError."""
        self.write([])

    def write(self, rows: Sequence[tuple[StoredEntry, OutputFile]]) -> None:
        """Append each entry's content, if any, to its file; check the bundle. Raise FormatError."""
        # Direct output (standard output) cannot be undone if the hash is wrong.
        if self.stream is not None and all(file.seekable for _, file in rows):
            self.stream.to(_range_writer(rows))
            return
        if self.stream is not None:
            _ = self.content.data  # access verifies it, even if the entries are empty
        for entry, file in rows:
            entry.write_to(file)


def check_file_type(file_type: str) -> None:
    """Raise UsageError, with LLVM's message, if `file_type` is not in `FILE_TYPES`."""
    if file_type not in FILE_TYPES:
        raise UsageError(f"'{file_type}': invalid file type specified")


class ReadBundle(NamedTuple):
    """One of the bundles of a file, of `size` bytes there; `report` is None if it is plain."""

    offset: int
    size: int
    content: InputFile
    """The file, or the decompressed content."""
    entries: list[StoredEntry]
    report: CompressionReport | None


def read_bundles(
    source: InputFile,
    file_type: str | None,
    *,
    wanted: Callable[[str], bool] | None = None,
    start: int = 0,
    end: int | None = None,
    path: StrPath,
) -> Iterator[ReadBundle]:
    """Yield the bundles, with zeros between them, of a range of `source`; raise ContentError.

    The file type decides the layout; with None the bytes decide, and there must be a bundle.
    `wanted` selects the IDs to unbundle; without it, all are listed. `path` is for messages.
    """
    data = source.data[:end]
    expected = None if file_type else "a bundle"
    position: int | None = start
    while position is not None:
        content, report = source, None
        if _is_compressed(data, position):
            from offload_tool.formats.bundle.compressed import decompress, read_compressed_header

            header = read_compressed_header(data, position, path=path)
            unpacked, report = decompress(data, header, path=path)
            content = InputFile.from_data(path, unpacked)
            entries, _ = _read_plain(content, content.data, 0, file_type, wanted, path)
            entries = [replaced(entry, is_decompressed=True) for entry in entries]
            stop = report.end
            expected = "zeros or another bundle after a compressed one"
        else:
            entries, stop = _read_plain(source, data, position, file_type, wanted, path)
            if stop == position and expected:
                message = f"expected {expected}, found {bytes(data[position : position + 8])!r}"
                raise FormatError(message, path=path, offset=position)
            if stop == position:
                return
            expected = None  # LLVM accepts bytes after uncompressed bundles
        yield ReadBundle(position, stop - position, content, entries, report)
        position = next_content(data, stop)


def open_bundle(
    source: InputFile,
    file_type: str,
    *,
    wanted: Callable[[str], bool] | None = None,
    stream: bool = False,
) -> OpenedBundle:
    """Read the entries of `source`, which must stay open while they are used; raise ContentError.

    `wanted` is as in `read_bundles`. A file that is not a bundle has no entries. With `stream`, a
    single compressed bundle is not yet decompressed; either `check` or `write` does that, once.
    """
    if stream and file_type not in COMMENT_MARKS and _is_compressed(source.data, 0):
        opened = _open_stream(source)
        if opened is not None:
            return opened
    found = list(read_bundles(source, file_type, wanted=wanted, path=source.path))
    entries = [entry for bundle in found for entry in bundle.entries]
    content = found[0].content if len(found) == 1 else source
    return OpenedBundle(content, entries, [bundle.report for bundle in found])


def _open_stream(source: InputFile) -> OpenedBundle | None:
    """Open a single compressed bundle of the binary layout; None if it is anything else."""
    from offload_tool.formats.bundle import compressed

    data, path = source.data, source.path
    header = compressed.read_compressed_header(data, path=path)
    stream = compressed.BundleStream(data, header, path=path)
    is_all = stream.end is not None and next_content(data, stream.end) is None
    if not is_all or not begins(stream.begin, BUNDLE):
        return None
    size = header.uncompressed_size
    content = InputFile.lazy(path, size, lambda: compressed.decompress(data, header, path=path)[0])
    try:
        bundle = read_partial_bundle(stream.begin, len(content), path=path)
    except FormatError:
        stream.to(_range_writer([]))  # report damage first
        raise
    if bundle is None:
        return None
    entries = [replaced(row, is_decompressed=True) for row in bundle_entries(bundle, content)]
    return OpenedBundle(content, entries, [None], stream)


def _read_plain(
    source: InputFile,
    data: memoryview,
    position: int,
    file_type: str | None,
    wanted: Callable[[str], bool] | None,
    path: StrPath,
) -> tuple[list[StoredEntry], int]:
    """Return the entries of the uncompressed bundle at `position`, if any, and its end."""
    if begins(data, BUNDLE, position) and file_type not in COMMENT_MARKS:
        bundle = read_bundle(data, position, path=path)
        return bundle_entries(bundle, source), position + bundle.size
    comment = COMMENT_MARKS.get(file_type or "", "")
    if file_type is None and not position:
        from offload_tool.containers.file_format import FileFormat, recognise, text_comment

        if recognise(data, anywhere=True) is FileFormat.TEXT_BUNDLE:
            comment = text_comment(data)
    if comment:
        texts = read_text_bundle(data, comment, wanted=wanted, path=path)
        return [StoredEntry(row.id, source, row.offset, row.size) for row in texts], len(source)
    if file_type in (None, "o") and not position:
        from offload_tool.formats.bundle import object_file

        if object_file.is_object_file(data):
            found = object_file.read_object_bundle(data, path=path)
            if wanted is not None:
                object_file.check_not_merged(found, path=path)
            rows = ((row.id, source, row.offset, row.size, row.host_markers == 1) for row in found)
            return [StoredEntry(*row) for row in rows], len(source)
    return [], position


def _is_compressed(data: memoryview, position: int) -> bool:
    is_long = len(data) - position >= _SMALLEST_COMPRESSED
    return is_long and begins(data, COMPRESSED_BUNDLE, position)
