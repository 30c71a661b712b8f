"""Replacing bundles in ELF files: every reason to refuse one, each beside a file that is taken.

The files are made by hand, for no linker makes what is refused here. Each differs in one thing
from one that is thinned well. Programs and libraries of linkers: see
tests/operations/test_thin.py, which runs them.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from offload_tool.errors import FormatError, UnsupportedError
from offload_tool.formats.objects.elf import reader as elf_format
from offload_tool.formats.objects.elf.reader import (
    ElfClass,
    ElfHeader,
    SectionHeader,
    SegmentHeader,
    Symbol,
    read_elf_tables,
)
from offload_tool.formats.objects.elf.segments import Replacement, plan_shrunk_elf
from offload_tool.io.write_plan import FilePlan
from tests.formats.object_files import CLASSES, assemble

RELOCATABLE, PROGRAM, LIBRARY = 1, 2, 3
LOAD, NOTE, INTERP, TLS = 1, 4, 3, 7
PROGBITS, SYMTAB, STRTAB, RELA, REL = 1, 2, 3, 4, 9
X86_64, AARCH64 = 62, 183
SECTION_SYMBOL, OBJECT_SYMBOL = 3, 1

FIRST, SECOND, END = 0x1000, 0x4000, 0x7000
"""Where the bundles of `.hip_fatbin` begin and end, in the file; in sections from 0 on."""
DATA_SIZE = 0x100
BUNDLES, DATA, SYMBOLS = 1, 2, 3
"""Section numbers."""


@dataclass(frozen=True)
class Elf:
    """A file of `.hip_fatbin` with two bundles, `.data`, `.symtab` and names."""

    kind: int = LIBRARY
    name: str = "64le"
    machine: int = X86_64
    segments: tuple[SegmentHeader, ...] = ()
    table: int | None = None
    """Where the program headers are; None: behind the ELF header."""
    bundles: dict[str, int] = field(default_factory=dict)
    """Other fields of the section header of `.hip_fatbin`."""
    data: dict[str, int] = field(default_factory=dict)
    """The same for `.data`."""
    symbols: tuple[Symbol, ...] = ()
    relocations: tuple[int, tuple[tuple[int, int, int], ...]] | None = None
    """SHT_RELA or SHT_REL, and (place, symbol, addend) of relocations."""
    relocated: int = DATA
    """The section whose relocations they are."""
    empty_sections: int = 0
    """So many more at the table's end."""

    def make(self) -> bytes:
        elf_class = self.elf_class
        content = bytearray(END)
        content[FIRST:END] = b"1" * (SECOND - FIRST) + b"2" * (END - SECOND)
        names = b"\0.hip_fatbin\0.data\0.symtab\0.rela\0.shstrtab\0"
        rows: list[SectionHeader] = [SectionHeader(*[0] * 10)]

        def add(label: bytes, kind: int, align: int = 1, **fields: int) -> None:
            at = names.index(label + b"\0")
            row = SectionHeader(at, kind, 0, 0, len(content), 0, 0, 0, align, 0)
            rows.append(row._replace(**fields))

        place = {"sh_addr": FIRST, "sh_offset": FIRST, "sh_size": END - FIRST, "sh_flags": 2}
        add(b".hip_fatbin", PROGBITS, 4096, **(place | self.bundles))
        place = {"sh_addr": END, "sh_size": DATA_SIZE, "sh_flags": 3}
        add(b".data", PROGBITS, 16, **(place | self.data))
        content += b"d" * DATA_SIZE
        table = b"".join(map(elf_class.pack_symbol, (Symbol(*[0] * 6), *self.symbols)))
        size = elf_class.symbol.size
        add(b".symtab", SYMTAB, 8, sh_size=len(table), sh_entsize=size, sh_link=4, sh_info=1)
        content += table + bytes(-len(table) % 8)
        add(b".shstrtab", STRTAB, sh_size=len(names))
        content += names + bytes(-len(names) % 8)
        if self.relocations:
            kind, entries = self.relocations
            layout = struct.Struct(elf_class.order + ("QQq" if kind == RELA else "QQ"))
            packed = [(place, symbol << 32 | 1, addend) for place, symbol, addend in entries]
            table = b"".join(layout.pack(*row[: 3 if kind == RELA else 2]) for row in packed)
            add(b".rela", kind, 8, sh_size=len(table), sh_link=SYMBOLS, sh_info=self.relocated)
            content += table
        rows += [rows[0]] * self.empty_sections
        start = len(content)
        content += b"".join(elf_class.section.pack(*row) for row in rows)
        self._put_header(content, elf_class, rows, start)
        return bytes(content)

    @property
    def elf_class(self) -> ElfClass:
        size, order = CLASSES[self.name]
        return elf_format._CLASSES[size, 1 if order == "<" else 2]

    def _put_header(
        self, content: bytearray, elf_class: ElfClass, rows: list[SectionHeader], start: int
    ) -> None:
        size, order = CLASSES[self.name]
        ident = b"\x7fELF" + bytes([size, 1 if order == "<" else 2, 1]) + bytes(9)
        ehsize, count = elf_class.header.size, len(rows)
        if count >= 0xFF00:
            first = rows[0]._replace(sh_size=count)
            content[start : start + elf_class.section.size] = elf_class.section.pack(*first)
            count = 0
        segments = self.segments
        at = ehsize if self.table is None else self.table
        header = ElfHeader(
            *(ident, self.kind, self.machine, 1, 0, at if segments else 0, start, 0, ehsize),
            *(elf_class.segment.size, len(segments), elf_class.section.size, count, 4),
        )
        content[:ehsize] = elf_class.header.pack(*header)
        table = b"".join(elf_class.pack_segment(row) for row in segments)
        content[at : at + len(table)] = table


