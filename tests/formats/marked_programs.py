"""A host program whose device code is apart, put together by hand: wrappers, and their markers."""

from __future__ import annotations

import struct

from offload_tool.formats.hip_fatbin import KPACKED
from offload_tool.formats.kpack.marker import KpackMarker, pack_marker
from tests.formats.object_files import Part, pack_elf

_BASE, _HEADERS = 0x400000, 64 + 56
_NAMES = b"\0.hipFatBinSegment\0.rocm_kpack_ref\0.shstrtab\0.rela.dyn\0.rela\0.symtab\0"


def marked_program(*rows: tuple[KpackMarker, int], relocated: bool = False) -> bytes:
    """Return a program with a wrapper for each (marker, index), or a library that is relocated."""
    at = _BASE + _HEADERS + 24 * len(rows)
    relocations = wrappers = markers = b""
    for number, (marker, index) in enumerate(rows):
        target = at + len(markers)
        wrappers += struct.pack("<4sIQQ", KPACKED, 1, 0 if relocated else target, index)
        relocations += struct.pack("<QQq", _BASE + _HEADERS + 24 * number + 8, 8, target)
        markers += pack_marker(marker)
    parts = [
        Part(b".hipFatBinSegment", 1, 3, wrappers, alignment=8, address=_BASE + _HEADERS),
        Part(b".rocm_kpack_ref", 1, 2, markers),
        Part(b".rela.dyn", 4, 2, relocations if relocated else b"", entry=24),
        Part(b".shstrtab", 3, 0, _NAMES),
    ]
    return pack_elf(parts, kind=3 if relocated else 2, base=_BASE)


def marked_object(
    marker: KpackMarker,
    index: int,
    *,
    magic: bytes = KPACKED,
    symbol: int = 1,
    addend: int = 3,
    table: int = 4,
    home: int = 2,
) -> bytes:
    """Return an object with one wrapper, whose pointer is a relocation.

    Symbol 1 is the section of the marker, section `home`, in which that begins at byte 3; symbol 2
    is of another object. `table` is the section that the relocations name for symbols.
    """
    symbols = bytes(24) + struct.pack("<IBBHQQ", 0, 3, 0, home, 0, 0)
    symbols += struct.pack("<IBBHQQ", 1, 16, 0, 0, 0, 0)
    relocation = struct.pack("<QQq", 8, symbol << 32 | 1, addend)
    return pack_elf(
        [
            Part(b".hipFatBinSegment", 1, 2, struct.pack("<4sIQQ", magic, 1, 0, index)),
            Part(b".rocm_kpack_ref", 1, 2, b"???" + pack_marker(marker)),
            Part(b".rela", 4, 2, relocation, table, 1, entry=24),
            Part(b".symtab", 2, 2, symbols, 5, 2, entry=24),
            Part(b".shstrtab", 3, 2, _NAMES),
        ]
    )
