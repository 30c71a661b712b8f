"""CUDA's fat binary: PTX, cubins and other code for several processors, as nvcc embeds it.

::

    offset  size  field of the header
    ------  ----  ------------------------------------------------------------------
    0       4     magic, 0xBA55ED50
    4       2     version, 1
    6       2     size of this header, 16
    8       8     size of all entries after it

    offset  size  field of an entry; entries follow each other without gaps
    ------  ----  ------------------------------------------------------------------
    0       2     image kind: 1 PTX, 2 ELF (a cubin), 8 NVVM (IR for optimization when linking),
                  32 index, 64 relocatable PTX, 128 Tile IR, 256 several in one (below)
    2       2     version, 0x101
    4       4     size of this header with everything before the payload, 64 or more
    8       8     size of the payload, with padding to 8 bytes
    16      4     size of the payload without padding if it is compressed, else 0
    20      4     offset of the options in this entry, or 0: PTX and NVVM always have them
    24      2, 2  PTX: its version, minor and major; ELF: its ABI version (7, 8), and 1; NVVM: in
                  NVIDIA's libraries a version, elsewhere 0
    28      4     number of the processor: 90 is ``sm_90`` (``compute_90`` for PTX)
    32      4, 4  offset of the identifier in this entry, and its length; or 0
    40      8     flags
    48      8     0; with flag 0x10000 a number that differs for each image
    56      8     decompressed size of the payload, or 0
    64      ...   identifier (a name: the source's), NUL, padding to 8 bytes
    ...     4, 4  options: the offset in this entry of their text, 8 more than that of this,
                  and its length without the NUL
    ...     ...   their text, NUL, padding to 8 bytes. PTX and NVVM: for the assembler. ELF: an
                  empty text, NUL, and the content of the cubin's section .nv.compat, whose
                  length is given; where bit 0 or 1 of e_flags (ABI version 8) is set
    ...     ...   payload: PTX as in `offload_tool.formats.cuda.ptx`, with a NUL; or unchanged

    flag       meaning
    ---------  -----------------------------------------------------------------------
    0x1        64-bit code
    0x2        compiled for debugging (-g)
    0x4, 0x8   CUDA, OpenCL: if an option says so (-cuda, -opencl)
    0x10       host Linux; 0x20 macOS, 0x40 Windows
    0x2000     compressed: an LZ4 block; 0x8000 a zstd frame (0x1000, 0x4000: unknown methods)
    0x10000    scrambled, before or after compression: 11,651 of NVVM in cuFFT 11.4 are
    0x100000   for this processor alone: ``sm_90a``; 0x200000 for its family: ``sm_100f``
    0x1000000  the cubin has code that the driver finishes (bit 1 of e_flags, ABI version 8)

Several images compressed together (fatbinary 13.5, ``-concat``): an entry of kind 256 with
versions 1 and 0, processor 0 and no identifier, whose options are replaced by::

    64      4, 4  number of images, and bytes of this and of their headers
    72      ...   header of each: as that of an entry, without payload, and ending where its
                  identifier or options end. Field 4 is where the image begins in what the
                  payload decompresses to, field 8 its size there; offsets count from here

In a program, the sections ``.nv_fatbin``, and ``__nv_relfatbin`` with relocatable device code,
hold one or more of these, with zeros between. PE files have room for 8 characters of a name.

Source: NVIDIA documents no layout. It was inferred by changing single options and bytes of the
input of ``fatbinary`` 13.0 and 13.5 and the library ``nvfatbin`` 12.9 and 13.5, and by reading
modified files with ``cuobjdump`` 13.5. Files are written byte for byte as ``fatbinary`` of CUDA 13
writes them without compression, or with its headers and zstd. Names of image kinds are cuobjdump's.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from offload_tool.errors import FormatError, UnsupportedError, UsageError
from offload_tool.formats.cuda.ptx import ptx_version, shorten
from offload_tool.formats.magic import BITCODES, aligned
from offload_tool.formats.objects.elf.reader import EM_CUDA, is_elf, read_elf_tables
from offload_tool.io import StrPath
from offload_tool.io.limits import effective_budget
from offload_tool.io.write_plan import FilePlan, Part, part_size
from offload_tool.util.frozen import frozen

_MAGIC = 0xBA55ED50
_HEADER = struct.Struct("<IHHQ")
_BEGIN = struct.pack("<IHH", _MAGIC, 1, 16)
_BEGIN_PATTERN = re.compile(re.escape(_BEGIN))
_ENTRY = struct.Struct("<HHIQIIHHIIIQQQ")
_PAIR = struct.Struct("<II")
_ENTRY_VERSION = 0x101
_ALIGNMENT = 8

_PTX, _ELF, _NVVM, _SEVERAL = 1, 2, 8, 256
_KINDS = {1: "ptx", 2: "elf", 4: "cubin", 8: "nvvm", 32: "index", 64: "relocatable ptx"}
_KINDS |= {128: "tile ir"}
_PREFIXES = {1: "compute", 2: "sm", 4: "sm", 8: "lto", 32: "index", 64: "compute", 128: "tile"}

_64BIT, _LINUX = 0x1, 0x10
_METHODS = {"lz4": 0x2000, "zstd": 0x8000}
_UNKNOWN_METHODS = 0x1000, 0x4000
_SCRAMBLED = 0x10000
_LZ4_RATIO, _LZ4_LAST = 255, 64
"""Most bytes that one of an LZ4 block stands for, and that its last token can add."""
_PAYLOAD = "payload of a CUDA image"
_ARCH_SPECIFIC, _FAMILY_SPECIFIC = 0x100000, 0x200000
_SUFFIXES = {"": 0, "a": _ARCH_SPECIFIC, "f": _FAMILY_SPECIFIC}
_FINISHED_BY_DRIVER = 0x1000000

_PROCESSOR = re.compile(r"(?:sm|compute|lto)_(\d{1,9})([af]?)")
_ELF_TABLES_END = 62  # bytes of an ELF header up to the fields of its two tables
_BITCODE = (*BITCODES, b"\x7fNC\xed")
_COMPAT_SECTION = ".nv.compat"


class _EntryHeader(NamedTuple):
    kind: int
    version: int
    header_size: int
    payload: int
    packed: int
    options: int
    minor: int
    major: int
    number: int
    identifier: int
    identifier_size: int
    flags: int
    zero: int
    unpacked: int


@frozen
class Packed:
    """A compressed payload: offset in the data, stored and decompressed size, in bytes."""

    offset: int
    stored_size: int
    size: int
    method: str
    """``lz4``, ``zstd``, or ``flag 0x...`` if unknown."""

    @property
    def is_readable(self) -> bool:
        """Whether this package can decompress it."""
        return self.method in ("lz4", "zstd")

    @property
    def end(self) -> int:
        """End of the payload in the data."""
        return self.offset + self.stored_size


@frozen
class CudaImage:
    """One image: its processor, and the range of its bytes."""

    image_kind: str
    """``ptx``, ``elf``, ``nvvm``, ..., or ``kind N`` if undocumented."""
    processor: str
    """``sm_90a``, ``compute_90`` for PTX, ``lto_90`` for NVVM; ``kind77_90`` if undocumented."""
    identifier: str
    entry: int
    """Index of its entry in the fat binary, from 0."""
    offset: int
    """Bytes from the beginning of the data it was read from to the payload."""
    stored_size: int
    """Bytes of the payload, which several images may share; without padding if known."""
    size: int
    """Bytes after decompression, including padding; see `image_content`."""
    packed: Packed | None = None
    start: int = 0
    """Start of the image in the decompressed payload."""

    @property
    def is_compressed(self) -> bool:
        """Whether the payload is compressed."""
        return self.packed is not None

    @property
    def is_readable(self) -> bool:
        """Whether this package can read the payload."""
        return self.packed is None or self.packed.is_readable


@frozen
class CudaEntry:
    """One entry with its header, with one or several images; sizes are in bytes."""

    offset: int
    size: int
    images: tuple[CudaImage, ...]


@frozen
class CudaFatbin:
    """A fat binary's entries; `size` is in bytes, including the header."""

    entries: tuple[CudaEntry, ...]
    size: int