def load(start: int = 0, end: int = END + DATA_SIZE, **fields: int) -> SegmentHeader:
    """Return a loaded segment of a range of the file, at the address of its offset."""
    size = end - start
    return SegmentHeader(LOAD, 4, start, start, start, size, size, 4096)._replace(**fields)


def symbol(info: int, section: int, value: int, size: int) -> Symbol:
    return Symbol(0, info, 0, section, value, size)


LINKED = Elf(segments=(load(),))
OBJECT = Elf(
    kind=RELOCATABLE,
    bundles={"sh_addr": 0},
    data={"sh_addr": 0},
    symbols=(
        symbol(SECTION_SYMBOL, BUNDLES, 0, 0),
        symbol(OBJECT_SYMBOL, BUNDLES, SECOND - FIRST, 5),
    ),
)


def shrink(
    elf: Elf, tmp_path: Path, new: bytes = b"new", *, only: bool = False, number: int = BUNDLES
) -> bytes:
    """Put `new` in the place of both bundles, or of the second one only."""
    data = elf.make()
    rows = [Replacement(number, SECOND, END - SECOND, FilePlan.of([new]))]
    if not only:
        rows.append(Replacement(number, FIRST, SECOND - FIRST, FilePlan.of([new])))
    tables = read_elf_tables(memoryview(data), path="x")
    return assemble(plan_shrunk_elf(tables, rows), data, [], tmp_path)


def refused(elf: Elf, tmp_path: Path, message: str, new: bytes = b"new") -> None:
    with pytest.raises(UnsupportedError, match=message) as caught:
        shrink(elf, tmp_path, new)
    assert str(caught.value).startswith("'x'")


def memory(data: bytes) -> dict[int, bytes]:
    """Return what loaded segments put at which addresses."""
    tables = read_elf_tables(memoryview(data))
    rows = [row for row in tables.segments if row.p_type == LOAD]
    for row in rows:
        assert (row.p_vaddr - row.p_offset) % max(row.p_align, 1) == 0
    return {row.p_vaddr: data[row.p_offset : row.p_offset + row.p_filesz] for row in rows}


def test_no_room() -> None:
    rows = [
        Replacement(BUNDLES, FIRST, 100, FilePlan.of([b"x" * 101])),
        Replacement(BUNDLES, FIRST + 100, 100, FilePlan.of([b""])),
    ]
    with pytest.raises(FormatError, match="has 101 bytes, there is room for 100"):
        plan_shrunk_elf(read_elf_tables(memoryview(OBJECT.make())), rows)


def test_outside_of_the_section() -> None:
    rows = [Replacement(BUNDLES, FIRST - 1, 10, FilePlan.of([b""]))]
    with pytest.raises(FormatError, match=r"\.hip_fatbin"):
        plan_shrunk_elf(read_elf_tables(memoryview(OBJECT.make())), rows)


def test_shared_bytes(tmp_path: Path) -> None:
    elf = replace(OBJECT, data={"sh_addr": 0, "sh_offset": FIRST})
    refused(elf, tmp_path, "shares bytes with section 1")


