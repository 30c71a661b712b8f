"""Write zip files as plans: compressed members are copied unchanged.

::

    local header, name, extra fields | packed bytes        for each member, in order
    central header, name, extra fields, comment            likewise: sizes, CRC, local offset
    zip64 end record and its locator                       if the end record's fields are too small
    end record                                             offset of the central headers

Members have a `zipfile.ZipInfo`, as from Python's reader. Python writes the headers. New members
have the earliest time of the format, so equal inputs make equal files. Source: PKWARE's APPNOTE
6.3.10.
"""

from __future__ import annotations

import copy
import io
import struct
import zipfile
import zlib
from collections.abc import Sequence
from typing import NamedTuple

from offload_tool.errors import FormatError
from offload_tool.formats.magic import ZIP_MEMBER
from offload_tool.io import FileRange, InputFile
from offload_tool.io.spool import Spool
from offload_tool.io.write_plan import FilePlan

_LOCAL = struct.Struct("<4s22x2H")  # magic, and the sizes of name and extra fields
_FIELD, _ZIP64_FIELD = struct.Struct("<2H"), 1
_DESCRIPTOR, _UTF8 = 8, 0x800
_UNIX = 3
_FIRST_TIME = (1980, 1, 1, 0, 0, 0)


class PackedMember(NamedTuple):
    """A member, and its bytes from the local header on."""

    row: zipfile.ZipInfo
    plan: FilePlan


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
        _, name_size, extra_size = _LOCAL.unpack(header)
        start = _LOCAL.size + name_size + extra_size
        if start + size <= rest:
            return int(row.header_offset + start)
    message = f"expected a header and {size} bytes at offset {row.header_offset}"
    raise FormatError(f"{message}; the zip file may be cut short", path=label)


def copied_member(row: zipfile.ZipInfo, source: InputFile, *, label: str) -> PackedMember:
    """Return a member of a zip file unchanged; raise FormatError if its row is wrong."""
    start = content_offset(source, row, row.compress_size, label=label)
    is_utf8 = row.flag_bits & _UTF8 or row.filename.isascii()
    if is_utf8 and row.filename == row.orig_filename and not row.flag_bits & _DESCRIPTOR:
        size = start - row.header_offset + row.compress_size
        return PackedMember(row, FilePlan.of([source.range(row.header_offset, size)]))
    # The new header has the sizes, which are after the content, and the name in UTF-8, as Python
    # reads it: up to a NUL, or from an extra field.
    row = copy.copy(row)
    row.flag_bits &= ~_DESCRIPTOR
    return packed_member(row, source.range(start, row.compress_size))


def pack_member(spool: Spool, row: zipfile.ZipInfo, plan: FilePlan) -> PackedMember:
    """Return a new member, whose content is packed into `spool` by the method of `row`."""
    row = copy.copy(row)
    row.extra = b""
    row.flag_bits &= _UTF8
    row.CRC = row.file_size = 0
    is_stored = row.compress_type == zipfile.ZIP_STORED
    if not is_stored:
        row.compress_type = zipfile.ZIP_DEFLATED
    engine = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    out, start = spool.out, spool.out.position
    for block in plan.chunks(mapped=False):
        row.CRC = zlib.crc32(block, row.CRC)
        row.file_size += len(block)
        out.write(block if is_stored else engine.compress(block))
    if not is_stored:
        out.write(engine.flush())
    content = spool.since(start)
    row.compress_size = content.size
    return packed_member(row, content)


def packed_member(row: zipfile.ZipInfo, content: FileRange) -> PackedMember:
    """Return a member with the compressed `content`, after a new local header."""
    bare = copy.copy(row)
    bare.extra = b""
    return PackedMember(row, FilePlan.of([bare.FileHeader(), content]))


def plan_zip(members: Sequence[PackedMember]) -> FilePlan:
    """Return a plan of a zip file of `members`, in order."""
    rows = []
    position = 0
    for member in members:
        row = copy.copy(member.row)
        row.header_offset, row.extra = position, _without_zip64(row.extra)
        rows.append(row)
        position += member.plan.size
    end = _Tail(position)
    with zipfile.ZipFile(end, "w") as directory:
        directory.filelist = rows
    return FilePlan.of([*(member.plan for member in members), end.getvalue()])


def _without_zip64(extra: bytes) -> bytes:
    """Return extra fields without that of large numbers, which would have the old offset."""
    others, at = b"", 0
    while at + _FIELD.size <= len(extra):
        number, size = _FIELD.unpack_from(extra, at)
        end = at + _FIELD.size + size
        others += extra[at:end] if number != _ZIP64_FIELD else b""
        at = end
    return others


class _Tail(io.BytesIO):
    """The bytes of a file from offset `start` on."""

    def __init__(self, start: int) -> None:
        super().__init__()
        self._start = start

    def tell(self) -> int:
        return self._start + super().tell()

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return super().seek(offset - self._start, whence)