# -- reading ---------------------------------------------------------------------------


def cuda_fatbin_size(data: memoryview, offset: int) -> int:
    """Return the size in bytes, header included, of a plausible fat binary at `offset`."""
    _, _, header_size, size = _HEADER.unpack_from(data, offset)
    return int(header_size + size)


def find_cuda_fatbin(data: memoryview, start: int, stop: int, end: int) -> int | None:
    """Return where, from `start` to `stop`, the first plausible fat binary begins."""
    for found in _BEGIN_PATTERN.finditer(data, start, min(stop + len(_BEGIN) - 1, end)):
        at = found.start()
        if end - at < _HEADER.size + _ENTRY.size:
            return None
        size = _HEADER.unpack_from(data, at)[3]
        row = _EntryHeader._make(_ENTRY.unpack_from(data, at + _HEADER.size))
        room = min(size, end - at - _HEADER.size)
        if row.version == _ENTRY_VERSION and _ENTRY.size <= row.header_size <= room:
            return at
    return None


def read_cuda_fatbin(
    data: memoryview, offset: int = 0, *, path: StrPath | None = None
) -> CudaFatbin:
    """Read the fat binary at `offset` of `data`; raise FormatError or UnsupportedError."""
    available = len(data) - offset
    if available < _HEADER.size:
        message = f"expected {_HEADER.size} bytes, found {max(available, 0)}"
        raise FormatError(message, path=path, offset=offset, field="CUDA fat binary header")
    magic, version, header_size, size = _HEADER.unpack_from(data, offset)
    if magic != _MAGIC:
        message = f"expected {_MAGIC:#x}, found {magic:#x}"
        raise FormatError(message, path=path, offset=offset, field="magic")
    if version != 1:
        message = f"expected version 1, found {version}"
        raise UnsupportedError(message, path=path, offset=offset + 4, field="version")
    if header_size < _HEADER.size:
        message = f"expected {_HEADER.size} bytes or more, found {header_size}"
        raise FormatError(message, path=path, offset=offset + 6, field="header size")
    if header_size + size > available:
        message = f"expected at most {available} bytes, found {header_size + size}"
        message += "; the file may be cut short"
        raise FormatError(message, path=path, offset=offset + 8, field="size")
    reader = _Reader(data, path, offset + header_size, offset + header_size + size)
    return CudaFatbin(tuple(reader.entries()), header_size + size)


