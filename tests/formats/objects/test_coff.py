"""Sections added to and removed from COFF objects: llvm-objcopy's bytes."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from offload_tool.errors import FormatError, UnsupportedError
from offload_tool.formats.objects.coff import is_coff, plan_coff, read_coff_sections
from tests.conftest import Tool, run_tool
from tests.formats.object_files import (
    ADDED,
    C_SOURCE,
    CPP_SOURCE,
    PREFIX,
    Objcopy,
    assemble,
    is_bundle_section,
    make_coff,
)

SIZES = [(name, len(content)) for name, content in ADDED]
CONTENTS = [content for _, content in ADDED]
MANY = "".join(
    [
        ".data\n" + ".quad foo\n" * 70000,
        '.section .section_with_long_name,"dr"\n.long 1\n',
        *(f".globl symbol_with_long_name_{i}\nsymbol_with_long_name_{i}:\n" for i in range(99)),
    ]
)


@pytest.mark.llvm
@pytest.mark.parametrize(
    ("target", "suffix", "source", "flags"),
    [
        pytest.param(f"{arch}-pc-windows-{abi}", *rest, id=f"{arch}-{abi}-{index}")
        for arch, abi in (("x86_64", "msvc"), ("x86_64", "gnu"), ("i686", "msvc"))
        + (("aarch64", "msvc"),)
        for index, rest in enumerate(
            [
                ("c", C_SOURCE, ["-O1"]),
                ("cpp", CPP_SOURCE, ["-g", "-ffunction-sections"]),
                ("c", "", []),
            ]
        )
    ]
    + [pytest.param("x86_64-pc-windows-msvc", "s", MANY, [], id="70000-relocations")],
)
def test_llvm_bytes(
    target: str,
    suffix: str,
    source: str,
    flags: list[str],
    llvm: Tool,
    tmp_path: Path,
) -> None:
    (tmp_path / f"a.{suffix}").write_text(source)
    host = tmp_path / "a.o"
    run_tool(
        llvm("clang"), f"--target={target}", "-c", *flags, tmp_path / f"a.{suffix}", "-o", host
    )
    objcopy = Objcopy(llvm("llvm-objcopy"), tmp_path, plan_coff)
    objcopy.check_removed(objcopy.check_added(host))


def test_round_trip(tmp_path: Path) -> None:
    """Sections are added with their content, and go again without a trace."""
    host = make_coff()
    bundled = assemble(plan_coff(memoryview(host), SIZES), host, CONTENTS, tmp_path)
    sections = read_coff_sections(memoryview(bundled))
    found = [(row.name, bundled[row.offset : row.offset + row.size]) for row in sections]
    assert found == [(b".text", b"code"), *ADDED]
    plan = plan_coff(memoryview(bundled), removed=is_bundle_section)
    plain = assemble(plan_coff(memoryview(host)), host, [], tmp_path)
    assert assemble(plan, bundled, [], tmp_path) == plain


def test_sections_behind_a_removed_one(tmp_path: Path) -> None:
    """Symbols follow their sections when the numbers change."""
    host = make_coff({b"drop": b"x"})
    data = bytearray(make_coff({b"drop": b"x", b".after": b"y"}))
    (symbols,) = struct.unpack_from("<I", data, 8)
    struct.pack_into("<H", data, symbols + 36 + 12, 3)
    plan = plan_coff(memoryview(data), removed=lambda name: name == b"drop")
    result = assemble(plan, bytes(data), [], tmp_path)
    (symbols,) = struct.unpack_from("<I", result, 8)
    assert struct.unpack_from("<H", result, symbols + 36 + 12) == (2,)
    assert [row.name for row in read_coff_sections(memoryview(result))] == [b".text", b".after"]
    with pytest.raises(UnsupportedError, match="the symbol belongs to section 1, which is removed"):
        plan_coff(memoryview(host), removed=lambda name: name == b".text")


def test_names_behind_ten_megabytes(tmp_path: Path) -> None:
    """A section name's offset of more than seven digits is written in base 64."""
    names = [(b"n" * 300_000 + b"%03d" % index, 1) for index in range(40)]
    host = make_coff()
    result = assemble(plan_coff(memoryview(host), names), host, [b"c"] * 40, tmp_path)
    assert b"//AA" in result[:2000]
    assert {row.name for row in read_coff_sections(memoryview(result))} == {
        b".text",
        *(name for name, _ in names),
    }


