"""Write zip files as plans: compressed members are copied unchanged.

::

    local header, name, extra fields | packed bytes        for each member, in order
    central header, name, extra fields, comment            likewise: sizes, CRC, local offset
    zip64 end record and its locator                       if the end record's fields are too small
    end record                                             offset of the central headers

Members have a `zipfile.ZipInfo`, as from Python's reader. New ones have the earliest time of the
format, so equal inputs make equal files. Source: PKWARE's APPNOTE 6.3.10.
"""

from __future__ import annotations

import copy
import struct
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from offload_tool.errors import FormatError
from offload_tool.formats.magic import ZIP_MEMBER
from offload_tool.io import FileRange, InputFile, OutputFile
from offload_tool.io.write_plan import FilePlan

_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s4B4H3I5H2I")
_END = struct.Struct("<4s4H2IH")
_END64 = struct.Struct("<4sQ2H2I4Q")
_LOCATOR = struct.Struct("<4sIQI")
_FIELD = struct.Struct("<2H")
_ZIP64_FIELD, _ZIP64_VERSION = 1, 45
_DESCRIPTOR, _UTF8 = 8, 0x800
_MAX_32, _MAX_16 = (1 << 32) - 1, (1 << 16) - 1
_UNIX, _VERSION = 3, 20
_FIRST_TIME = (1980, 1, 1, 0, 0, 0)


class PackedMember(NamedTuple):
    """A member, and its bytes from the local header on."""

    row: zipfile.ZipInfo
    parts: tuple[bytes | FileRange, ...]
    size: int
    """Bytes of `parts`."""


def new_row(name: str, mode: int) -> zipfile.ZipInfo:
    """Return the directory row of a new regular file with these permission bits."""
    row = zipfile.ZipInfo(name, _FIRST_TIME)
    row.create_system = _UNIX
    row.external_attr = (0o100000 | mode) << 16
    return row


def content_offset(source: InputFile, row: zipfile.ZipInfo, size: int, *, label: str) -> int:
    """Return the offset of a member's `size` bytes; raise FormatError if the row is wrong."""
    # Python's zipfile gives a negative offset if the beginning of the file is missing.
    rest = max(len(source) - row.header_offset, 0) if row.header_offset >= 0 else 0
    header = bytes(source.read(row.header_offset, min(_LOCAL.size, rest))) if rest else b""
    if len(header) == _LOCAL.size and header[:4] == ZIP_MEMBER:
        *_, name_size, extra_size = _LOCAL.unpack(header)
        start = _LOCAL.size + name_size + extra_size
        if start + size <= rest:
            return int(row.header_offset + start)
    message = f"expected a header and {size} bytes at offset {row.header_offset}"
    raise FormatError(f"{message}; the zip file may be cut short", path=label)


def copied_member(row: zipfile.ZipInfo, source: InputFile, *, label: str) -> PackedMember:
    """Return a member of a zip file unchanged; raise FormatError if its row is wrong."""
    start = content_offset(source, row, row.compress_size, label=label)
    if not row.flag_bits & _DESCRIPTOR:
        size = start - row.header_offset + row.compress_size
        return PackedMember(row, (source.range(row.header_offset, size),), size)
    # The sizes are after the content, in one of four forms; the new header contains them.
    row = copy.copy(row)
    row.flag_bits &= ~_DESCRIPTOR
    return packed_member(row, source.range(start, row.compress_size))


def pack_member(
    out: OutputFile, row: zipfile.ZipInfo, blocks: Iterable[bytes | memoryview]
) -> zipfile.ZipInfo:
    """Append a member's content to `out`, compressed by the method of `row`; return the new row."""
    row = copy.copy(row)
    row.extra = b""
    row.flag_bits &= _UTF8
    row.CRC = row.file_size = 0
    is_stored = row.compress_type == zipfile.ZIP_STORED
    if not is_stored:
        row.compress_type = zipfile.ZIP_DEFLATED
    engine = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    start = out.position
    for block in blocks:
        row.CRC = zlib.crc32(block, row.CRC)
        row.file_size += len(block)
        out.write(block if is_stored else engine.compress(block))
    if not is_stored:
        out.write(engine.flush())
    row.compress_size = out.position - start
    return row


