"""Replacing bundles in ELF files: every reason to refuse one, each beside a file that is taken.

The files are made by hand, for no linker makes what is refused here. Each differs in one thing
from one that is thinned well. Programs and libraries of linkers: see
tests/operations/test_thin.py, which runs them.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from offload_tool.errors import FormatError, UnsupportedError
from offload_tool.formats.objects.elf import reader as elf_format
from offload_tool.formats.objects.elf.reader import (
    ElfClass,
    ElfTables,
    SegmentHeader,
    Symbol,
    read_elf_tables,
)
from offload_tool.formats.objects.elf.segments import Replacement, plan_shrunk_elf
from offload_tool.io.write_plan import FilePlan
from tests.formats.object_files import CLASSES, Part, assemble, pack_elf

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
        elf_class, relocations = self.elf_class, []
        if self.relocations:
            kind, entries = self.relocations
            form = elf_class.order + ("QQq" if kind == RELA else "QQ")
            rows = [(place, symbol << 32 | 1, addend) for place, symbol, addend in entries]
            packed = b"".join(struct.pack(form, *row[: len(form) - 1]) for row in rows)
            relocations = [Part(b".rela", kind, 0, packed, SYMBOLS, self.relocated, 8)]
        bundles = b"1" * (SECOND - FIRST) + b"2" * (END - SECOND)
        symbols = b"".join(map(elf_class.pack_symbol, (Symbol(*[0] * 6), *self.symbols)))
        link, entry = 4 + len(relocations), elf_class.symbol.size
        parts = [
            Part(b".hip_fatbin", PROGBITS, 2, bundles, alignment=4096, address=FIRST),
            Part(b".data", PROGBITS, 3, b"d" * DATA_SIZE, alignment=16, address=END),
            Part(b".symtab", SYMTAB, 0, symbols, link, 1, 8, entry),
            *relocations,
            Part(b".shstrtab", STRTAB, 0, b"\0.hip_fatbin\0.data\0.symtab\0.rela\0.shstrtab\0"),
        ]
        made = pack_elf(parts, name=self.name, kind=self.kind, machine=self.machine)
        return self._changed(read_elf_tables(memoryview(made)))

    def _changed(self, tables: ElfTables) -> bytes:
        """Return a file with this one's segments, fields of sections, and empty sections."""
        elf_class, size = self.elf_class, self.elf_class.segment.size
        rows = [*tables.sections, *[tables.sections[0]] * self.empty_sections]
        rows[BUNDLES] = rows[BUNDLES]._replace(**self.bundles)
        rows[DATA] = rows[DATA]._replace(**self.data)
        count = len(rows)
        if count >= 0xFF00:
            rows[0], count = rows[0]._replace(sh_size=count), 0
        at = elf_class.header.size if self.table is None else self.table
        place = {"e_phoff": at, "e_phentsize": size} if self.segments else {}
        header = tables.header._replace(e_shnum=count, e_phnum=len(self.segments), **place)
        content = bytearray(tables.data)
        content[: elf_class.header.size] = elf_class.header.pack(*header)
        content[at : at + size * len(self.segments)] = b"".join(
            map(elf_class.pack_segment, self.segments)
        )
        content[header.e_shoff :] = b"".join(elf_class.section.pack(*row) for row in rows)
        return bytes(content)

    @property
    def elf_class(self) -> ElfClass:
        size, order = CLASSES[self.name]
        return elf_format._CLASSES[size, 1 if order == "<" else 2]


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
    return assemble(plan_shrunk_elf(tables, rows), data, tmp_path)


def memory(data: bytes) -> dict[int, bytes]:
    """Return what loaded segments put at which addresses."""
    tables = read_elf_tables(memoryview(data))
    rows = [row for row in tables.segments if row.p_type == LOAD]
    for row in rows:
        assert (row.p_vaddr - row.p_offset) % max(row.p_align, 1) == 0
    return {row.p_vaddr: data[row.p_offset : row.p_offset + row.p_filesz] for row in rows}


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        (
            [(FIRST, 100, b"x" * 101), (FIRST + 100, 100, b"")],
            *(FormatError, "has 101 bytes, there is room for 100"),
        ),
        ([(FIRST - 1, 10, b"")], FormatError, r"\.hip_fatbin"),
        ([(32, END - 32, b"new")], UnsupportedError, "parts of its headers share bytes"),
    ],
)
def test_replacements_that_do_not_fit(
    rows: list[tuple[int, int, bytes]], error: type[Exception], message: str
) -> None:
    """A replacement has room, is within its section, and leaves the file's headers alone."""
    place = {"sh_addr": 0, "sh_offset": 32, "sh_size": END - 32} if rows[0][0] == 32 else {}
    elf = replace(OBJECT, bundles=place or OBJECT.bundles, symbols=())
    changes = [Replacement(BUNDLES, start, size, FilePlan.of([new])) for start, size, new in rows]
    with pytest.raises(error, match=message):
        plan_shrunk_elf(read_elf_tables(memoryview(elf.make())), changes)


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


