"""The symbols of an archive's members, compared with what LLVM's archiver finds in them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from offload_tool.errors import FormatError
from offload_tool.formats.objects.ar import member_symbols
from tests.conftest import Tool, program, run_tool
from tests.formats.object_files import Part, pack_elf

SOURCE = """
extern int und(int); int gv = 1; static int sv; int __attribute__((weak)) wk(void) {return 1;}
int common; static int loc(void) {return sv++;} int f(void) {return und(loc()) + gv;}
__thread int tl = 3; extern int al(void) __attribute__((alias("f")));
static void *res(void) {return (void *)f;} int ifn(void) __attribute__((ifunc("res")));
__attribute__((visibility("hidden"))) int hid; extern int undata; int *p = &undata;
"""
ASM = """
__asm__(".globl asmsym\\nasmsym:\\n.weak asmw\\nasmw: nop\\nasmloc: nop\\n call asmund\\n");
"""
MODULE = r"""
target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64"
target triple = "x86_64-unknown-linux-gnu"
@0 = global i32 1
@1 = private global i32 1
@"\01raw name" = global i32 1
@com = common global i32 0
@ext = external global i32
@extw = extern_weak global i32
@avail = available_externally global i32 1
@once = linkonce_odr global i32 1
@priv = private global i32 1
@int = internal global i32 1
@empty = weak global [0 x i8] zeroinitializer
@llvm.used = appending global [1 x ptr] [ptr @int], section "llvm.metadata"
@meta = global i32 1, section "llvm.metadata"
@"\C3\A4 \FF" = global i32 1
@al = alias i32, ptr @once
@wal = weak alias i32, ptr @int
@ial = internal alias i32, ptr @once
@ifn = ifunc void (), ptr @resolve
define ptr @resolve() { ret ptr null }
define available_externally i32 @inl() { ret i32 1 }
define linkonce void @lonce() { ret void }
define weak_odr hidden void @hid() { ret void }
define internal void @loc() { ret void }
declare void @dec()
declare void @llvm.donothing()
declare extern_weak void @decw()
define void @main() { call void @dec() call void @llvm.donothing() call void @decw() ret void }
"""
WINDOWS = """
extern int und(int); int gv = 1; static int sv; __attribute__((weak)) int wk(void) {return 1;}
static int loc(void) {return sv++;} int f(void) {return und(loc()) + gv;} int a_long_name_here;
__declspec(selectany) int sa = 4; inline int inl(int x) {return x;} int use(void) {return inl(3);}
__asm__(".globl abs1\\nabs1 = 77\\n .weak wund\\n .long wund\\n .comm com,4\\n");
"""
X86 = ["--target=x86_64-unknown-linux-gnu"]
AMDGPU = ["--target=amdgcn-amd-amdhsa", "-nogpulib", "-mcpu=gfx906", "-fvisibility=default"]
DEVICE = "int d = 1; int und(void); int g(void) {return und();} __attribute__((weak)) int w;"

Compile = Callable[..., Path]
Index = Callable[[Path], bytes | None]

CASES = {
    "elf": (SOURCE + ASM, [*X86, "-c", "-fcommon"]),
    "elf-32": ("int a; int b(void) {return 1;}", ["--target=i686-linux-gnu", "-c"]),
    "elf-big-endian": ("int a; int b(void) {return 1;}", ["--target=mips64-linux-gnu", "-c"]),
    "elf-many-sections": (
        "".join(f"int f{i}(void) {{return {i};}}\n" for i in range(300)),
        [*X86, "-c", "-ffunction-sections", "-g"],
    ),
    "elf-unique": ('__asm__(".type u,@gnu_unique_object\\nu:\\n");', [*X86, "-c"]),
    "elf-empty": ("", [*X86, "-c"]),
    "code-object-relocatable": (DEVICE, [*AMDGPU, "-c"]),
    "bitcode": (SOURCE, [*X86, "-c", "-fcommon", "-emit-llvm"]),
    "bitcode-asm": (SOURCE + ASM, [*X86, "-c", "-emit-llvm"]),
    "bitcode-debug": (SOURCE, [*X86, "-c", "-emit-llvm", "-g", "-O2"]),
    "bitcode-thin-lto": (SOURCE, [*X86, "-c", "-flto=thin"]),
    "bitcode-device": (DEVICE, [*AMDGPU, "-c", "-emit-llvm"]),
    "bitcode-darwin": (DEVICE, ["--target=arm64-apple-macos", "-c", "-emit-llvm"]),
    "bitcode-windows": (DEVICE, ["--target=i686-pc-windows-msvc", "-c", "-emit-llvm"]),
    "bitcode-linkages": (MODULE, ["-c", "-emit-llvm"]),
    "bitcode-empty": ("", [*X86, "-c", "-emit-llvm"]),
    "coff": (WINDOWS, ["--target=x86_64-pc-windows-msvc", "-c"]),
    "coff-bigobj": (WINDOWS, ["--target=x86_64-pc-windows-msvc", "-c", "-Wa,-mbig-obj"]),
    "coff-empty": ("", ["--target=x86_64-pc-windows-msvc", "-c"]),
}


@pytest.fixture
def compile_source(llvm: Tool, tmp_path: Path) -> Compile:
    def run(source: str, flags: list[str], suffix: str = ".c") -> Path:
        path = tmp_path / f"source{suffix}"
        path.write_text(source, encoding="utf-8")
        out = tmp_path / "made.o"
        run_tool(llvm("clang"), *flags, path, "-o", out)
        return out

    return run


@pytest.fixture
def index(llvm: Tool, tmp_path: Path) -> Index:
    """Return the names in the index that llvm-ar makes of one file; None without an index."""

    def read(path: Path) -> bytes | None:
        archive = tmp_path / "index.a"
        archive.unlink(missing_ok=True)
        command: list[str | Path] = [llvm("llvm-ar"), "rcsD", "--format=gnu", archive, path]
        run_tool(*command)
        data = archive.read_bytes()
        if data[8:24].strip() != b"/":
            return None
        (count,) = struct.unpack_from(">I", data, 68)
        names = data[72 + 4 * count : 68 + int(data[56:66])]
        parts = names.split(b"\0")[:count]
        return b"".join(part + b"\0" for part in parts)

    return read


def symbols(path: Path) -> bytes | None:
    return member_symbols(memoryview(path.read_bytes()), warn=pytest.fail)


@pytest.mark.llvm
@pytest.mark.parametrize(("source", "flags"), CASES.values(), ids=CASES.keys())
def test_symbols_as_llvm_finds_them(
    source: str, flags: list[str], compile_source: Compile, index: Index
) -> None:
    """Every format and linkage, names that are not text, and unnamed globals are as for LLVM."""
    path = compile_source(source, flags, ".ll" if source is MODULE else ".c")
    assert symbols(path) == index(path)
    assert (symbols(path) == b"") == (source == "")


@pytest.mark.llvm
def test_code_object(llvm: Tool, compile_source: Compile, index: Index) -> None:
    """A linked code object counts by its static symbol table; stripped, it is without symbols."""
    path = compile_source(DEVICE.replace("und()", "1"), [*AMDGPU])
    assert path.read_bytes()[16] == 3  # ET_DYN
    assert symbols(path) == index(path)
    assert b"g\0" in (symbols(path) or b"")
    run_tool(llvm("llvm-strip"), path)
    assert symbols(path) == index(path) == b""


@pytest.mark.llvm
def test_wrapped_bitcode(compile_source: Compile, index: Index) -> None:
    path = compile_source(DEVICE, [*AMDGPU, "-c", "-emit-llvm"])
    plain = path.read_bytes()
    expected = symbols(path)
    path.write_bytes(struct.pack("<IIIII", 0x0B17C0DE, 0, 20, len(plain), 7) + plain + bytes(12))
    assert symbols(path) == index(path) == expected


@pytest.mark.llvm
def test_bitcode_of_an_older_llvm(compile_source: Compile, index: Index, tmp_path: Path) -> None:
    (tmp_path / "old.c").write_text(SOURCE, encoding="utf-8")
    old = tmp_path / "old.bc"
    clang = program("clang-19")
    run_tool(clang, *X86, "-c", "-emit-llvm", tmp_path / "old.c", "-o", old)
    assert symbols(old) == index(old)


@pytest.mark.llvm
def test_bitcode_of_llvm_as(compile_source: Compile, llvm: Tool, tmp_path: Path) -> None:
    """It has no symbol table, if it has assembler code: there are no symbols, and a warning."""
    text, made = compile_source(SOURCE + ASM, [*X86, "-S", "-emit-llvm"]), tmp_path / "untabled.bc"
    run_tool(llvm("llvm-as"), text, "-o", made)
    warnings: list[str] = []
    assert member_symbols(memoryview(made.read_bytes()), warn=warnings.append) is None
    assert warnings == [f"bitcode {UNTABLED}"]


def block(number: int, content: bytes, size: int | None = None) -> bytes:
    content += bytes(-len(content) % 4)
    count = len(content) // 4 if size is None else size
    return struct.pack("<II", 1 | number << 2 | 3 << 10, count) + content


def blob(content: bytes) -> bytes:
    """Make the content of a block that holds a blob of 32 to 1023 bytes."""
    bits, position = 0, 0
    size = [(len(content) & 31) | 32, len(content) >> 5]
    fields = [(3, 2), (5, 2), (1, 1), (8, 1), (1, 0), (3, 5), (3, 4), (6, size[0]), (6, size[1])]
    for width, value in fields:
        bits |= value << position
        position += width
    return bits.to_bytes(8, "little") + content


def module(flags: int = 1 << 10, *, name: tuple[int, int] = (0, 1), **changes: int) -> bytes:
    """Make bitcode whose symbol table has one symbol."""
    version, modules = changes.get("version", 3), changes.get("modules", 1)
    start, count = changes.get("start", 36), changes.get("count", 1)
    table = struct.pack("<IIIIIIIII", version, 0, 0, 0, modules, 0, 0, start, count)
    table += struct.pack("<IIIIII", *name, 0, 1, 0, flags)
    blocks = block(8, bytes(8)) + block(25, blob(table)) + block(23, blob(b"s" * 40))
    return b"BC\xc0\xde" + blocks


def test_module_by_hand() -> None:
    """A symbol table is found block by block, and the flags choose the symbols."""
    assert member_symbols(memoryview(module())) == b"s\0"
    assert member_symbols(memoryview(module() + bytes(16))) == b"s\0"
    assert member_symbols(memoryview(module(version=4))) == b"s\0"
    for flags in (0, 1 << 10 | 1 << 3, 1 << 10 | 1 << 11):
        assert member_symbols(memoryview(module(flags))) == b""


STRINGS = b"\0first\0second\0.symtab\0.strtab\0"
HEADERS_AT = 64 + 24 * 4 + 32


def elf(changes: tuple[tuple[str, int, int], ...] = ()) -> bytes:
    """Make an ELF file with four symbols; `changes` are (format, offset, value)."""
    rows = [(0, 0, 0, 0), (1, 0x12, 0, 1), (7, 0x22, 0, 0xFFF2), (1, 0x02, 0, 1)]
    data = bytearray(packed_symbols([struct.pack("<IBBHQQ", *row, 0, 0) for row in rows], STRINGS))
    for layout, offset, value in changes:
        struct.pack_into(layout, data, offset, value)
    return bytes(data)


def packed_symbols(rows: list[bytes], strings: bytes) -> bytes:
    table = Part(b".symtab", 2, 0, b"".join(rows), link=2, info=1, alignment=8, entry=24)
    return pack_elf([table, Part(b".strtab", 3, 0, strings)])


SYMTAB = HEADERS_AT + 64


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ((), b"first\0second\0"),
        ((("<H", 64 + 24 + 6, 0),), b"second\0"),  # undefined
        ((("<B", 64 + 24 + 4, 0x14),), b"second\0"),  # a file
        ((("<Q", 40, 0),), b""),  # no sections
        ((("<I", SYMTAB + 4, 1),), b""),  # no symbol table
        ((("<H", 60, 0), ("<Q", HEADERS_AT + 32, 3)), b"first\0second\0"),  # e_shnum elsewhere
    ],
)
def test_elf_by_hand(changes: tuple[tuple[str, int, int], ...], expected: bytes) -> None:
    """Global, weak and common symbols count; local and undefined ones do not."""
    assert member_symbols(memoryview(elf(changes))) == expected


BROKEN_ELF = {
    "byte-order": ((("<B", 5, 0),), "e_ident"),
    "no-section-0": ((("<H", 60, 0), ("<Q", 40, 400)), "section header table"),
    "huge-section-number": ((("<H", 60, 0), ("<Q", HEADERS_AT + 32, 1 << 60)), "section header"),
    "strings-of-other-type": ((("<I", SYMTAB + 40, 1),), "sh_link"),
    "strings-not-ended": ((("<Q", SYMTAB + 64 + 32, 13),), "sh_link"),
    "name-behind-end": ((("<I", 64 + 24, len(STRINGS)),), "st_name"),
}


@pytest.mark.parametrize(("changes", "field"), BROKEN_ELF.values(), ids=BROKEN_ELF.keys())
def test_broken_elf(changes: tuple[tuple[str, int, int], ...], field: str) -> None:
    with pytest.raises(FormatError, match=field) as caught:
        member_symbols(memoryview(elf(changes)), path="lib.a", offset=0x10000)
    assert str(caught.value).startswith("'lib.a', offset 0x10")


def test_names_that_overlap_cannot_exhaust_memory() -> None:
    row = struct.pack("<IBBHQQ", 16, 0x10, 0, 1, 0, 0)
    strings = b".symtab\0.strtab\0" + b"n" * 20_000 + b"\0"
    with pytest.raises(FormatError, match="st_name"):
        member_symbols(memoryview(packed_symbols([row] * 1000, strings)))


def coff(*records: bytes, strings: bytes = b"", count: int | None = None) -> bytes:
    number = len(b"".join(records)) // 18 if count is None else count
    header = struct.pack("<HHIIIHH", 0x8664, 0, 0, 20, number, 0, 0)
    return header + b"".join(records) + struct.pack("<I", 4 + len(strings)) + strings


def record(name: bytes, value: int, section: int, kind: int, aux: int = 0) -> bytes:
    return struct.pack("<8sIhHBB", name, value, section, 0, kind, aux)


def test_coff_by_hand() -> None:
    """External symbols count if defined or common, weak ones if they are aliases."""
    weak = record(b"weak", 0, 0, 105, 1)
    data = coff(
        record(b"defined", 0, 1, 2),
        record(b"undef", 0, 0, 2),
        record(b"\0\0\0\0\4\0\0\0", 8, 0, 2),
        record(b"static", 0, 1, 3),
        weak + struct.pack("<II10x", 1, 2),
        weak + struct.pack("<II10x", 1, 3),
        record(b"absolute", 7, -1, 2),
        record(b"domain", 7, -1, 2, 1) + bytes(18),
        record(b"a\0b", 0, 1, 2),
        strings=b"long_common\0",
    )
    assert member_symbols(memoryview(data)) == b"defined\0long_common\0weak\0absolute\0a\0"
    outside = struct.pack("<HHIIIHH", 0x8664, 0, 0, 1_000_000, 0, 0, 0)
    assert member_symbols(memoryview(outside)) == b""


def test_pe_image() -> None:
    """A linked program is an object, by its COFF header's symbol table; strings may be missing."""
    table = coff(record(b"main", 0, 1, 2))[20:]
    header = b"MZ" + bytes(58) + struct.pack("<I", 64) + b"PE\0\0"
    header += struct.pack("<HHIIIHH", 0x8664, 0, 0, 88, 1, 0, 0)
    assert member_symbols(memoryview(header + table)) == b"main\0"
    assert member_symbols(memoryview(header + table[:-4])) == b"main\0"
    assert member_symbols(memoryview(header[:76] + bytes(12) + table)) == b""