class _Reader:
    def __init__(self, data: memoryview, path: StrPath | None, start: int, end: int) -> None:
        self.data = data
        self.path = path
        self.position = start
        self.end = end
        self.number = 0

    def error(self, message: str, offset: int | None = None) -> FormatError:
        at = self.position if offset is None else offset
        field = f"CUDA entry {self.number + 1}"
        return FormatError(message, path=self.path, offset=at, field=field)

    def entries(self) -> Iterator[CudaEntry]:
        while self.position < self.end:
            row = self._row(self.position, self.end)
            room = self.end - self.position
            size = row.header_size + row.payload
            if row.header_size < _ENTRY.size or size > room or row.packed > row.payload:
                raise self.error(
                    f"expected a header of {_ENTRY.size} bytes or more and a payload within {room} "
                    f"bytes, found {row.header_size} and {row.payload} ({row.packed} compressed)"
                )
            images = self._several(row) if row.kind == _SEVERAL else (self._image(row),)
            yield CudaEntry(self.position, size, images)
            self.position += size
            self.number += 1

    def _row(self, position: int, end: int) -> _EntryHeader:
        if end - position < _ENTRY.size:
            message = f"expected {_ENTRY.size} bytes, found {max(end - position, 0)}"
            raise self.error(message, position)
        return _EntryHeader._make(_ENTRY.unpack_from(self.data, position))

    def _packed(self, row: _EntryHeader) -> Packed | None:
        start = self.position + row.header_size
        if row.flags & _SCRAMBLED:
            how = f"flag {_SCRAMBLED:#x}: scrambled"
            return Packed(start, row.packed or row.payload, row.unpacked or row.payload, how)
        methods = [name for name, flag in _METHODS.items() if row.flags & flag]
        methods += [f"flag {flag:#x}" for flag in _UNKNOWN_METHODS if row.flags & flag]
        if not methods:
            if row.packed:
                message = f"expected a flag for how {row.packed} bytes are compressed, found flags "
                raise self.error(f"{message}{row.flags:#x}", self.position + 40)
            return None
        if len(methods) > 1:
            message = f"expected one kind of compression, found {' and '.join(methods)}"
            raise self.error(message, self.position + 40)
        return Packed(start, row.packed or row.payload, row.unpacked, methods[0])

    def _image(self, row: _EntryHeader) -> CudaImage:
        packed = self._packed(row)
        size = row.payload if packed is None else packed.size
        place = self.position + row.header_size, row.packed or row.payload, size
        return self._make_image(row, self.position, row.header_size, (*place, packed, 0))

    def _make_image(
        self,
        row: _EntryHeader,
        position: int,
        room: int,
        payload: tuple[int, int, int, Packed | None, int],
    ) -> CudaImage:
        suffix = next((text for text, flag in _SUFFIXES.items() if flag & row.flags), "")
        processor = f"{_PREFIXES.get(row.kind, f'kind{row.kind}')}_{row.number}{suffix}"
        identifier = self._identifier(row, position, room)
        kind = _KINDS.get(row.kind, f"kind {row.kind}")
        return CudaImage(kind, processor, identifier, self.number, *payload)

    def _identifier(self, row: _EntryHeader, position: int, room: int) -> str:
        if not row.identifier_size:
            return ""
        if row.identifier + row.identifier_size > room:
            message = f"expected an identifier within {room} bytes, found {row.identifier_size} "
            raise self.error(f"{message}bytes at offset {row.identifier}", position + 32)
        start = position + row.identifier
        return bytes(self.data[start : start + row.identifier_size]).decode("utf-8", "replace")

    # -- several images in one entry ---------------------------------------------------

    def _several(self, row: _EntryHeader) -> tuple[CudaImage, ...]:
        packed = self._packed(row)
        table, end = self.position + row.options, self.position + row.header_size
        if packed is None or row.options < _ENTRY.size or end - table < _PAIR.size:
            message = "expected several images in a compressed payload, with a table of them"
            raise self.error(f"{message}; found flags {row.flags:#x} and options {row.options}")
        count, size = _PAIR.unpack_from(self.data, table)
        if size > end - table or count * _ENTRY.size + _PAIR.size > size:
            message = f"expected a table of images within {end - table} bytes, found {count} "
            raise self.error(f"{message}images in {size} bytes", table)
        position, end = table + _PAIR.size, table + size
        images = []
        for _ in range(count):
            inner = self._row(position, end)
            if inner.header_size + inner.payload > packed.size:
                message = f"expected an image within {packed.size} bytes, found {inner.payload} "
                raise self.error(f"{message}bytes at offset {inner.header_size}", position)
            payload = (packed.offset, packed.stored_size, inner.payload, packed, inner.header_size)
            images.append(self._make_image(inner, position, end - position, payload))
            position += self._inner_size(inner, position, end)
        return tuple(images)

    def _inner_size(self, row: _EntryHeader, position: int, end: int) -> int:
        """Return the header size of one of several images, in bytes."""
        size = _ENTRY.size
        if row.identifier_size:
            size = row.identifier + aligned(row.identifier_size + 1, _ALIGNMENT)
        if row.options:
            if position + row.options + _PAIR.size > end:
                message = f"expected options within {end - position} bytes, found their offset "
                raise self.error(f"{message}{row.options}", position + 20)
            text, length = _PAIR.unpack_from(self.data, position + row.options)
            size = text + aligned(length + 1, _ALIGNMENT)
        if size < _ENTRY.size or position + size > end:
            message = f"expected a header of {_ENTRY.size} to {end - position} bytes, found {size}"
            raise self.error(message, position)
        return size


