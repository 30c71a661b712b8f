"""The offload binary: a device image behind a header and a map of strings.

::

    offset  size     field of the header
    ------  -------  ---------------------------------------------------------------
    0       4        magic, 10 FF 10 AD
    4       4        version
    8       8        size of this binary, padding included
    16      8        entry offset
    24      8        version 1: entry size (40); from version 2: number of entries
    32      8        version 3 only: inflated size, 0 where nothing is compressed

    offset  size     field of an entry
    ------  -------  ---------------------------------------------------------------
    0       2        image kind, see `ImageKind`
    2       2        offload kind, see `offload_kind_name`
    4       4        flags; from version 2, bit 0: no image, only strings
    8       8        string offset: of the pairs
    16      8        number of pairs
    24      8        image offset
    32      8        image size

    a pair of version 1: key offset (8), value offset (8); both strings end with NUL
    from version 2:      key offset (8), value offset (8), value size (8)

Two versions are written. Version 1 has one image, so several images are several consecutive
binaries. Version 2 is one binary of all images, which share the strings::

    header | entry   | pairs | string table | zeros to 8 | image  | zeros to 8
    header | entries | pairs | string table | zeros to 8 | images | zeros to 8

In version 3 everything after the header can be one zstd frame or zlib stream. The header then
records the inflated size, which is the `size` without compression, and zeros follow up to a
multiple of 8. `unpacked` returns the uncompressed binary.

Integers are little-endian and unsigned; offsets count from the beginning of the binary.

The numbers of offload kinds changed while the version stayed 1. LLVM 22 has a bit mask (openmp 1,
cuda 2, hip 4, sycl 8); LLVM 15 and the published document count (hip 3). A 3 must be the older hip;
a 4 is LLVM 22's hip unless the caller selects a dialect.

Source: the ClangOffloadPackager document ("Binary Format"); llvm-offload-binary 22.1.8 and 23.1.4
(which writes version 2) and clang-offload-packager 15.0.6, observed; version 3 as in LLVM's pull
request 222774, which is not in a release yet.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Literal, TypeAlias

from offload_tool.errors import FormatError, UnsupportedError, UsageError
from offload_tool.formats.llvm_tables import build_string_table, in_table_order
from offload_tool.formats.magic import BITCODES, aligned, begins, next_content
from offload_tool.formats.magic import OFFLOAD_BINARY as MAGIC
from offload_tool.io import OutputFile, StrPath
from offload_tool.io.write_plan import FilePlan, Part, part_size
from offload_tool.util.frozen import frozen

if TYPE_CHECKING:
    from offload_tool.formats.codec import Method

Dialect: TypeAlias = 'Literal["llvm22", "documented"]'

_HEADER = struct.Struct("<4sIQQQ")
_SIZE = struct.Struct("<Q")
_ENTRY = struct.Struct("<HHIQQQQ")
_PAIR = struct.Struct("<QQ")
_SIZED_PAIR = struct.Struct("<QQQ")
_ONE_ENTRY, _COMPRESSIBLE = 1, 3
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ALIGNMENT = 8
_NO_IMAGE = 1
_NUL = re.compile(rb"\0")
_BUDGET = 16, 1 << 20
"""Multiple of the size of a binary, and bytes: pairs and strings can overlap, so a small broken
binary could need any amount of memory."""

_KIND_NUMBERS: Mapping[Dialect, Mapping[str, int]] = {
    "llvm22": {"none": 0, "openmp": 1, "cuda": 2, "hip": 4, "sycl": 8},
    "documented": {"none": 0, "openmp": 1, "cuda": 2, "hip": 3, "sycl": 4},
}
_KIND_NAMES = {
    dialect: {number: name for name, number in numbers.items()}
    for dialect, numbers in _KIND_NUMBERS.items()
}
_OLD_HIP = 3
_USUAL_KEYS_OF_23 = ("arch", "triple", "linker-arg", "symbols", "feature")


class ImageKind(IntEnum):
    """Kind of an image; the member's name in lower case is `OffloadImage.image_kind_name`."""

    NONE = 0
    OBJECT = 1
    BITCODE = 2
    CUBIN = 3
    FATBINARY = 4
    PTX = 5
    SPIRV = 6

    @property
    def extension(self) -> str:
        """File name extension without its dot; empty if LLVM 22 has none."""
        return _EXTENSIONS.get(self, "")