def linked(*segments: SegmentHeader, **changes: Any) -> Elf:
    return replace(LINKED, segments=segments, **changes)


def related(kind: int, symbol: int, addend: int, **changes: Any) -> Elf:
    """Return an object with one relocation of `.data`."""
    return replace(OBJECT, relocations=(kind, ((0, symbol, addend),)), **changes)


class Row(NamedTuple):
    """A file whose bundles are replaced by `new`, and why it is refused, if it is."""

    elf: Elf
    message: str = ""
    new: bytes = b"new"


WHOLE = b"x" * (SECOND - FIRST)  # nothing is cut out
PART = "program header {} holds a part of section 1"
UNEVEN = "a segment's offset and address differ modulo {}"
ALIGNED = "a segment needs an alignment of 65536 bytes"
INSIDE = "points into section 1 .*, but to no bundle's beginning"
CANNOT_MOVE = "its program header table cannot move .*; link the code into a shared library"
FAR = 0x100000
MOVED = load(FIRST)._replace(p_vaddr=FIRST + FAR, p_paddr=FIRST + FAR)
APART = linked(load(end=FIRST), MOVED, bundles={"sh_addr": FIRST + FAR})
NOTED = load(END, END + 16)._replace(p_type=NOTE)
TABLES = [(rows, 56 * len(rows)) for rows in ((load(),), (load(), NOTED))]
BEHIND = load(END, p_align=64)._replace(p_type=TLS)
LARGE = linked(load(end=END, p_align=0x10000), load(END, p_align=0x10000))
NAMED = linked(load(), symbols=(symbol(OBJECT_SYMBOL, BUNDLES, SECOND, END - SECOND),))
SYMTAB_ROW = read_elf_tables(memoryview(NAMED.make())).sections[SYMBOLS]._asdict()
MOST = 0xFF00 - 1