def test_sections_and_symbols(tmp_path: Path) -> None:
    """Each piece of the bundles' section has a header, and symbols are in their piece."""
    symbols = (
        symbol(OBJECT_SYMBOL, BUNDLES, FIRST, SECOND - FIRST),
        symbol(OBJECT_SYMBOL, BUNDLES, FIRST + 1, 2),  # in the middle: the size is its own
        symbol(OBJECT_SYMBOL, BUNDLES, SECOND, END - SECOND),
        symbol(OBJECT_SYMBOL, DATA, END, 7),
    )
    elf = replace(LINKED, symbols=symbols)
    made = read_elf_tables(memoryview(shrink(elf, tmp_path)))
    added = len(read_elf_tables(memoryview(elf.make())).sections)
    pieces = [
        (number, row.sh_addr, row.sh_size, row.sh_addralign)
        for number, row in enumerate(made.sections)
        if made.names[number] == b".hip_fatbin"
    ]
    assert pieces == [(BUNDLES, FIRST, 4096, 4096), (added, SECOND, 3, 4096)]
    for number, *_ in pieces:  # the first ends where the program headers begin
        assert bytes(made.content(number)).rstrip(b"\0") == b"new"
    rows = [row[3:] for row in made.symbols(SYMBOLS)[1:]]
    assert rows == [
        (BUNDLES, FIRST, 3),
        (BUNDLES, FIRST + 1, 2),
        (added, SECOND, 3),
        (DATA, END, 7),
    ]


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("kind", [PROGRAM, LIBRARY])
def test_linked(name: str, kind: int, tmp_path: Path) -> None:
    """What the refused files differ from: bundles stay at their addresses, pages behind them go."""
    elf = replace(LINKED, name=name, kind=kind)
    made = shrink(elf, tmp_path)
    pieces = memory(made)
    assert list(pieces) == [0, FIRST + 4096, SECOND, END]  # the second has the program headers
    assert pieces[0][FIRST:].startswith(b"new")
    assert pieces[SECOND].startswith(b"new\0")
    assert pieces[END] == b"d" * DATA_SIZE
    assert len(made) < len(elf.make()) - 2 * 4096


def test_nothing_loaded(tmp_path: Path) -> None:
    refused(replace(LINKED, segments=()), tmp_path, "it has no loadable segments")
    note = load()._replace(p_type=NOTE)
    refused(replace(LINKED, segments=(note,)), tmp_path, "it has no loadable segments")


@pytest.mark.parametrize(
    ("segments", "message"),
    [
        ((load(end=SECOND + 1), load(SECOND + 1)), "program header 0 holds a part of section 1"),
        ((load(), load(FIRST + 1, END)), "program header 1 holds a part of section 1"),
        ((load(), load(FIRST, SECOND - 1)), "program header 1 holds a part of section 1"),
        ((load(p_vaddr=0x10000),), r"program header 0 holds a part of section 1 \('.hip_fatbin'\)"),
    ],
    ids=["two halves", "from the middle", "to the middle", "another address"],
)
def test_part_of_a_bundle(
    segments: tuple[SegmentHeader, ...], message: str, tmp_path: Path
) -> None:
    refused(replace(LINKED, segments=segments), tmp_path, message)


def test_loaded_twice_or_never(tmp_path: Path) -> None:
    never = (load(end=FIRST), load(END))
    refused(replace(LINKED, segments=never), tmp_path, "0 loaded segments hold section 1")
    twice = (load(), load(FIRST))
    refused(replace(LINKED, segments=twice), tmp_path, "2 loaded segments hold section 1")
    # Segments that only touch it have nothing of it.
    beside = (load(end=FIRST), load(FIRST, END), load(END))
    assert list(memory(shrink(replace(LINKED, segments=beside), tmp_path))) == [
        *(0, FIRST, FIRST + 4096, SECOND, END)
    ]


@pytest.mark.parametrize("kind", [NOTE, TLS])
def test_not_loaded_by_itself(kind: int, tmp_path: Path) -> None:
    """A segment of another kind around a bundle, which cannot be split, is refused."""
    around = load(FIRST, END)._replace(p_type=kind)
    elf = replace(LINKED, segments=(load(), around))
    refused(elf, tmp_path, "a segment that is not loaded by itself holds the bundles")
    shrink(elf, tmp_path, b"x" * (SECOND - FIRST - 1))  # nothing is cut out


def test_table_of_a_program_cannot_move(tmp_path: Path) -> None:
    """A program whose bundles are not as far from its first segment as in the file is refused.

    There, Linux before 5.18 would tell it a wrong address of its program headers.
    """
    far = 0x100000
    moved = load(FIRST)._replace(p_vaddr=FIRST + far, p_paddr=FIRST + far)
    elf = replace(LINKED, segments=(load(end=FIRST), moved), bundles={"sh_addr": FIRST + far})
    shrink(elf, tmp_path)  # of a library the dynamic linker knows the address
    message = "its program header table cannot move"
    refused(replace(elf, kind=PROGRAM), tmp_path, message)
    interpreter = load(0, 5)._replace(p_type=INTERP)
    refused(replace(elf, segments=(*elf.segments, interpreter)), tmp_path, message)


