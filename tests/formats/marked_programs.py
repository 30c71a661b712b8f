"""A host program whose device code is apart, put together by hand: wrappers, and their markers."""

from __future__ import annotations

import struct

from offload_tool.formats.hip_fatbin import KPACKED
from offload_tool.formats.kpack.marker import KpackMarker, pack_marker

_BASE, _HEADERS = 0x400000, 64 + 56
_NAMES = b"\0.hipFatBinSegment\0.rocm_kpack_ref\0.shstrtab\0.rela.dyn\0"


def marked_program(*rows: tuple[KpackMarker, int], relocated: bool = False) -> bytes:
    """Return a program with a wrapper for each (marker, index), or a library that is relocated."""
    markers = [pack_marker(marker) for marker, _ in rows]
    at = _HEADERS + 24 * len(rows)
    relocations = b""
    wrappers = b""
    for number, ((_, index), marker) in enumerate(zip(rows, markers, strict=True)):
        place = _BASE + _HEADERS + 24 * number
        wrappers += struct.pack("<4sIQQ", KPACKED, 1, 0 if relocated else _BASE + at, index)
        relocations += struct.pack("<QQq", place + 8, 8, _BASE + at)
        at += len(marker)
    body = wrappers + b"".join(markers)
    relocations = relocations if relocated else b""
    end = _HEADERS + len(body) + len(relocations)
    sections = [
        (0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        (1, 1, 3, _BASE + _HEADERS, _HEADERS, len(wrappers), 0, 0, 8, 0),
        (19, 1, 2, 0, _HEADERS + len(wrappers), len(body) - len(wrappers), 0, 0, 1, 0),
        (45, 4, 2, 0, _HEADERS + len(body), len(relocations), 0, 0, 8, 24),
        (35, 3, 0, 0, end, len(_NAMES), 0, 0, 1, 0),
    ]
    header = struct.pack(
        "<16sHHIQQQIHHHHHH",
        b"\x7fELF\x02\x01\x01",
        *(3 if relocated else 2, 62, 1, 0, 64, end + len(_NAMES), 0, 64, 56, 1, 64, 5, 4),
    )
    segment = struct.pack("<IIQQQQQQ", 1, 6, 0, _BASE, _BASE, end, end, 4096)
    table = b"".join(struct.pack("<IIQQQQIIQQ", *row) for row in sections)
    return header + segment + body + relocations + _NAMES + table


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
    wrapper = struct.pack("<4sIQQ", magic, 1, 0, index)
    content = b"???" + pack_marker(marker)
    relocation = struct.pack("<QQq", 8, symbol << 32 | 1, addend)
    symbols = bytes(24) + struct.pack("<IBBHQQ", 0, 3, 0, home, 0, 0)
    symbols += struct.pack("<IBBHQQ", 1, 16, 0, 0, 0, 0)
    names = b"\0.hipFatBinSegment\0.rocm_kpack_ref\0.rela\0.symtab\0.strtab\0"
    bodies = [wrapper, content, relocation, symbols, names]
    starts = [64]
    for body in bodies:
        starts.append(starts[-1] + len(body))
    rows = [(0, 0, 0, 0, 0, 0, 0, 0, 0, 0)]
    for name, kind, link, info, size, number in (
        (".hipFatBinSegment", 1, 0, 0, 0, 0),
        (".rocm_kpack_ref", 1, 0, 0, 0, 1),
        (".rela", 4, table, 1, 24, 2),
        (".symtab", 2, 5, 2, 24, 3),
        (".strtab", 3, 0, 0, 0, 4),
    ):
        at = names.index(f"\0{name}\0".encode()) + 1
        rows.append((at, kind, 2, 0, starts[number], len(bodies[number]), link, info, 1, size))
    header = struct.pack(
        "<16sHHIQQQIHHHHHH",
        b"\x7fELF\x02\x01\x01",
        *(1, 62, 1, 0, 0, starts[-1], 0, 64, 0, 0, 64, 6, 5),
    )
    sections = b"".join(struct.pack("<IIQQQQIIQQ", *row) for row in rows)
    return header + b"".join(bodies) + sections