UNTABLED = "without a symbol table; write it with clang or opt, not llvm-as or llvm-link"
UNREADABLE = {
    "magic-only": (b"BC\xc0\xde", "without a module"),
    "no-module": (b"BC\xc0\xde" + block(13, bytes(8)), "without a module"),
    "no-block": (b"BC\xc0\xde" + bytes([3]) * 16, "broken or cut short"),
    "block-behind-end": (b"BC\xc0\xde" + block(8, bytes(8), 99), "broken or cut short"),
    "name-behind-end": (module(name=(39, 2)), "a name that is not in its strings"),
    "symbols-behind-end": (module(start=40), "symbol table is cut short"),
    "too-many-symbols": (module(count=1 << 30), "symbol table is cut short"),
    "wrapper-cut": (b"\xde\xc0\x17\x0b" + bytes(8), "wrapper is cut short"),
    "wrapper-behind-end": (struct.pack("<5I", 0x0B17C0DE, 0, 20, 99, 0), "no bitcode"),
    # Tables of a form that is not known here.
    "version": (module(version=5), UNTABLED),
    "modules": (module(modules=2), UNTABLED),
    "two-modules": (module() + block(8, bytes(8)), UNTABLED),
    "no-strings": (b"BC\xc0\xde" + block(8, bytes(8)) + block(25, blob(bytes(40))), UNTABLED),
    "no-blob": (
        b"BC\xc0\xde" + block(8, bytes(8)) + block(25, bytes(64)) + block(23, bytes(64)),
        UNTABLED,
    ),
    "other-record": (b"BC\xc0\xde" + block(8, b"") + block(25, b"\x02" + bytes(63)), UNTABLED),
    "blob-behind-end": (b"BC\xc0\xde" + block(8, b"") + block(25, blob(bytes(99))[:20]), UNTABLED),
    "coff-table-behind-end": (coff(count=99), "cut short"),
    "bigobj-cut": (
        bytes.fromhex("0000ffff02006486 00000000 c7a1bad1eebaa94baf20faf66aa4dcb8"),
        "cut short",
    ),
}


@pytest.mark.parametrize(("data", "message"), UNREADABLE.values(), ids=UNREADABLE.keys())
def test_unreadable_objects(data: bytes, message: str) -> None:
    warnings: list[str] = []
    assert member_symbols(memoryview(data), warn=warnings.append) is None
    assert member_symbols(memoryview(data)) is None
    (warning,) = warnings
    assert message in warning


OTHERS = {
    "empty": (b"", None),
    "text": (b"int main;\n", None),
    "elf-magic-only": (b"\x7fELF\2\1\1" + bytes(10), None),
    "archive": (b"!<arch>\n", None),
    "dos": (b"MZ" + bytes(70), None),
    "zeros": (bytes(600), b""),  # LLVM takes them for COFF
}


@pytest.mark.llvm
@pytest.mark.parametrize(("data", "expected"), OTHERS.values(), ids=OTHERS.keys())
def test_other_content(data: bytes, expected: bytes | None, index: Index, tmp_path: Path) -> None:
    assert member_symbols(memoryview(data), warn=pytest.fail) == expected
    (tmp_path / "other").write_bytes(data)
    assert index(tmp_path / "other") == expected