def image_content(
    data: memoryview, image: CudaImage, unpack: Callable[[Packed], bytes | memoryview]
) -> memoryview:
    """Return an image as ``cuobjdump`` extracts it: decompressed by `unpack`, without padding."""
    if image.packed is None:
        content = data[image.offset : image.offset + image.size]
    else:
        content = memoryview(unpack(image.packed))[image.start : image.start + image.size]
    return content[: _content_size(content, image.image_kind)]


def _content_size(content: memoryview, image_kind: str) -> int:
    """Return the size of a decompressed image without padding, which has at most 8 bytes."""
    size = len(content)
    tail = bytes(content[-_ALIGNMENT:])
    least = size - len(tail) + len(tail.rstrip(b"\0"))
    if image_kind in ("ptx", "relocatable ptx"):
        return least
    if image_kind == "elf" and is_elf(content) and size >= _ELF_TABLES_END:
        offsets = struct.unpack_from("<QQ", content, 32)
        counts = struct.unpack_from("<HHHH", content, 54)
        end = max(offsets[0] + counts[0] * counts[1], offsets[1] + counts[2] * counts[3])
        if max(least, size - _ALIGNMENT + 1) <= end <= size:
            return int(end)
    return size


# -- payloads --------------------------------------------------------------------------


def decompressed(
    data: memoryview, packed: Packed, *, path: StrPath | None = None
) -> bytes | memoryview:
    """Decompress a payload to exactly `packed.size` bytes; raise ContentError or LimitError."""
    if not packed.is_readable:
        message = f"cannot be unpacked: how is not publicly known ({packed.method})"
        raise UnsupportedError(message, path=path, offset=packed.offset, field=_PAYLOAD)
    return (_from_lz4 if packed.method == "lz4" else _from_zstd)(data, packed, path)


