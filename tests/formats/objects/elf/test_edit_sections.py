"""Sections added to and removed from ELF files: llvm-objcopy's bytes, no trust in the host."""

from __future__ import annotations

import io
import struct
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from offload_tool.errors import FormatError, UnsupportedError
from offload_tool.formats.objects.elf.edit_sections import plan_elf
from offload_tool.formats.objects.elf.reader import read_elf_tables
from offload_tool.io.write_plan import FilePlan, Range
from tests.conftest import Tool, run_tool
from tests.formats.object_files import (
    ADDED,
    C_SOURCE,
    CPP_SOURCE,
    PREFIX,
    Objcopy,
    Part,
    is_bundle_section,
    make_elf,
    pack_elf,
    write_file,
)

MAGIC = PREFIX.encode()
SIGNED_SYMBOLS = """
 .text
foo: .long 0
 .section __CLANG_OFFLOAD_BUNDLE__host-x,"e",@progbits
here: .byte 0
 .globl glob
 .section __CLANG_OFFLOAD_BUNDLE__hip-y,"e",@progbits
glob: .byte 1
 .long foo
 .section .data,"aw"
 .long bar
 .long foo
bar: .long ext
 .globl ext2
ext2: .long 1
 .section .text.g,"axG",@progbits,grp,comdat
grp: .long 0
 .long grp
 .addrsig
 .addrsig_sym bar
"""


def plan_added(host: bytes) -> FilePlan:
    return plan_elf(memoryview(host), ADDED)


def plan_removed(host: bytes) -> FilePlan:
    return plan_elf(memoryview(host), removed=is_bundle_section)


@pytest.fixture
def objcopy(llvm: Tool, tmp_path: Path) -> Objcopy:
    return Objcopy(llvm("llvm-objcopy"), tmp_path, plan_elf)


@pytest.mark.llvm
@pytest.mark.parametrize("extra", [[], ["-fPIC"]], ids=["objects", "libraries"])
@pytest.mark.parametrize(
    "target",
    [
        *("x86_64", "i386", "aarch64", "aarch64_be", "powerpc", "powerpc64le"),
        *("mips", "mips64el", "s390x", "riscv64"),
    ],
)
def test_llvm_bytes(
    target: str, extra: list[str], llvm: Tool, objcopy: Objcopy, tmp_path: Path
) -> None:
    for suffix, source, flags in (
        ("c", C_SOURCE, ["-O1"]),
        ("c", C_SOURCE, ["-g", "-ffunction-sections", "-fdata-sections"]),
        ("cpp", CPP_SOURCE, ["-O2", "-g"]),
        ("cpp", CPP_SOURCE, ["-O0", "-ffunction-sections"]),
    ):
        (tmp_path / f"a.{suffix}").write_text(source)
        host = tmp_path / "a.o"
        clang = (llvm("clang"), f"--target={target}-linux-gnu", "-c", *flags, *extra)
        run_tool(*clang, tmp_path / f"a.{suffix}", "-o", host)
        if extra:
            run_tool(llvm("ld.lld"), "-shared", host, "-o", tmp_path / "a.so")
            host = tmp_path / "a.so"
        objcopy.check_removed(objcopy.check_added(host))


@pytest.mark.llvm
@pytest.mark.parametrize("target", ["x86_64", "i386", "mips", "mips64el", "mips64", "s390x"])
def test_symbols_in_removed_sections(
    target: str, llvm: Tool, objcopy: Objcopy, tmp_path: Path
) -> None:
    """Symbols of removed sections vanish, and relocations and groups follow the others."""
    (tmp_path / "a.s").write_text(SIGNED_SYMBOLS)
    command = (llvm("clang"), f"--target={target}-linux-gnu", "-c")
    run_tool(*command, tmp_path / "a.s", "-o", tmp_path / "a.o")
    before = read_elf_tables(memoryview((tmp_path / "a.o").read_bytes()))
    after = read_elf_tables(memoryview(objcopy.check_removed((tmp_path / "a.o").read_bytes())))
    assert len(after.names) < len(before.names)
    assert not any(is_bundle_section(name) for name in after.names)