_EXTENSIONS = {
    ImageKind.OBJECT: "o",
    ImageKind.BITCODE: "bc",
    ImageKind.CUBIN: "cubin",
    ImageKind.FATBINARY: "fatbin",
    ImageKind.PTX: "s",
}
_KIND_OF_EXTENSION = {extension: kind for kind, extension in _EXTENSIONS.items()}


class OffloadBinaryError(FormatError):
    """An offload binary contradicts its format; `cut_short` means that the data is truncated."""

    cut_short = False


class OffloadBinaryVersionError(UnsupportedError):
    """An offload binary has an unknown, newer version."""


@frozen
class OffloadImage:
    """An entry: a device image, its range, in bytes, in the data it was read from, and strings."""

    image_kind: int
    """See `ImageKind`; unknown numbers are preserved."""
    offload_kind: int
    """As stored; its meaning depends on the writer, see `offload_kind_name`."""
    flags: int
    strings: Mapping[str, str]
    """In stored order (bytes that are not UTF-8 become surrogates)."""
    offset: int
    size: int
    has_image: bool = True
    """False if the entry has only strings (from version 2 on)."""

    @property
    def image_kind_name(self) -> str:
        """``object``, ``bitcode``, ...; ``unknown`` for a number without a name."""
        return _IMAGE_KIND_NAMES.get(self.image_kind, "unknown")

    @property
    def offload_kind_name(self) -> str:
        """``openmp``, ``cuda``, ``hip``, ``sycl``, ``none`` or ``unknown``."""
        return offload_kind_name(self.offload_kind)

    @property
    def triple(self) -> str:
        """The target triple; empty if there is none, like `arch`."""
        return self.strings.get("triple", "")

    @property
    def arch(self) -> str:
        """The processor or target ID."""
        return self.strings.get("arch", "")

    def content(self, data: memoryview) -> memoryview:
        """Return the image as a slice of `data`, which contains it."""
        return data[self.offset : self.offset + self.size]


_IMAGE_KIND_NAMES = {kind.value: kind.name.lower() for kind in ImageKind}


@frozen
class OffloadBinary:
    """A binary: `size` bytes, with padding, at `offset` of the data; the images stay in place."""

    offset: int
    size: int
    version: int
    images: tuple[OffloadImage, ...]
    """One in version 1; any number from version 2 on; none in a compressed one."""
    packed: PackedBody | None = None
    """Input of `unpacked` for a compressed binary."""


@frozen
class PackedBody:
    """The compressed part of a binary, behind its header: place and sizes, in bytes of the data."""

    offset: int
    size: int
    inflated_size: int
    method: Method


def offload_kind_name(number: int, dialect: Dialect | None = None) -> str:
    """Return an offload kind's name or ``unknown``; by default LLVM 22's, where 3 is hip, too."""
    if dialect is None and number == _OLD_HIP:
        dialect = "documented"
    return _KIND_NAMES[dialect or "llvm22"].get(number, "unknown")


def offload_kind_number(name: str, dialect: Dialect = "llvm22") -> int | None:
    """Return the number of an offload kind, or None if the name is unknown."""
    return _KIND_NUMBERS[dialect].get(name)


def guess_image_kind(name: str, begin: bytes | memoryview) -> ImageKind:
    """Return an image's kind: bitcode by its first bytes, others by file name."""
    if bytes(begin[:4]) in BITCODES:
        return ImageKind.BITCODE
    _, dot, extension = name.rpartition("/")[2].rpartition(".")
    return _KIND_OF_EXTENSION.get(extension if dot else "", ImageKind.NONE)


def iter_offload_binaries(
    data: memoryview,
    start: int = 0,
    end: int | None = None,
    *,
    path: StrPath | None = None,
    padding: bool = True,
) -> Iterator[OffloadBinary]:
    """Yield the consecutive binaries from `start` to `end` of `data`; raise ContentError.

    All offsets count from the beginning of `data`. With `padding`, zeros may surround the binaries;
    without, each begins at the end of the last one, as in LLVM 22. Binaries before a broken one are
    yielded before the error. A compressed binary has no images; `unpacked` returns them.
    """
    end = len(data) if end is None else min(end, len(data))
    position = start
    while position < end:
        if padding:
            content_at = next_content(data[:end], position)
            if content_at is None:
                return
            position = content_at
        binary = _BinaryReader(data, position, end, path).read()
        yield binary
        position += binary.size
        if binary.packed is not None:  # its size is exact, but the next binary is aligned
            position = start + aligned(position - start, _ALIGNMENT)


