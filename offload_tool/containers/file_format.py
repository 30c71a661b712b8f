"""Recognise files that contain device images, or files that do, by their first bytes.

`find_strays` searches for containers that no table refers to. Programs that read or write
containers have the magics as constants, so a magic alone is weak evidence: the header after it
must be plausible as well.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from enum import Enum

from offload_tool.errors import ContentError
from offload_tool.formats import magic
from offload_tool.formats.bundle.text import COMMENT_MARKS
from offload_tool.formats.objects.coff import is_coff


class FileFormat(Enum):
    """The format of a file, a part of one or a container; the value is its name for users."""

    BUNDLE = "bundle"
    """The binary layout; as the format of a file, a compressed bundle too."""
    COMPRESSED_BUNDLE = "compressed-bundle"
    TEXT_BUNDLE = "text"
    OBJECT_BUNDLE = "object"
    OFFLOAD_BINARY = "offload-binary"
    CUDA_FATBIN = "cuda-fatbin"
    CODE_OBJECT = "code-object"
    """Device code without a container."""
    KPACK = "kpack"
    """A kpack archive, and the images in it under one key."""
    KPACK_MARKER = "kpack-marker"
    """A host program whose device code is in kpack archives."""
    ARCHIVE = "archive"
    ZIP = "zip"
    ELF = "elf"
    COFF = "coff"
    BITCODE = "bitcode"


_MAGICS = (
    (magic.BUNDLE, FileFormat.BUNDLE),
    (magic.COMPRESSED_BUNDLE, FileFormat.BUNDLE),
    (magic.ELF, FileFormat.ELF),
    *((start, FileFormat.ZIP) for start in magic.ZIPS),
    (magic.ARCHIVE, FileFormat.ARCHIVE),
    (magic.THIN_ARCHIVE, FileFormat.ARCHIVE),
    (magic.OFFLOAD_BINARY, FileFormat.OFFLOAD_BINARY),
    (magic.CUDA_FATBIN, FileFormat.CUDA_FATBIN),
    (magic.KPACK, FileFormat.KPACK),
    *((magic, FileFormat.BITCODE) for magic in magic.BITCODES),
)
_LONGEST = max(len(magic) for magic, _ in _MAGICS)
_TEXT_START = re.compile(
    b"\n("
    + b"|".join(sorted({mark.encode() for mark in COMMENT_MARKS.values()}))
    + b") __CLANG_OFFLOAD_BUNDLE____START__ "
)


def recognise(data: memoryview, *, anywhere: bool = False) -> FileFormat | None:
    """Return the format of `data`; with `anywhere`, a text bundle may follow other text."""
    begin = bytes(data[:_LONGEST])
    for start, file_format in _MAGICS:
        if begin.startswith(start):
            return file_format
    if is_coff(data):
        return FileFormat.COFF
    marker = _TEXT_START.search(data) if anywhere else _TEXT_START.match(data)
    return FileFormat.TEXT_BUNDLE if marker else None


def text_comment(data: memoryview) -> str:
    """Return the line comment that marks a text bundle; empty if `data` is not one."""
    marker = _TEXT_START.search(data)
    return marker[1].decode() if marker else ""


_CHUNK = 1 << 20  # bytes searched for all magics in turn, while they are in the cache
_STRAYS = (
    (magic.BUNDLE, FileFormat.BUNDLE),
    (magic.COMPRESSED_BUNDLE, FileFormat.COMPRESSED_BUNDLE),
    (magic.OFFLOAD_BINARY, FileFormat.OFFLOAD_BINARY),
    (magic.CUDA_FATBIN, FileFormat.CUDA_FATBIN),
    (magic.ELF, FileFormat.CODE_OBJECT),
)
_LAYOUTS = {  # of the first fields after a magic; see the formats' modules
    FileFormat.BUNDLE: struct.Struct("<24xQQQQ"),
    FileFormat.OFFLOAD_BINARY: struct.Struct("<4xIQ"),
    FileFormat.CUDA_FATBIN: struct.Struct("<4xHHQH2xI"),
}
_MAX_COUNT = 1 << 16
_NEWEST_BINARY, _FATBIN_HEADER = 3, 16
_PATTERNS = tuple((re.compile(re.escape(magic)), found) for magic, found in _STRAYS)
_LONGEST_STRAY = max(len(magic) for magic, _ in _STRAYS)


def find_strays(
    data: memoryview, start: int, stop: int, end: int
) -> Iterator[tuple[int, FileFormat]]:
    """Yield offset and format of each container that begins in a range and ends before `end`."""
    for position in range(start, stop, _CHUNK):
        chunk_end = min(position + _CHUNK, stop)
        found = [
            (match.start(), file_format)
            for pattern, file_format in _PATTERNS
            for match in pattern.finditer(data, position, min(chunk_end + _LONGEST_STRAY - 1, end))
            if match.start() < chunk_end and _can_be_true(data, match.start(), end, file_format)
        ]
        yield from sorted(found, key=lambda pair: pair[0])


def _can_be_true(data: memoryview, at: int, end: int, file_format: FileFormat) -> bool:
    """Check that the few fields after a magic are plausible, at constant cost."""
    room = end - at
    if file_format is FileFormat.CODE_OBJECT:
        from offload_tool.formats.objects.device_elf import is_code_object

        return is_code_object(data[:end], at)
    if file_format is FileFormat.COMPRESSED_BUNDLE:
        from offload_tool.formats.bundle.compressed import read_compressed_header

        try:
            read_compressed_header(data[:end], at)
        except ContentError:
            return False
        return True
    layout = _LAYOUTS[file_format]
    if room < layout.size:
        return False
    numbers = layout.unpack_from(data, at)
    if file_format is FileFormat.BUNDLE:
        count, offset, size, name = numbers
        return bool(0 < count < _MAX_COUNT and 0 < name < _MAX_COUNT and offset + size <= room)
    if file_format is FileFormat.OFFLOAD_BINARY:
        version, size = numbers
        return bool(0 < version <= _NEWEST_BINARY and layout.size < size <= room)
    version, header, size, kind, entry = numbers
    is_first = version == 1 and header == _FATBIN_HEADER and kind in (1, 2)
    return bool(is_first and entry < size <= room)
