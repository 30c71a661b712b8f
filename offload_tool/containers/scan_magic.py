"""Search bytes for containers that nothing points to: by their magic, and what stands behind it.

Programs that read or write containers have the magics in them as constants, so a magic alone
says little. What is found has a header that can be true.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

from offload_tool.containers.file_format import FileFormat
from offload_tool.errors import ContentError
from offload_tool.formats import magic
from offload_tool.formats.bundle.compressed import read_compressed_header
from offload_tool.formats.objects.device_elf import is_code_object

_CHUNK = 1 << 20
"""Bytes that are searched for one magic after the other, while they are in the cache."""
_MAGICS = (
    (magic.BUNDLE, FileFormat.BUNDLE),
    (magic.COMPRESSED_BUNDLE, FileFormat.COMPRESSED_BUNDLE),
    (magic.OFFLOAD_BINARY, FileFormat.OFFLOAD_BINARY),
    (magic.CUDA_FATBIN, FileFormat.CUDA_FATBIN),
    (magic.ELF, FileFormat.CODE_OBJECT),
)
_LAYOUTS = {  # of the first numbers behind a magic; see the formats' modules
    FileFormat.BUNDLE: struct.Struct("<24xQQQQ"),
    FileFormat.OFFLOAD_BINARY: struct.Struct("<4xIQ"),
    FileFormat.CUDA_FATBIN: struct.Struct("<4xHHQH2xI"),
}
_MANY = 1 << 16
_NEWEST_BINARY, _FATBIN_HEADER = 3, 16
_PATTERNS = tuple((re.compile(re.escape(magic)), found) for magic, found in _MAGICS)
_LONGEST = max(len(magic) for magic, _ in _MAGICS)


def find_strays(
    data: memoryview, start: int, stop: int, end: int
) -> Iterator[tuple[int, FileFormat]]:
    """Yield what begins from `start` on and before `stop` of `data`, and where, in file order.

    All of it ends before `end`.
    """
    for position in range(start, stop, _CHUNK):
        behind = min(position + _CHUNK, stop)
        found = [
            (match.start(), file_format)
            for pattern, file_format in _PATTERNS
            for match in pattern.finditer(data, position, min(behind + _LONGEST - 1, end))
            if match.start() < behind and _can_be_true(data, match.start(), end, file_format)
        ]
        yield from sorted(found, key=lambda pair: pair[0])


def _can_be_true(data: memoryview, at: int, end: int, file_format: FileFormat) -> bool:
    """Look at what is behind a magic: a few numbers, whatever the header claims."""
    room = end - at
    if file_format is FileFormat.CODE_OBJECT:
        return is_code_object(data[:end], at)
    if file_format is FileFormat.COMPRESSED_BUNDLE:
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
        return bool(0 < count < _MANY and 0 < name < _MANY and offset + size <= room)
    if file_format is FileFormat.OFFLOAD_BINARY:
        version, size = numbers
        return bool(0 < version <= _NEWEST_BINARY and layout.size < size <= room)
    version, header, size, kind, entry = numbers
    is_first = version == 1 and header == _FATBIN_HEADER and kind in (1, 2)
    return bool(is_first and entry < size <= room)