def unpacked(
    data: memoryview, binary: OffloadBinary, *, path: StrPath | None = None
) -> tuple[memoryview, OffloadBinary]:
    """Return a binary, and the data with its images: `data`, unless the binary is compressed.

    Compressed ones are unpacked in memory, or above 16 MiB in an anonymous file.
    """
    packed = binary.packed
    if packed is None:
        return data, binary
    from offload_tool.formats.bundle.compressed import decompress_range  # rarely needed

    size = packed.offset - binary.offset + packed.inflated_size
    head = bytearray(data[binary.offset : packed.offset])
    _SIZE.pack_into(head, 8, size)
    _SIZE.pack_into(head, _HEADER.size, 0)

    def size_error(expected: str) -> OffloadBinaryError:
        message = f"expected {expected}, found {packed.inflated_size} behind the header"
        at = binary.offset + _HEADER.size
        return OffloadBinaryError(message, path=path, offset=at, field="inflated size")

    place = packed.offset, packed.offset + packed.size, packed.inflated_size
    content = decompress_range(
        data, *place, head=bytes(head), method=packed.method, size_error=size_error, path=path
    )
    return content, next(iter_offload_binaries(content, path=path))


def read_offload_binary(
    data: memoryview, offset: int, *, path: StrPath | None = None
) -> tuple[memoryview, OffloadBinary, Method | None]:
    """Read the binary at `offset` as `unpacked` does; return the compression method, too."""
    binary = next(iter_offload_binaries(data, offset, path=path))
    method = binary.packed.method if binary.packed else None
    return *unpacked(data, binary, path=path), method