def _from_lz4(data: memoryview, packed: Packed, path: StrPath | None) -> bytes:
    try:
        import lz4.block  # nothing else needs it
    except ImportError as error:  # in a vendored copy of this package
        message = "CUDA's fat binaries before CUDA 13 are unpacked with the package 'lz4'; "
        raise UsageError(message + "install it") from error
    most = packed.stored_size * _LZ4_RATIO + _LZ4_LAST
    if packed.size > most:
        message = f"expected at most {most} bytes unpacked (what the LZ4 block can hold), found "
        raise _payload_error(packed, path, f"{message}{packed.size}")
    effective_budget(packed.stored_size).unpack(packed.size, path)
    try:
        stored = data[packed.offset : packed.end]
        content: bytes = lz4.block.decompress(stored, uncompressed_size=packed.size)
    except (lz4.block.LZ4BlockError, ValueError) as error:
        raise _payload_error(packed, path, f"the LZ4 block is damaged ({error})") from error
    if len(content) != packed.size:
        message = f"expected {packed.size} bytes when unpacked, found {len(content)}"
        raise _payload_error(packed, path, message)
    return content


def _from_zstd(data: memoryview, packed: Packed, path: StrPath | None) -> memoryview:
    from offload_tool.formats.bundle.compressed import decompress_range

    def size_error(expected: str) -> FormatError:
        return _payload_error(packed, path, f"expected {expected}, found {packed.size} bytes")

    place = packed.offset, packed.end, packed.size
    return decompress_range(data, *place, method="zstd", size_error=size_error, path=path)


def _payload_error(packed: Packed, path: StrPath | None, message: str) -> FormatError:
    return FormatError(message, path=path, offset=packed.offset, field=_PAYLOAD)


# -- writing ---------------------------------------------------------------------------


@frozen
class NewCudaEntry:
    """A device image to write: a 64-bit cubin, PTX, or NVVM bitcode, by its content."""

    processor: str
    """``sm_90a``; ``compute_90a`` or ``lto_90a`` are accepted too."""
    content: bytes | memoryview
    options: str = ""
    """Options for ptxas when the driver compiles PTX (``-cmdline``)."""