@pytest.mark.llvm
def test_empty_symbol_table(llvm: Tool, objcopy: Objcopy, tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text(C_SOURCE)
    clang = (llvm("clang"), "--target=x86_64-linux-gnu", "-fPIC", "-c")
    run_tool(*clang, tmp_path / "a.c", "-o", tmp_path / "a.o")
    run_tool(llvm("ld.lld"), "-shared", tmp_path / "a.o", "-o", tmp_path / "a.so")
    data = bytearray((tmp_path / "a.so").read_bytes())
    tables = read_elf_tables(memoryview(data))
    row = tables.header.e_shoff + tables.names.index(b".symtab") * 64
    struct.pack_into("<Q", data, row + 32, 24)  # its size: the null symbol only
    (tmp_path / "a.so").write_bytes(data)
    names = read_names(objcopy.check_added(tmp_path / "a.so"))
    assert not {b".symtab", b".strtab"} & set(names)


@pytest.mark.llvm
def test_more_than_65280_sections(llvm: Tool, objcopy: Objcopy, tmp_path: Path) -> None:
    """Section numbers that need SHT_SYMTAB_SHNDX are kept; it goes when they shrink."""
    lines = [f'.section {PREFIX}{kind}-x,"e"\n.byte 0\n' for kind in ("host", "hip")]
    lines += (f'.section .t{i},"a"\ns{i}: .byte {i & 255}\n' for i in range(65277))
    (tmp_path / "a.s").write_text("".join(lines))
    command = (llvm("clang"), "--target=x86_64-linux-gnu", "-c")
    run_tool(*command, tmp_path / "a.s", "-o", tmp_path / "a.o")
    added = read_elf_tables(memoryview(objcopy.check_added(tmp_path / "a.o")))
    assert b".symtab_shndx" in added.names
    removed = objcopy.check_removed((tmp_path / "a.o").read_bytes())
    assert b".symtab_shndx" not in read_elf_tables(memoryview(removed)).names


def read_names(data: bytes) -> tuple[bytes, ...]:
    return read_elf_tables(memoryview(data)).names


def test_other_string_tables_keep_their_content(tmp_path: Path) -> None:
    data = bytearray(make_elf(extra={b".stabstr": b"\0debug\0"}))
    (table,) = struct.unpack_from("<Q", data, 40)
    struct.pack_into("<I", data, table + 5 * 64 + 4, 3)  # SHT_STRTAB
    elf = ELFFile(io.BytesIO(write_and_read(tmp_path, bytes(data))))
    assert elf.get_section_by_name(".stabstr").data() == b"\0debug\0"


def test_memory_does_not_hold_contents(tmp_path: Path) -> None:
    """Large sections of the host are ranges to copy, not bytes."""
    host = make_elf(extra={b".big": bytes(1 << 22)})
    pieces = plan_added(host).pieces
    copied = sum(piece.size for piece in pieces if isinstance(piece, Range))
    assert copied >= 1 << 22
    assert write_and_read(tmp_path, host).count(bytes(1 << 22)) == 1


def test_relocations_that_cannot_be_renumbered() -> None:
    """Compressed relocations (CREL) whose symbol numbers would change are refused."""
    data = patched(make_elf(extra={MAGIC + b"x": b"1"}), header(4, 4, "<I", 0x40000014))
    assert plan_removed(data).size < len(data)
    (table,) = struct.unpack_from("<Q", data, 40)
    (symbols,) = struct.unpack_from("<Q", data, table + 6 * 64 + 24)
    data = data[: symbols + 24 + 6] + b"\5\0" + data[symbols + 24 + 8 :]  # "local" in section 5
    with pytest.raises(FormatError, match="the symbol numbers of these relocations"):
        plan_removed(data)


def test_too_large_for_the_class() -> None:
    with pytest.raises(UnsupportedError, match="too many for this class"):
        plan_elf(memoryview(make_elf("32be")), [(b"a", FilePlan((), 1 << 32))])
    assert plan_elf(memoryview(make_elf("64be")), [(b"a", FilePlan((), 1 << 32))]).size > 1 << 32


def write_and_read(tmp_path: Path, host: bytes) -> bytes:
    (tmp_path / "host").write_bytes(host)
    plan = plan_added(host)
    write_file(tmp_path / "out", plan, tmp_path / "host")
    return (tmp_path / "out").read_bytes()


def test_a_needed_section_is_not_removed() -> None:
    """What stays must not refer to what goes: the message names both."""
    host = memoryview(make_elf())
    with pytest.raises(UnsupportedError, match=r"section 5 \('.symtab'\) cannot be removed"):
        plan_elf(host, removed=lambda name: name == b".symtab")
    host = memoryview(patched(make_elf(), symbol(4, 6, "<H", 3)))  # "outside" in .text.grp
    with pytest.raises(
        UnsupportedError, match=r"\('.rel.text'\) refers to symbol 4, which is removed"
    ):
        plan_elf(host, removed=lambda name: name == b".text.grp")
    host = memoryview(patched(make_elf(), header(1, 40, "<I", 3)))
    with pytest.raises(UnsupportedError, match=r"\('.text'\) needs section 3 \('.text.grp'\)"):
        plan_elf(host, removed=lambda name: name == b".text.grp")


def symbol(number: int, at: int, layout: str, value: int) -> tuple[str, int, str, int]:
    """Name the place of a field of a symbol of `make_elf("64le")`."""
    return "symtab", number * 24 + at, layout, value


def header(number: int, at: int, layout: str, value: int) -> tuple[str, int, str, int]:
    """Name the place of a field of a section header of `make_elf("64le")`."""
    return "headers", number * 64 + at, layout, value


def ehdr(at: int, layout: str, value: int) -> tuple[str, int, str, int]:
    """Name the place of a field of the ELF header."""
    return "start", at, layout, value


def patched(data: bytes, *patches: tuple[str, int, str, int]) -> bytes:
    out = bytearray(data)
    (table,) = struct.unpack_from("<Q", data, 40)
    (symtab,) = struct.unpack_from("<Q", data, table + 5 * 64 + 24)
    start = {"start": 0, "headers": table, "symtab": symtab}
    for place, at, layout, value in patches:
        struct.pack_into(layout, out, start[place] + at, value)
    return bytes(out)


CORRUPT = {
    "no-elf": ([ehdr(0, "<I", 0)], "expected an ELF file"),
    "no-class": ([ehdr(4, "<B", 3)], "expected an ELF file"),
    "no-section-table": ([ehdr(40, "<Q", 0)], "expected a section header table"),
    "table-outside": ([ehdr(40, "<Q", 2**63)], "section header table: expected 64 bytes at"),
    "table-cut": ([ehdr(60, "<H", 999)], "expected 63936 bytes at offset"),
    "entry-size": ([ehdr(58, "<H", 40)], "e_shentsize: expected 64 bytes, found 40"),
    "names-index": ([ehdr(62, "<H", 99)], "expected a section number below 7, found 99"),
    "names-no-strings": ([ehdr(62, "<H", 1)], "expected a NUL-terminated string"),
    "names-xindex": ([ehdr(62, "<H", 0xFFFF), header(0, 40, "<I", 9)], "below 7, found 9"),
    "names-no-content": ([header(6, 4, "<I", 8)], "of the string table of 0 bytes"),
    "name-outside": ([header(1, 0, "<I", 9999)], "string at offset 9999 of the string table"),
    "content-outside": ([header(1, 24, "<Q", 2**64 - 8)], "section header 1: claims bytes"),
    "huge-alignment": ([header(1, 48, "<Q", 2**63)], "power of two up to 4294967296, found"),
    "odd-alignment": ([header(1, 48, "<Q", 24)], "power of two .*, found 24"),
    "link": ([header(1, 40, "<I", 7)], "sh_link of section 1: .* below 7, found 7"),
    "info": ([header(4, 44, "<I", 50)], "sh_info of section 4: .* below 7, found 50"),
    "symbols-link": ([header(5, 40, "<I", 1)], "sh_name or st_name of section 1: expected a NUL"),
    "names-kind": ([header(6, 4, "<I", 1)], r"section 6 \('.strtab'\) is not a string table"),
    "symbol-size": ([header(5, 56, "<Q", 23)], "symbols of 24 bytes each, .* sh_entsize 23"),
    "symbols-cut": ([header(5, 32, "<Q", 100)], "found 100 bytes and sh_entsize 24"),
    "symbol-name": ([symbol(1, 0, "<I", 10**6)], "string at offset 1000000"),
    "symbol-section": ([symbol(1, 6, "<H", 7)], "symbol 1 is in section 7, but the file has 7"),
    "symbol-xindex": ([symbol(1, 6, "<H", 0xFFFF)], "symbol 1 is in section 65535"),
    "two-symbol-tables": ([header(1, 4, "<I", 2)], "section 1 has type 2 too"),
    "shndx-size": ([header(1, 4, "<I", 18)], "sh_size of section 1: expected 20 bytes, found 16"),
    "group-size": ([header(2, 32, "<Q", 7)], "expected one or more words, found 7 bytes"),
    "group-empty": ([header(2, 32, "<Q", 0)], "expected one or more words, found 0 bytes"),
    "group-member": ([("start", 84, "<I", 9)], "section numbers below 7, found 9"),
    "group-link": ([header(2, 40, "<I", 6)], "expected the symbol table's number"),
    "group-symbol": ([header(2, 44, "<I", 5)], "refers to symbol 5, which does not exist"),
    "overlap": ([header(3, 24, "<Q", 79)], r"overlaps section 1 \('.text'\), which ends at 80"),
    "segment-xnum": ([ehdr(56, "<H", 0xFFFF), ehdr(54, "<H", 56)], "more than 65534 program"),
    "segment-size": ([ehdr(56, "<H", 1)], "e_phentsize: expected 56 bytes, found 0"),
    "segments-cut": ([ehdr(56, "<H", 99), ehdr(54, "<H", 56)], "expected 5544 bytes at offset 0"),
    "segment-outside": ([ehdr(56, "<H", 1), ehdr(54, "<H", 56), ehdr(32, "<Q", 8)], "claims bytes"),
}


@pytest.mark.parametrize(("patches", "message"), CORRUPT.values(), ids=CORRUPT.keys())
def test_corrupt_hosts(patches: list[tuple[str, int, str, int]], message: str) -> None:
    data = patched(make_elf(), *patches)
    valid = message in ("expected a section header table", "more than 65534 program")
    with pytest.raises(UnsupportedError if valid else FormatError, match=message) as caught:
        plan_elf(memoryview(data), [(b"x", b"x")], path="broken.o")
    assert str(caught.value).startswith("'broken.o', offset 0x")
    assert caught.value.field


def with_segments(rows: list[tuple[int, ...]], data: bytes) -> memoryview:
    """Append a program header table to an ELFCLASS64 file."""
    table = b"".join(struct.pack("<IIQQQQQQ", *row) for row in rows)
    patches = [ehdr(32, "<Q", len(data)), ehdr(54, "<H", 56), ehdr(56, "<H", len(rows))]
    return memoryview(patched(data, *patches) + table)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([(1, 4, 0, 0, 0, 0, 0, 0)] * 257, "at most 256 segments, found 257"),
        ([(1, 4, 0, 0, 0, 0, 0, 24)], "p_align of program header 0: expected a power of two"),
        ([(1, 4, 0, 0, 0, 99999, 0, 1)], "program header 0: claims bytes 0 to 99999"),
        ([(1, 4, 0, 0, 0, 1000, 1000, 1)], r"section 6 \('.symtab'\) must change, but lies inside"),
    ],
    ids=["many", "alignment", "outside", "symbols-inside"],
)
def test_corrupt_segments(rows: list[tuple[int, ...]], message: str) -> None:
    host = with_segments(rows, make_elf(extra={MAGIC + b"x": bytes(600)}))
    valid = "found 257" in message or "lies inside" in message
    with pytest.raises(UnsupportedError if valid else FormatError, match=message):
        plan_elf(host, removed=is_bundle_section)


