"""COFF objects and PE images: their sections; damaged tables are refused."""

from __future__ import annotations

import struct

import pytest

from offload_tool.errors import FormatError
from offload_tool.formats.objects.coff import is_coff, read_coff_sections
from tests.formats.object_files import PREFIX, make_coff


def test_overlapping_names_do_not_fill_memory() -> None:
    rows = [struct.pack("<8s32x", b"/%d" % (4 + index)) for index in range(1000)]
    end = 20 + 40 * len(rows)
    header = struct.pack("<HHIIIHH", 0x8664, len(rows), 0, end, 0, 0, 0)
    strings = struct.pack("<I", 100_005) + b"n" * 100_000 + b"\0"
    with pytest.raises(FormatError, match="far longer than the file"):
        read_coff_sections(memoryview(header + b"".join(rows) + strings))


def patched(at: int, layout: str, value: int | bytes) -> bytes:
    data = bytearray(make_coff({b"section_with_long_name": b"x"}))
    struct.pack_into(layout, data, at, value)
    return bytes(data)


# 20: header of .text; 60: header of the other section; 169: strings
CORRUPT = {
    "sections": (patched(2, "<H", 500), "section headers: expected 20000 bytes at offset 20"),
    "symbols": (patched(12, "<I", 99), "symbol table: expected 1782 bytes at offset"),
    "strings": (patched(169, "<I", 5000), "string table: expected 5000 bytes"),
    "strings-cut": (make_coff()[:-30], "cut short"),
    "raw-data": (patched(40, "<I", 5000), "PointerToRawData of section header 1"),
    "section-name": (patched(60, "<8s", b"/12a"), "expected '/' and an offset"),
    "name-offset": (patched(60, "<8s", b"/999"), "at offset 999 of the string table"),
}


@pytest.mark.parametrize(("data", "message"), CORRUPT.values(), ids=CORRUPT.keys())
def test_corrupt_objects(data: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message) as caught:
        read_coff_sections(memoryview(data), path="broken.obj")
    assert str(caught.value).startswith("'broken.obj', offset 0x")
    assert caught.value.field


def test_bigobj() -> None:
    at, name = 56 + 40 + 5, PREFIX.encode() + b"hip-x"
    data = b"\0\0\xff\xff\2\0" + struct.pack("<HI", 0x8664, 0)
    data += bytes.fromhex("c7a1bad1eebaa94baf20faf66aa4dcb8") + bytes(16)
    data += struct.pack("<III", 1, at, 0)
    data += struct.pack("<8sIIIIIIHHI", b"/4", 0, 0, 5, 56 + 40, 0, 0, 0, 0, 0) + b"image"
    data += struct.pack("<I", 5 + len(name)) + name + b"\0"
    assert is_coff(memoryview(data))
    (row,) = read_coff_sections(memoryview(data))
    assert (row.name, data[row.offset : row.offset + row.size]) == (name, b"image")
