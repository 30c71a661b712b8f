"""Recognises COFF objects and PE images as LLVM does; `coff_edit` reads them.

Source: the PE Format document, "COFF File Header"; LLVM's identify_magic (Magic.cpp).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from offload_tool.formats.magic import DOS

HEADER = struct.Struct("<HHIIIHH")
SECTION = struct.Struct("<8sIIIIIIHHI")
PE_OFFSET_AT = 60
PE = b"PE\0\0"
_BIGOBJ = b"\0\0\xff\xff"
_BIGOBJ_CLASS = bytes.fromhex("c7a1bad1eebaa94baf20faf66aa4dcb8")
_RESOURCE = b"\0\0\0\0\x20\0\0\0\xff"
MACHINES = frozenset(
    {0x0, 0x8664, 0xAA64, 0xA641, 0xA64E, 0x0150, 0x0250, 0x0268, 0x0290}
    | {version << 8 | low for version in (1, 2) for low in (0x4C, 0x66, 0x83, 0x84, 0xC4, 0xF0)}
)
"""Those that LLVM takes for COFF by their first two bytes, little-endian."""


class CoffHeader(NamedTuple):
    """The file header."""

    machine: int
    sections: int
    timestamp: int
    symbols_at: int
    symbols: int
    optional_size: int
    characteristics: int


def is_coff(data: memoryview) -> bool:
    """Return whether LLVM takes `data` for a COFF object or a PE image."""
    first = bytes(data[:2])
    if first == DOS:
        at = int.from_bytes(data[PE_OFFSET_AT : PE_OFFSET_AT + 4], "little")
        return bytes(data[at : at + len(PE)]) == PE
    if int.from_bytes(first, "little") not in MACHINES:  # most files, so it is asked first
        return False
    if is_bigobj(data):
        return True
    if len(data) < HEADER.size or data[:4] == _BIGOBJ or data[:9] == _RESOURCE:
        return False
    header = CoffHeader._make(HEADER.unpack(data[: HEADER.size]))
    end = HEADER.size + header.optional_size + header.sections * SECTION.size
    return end <= len(data)


def is_bigobj(data: memoryview) -> bool:
    """Return whether it is an object of ``/bigobj``, which has another header."""
    return data[:4] == _BIGOBJ and data[12:28] == _BIGOBJ_CLASS