@pytest.mark.llvm
def test_segments_at_the_same_offset(objcopy: Objcopy, tmp_path: Path) -> None:
    """The one with the larger alignment decides where both go."""
    note, load = (4, 4, 64, 0x80, 0, 16, 16, 4), (1, 4, 64, 0x80, 0, 80, 80, 0x100)
    for rows in ([note, load], [load, note]):
        (tmp_path / "host").write_bytes(with_segments(rows, make_elf()))
        assert objcopy.check_added(tmp_path / "host").index(b"code" * 4) == 0x80


@pytest.mark.llvm
def test_removed_section_inside_a_segment(objcopy: Objcopy) -> None:
    """What is removed inside a segment becomes zeros; the segment keeps its layout."""
    host = make_elf(extra={MAGIC + b"x": b"secret image"})
    end = host.index(b"secret image") + len(b"secret image")
    loaded = bytes(with_segments([(1, 4, 64, 64, 0, end - 64, end - 64, 1)], host))
    result = objcopy.check_removed(loaded)
    start = result.index(b"code" * 4)
    expected = loaded[64:end].replace(b"secret image", bytes(12))
    assert result[start : start + end - 64] == expected


def test_overlapping_names_do_not_fill_memory() -> None:
    """Many names that are tails of one long string are refused before they are all read."""
    symbols = b"".join(struct.pack("<I20x", number) for number in range(1500))
    strings = b"\0" + b"n" * 200_000 + b"\0.symtab\0.strtab\0"
    parts = [Part(b".symtab", 2, 0, symbols, 2, entry=24), Part(b".strtab", 3, 0, strings)]
    with pytest.raises(FormatError, match="far longer than the file"):
        plan_elf(memoryview(pack_elf(parts)), [(b"x", b"x")])


@pytest.mark.parametrize("copies", [3, 9])
def test_sections_that_share_bytes(copies: int) -> None:
    data = make_elf(extra={b".big": bytes(10_000)})
    tables = read_elf_tables(memoryview(data))
    rows = [*tables.sections, *[tables.sections[5]] * copies]
    header = tables.header._replace(e_shoff=len(data), e_shnum=len(rows))
    made = tables.elf_class.header.pack(*header) + data[tables.header.e_ehsize :]
    made += b"".join(tables.elf_class.section.pack(*row) for row in rows)
    if copies == 3:
        assert len(read_elf_tables(memoryview(made)).sections) == len(rows)
        return
    with pytest.raises(FormatError, match="taken together, is far longer than the file"):
        read_elf_tables(memoryview(made))