def test_too_large() -> None:
    """Contents that exceed a COFF object's 32-bit offsets are refused."""
    with pytest.raises(UnsupportedError, match="4 GiB"):
        plan_coff(memoryview(make_coff()), [(b"a", 1 << 31), (b"b", 1 << 31)])


def test_too_many_sections() -> None:
    """More sections than an ordinary COFF object can number are refused."""
    with pytest.raises(UnsupportedError, match="at most 65279 sections, found 65280"):
        plan_coff(memoryview(make_coff()), [(b"a", 1)] * 65279)


def test_overlapping_names_do_not_fill_memory() -> None:
    """Many names that are tails of one long string are refused before they are all read."""
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


# 20: header of .text; 60: header of the other section; 115: symbols; 169: strings
CORRUPT = {
    "sections": (patched(2, "<H", 500), "section headers: expected 20000 bytes at offset 20"),
    "symbols": (patched(12, "<I", 99), "symbol table: expected 1782 bytes at offset"),
    "strings": (patched(169, "<I", 5000), "string table: expected 5000 bytes"),
    "strings-cut": (make_coff()[:-30], "cut short"),
    "raw-data": (patched(40, "<I", 5000), "PointerToRawData of section header 1"),
    "relocations": (patched(52, "<H", 200), "relocations of section header 1: expected 2000"),
    "line-numbers": (patched(54, "<H", 1), "line numbers are not supported"),
    "section-name": (patched(60, "<8s", b"/12a"), "expected '/' and an offset"),
    "name-offset": (patched(60, "<8s", b"/999"), "at offset 999 of the string table"),
    "symbol-name": (patched(115 + 40, "<I", 999), "at offset 999 of the string table"),
    "symbol-section": (patched(115 + 12, "<H", 9), "section 9, which does not exist"),
    "auxiliary": (patched(115 + 17, "<B", 200), "200 auxiliary records do not fit"),
}


@pytest.mark.parametrize(("data", "message"), CORRUPT.values(), ids=CORRUPT.keys())
def test_corrupt_objects(data: bytes, message: str) -> None:
    """Tables that contradict the file are refused with file, offset and field."""
    error = UnsupportedError if "not supported" in message else FormatError
    with pytest.raises(error, match=message) as caught:
        plan_coff(memoryview(data), SIZES, path="broken.obj")
    assert str(caught.value).startswith("'broken.obj', offset 0x")
    assert caught.value.field


def test_bigobj_is_read_but_not_edited() -> None:
    """A /bigobj object's sections are found; adding to it is refused with what to do."""
    at, name = 56 + 40 + 5, PREFIX.encode() + b"hip-x"
    data = b"\0\0\xff\xff\2\0" + struct.pack("<HI", 0x8664, 0)
    data += bytes.fromhex("c7a1bad1eebaa94baf20faf66aa4dcb8") + bytes(16)
    data += struct.pack("<III", 1, at, 0)
    data += struct.pack("<8sIIIIIIHHI", b"/4", 0, 0, 5, 56 + 40, 0, 0, 0, 0, 0) + b"image"
    data += struct.pack("<I", 5 + len(name)) + name + b"\0"
    assert is_coff(memoryview(data))
    (row,) = read_coff_sections(memoryview(data))
    assert (row.name, data[row.offset : row.offset + row.size]) == (name, b"image")
    with pytest.raises(UnsupportedError, match=r"found a /bigobj object.*compiled without /bigobj"):
        plan_coff(memoryview(data), SIZES)


def test_image_is_read_but_not_edited() -> None:
    """A PE image's sections are found behind its DOS header; adding to it is refused."""
    coff = make_coff({b".offload": b"image"})
    start = b"MZ".ljust(60, b"\0") + b"\x40\0\0\0PE\0\0"
    rows = bytearray(coff[20:100])
    for row, at in ((0, 20), (0, 24), (40, 20)):  # no symbols, so only the data moves
        (offset,) = struct.unpack_from("<I", rows, row + at)
        struct.pack_into("<I", rows, row + at, offset + len(start))
    image = memoryview(start + coff[:8] + bytes(12) + rows + coff[100:])
    assert is_coff(image)
    section = read_coff_sections(image)[1]
    content = bytes(image[section.offset : section.offset + section.size])
    assert (section.name, content) == (b".offload", b"image")
    with pytest.raises(UnsupportedError, match="found a PE image"):
        plan_coff(image, SIZES)