def packed_member(row: zipfile.ZipInfo, content: FileRange) -> PackedMember:
    """Return a member with the compressed `content`, after a new local header."""
    extra = b""
    size, stored = row.file_size, row.compress_size
    if max(size, stored) >= _MAX_32:
        extra = _FIELD.pack(_ZIP64_FIELD, 16) + struct.pack("<2Q", size, stored)
        size = stored = _MAX_32
    name, flags = _name(row)
    header = _LOCAL.pack(
        *(ZIP_MEMBER, _ZIP64_VERSION if extra else _VERSION, flags, row.compress_type),
        *(*_time(row), row.CRC, stored, size, len(name), len(extra)),
    )
    head = header + name + extra
    return PackedMember(row, (head, content), len(head) + content.size)


def plan_zip(members: Sequence[PackedMember]) -> FilePlan:
    """Return a plan of a zip file of `members`, in order."""
    parts: list[bytes | FileRange] = []
    rows = []
    position = 0
    for member in members:
        rows.append(_central(member.row, position))
        parts += member.parts
        position += member.size
    central = b"".join(rows)
    return FilePlan.of([*parts, central, _end(len(members), len(central), position)])


def _central(row: zipfile.ZipInfo, position: int) -> bytes:
    numbers = []
    size, stored, start = row.file_size, row.compress_size, position
    if max(size, stored) >= _MAX_32:
        numbers += [size, stored]
        size = stored = _MAX_32
    if start >= _MAX_32:
        numbers.append(start)
        start = _MAX_32
    extra = _without_zip64(row.extra)
    version = row.extract_version
    if numbers:
        own = struct.pack(f"<{len(numbers)}Q", *numbers)
        extra = _FIELD.pack(_ZIP64_FIELD, len(own)) + own + extra
        version = max(version, _ZIP64_VERSION)
    name, flags = _name(row)
    header = _CENTRAL.pack(
        *(b"PK\1\2", row.create_version, row.create_system, version, row.reserved),
        *(flags, row.compress_type, *_time(row), row.CRC, stored, size),
        *(len(name), len(extra), len(row.comment), 0),
        *(row.internal_attr, row.external_attr, start),
    )
    return header + name + extra + row.comment


def _end(count: int, size: int, start: int) -> bytes:
    data = b""
    if count >= _MAX_16 or max(size, start) >= _MAX_32:
        versions = _ZIP64_VERSION, _ZIP64_VERSION
        data += _END64.pack(b"PK\6\6", _END64.size - 12, *versions, 0, 0, count, count, size, start)
        data += _LOCATOR.pack(b"PK\6\7", 0, start + size, 1)
    few = min(count, _MAX_16)
    return data + _END.pack(b"PK\5\6", 0, 0, few, few, min(size, _MAX_32), min(start, _MAX_32), 0)


def _name(row: zipfile.ZipInfo) -> tuple[bytes, int]:
    if row.flag_bits & _UTF8:
        return row.orig_filename.encode("utf-8", "surrogateescape"), row.flag_bits
    try:
        return row.orig_filename.encode("ascii"), row.flag_bits
    except UnicodeEncodeError:
        pass
    if row.header_offset:  # in another zip file: without the flag, it was in this code page
        return row.orig_filename.encode("cp437", "replace"), row.flag_bits
    return row.orig_filename.encode("utf-8"), row.flag_bits | _UTF8


def _time(row: zipfile.ZipInfo) -> tuple[int, int]:
    year, month, day, hour, minute, second = row.date_time
    return hour << 11 | minute << 5 | second // 2, year - 1980 << 9 | month << 5 | day


def _without_zip64(extra: bytes) -> bytes:
    others, at = b"", 0
    while at + _FIELD.size <= len(extra):
        number, size = _FIELD.unpack_from(extra, at)
        end = at + _FIELD.size + size
        if number != _ZIP64_FIELD:
            others += extra[at:end]
        at = end
    return others