def test_table_in_a_bundle(tmp_path: Path) -> None:
    """A file whose program headers are in a bundle is refused, unless new ones are written."""
    whole = b"x" * (SECOND - FIRST)  # nothing is cut out
    note = load(END, END + 16)._replace(p_type=NOTE)
    for segments in ((load(),), (load(), note)):
        linked = replace(LINKED, segments=segments)
        size = linked.elf_class.segment.size * len(segments)
        for place in (FIRST - size, END):
            shrink(replace(linked, table=place), tmp_path, whole)
        for place in (FIRST - size + 1, FIRST, END - 1):
            elf = replace(linked, table=place)
            refused(elf, tmp_path, "its program header table is in a bundle", whole)
    assert len(memory(shrink(replace(LINKED, table=FIRST), tmp_path))) == 4


@pytest.mark.parametrize("machine", [X86_64, AARCH64])
def test_other_segments_of_uneven_addresses(machine: int, tmp_path: Path) -> None:
    """A segment behind the bundles that would lose its alignment is refused."""
    behind = load(END, p_align=64)._replace(p_type=TLS)
    elf = replace(LINKED, machine=machine, segments=(load(), behind))
    shrink(elf, tmp_path)
    uneven = behind._replace(p_vaddr=END + 8)
    elf = replace(LINKED, machine=machine, segments=(load(), uneven))
    refused(elf, tmp_path, "a segment's offset and address differ modulo 64")
    large = behind._replace(p_align=0x8000)  # more than is cut out before it
    elf = replace(LINKED, machine=machine, segments=(load(), large))
    refused(elf, tmp_path, "a segment's offset and address differ modulo 32768")


def test_loaded_segments_of_uneven_addresses(tmp_path: Path) -> None:
    """A loaded segment whose address differs from its offset by less than a page is refused."""
    segments = (load(end=END), load(END)._replace(p_vaddr=END + 8))
    elf = replace(LINKED, segments=segments)
    refused(elf, tmp_path, "a segment's offset and address differ modulo 4096")
    huge = (load(end=END), load(END, p_align=0x10000)._replace(p_vaddr=END + 8))
    refused(replace(LINKED, segments=huge), tmp_path, "a segment needs an alignment of 65536 bytes")


def test_aligned_sections(tmp_path: Path) -> None:
    """A segment may lose a large alignment, but not where a section in it needs it."""
    segments = (load(end=END, p_align=0x10000), load(END, p_align=0x10000))
    elf = replace(LINKED, segments=segments, data={"sh_addralign": 4096})
    made = read_elf_tables(memoryview(shrink(elf, tmp_path)))
    assert made.segments[-1].p_align == 4096
    elf = replace(LINKED, segments=segments, data={"sh_addralign": 0x2000})
    refused(elf, tmp_path, "a segment needs an alignment of 65536 bytes")
    # Sections that are not in memory, or in another segment, ask for nothing.
    elf = replace(LINKED, segments=segments, data={"sh_addralign": 0x2000, "sh_flags": 0})
    shrink(elf, tmp_path)
    elf = replace(LINKED, segments=segments, data={"sh_addralign": 0x2000, "sh_addr": 0x90000})
    shrink(elf, tmp_path)


def test_addresses_too_large(tmp_path: Path) -> None:
    """A 32-bit library whose memory has no room for the program header table is refused."""
    room = (SECOND - FIRST) - 0x10  # none for a table: it goes to the library's end
    elf = replace(LINKED, name="32le", segments=(load(),))
    new = b"x" * (room - 0x1000)
    shrink(elf, tmp_path, new)
    top = replace(elf, segments=(load(p_memsz=0xFFFFF001),))
    refused(top, tmp_path, "numbers in its headers are too large", new)


def test_symbols_that_share_bytes(tmp_path: Path) -> None:
    elf = replace(LINKED, symbols=(symbol(OBJECT_SYMBOL, BUNDLES, SECOND, END - SECOND),))
    shrink(elf, tmp_path)
    symtab = read_elf_tables(memoryview(elf.make())).sections[SYMBOLS]
    again = {name: getattr(symtab, name) for name in ("sh_type", "sh_offset", "sh_size")}
    refused(replace(elf, data=again), tmp_path, "parts of its headers share bytes")