class _BinaryReader:
    """Reads one binary; `size` limits the data it may use."""

    def __init__(self, data: memoryview, start: int, end: int, path: StrPath | None) -> None:
        self.data = data
        self.start = start
        self.size = end - start
        self.path = path

    def read(self) -> OffloadBinary:
        magic = bytes(self.data[self.start : self.start + min(len(MAGIC), self.size)])
        if magic != MAGIC:
            message = f"expected an offload binary ({MAGIC.hex(' ')}), found {magic.hex(' ')}"
            raise self._error(0, "magic", message)
        self._check_room(_HEADER.size, "header")
        _, version, size, entries_at, count = _HEADER.unpack_from(self.data, self.start)
        if not _ONE_ENTRY <= version <= _COMPRESSIBLE:
            message = f"expected 1, 2 or 3, found {version}; a newer LLVM may have written it"
            raise OffloadBinaryVersionError(
                message, path=self.path, offset=self.start + 4, field="version"
            )
        header_size = _HEADER.size
        if version >= _COMPRESSIBLE:
            header_size += _SIZE.size
        if version == _ONE_ENTRY:
            self._check_room(_HEADER.size + _ENTRY.size, "entry")
        if not header_size <= size <= self.size:
            message = f"expected {header_size} to {self.size} (what is there), found {size}"
            raise self._error(8, "size", message, cut_short=True)
        self.size = size
        if version == _ONE_ENTRY:
            self._check(24, "entry size", _HEADER.size, count, 1)
            count = 1
        self.budget = _BUDGET[0] * size + _BUDGET[1]
        if version >= _COMPRESSIBLE:
            (whole,) = _SIZE.unpack_from(self.data, self.start + _HEADER.size)
            if whole:
                return self._packed(version, header_size, entries_at, whole)
        self._check(16, "entry offset", entries_at, count, _ENTRY.size)
        images = (
            self._read_entry(entries_at + index * _ENTRY.size, version) for index in range(count)
        )
        return OffloadBinary(self.start, size, version, tuple(images))

    def _check_room(self, needed: int, field: str) -> None:
        if self.size < needed:
            message = f"expected {needed} bytes or more, found {self.size}"
            raise self._error(0, field, f"{message}; the file may be cut short")

    def _packed(self, version: int, header_size: int, body_at: int, whole: int) -> OffloadBinary:
        if not header_size <= body_at <= self.size:
            message = f"expected {header_size} to {self.size}, found {body_at}"
            raise self._error(16, "entry offset", message, cut_short=True)
        if whole < body_at:
            message = f"expected {body_at} bytes or more, found {whole}"
            raise self._error(_HEADER.size, "inflated size", message)
        start = self.start + body_at
        method: Method = "zstd" if begins(self.data, _ZSTD_MAGIC, start) else "zlib"
        body = PackedBody(start, self.size - body_at, whole - body_at, method)
        return OffloadBinary(self.start, self.size, version, (), body)

    def _read_entry(self, at: int, version: int) -> OffloadImage:
        kind, offload_kind, flags, strings_at, pairs, image_at, image_size = _ENTRY.unpack_from(
            self.data, self.start + at
        )
        pair = _PAIR if version == _ONE_ENTRY else _SIZED_PAIR
        self._check(at + 8, "string offset", strings_at, pairs, pair.size)
        has_image = version == _ONE_ENTRY or not flags & _NO_IMAGE
        if not has_image:
            image_at = image_size = 0
        self._check(at + 24, "image offset", image_at, image_size, 1)
        self._spend(at + 16, pairs * pair.size)
        strings: dict[str, str] = {}
        for index in range(pairs):
            pair_at = strings_at + index * pair.size
            key_at, value_at, *sizes = pair.unpack_from(self.data, self.start + pair_at)
            key = self._read_string(pair_at, "key offset", key_at)
            if sizes:
                self._check(pair_at + 8, "value offset", value_at, sizes[0], 1)
                self._spend(pair_at + 8, sizes[0])
                start = self.start + value_at
                strings[key] = self._text(start, start + sizes[0])
            else:
                strings[key] = self._read_string(pair_at + 8, "value offset", value_at)
        start = self.start + image_at
        return OffloadImage(kind, offload_kind, flags, strings, start, image_size, has_image)

    def _read_string(self, at: int, field: str, offset: int) -> str:
        found = None
        if offset < self.size:
            found = _NUL.search(self.data, self.start + offset, self.start + self.size)
        if found is None:
            message = f"expected a NUL-terminated string within {self.size} bytes, found {offset}"
            raise self._error(at, field, message, cut_short=True)
        self._spend(at, found.start() - self.start - offset)
        return self._text(self.start + offset, found.start())

    def _text(self, start: int, end: int) -> str:
        return bytes(self.data[start:end]).decode("utf-8", "surrogateescape")

    def _check(self, at: int, field: str, offset: int, count: int, size: int) -> None:
        """Check that `count` items of `size` bytes fit at `offset`."""
        if offset > self.size or count > (self.size - offset) // size:
            message = f"expected {count} x {size} bytes within {self.size}, found offset {offset}"
            raise self._error(at, field, message, cut_short=True)

    def _spend(self, at: int, size: int) -> None:
        self.budget -= size
        if self.budget < 0:
            message = f"the strings, taken together, are far longer than the {self.size} bytes"
            raise self._error(at, "strings", message)

    def _error(
        self, at: int, field: str, message: str, *, cut_short: bool = False
    ) -> OffloadBinaryError:
        if cut_short:
            message += "; the file may be cut short"
        error = OffloadBinaryError(message, path=self.path, offset=self.start + at, field=field)
        error.cut_short = cut_short
        return error


def plan_offload_binary(
    content: Part,
    *,
    image_kind: int,
    offload_kind: int,
    strings: Mapping[str, str],
    flags: int = 0,
    keys: Sequence[str] = (),
) -> FilePlan:
    """Return a plan of a version 1 binary with the image `content`; raise UsageError.

    The pairs are in LLVM's order (`llvm_tables`). `keys` are those of the command line in order,
    including ``file`` and ``kind``; the default is ``file``, the strings' keys, and ``kind``.
    """
    raw = {_encoded(key): _encoded(value) for key, value in strings.items()}
    in_order = map(_encoded, keys or ("file", *strings, "kind"))
    row = {key: raw[key] for key in in_table_order(in_order) if key in raw}
    image = OffloadImage(image_kind, offload_kind, flags, strings, 0, part_size(content))
    return _plan(_ONE_ENTRY, [(image, row)], [content])


