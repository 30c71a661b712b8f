"""The entries of bundles and other containers, and access to their content.

Here and in `open_bundle`, modules for object files and for compression are imported lazily: most
runs do not need them, and start twice as fast without them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from offload_tool.formats.bundle.binary import Bundle
from offload_tool.io import FileRange, InputFile, OutputFile, StrPath
from offload_tool.io.limits import run_budget
from offload_tool.util.frozen import frozen

if TYPE_CHECKING:
    from offload_tool.formats.bundle.compressed import CompressionReport
    from offload_tool.formats.cuda.fatbin import CudaImage, Packed
    from offload_tool.formats.kpack.archive import KpackImage
    from offload_tool.io.write_plan import FilePlan


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
    """Name of the archive for messages."""

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
        self._content = b""

    def unpacked(self, packed: Packed) -> bytes:
        """Return the decompressed content of a payload; raise FormatError if it is damaged."""
        from offload_tool.formats.cuda.fatbin import decompressed

        if packed != self._packed:
            self._packed, self._content = None, b""  # free the old content first
            self._content = decompressed(self._source.data, packed, path=self._label)
            self._packed = packed
        return self._content


@frozen
class StoredEntry:
    """An entry of a container, and the location of its content."""

    id: str
    """Bundle entry ID as stored."""
    source: InputFile
    offset: int
    """Bytes from the beginning of `source`."""
    size: int
    is_host_object: bool = False
    """Whether the content is `source`, an object file, without the bundle's sections."""
    is_decompressed: bool = False
    """Whether `source` is not a part of the file itself."""
    cuda: CudaContent | None = None
    """The image in a CUDA fat binary, whose payload may be compressed."""
    frame: PackedFrame | None = None
    """The compressed frame in a kpack archive, if any."""

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
        """Return the content: mapped, or in memory for host objects and compressed content.

        :raises ContentError, LimitError: it is damaged, or was requested too often.
        """
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


def decompressed(
    data: memoryview, position: int, *, path: StrPath
) -> tuple[InputFile, CompressionReport]:
    """Decompress the bundle at `position`; raise FormatError or UnsupportedError."""
    from offload_tool.formats.bundle.compressed import decompress, read_compressed_header

    header = read_compressed_header(data, position, path=path)
    content, report = decompress(data, header, path=path)
    return InputFile.from_data(path, content), report