_Fields: TypeAlias = "tuple[int, tuple[int, int], bytes | memoryview, bytes | None, int]"


def plan_cuda_fatbin(entries: Sequence[NewCudaEntry], *, level: int | None = None) -> FilePlan:
    """Return a plan of a fat binary as of ``fatbinary``; raise UsageError or FormatError.

    With `level`, each image is a zstd frame of that level, as of ``fatbinary --compress-all``.
    """
    return plan_entries([part for entry in entries for part in _parts(entry, level)])


def plan_entries(parts: Sequence[Part]) -> FilePlan:
    """Return a plan of a fat binary whose entries are these parts, in order."""
    return FilePlan.of([_HEADER.pack(_MAGIC, 1, _HEADER.size, sum(map(part_size, parts))), *parts])


def _parts(entry: NewCudaEntry, level: int | None) -> list[bytes | memoryview]:
    processor = _PROCESSOR.fullmatch(entry.processor)
    if processor is None:
        raise UsageError(
            f"'{entry.processor}' cannot be in a CUDA fat binary; expected sm_NN, sm_NNa or sm_NNf"
        )
    number = int(processor[1])
    kind, (minor, major), content, options, flags = _entry_fields(entry, number)
    packed_options = b""
    if options is not None:  # they follow the header; the NUL before a section's does not count
        length = len(options.removeprefix(b"\0"))
        packed_options = _PAIR.pack(_ENTRY.size + _PAIR.size, length)
        packed_options += options.ljust(aligned(length + 1, _ALIGNMENT), b"\0")
    unpacked = 0
    if level is not None:
        import zstandard

        level = max(-(1 << 17), min(level, zstandard.MAX_COMPRESSION_LEVEL))
        unpacked = len(content)
        content = zstandard.ZstdCompressor(level=level).compress(content)
        flags |= _METHODS["zstd"]
    size = aligned(len(content), _ALIGNMENT)
    row = _EntryHeader(
        kind=kind,
        version=_ENTRY_VERSION,
        header_size=_ENTRY.size + len(packed_options),
        payload=size,
        packed=len(content) if unpacked else 0,
        options=_ENTRY.size if packed_options else 0,
        minor=minor,
        major=major,
        number=number,
        identifier=0,
        identifier_size=0,
        flags=_64BIT | _LINUX | _SUFFIXES[processor[2]] | flags,
        zero=0,
        unpacked=unpacked,
    )
    return [_ENTRY.pack(*row) + packed_options, content, bytes(size - len(content))]


def _entry_fields(entry: NewCudaEntry, number: int) -> _Fields:
    """Return kind, versions, payload, options (None: without), and flags."""
    if is_elf(memoryview(entry.content)):
        return _cubin_fields(entry, number)
    options = entry.options.encode()
    if bytes(entry.content[:4]) in _BITCODE:
        return _NVVM, (0, 0), entry.content, options, 0
    major, minor = ptx_version(entry.content)
    return _PTX, (minor, major), shorten(entry.content) + b"\0", options, 0


def _cubin_fields(entry: NewCudaEntry, number: int) -> _Fields:
    tables = read_elf_tables(memoryview(entry.content))
    abi, flags = tables.header.e_ident[8], tables.header.e_flags
    if tables.header.e_machine != EM_CUDA or not tables.elf_class.is_64:
        raise FormatError(
            f"expected a 64-bit cubin (e_machine {EM_CUDA}), found a "
            f"{64 if tables.elf_class.is_64 else 32}-bit file for {tables.header.e_machine}"
        )
    is_new = abi >= 8
    compiled_for = (flags >> 8 if is_new else flags) & 0xFF
    if compiled_for != number:
        raise UsageError(f"the cubin given for {entry.processor} is for sm_{compiled_for}")
    if not is_new or not flags & 3:
        return _ELF, (abi, 1), entry.content, None, 0
    compat = tables.named(_COMPAT_SECTION)
    options = b"\0" + bytes(tables.content(compat[0])) if compat else None
    return _ELF, (abi, 1), entry.content, options, _FINISHED_BY_DRIVER if flags & 2 else 0