def plan_shared_offload_binary(
    images: Sequence[OffloadImage], contents: Sequence[Part], *, version: Literal[2, 3] = 2
) -> FilePlan:
    """Return a plan of one binary of all images with their `contents`; raise UsageError.

    The usual keys are in the order of LLVM 23, which differs from 22's. LLVM 23 writes version 2;
    version 3 is for `write_compressed_offload_binary`. The images' current offsets do not matter.
    """
    rows = [(image, _ordered(image.strings)) for image in images]
    return _plan(version, rows, contents)


def _plan(
    version: int,
    rows: Sequence[tuple[OffloadImage, dict[bytes, bytes]]],
    contents: Sequence[Part],
) -> FilePlan:
    """Return a plan of a binary with these images, each with its pairs in order."""
    texts = {text for _, strings in rows for pair in strings.items() for text in pair}
    table, offsets = build_string_table(texts)
    layout, count = (_PAIR, _ENTRY.size) if version == _ONE_ENTRY else (_SIZED_PAIR, len(rows))
    header_size = _HEADER.size + (_SIZE.size if version == _COMPRESSIBLE else 0)
    pairs_at = header_size + len(rows) * _ENTRY.size
    table_at = pairs_at + sum(len(strings) for _, strings in rows) * layout.size
    position = image_at = aligned(table_at + len(table), _ALIGNMENT)
    entries = pairs = b""
    for image, strings in rows:
        ranges = pairs_at + len(pairs), len(strings), position, image.size
        entries += _entry(image.image_kind, image.offload_kind, image.flags, *ranges)
        for key, value in strings.items():
            place = table_at + offsets[key], table_at + offsets[value]
            pairs += layout.pack(*place, *([len(value)] if layout is _SIZED_PAIR else []))
        position += image.size
    total = aligned(position, _ALIGNMENT)
    head = _HEADER.pack(MAGIC, version, total, header_size, count)
    head = head.ljust(header_size, b"\0") + entries + pairs + table
    return FilePlan.of([head.ljust(image_at, b"\0"), *contents, total - position])


def write_compressed_offload_binary(output: OutputFile, plan: FilePlan, *, method: Method) -> int:
    """Append a version 3 binary to the seekable `output`, compressed; return its padded size."""
    from offload_tool.formats.codec import compress, split

    start = output.position
    header_size = _HEADER.size + _SIZE.size
    head, *images = plan.chunks()
    header = bytearray(head[:header_size])
    output.write(bytes(header))  # placeholder: its size is known at the end
    body = split([head[header_size:], *images])
    for chunk in compress(body, plan.size - header_size, method=method):
        output.write(chunk)
    size = output.position - start
    _SIZE.pack_into(header, 8, size)
    _SIZE.pack_into(header, _HEADER.size, plan.size)
    output.patch(start, bytes(header))
    output.write(bytes(aligned(size, _ALIGNMENT) - size))
    return aligned(size, _ALIGNMENT)


def _ordered(strings: Mapping[str, str]) -> dict[bytes, bytes]:
    """Return the pairs in LLVM 23's order: usual keys in its hash table's order, then sorted."""
    raw = {_encoded(key): _encoded(value) for key, value in strings.items()}
    usual = [key for key in map(str.encode, _USUAL_KEYS_OF_23) if key in raw]
    return {key: raw[key] for key in usual + sorted(raw.keys() - set(usual))}


def _entry(image_kind: int, offload_kind: int, flags: int, *ranges: int) -> bytes:
    try:
        return _ENTRY.pack(image_kind, offload_kind, flags, *ranges)
    except struct.error as error:
        message = f"image kind {image_kind}, offload kind {offload_kind} or flags {flags:#x}"
        raise UsageError(f"{message} do not fit into an offload binary") from error


def _encoded(text: str) -> bytes:
    if "\0" in text:
        raise UsageError(f"a string of an offload binary cannot have a NUL in it: {text!r}")
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise UsageError(f"a string of an offload binary must be Unicode, not {text!r}") from error