REFUSED = [
    Row(replace(OBJECT, data={"sh_addr": 0, "sh_offset": FIRST}), "shares bytes with section 1"),
    Row(linked(), "it has no loadable segments"),
    Row(linked(load()._replace(p_type=NOTE)), "it has no loadable segments"),
    Row(linked(load(end=SECOND + 1), load(SECOND + 1)), PART.format(0)),
    Row(linked(load(), load(FIRST + 1, END)), PART.format(1)),
    Row(linked(load(), load(FIRST, SECOND - 1)), PART.format(1)),
    Row(linked(load(p_vaddr=0x10000)), rf"{PART.format(0)} \('.hip_fatbin'\)"),
    Row(linked(load(end=FIRST), load(END)), "0 loaded segments hold section 1"),
    Row(linked(load(), load(FIRST)), "2 loaded segments hold section 1"),
    # A segment of another kind around a bundle, which cannot be split.
    *(
        Row(
            linked(load(), load(FIRST, END)._replace(p_type=kind)),
            "a segment that is not loaded by itself holds the bundles",
        )
        for kind in (NOTE, TLS)
    ),
    # The bundles are not as far from the first segment as in the file: Linux before 5.18 would tell
    # such a program a wrong address of its program headers.
    Row(replace(APART, kind=PROGRAM), CANNOT_MOVE),
    Row(
        linked(*APART.segments, load(0, 5)._replace(p_type=INTERP), bundles=APART.bundles),
        CANNOT_MOVE,
    ),
    # Program headers in a bundle, unless new ones are written.
    *(
        Row(linked(*rows, table=place), "its program header table is in a bundle", WHOLE)
        for rows, size in TABLES
        for place in (FIRST - size + 1, FIRST, END - 1)
    ),
    # A segment behind the bundles that would lose its alignment, with more than is cut out before.
    *(
        Row(linked(load(), row, machine=machine), UNEVEN.format(modulus))
        for machine in (X86_64, AARCH64)
        for row, modulus in (
            (BEHIND._replace(p_vaddr=END + 8), 64),
            (BEHIND._replace(p_align=0x8000), 32768),
        )
    ),
    Row(linked(load(end=END), load(END)._replace(p_vaddr=END + 8)), UNEVEN.format(4096)),
    Row(linked(load(end=END), load(END, p_align=0x10000)._replace(p_vaddr=END + 8)), ALIGNED),
    Row(replace(LARGE, data={"sh_addralign": 0x2000}), ALIGNED),
    # The memory of a 32-bit library has no room for the program header table.
    Row(
        linked(load(p_memsz=0xFFFFF001), name="32le"),
        "numbers in its headers are too large",
        WHOLE[0x1010:],
    ),
    Row(
        replace(NAMED, data={n: SYMTAB_ROW[n] for n in ("sh_type", "sh_offset", "sh_size")}),
        "parts of its headers share bytes",
    ),
    Row(replace(OBJECT, symbols=(symbol(OBJECT_SYMBOL, BUNDLES, 1, 0),)), f"a symbol {INSIDE}"),
    Row(related(RELA, 1, SECOND - FIRST + 1), f"section 4 .* {INSIDE}"),
    # Addends in the content of sections, where bundles move.
    Row(related(REL, 1, 0), "section 4 .* keeps its addends"),
    Row(related(RELA, 1, 0, relocated=BUNDLES), "section 4 .* changes the bundles when linking"),
    Row(replace(OBJECT, empty_sections=MOST - 4), "it would have 65280 sections"),
    # Two pieces of .hip_fatbin instead of one.
    Row(replace(LINKED, empty_sections=MOST - 5), "it would have 65280 sections"),
]
TAKEN = [
    *(
        Row(linked(load(), load(FIRST, END)._replace(p_type=kind)), new=WHOLE[1:])
        for kind in (NOTE, TLS)
    ),
    Row(APART),  # of a library the dynamic linker knows the address
    *(
        Row(linked(*rows, table=place), new=WHOLE)
        for rows, size in TABLES
        for place in (FIRST - size, END)
    ),
    *(Row(linked(load(), BEHIND, machine=machine)) for machine in (X86_64, AARCH64)),
    # Sections that are not in memory, or in another segment, ask for no alignment.
    Row(replace(LARGE, data={"sh_addralign": 0x2000, "sh_flags": 0})),
    Row(replace(LARGE, data={"sh_addralign": 0x2000, "sh_addr": 0x90000})),
    Row(linked(load(), name="32le"), new=WHOLE[0x1010:]),
    Row(NAMED),
    Row(replace(OBJECT, symbols=(symbol(OBJECT_SYMBOL, DATA, 1, 0),))),
    Row(related(REL, 1, 0, symbols=OBJECT.symbols[1:])),  # no relocation names the section
    Row(replace(OBJECT, empty_sections=MOST - 5)),
]


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: row.message)
def test_refused(row: Row, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=row.message) as caught:
        shrink(row.elf, tmp_path, row.new)
    assert str(caught.value).startswith("'x'")


@pytest.mark.parametrize("row", TAKEN)
def test_taken(row: Row, tmp_path: Path) -> None:
    """What refused files differ from."""
    shrink(row.elf, tmp_path, row.new)


def test_places_in_memory(tmp_path: Path) -> None:
    # Segments that only touch the section have nothing of it.
    beside = linked(load(end=FIRST), load(FIRST, END), load(END))
    assert list(memory(shrink(beside, tmp_path))) == [0, FIRST, FIRST + 4096, SECOND, END]
    assert len(memory(shrink(replace(LINKED, table=FIRST), tmp_path))) == 4
    # A segment may lose a large alignment, but not where a section in it needs it.
    made = shrink(replace(LARGE, data={"sh_addralign": 4096}), tmp_path)
    assert read_elf_tables(memoryview(made)).segments[-1].p_align == 4096
    shrink(related(REL, 1, 0), tmp_path, only=True)  # no bundle moves


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
    addends = [row[2] for row in struct.iter_unpack("<QQq", bytes(made.content(4)))]
    assert addends == [0, second, 5]  # the last counts from the symbol, which moved


def test_symbol_behind_the_bundles(tmp_path: Path) -> None:
    """A symbol at the end of the section of an object is at the end of the shorter one."""
    last = (symbol(OBJECT_SYMBOL, BUNDLES, END - FIRST, 0),)
    made = read_elf_tables(memoryview(shrink(replace(OBJECT, symbols=last), tmp_path)))
    _, moved = made.symbols(SYMBOLS)
    assert moved[4:] == (made.sections[BUNDLES].sh_size, 0)
