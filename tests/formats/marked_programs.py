"""A host program whose device code is apart, put together by hand: wrappers, and their markers."""

from __future__ import annotations

import struct

from offload_tool.formats.hip_fatbin import KPACKED, HipWrapper
from offload_tool.formats.kpack_marker import KpackMarker, pack_marker

_BASE, _HEADERS = 0x400000, 64 + 56
_NAMES = b"\0.hipFatBinSegment\0.rocm_kpack_ref\0.shstrtab\0.rela.dyn\0"


def marked_program(*rows: tuple[KpackMarker, int], relocated: bool = False) -> bytes:
    """Give a program with a wrapper for each (marker, index), or a library that is relocated."""
    markers = [pack_marker(marker) for marker, _ in rows]
    at = _HEADERS + 24 * len(rows)
    relocations = b""
    wrappers = b""
    for number, ((_, index), marker) in enumerate(zip(rows, markers, strict=True)):
        place = _BASE + _HEADERS + 24 * number
        wrappers += HipWrapper(0, KPACKED, 0 if relocated else _BASE + at, index).pack()
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