def test_bundles_over_the_headers(tmp_path: Path) -> None:
    place = {"sh_addr": 0, "sh_offset": 32, "sh_size": END - 32}
    data = replace(OBJECT, bundles=place, symbols=()).make()
    rows = [Replacement(BUNDLES, 32, END - 32, FilePlan.of([b"new"]))]
    with pytest.raises(UnsupportedError, match="parts of its headers share bytes"):
        plan_shrunk_elf(read_elf_tables(memoryview(data)), rows)


@pytest.mark.parametrize("name", CLASSES)
def test_sections_of_an_object(name: str, tmp_path: Path) -> None:
    """In an object of any class, the section becomes shorter and all others stay, aligned."""
    elf = replace(OBJECT, name=name, symbols=())
    old, new = (read_elf_tables(memoryview(data)) for data in (elf.make(), shrink(elf, tmp_path)))
    assert new.names == old.names
    assert len(new.data) < len(old.data) - 2 * 4096
    for number, row in enumerate(new.sections):
        assert row.sh_offset % max(row.sh_addralign, 1) == 0
        assert number == BUNDLES or new.content(number) == old.content(number)


def test_object(tmp_path: Path) -> None:
    """What the refused objects differ from: symbols and addends move with their bundle."""
    points = (RELA, ((0, 1, 0), (8, 1, SECOND - FIRST), (16, 2, 5)))
    made = read_elf_tables(memoryview(shrink(replace(OBJECT, relocations=points), tmp_path)))
    content = bytes(made.content(BUNDLES))
    second = content.index(b"new", 3)
    assert content == b"new".ljust(second, b"\0") + b"new"
    assert second <= 4096  # as aligned as it was
    _, first, other = made.symbols(SYMBOLS)
    assert first[4:] == (0, 0)
    assert other[4:] == (second, 3)
    addends = [row[2] for row in struct.iter_unpack("<QQq", bytes(made.content(5)))]
    assert addends == [0, second, 5]  # the last counts from the symbol, which moved


def test_symbols_inside_of_bundles(tmp_path: Path) -> None:
    symbols = (symbol(OBJECT_SYMBOL, BUNDLES, 1, 0),)
    message = "a symbol points into section 1 .*, but to no bundle's beginning"
    refused(replace(OBJECT, symbols=symbols), tmp_path, message)
    shrink(replace(OBJECT, symbols=(symbol(OBJECT_SYMBOL, DATA, 1, 0),)), tmp_path)


def test_symbol_behind_the_bundles(tmp_path: Path) -> None:
    """A symbol at the end of the section of an object is at the end of the shorter one."""
    last = (symbol(OBJECT_SYMBOL, BUNDLES, END - FIRST, 0),)
    made = read_elf_tables(memoryview(shrink(replace(OBJECT, symbols=last), tmp_path)))
    _, moved = made.symbols(SYMBOLS)
    assert moved[4:] == (made.sections[BUNDLES].sh_size, 0)


def test_relocations_inside_of_bundles(tmp_path: Path) -> None:
    points = (RELA, ((0, 1, SECOND - FIRST + 1),))
    message = "section 5 .* points into section 1 .*, but to no bundle's beginning"
    refused(replace(OBJECT, relocations=points), tmp_path, message)


def test_addends_elsewhere(tmp_path: Path) -> None:
    """An object whose addends are in its sections' content is refused, if bundles move."""
    points = (REL, ((0, 1, 0),))
    refused(replace(OBJECT, relocations=points), tmp_path, "section 5 .* keeps its addends")
    shrink(replace(OBJECT, relocations=points), tmp_path, only=True)  # none moves
    without = replace(OBJECT, relocations=points, symbols=OBJECT.symbols[1:])
    shrink(without, tmp_path)  # no relocation names the section


def test_relocated_bundles(tmp_path: Path) -> None:
    """An object whose linker is to write into the bundles is refused."""
    elf = replace(OBJECT, relocations=(RELA, ((0, 1, 0),)), relocated=BUNDLES)
    refused(elf, tmp_path, "section 5 .* changes the bundles when linking")


def test_too_many_sections(tmp_path: Path) -> None:
    most = 0xFF00 - 1
    shrink(replace(OBJECT, empty_sections=most - 5), tmp_path)
    elf = replace(OBJECT, empty_sections=most - 4)
    refused(elf, tmp_path, "it would have 65280 sections")
    elf = replace(LINKED, empty_sections=most - 5)  # two pieces of .hip_fatbin instead of one
    refused(elf, tmp_path, "it would have 65280 sections")
