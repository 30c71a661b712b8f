"""Rewrite ELF files with less content (`plan_shrunk_elf`) or more (`plan_grown_elf`).

Shrinking. The free bytes behind a bundle are cut out. In a program or library nothing moves in
memory, so no pointer, relocation or unwind table changes. Whole pages are cut out. The loadable
segment around them is split, with holes between the addresses::

    before  | .rodata | bundle 1 ........ | bundle 2 ..... | .eh_frame |      one PT_LOAD
    after   | .rodata | bundle 1 | headers |  (hole)
                                           | bundle 2 |  (hole)
                                                           | .eh_frame |      four PT_LOADs

    file      everything in order without the holes; offsets of segments and sections
              decrease by the bytes cut out before them
    headers   the new program header table, in free pages behind a bundle; in a segment of
              its own, directly behind a section: otherwise GNU's strip and objcopy would
              damage the file
    sections  the first piece of .hip_fatbin keeps its section header; the others have new
              ones at the table's end, with the same name; symbols refer to them
    names     with renamed sections, a new name table is at the end of the file

A relocatable file has no pages and pointers yet. The section becomes shorter, and symbols in it and
addends of relocations for the section symbol change.

Growing. New content goes behind the existing content, in memory and in the file::

    before  | headers | .text ... .data |                          | names, section headers |
    after   | headers | .text ... .data | content                  | names, section headers |
                                          ^ a PT_LOAD, read-only, above all others

The program header table grows in place if there is room. Otherwise it moves behind the content, to
a segment of its own that begins at the section's end, as GNU's strip requires. In a program, that
segment has the first segment's distance between address and offset, as Linux before 5.18 requires.

Source: the System V gABI, chapters 4 and 5; the loaders of Linux 4 to 6, glibc and musl, which map
each PT_LOAD separately and require p_offset congruent to p_vaddr modulo the page.
"""

from __future__ import annotations

import bisect
import itertools
import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from offload_tool.errors import FormatError, UnsupportedError
from offload_tool.formats.magic import aligned, next_content
from offload_tool.formats.objects.elf import reader as elf
from offload_tool.formats.objects.elf.reader import ElfTables, SectionHeader, SegmentHeader, Symbol
from offload_tool.io.write_plan import HOST, FilePlan, Literal, Part, Piece, Range, join
from offload_tool.util.frozen import frozen

_PF_R = 4
_FILL = b".offload_fill"
_SYMBOLS = 4096  # symbols per batch: a large program has millions
_PAGE = 4096
_SMALL_PAGES = frozenset({3, 22, 62, 243})
"""Machines whose pages are never larger than 4096 bytes: i386, s390x, x86-64, RISC-V."""
_CANNOT_MOVE = (
    "its program header table cannot move behind the device code, which a linker script or 'join' "
    "has moved; link the code into a shared library, or use the program from before 'join'"
)
_MAX_PROGRAM_HEADERS = 73
"""In a program: Linux before 5.18 does not start one whose table exceeds 4096 bytes."""
_MAX_LIBRARY_HEADERS = 2048
"""In a library: glibc keeps two copies of the table on its stack, and each piece needs one or two
of a process's 65530 mappings."""


@frozen
class Replacement:
    """New content for `size` bytes of a section; `start` counts from the file's beginning."""

    section: int
    start: int
    size: int
    plan: FilePlan


class _Room(NamedTuple):
    """A replacement and the bytes up to the next one, or to the section's end."""

    section: int
    start: int
    plan: FilePlan
    end: int

    @property
    def free(self) -> int:
        return self.start + self.plan.size


class _Cut(NamedTuple):
    start: int
    end: int
    room: _Room


def plan_shrunk_elf(
    tables: ElfTables,
    replacements: Iterable[Replacement],
    *,
    patches: Iterable[tuple[int, bytes]] = (),
    renamed: tuple[int, bytes] | None = None,
    verb: str = "thinned",
) -> FilePlan:
    """Return a plan of the file with `replacements`, none of which is larger than what it replaces.

    Bytes behind a replaced range, up to the next one or the section's end, must be zeros and go.
    `patches` are bytes for other offsets, `renamed` a section and its name; `verb` is for messages.
    Raises ContentError: a replacement does not fit, or the change is not safe.
    """
    rooms = _rooms(tables, replacements)
    shrinker = _Relocatable if tables.header.e_type == elf.ET_REL else _Linked
    editor: _Linked | _Relocatable = shrinker(tables, rooms, verb)
    editor.literals += patches
    if renamed is not None:
        editor.rename(*renamed)
    try:
        return editor.plan()
    except struct.error as error:
        message = f"numbers in its headers are too large ({error})"
        raise editor.error(message) from error


def plan_grown_elf(
    tables: ElfTables,
    content: FilePlan,
    name: bytes,
    patches: Callable[[int], Iterable[tuple[int, bytes]]],
    *,
    replaced: int,
    dropped: Iterable[int],
) -> FilePlan:
    """Return a plan of the file with `content` in a page-aligned section `name`, number `replaced`.

    `patches` returns bytes for offsets of the old file, from the section's address. The sections
    `dropped` go. Raises UnsupportedError: the change is not safe.
    """
    grown = _Grown(tables, (), "joined")
    row_size, table_at = tables.elf_class.segment.size, tables.header.e_phoff
    stays = grown.has_room(row_size)
    offset, address = grown.place(grown.content_end(), moves_table=not stays)
    size = aligned(content.size, grown.page)
    new = [grown.segment(offset, address, size)]
    behind: list[Part | int] = [content, size - content.size]
    grown.literals += patches(address)
    if stays:
        table = grown.pack_table(tables.segments, table_at, None, new)
        grown.literals.append((table_at, table))
    else:
        table_at, table_address = offset + size, address + size
        new.append(grown.segment(table_at, table_address, row_size * (len(tables.segments) + 2)))
        behind.append(grown.pack_table(tables.segments, table_at, table_address, new))
    grown.appended = offset, FilePlan.of(behind)
    names = bytes(tables.content(tables.names_index))
    grown.names = names + name + b"\0"
    for number in dropped:
        grown.sections[number] = elf.NO_SECTION
    grown.sections[replaced] = elf.NO_SECTION._replace(
        sh_name=len(names),
        sh_type=elf.SHT_PROGBITS,
        sh_flags=elf.SHF_ALLOC,
        sh_addr=address,
        sh_offset=offset,
        sh_size=size,
        sh_addralign=grown.page,
    )
    return grown.finish()


def _rooms(tables: ElfTables, replacements: Iterable[Replacement]) -> list[_Room]:
    items = sorted(replacements, key=lambda item: item.start)
    rooms = []
    for at, item in enumerate(items):
        section = tables.sections[item.section]
        end = section.sh_offset + section.sh_size
        if at + 1 < len(items):
            end = min(end, items[at + 1].start)
        if item.plan.size > end - item.start or item.start < section.sh_offset:
            message = f"the new content has {item.plan.size} bytes, there is room for "
            message += f"{end - item.start} at offset {item.start}"
            raise FormatError(message, path=tables.path, field=tables.label(item.section))
        rooms.append(_Room(item.section, item.start, item.plan, end))
    for number, section in enumerate(tables.sections):
        for room in rooms:
            end = section.sh_offset + section.sh_size
            shares = section.sh_offset < room.end and end > room.start
            if number != room.section and section.has_content and shares:
                message = f"shares bytes with {tables.label(room.section)}; cannot be thinned"
                raise tables.unsupported(number, "sh_offset", message)
    return rooms


class _Rewriter:
    """Common base of all changes."""

    def __init__(self, tables: ElfTables, rooms: Sequence[_Room], verb: str) -> None:
        self.tables = tables
        self.rooms = rooms
        self.verb = verb
        self.fill: int | None = None
        """Name offset for sections of zeros that extend a renamed one, whose size must not grow."""
        self.at_start = {room.start: room for room in rooms}
        self.sections = list(tables.sections)
        self.program_headers: tuple[int, int] | None = None
        """New e_phoff and e_phnum."""
        self.literals: list[tuple[int, bytes]] = []
        """Bytes to write at offsets of the old file."""
        self.names: bytes | None = None
        self.appended: tuple[int, FilePlan] | None = None
        """Content at the end of the new file, and its offset there."""
        self.cut([])

    def cut(self, cuts: Sequence[_Cut]) -> None:
        self.cuts = list(cuts)
        self._cut_starts = [cut.start for cut in cuts]
        self._cut_before = [0, *itertools.accumulate(cut.end - cut.start for cut in cuts)]

    def moved(self, offset: int) -> int:
        at = bisect.bisect_left(self._cut_starts, offset)
        if at and offset < self.cuts[at - 1].end:
            return self.cuts[at - 1].start - self._cut_before[at - 1]  # in a cut
        return offset - self._cut_before[at]

    def error(self, message: str) -> UnsupportedError:
        message = f"cannot be {self.verb} safely: {message}"
        return UnsupportedError(message, path=self.tables.path)

    def rename(self, number: int, name: bytes) -> None:
        strings = bytes(self.tables.content(self.tables.names_index))
        self.fill = len(strings)
        strings += _FILL + b"\0"
        self.sections[number] = self.sections[number]._replace(sh_name=len(strings))
        self.names = strings + name + b"\0"

    def symbols(self) -> Iterator[tuple[int, Symbol, tuple[int, int]]]:
        """Yield symbols in the rooms' sections: offset in the file, symbol, table and number."""
        elf_class = self.tables.elf_class
        size = elf_class.symbol.size
        numbers = {room.section for room in self.rooms}
        for index in self.tables.of_type(elf.SHT_SYMTAB, elf.SHT_DYNSYM):
            table_at = self.tables.sections[index].sh_offset
            content = self.tables.content(index)
            for start in range(0, len(content) // size, _SYMBOLS):
                part = content[start * size :][: _SYMBOLS * size]
                whole = part[: len(part) // size * size]
                for number, symbol in enumerate(elf_class.unpack_symbols(whole), start):
                    if symbol.st_shndx in numbers:
                        yield table_at + number * size, symbol, (index, number)

    def set_symbol(self, offset: int, symbol: Symbol, **values: int) -> None:
        new = symbol._replace(**values)
        if new != symbol:
            self.literals.append((offset, self.tables.elf_class.pack_symbol(new)))

    def finish(self) -> FilePlan:
        tables, header = self.tables, self.tables.header
        sections = [
            row._replace(sh_offset=self.moved(row.sh_offset)) if row is old else row
            for row, old in zip(self.sections, tables.sections, strict=False)
        ]
        sections += self.sections[len(tables.sections) :]
        if len(sections) >= elf.SHN_LORESERVE:
            raise self.error(f"it would have {len(sections)} sections")
        end = self.content_end()
        position = self.moved(end)
        appended: list[Piece] = []
        if self.appended is not None:
            position, plan = self.appended
            appended += plan.moved(position)
            position += plan.size
        if self.names is not None:
            size, index = len(self.names), tables.names_index
            sections[index] = sections[index]._replace(sh_offset=position, sh_size=size)
            appended.append(Literal(position, self.names))
            position += size
        position += -position % tables.elf_class.address_size
        header = header._replace(e_shoff=position, e_shnum=len(sections))
        if self.program_headers is not None:
            offset, count = self.program_headers
            header = header._replace(e_phoff=offset, e_phnum=count)
        self.literals.append((0, tables.elf_class.header.pack(*header)))
        table = b"".join(tables.elf_class.section.pack(*row) for row in sections)
        pieces = [*self._pieces(end), *appended, Literal(position, table)]
        return FilePlan(join(pieces), position + len(table))

    def content_end(self) -> int:
        """Return the end of the old file, without a section header table at its end."""
        header = self.tables.header
        size = self.tables.elf_class.section.size * len(self.tables.sections)
        at_end = header.e_shoff + size == len(self.tables.data)
        return header.e_shoff if at_end else len(self.tables.data)

    def _pieces(self, end: int) -> Iterator[Piece]:
        """Yield the pieces before the section header table, in new order."""
        literals = deque(sorted(self.literals))
        position = 0
        for room in self.rooms:
            yield from self._copied(literals, position, room.start)
            start = self.moved(room.start)
            yield from room.plan.moved(start)
            while literals and literals[0][0] < room.end:
                offset, data = literals.popleft()  # headers in freed space
                yield Literal(self.moved(offset), data)
            position = room.end
        yield from self._copied(literals, position, end)
        if literals:
            raise self.error("parts of its headers share bytes")

    def _copied(self, literals: deque[tuple[int, bytes]], start: int, end: int) -> Iterator[Piece]:
        """Yield a range of the host, with literals over it."""
        while literals and literals[0][0] < end:
            offset, data = literals.popleft()
            if offset < start or offset + len(data) > end:
                raise self.error("parts of its headers share bytes")
            yield Range(self.moved(start), HOST, start, offset - start)
            yield Literal(self.moved(offset), data)
            start = offset + len(data)
        if start < end:
            yield Range(self.moved(start), HOST, start, end - start)


class _Mapped(_Rewriter):
    """A program or library: addresses stay."""

    def __init__(self, tables: ElfTables, rooms: Sequence[_Room], verb: str) -> None:
        super().__init__(tables, rooms, verb)
        self.loads = [row for row in tables.segments if row.p_type == elf.PT_LOAD]
        if not self.loads:
            raise self.error("it has no loadable segments")
        small = tables.header.e_machine in _SMALL_PAGES
        self.page = _PAGE if small else max(_PAGE, *(row.p_align for row in self.loads))
        """Largest possible page size at run time, in bytes."""
        self.is_program = tables.header.e_type == elf.ET_EXEC or any(
            row.p_type == elf.PT_INTERP for row in tables.segments
        )

    def distance(self) -> int:
        first = min(self.loads, key=lambda row: row.p_vaddr)
        return first.p_vaddr - first.p_offset

    def segment(self, offset: int, address: int, size: int) -> SegmentHeader:
        return SegmentHeader(elf.PT_LOAD, _PF_R, offset, address, address, size, size, self.page)

    def pack_table(
        self,
        rows: Sequence[SegmentHeader],
        table_at: int,
        address: int | None,
        new: Sequence[SegmentHeader] = (),
    ) -> bytes:
        """Return the program header table for an offset; `new` segments follow the loaded ones."""
        last = max(at for at, row in enumerate(rows) if row.p_type == elf.PT_LOAD)
        rows = [*rows[: last + 1], *new, *rows[last + 1 :]]
        size = self.tables.elf_class.segment.size * len(rows)
        packed = bytearray()
        for row in rows:
            new_row = row
            if row.p_type == elf.PT_PHDR:
                virtual = row.p_vaddr if address is None else address
                physical = virtual + row.p_paddr - row.p_vaddr
                new_row = row._replace(p_offset=table_at, p_vaddr=virtual, p_paddr=physical)
                new_row = new_row._replace(p_filesz=size, p_memsz=size)
            packed += self.tables.elf_class.pack_segment(new_row)
        self.program_headers = table_at, len(rows)
        return bytes(packed)


class _Linked(_Mapped):
    """A program or library from which whole pages are cut."""

    table_pages: tuple[int, int] | None = None
    """Start of the new program header table and end of its segment, in the old file."""

    def plan(self) -> FilePlan:
        self._place_table(self._choose_cuts())
        start = self.tables.header.e_phoff
        end = start + self.tables.elf_class.segment.size * len(self.tables.segments)
        stays = self.program_headers is None
        if stays and any(start < room.end and room.start < end for room in self.rooms):
            raise self.error("its program header table is in a bundle")
        self.pieces: dict[int, list[tuple[int, int]]] = {}
        for number in dict.fromkeys(room.section for room in self.rooms):
            self._split_section(number)
        for offset, symbol, _ in self.symbols():
            self._move_symbol(offset, symbol)
        return self.finish()

    def _choose_cuts(self) -> list[_Cut]:
        """Return the largest cuts, if all would need too many program headers."""
        cuts = []
        for room in self.rooms:
            self._check_loaded(room)
            start = aligned(room.free, self.page)
            end = room.end - room.end % self.page
            if start < end:
                cuts.append(_Cut(start, end, room))
        limit = _MAX_PROGRAM_HEADERS if self.is_program else _MAX_LIBRARY_HEADERS
        cuts.sort(key=lambda cut: (cut.start - cut.end, cut.start))
        return sorted(cuts[: max(limit - self.tables.header.e_phnum - 1, 0)])

    def _check_loaded(self, room: _Room) -> None:
        """Raise unless exactly one loaded segment contains each bundle as a whole."""
        section = self.tables.sections[room.section]
        label = self.tables.label(room.section)
        loaded = 0
        for index, segment in enumerate(self.tables.segments):
            start, end = segment.p_offset, segment.p_offset + segment.p_filesz
            if start >= room.end or end <= room.start:
                continue
            same = section.sh_addr - segment.p_vaddr == section.sh_offset - start
            if not (start <= room.start and room.end <= end and same):
                raise self.error(f"program header {index} holds a part of {label}")
            loaded += segment.p_type == elf.PT_LOAD
        if loaded != 1:
            raise self.error(f"{loaded} loaded segments hold {label}, expected 1")

    def _place_table(self, cuts: list[_Cut]) -> None:
        """Find room for the program header table: before the first cut, or at the end."""
        row_size = self.tables.elf_class.segment.size
        for at, cut in enumerate(cuts):
            size = row_size * (len(self.tables.segments) + len(cuts) - at + 1)
            begin = cut.start + aligned(size, self.page)
            if begin < cut.end:
                self.cut([_Cut(begin, cut.end, cut.room), *cuts[at + 1 :]])
                self.table_pages = cut.start, begin
                self._put_table_between(cut.start)
                return
            if not self.is_program and len(cuts) > 1:
                self.cut(cuts)
                self._append_table()
                return

    def _put_table_between(self, table_at: int) -> None:
        section = self.tables.sections[self.cuts[0].room.section]
        address = section.sh_addr + table_at - section.sh_offset
        if self.is_program and address - table_at != self.distance():
            # Linux before 5.18 computes the table's address for the program by this rule.
            raise self.error(_CANNOT_MOVE)
        table = self.pack_table(self._new_segments(), table_at, address)
        self.literals.append((table_at, table))

    def _append_table(self) -> None:
        """Append the table to the file, in a segment of its own."""
        rows = self._new_segments()
        table_at = aligned(self.moved(self.content_end()), self.page)
        top = max(row.p_vaddr + row.p_memsz for row in rows if row.p_type == elf.PT_LOAD)
        address = aligned(top, self.page)
        size = self.tables.elf_class.segment.size * (len(rows) + 1)
        own = [self.segment(table_at, address, size)]
        table = self.pack_table(rows, table_at, address, own)
        self.appended = table_at, FilePlan.of([table])

    def _new_segments(self) -> list[SegmentHeader]:
        return [row for segment in self.tables.segments for row in self._split(segment)]

    def _split(self, segment: SegmentHeader) -> list[SegmentHeader]:
        """Return a segment's new segments: several if it contains cuts (see `_check_loaded`)."""
        start, end = segment.p_offset, segment.p_offset + segment.p_filesz
        inside = [c for c in self.cuts if c.start < end and c.end > start]
        if segment.p_type != elf.PT_LOAD and inside and segment.p_type != elf.PT_PHDR:
            raise self.error("a segment that is not loaded by itself holds the bundles")
        rows = []
        begins, stops = [start, *(c.end for c in inside)], [*(c.start for c in inside), end]
        if self.table_pages is not None and start <= self.table_pages[0] < end:
            at = stops.index(self.table_pages[1])
            begins.insert(at + 1, self.table_pages[0])
            stops.insert(at, self.table_pages[0])
        for begin, stop in zip(begins, stops, strict=True):
            last = stop == end
            memory = segment.p_memsz - (begin - start) if last else stop - begin
            if inside and not memory:  # nothing remains
                continue
            row = segment._replace(
                p_offset=self.moved(begin),
                p_vaddr=segment.p_vaddr + begin - start,
                p_paddr=segment.p_paddr + begin - start,
                p_filesz=stop - begin,
                p_memsz=memory,
            )
            rows.append(self._aligned(row))
        return rows

    def _aligned(self, row: SegmentHeader) -> SegmentHeader:
        """Reduce the alignment of a moved segment to pages."""
        if row.p_align <= 1 or (row.p_vaddr - row.p_offset) % row.p_align == 0:
            return row
        if row.p_type != elf.PT_LOAD or row.p_align <= self.page:
            raise self.error(f"a segment's offset and address differ modulo {row.p_align}")
        end = row.p_vaddr + row.p_memsz
        loaded = (s for s in self.tables.sections if s.sh_addr and s.sh_flags & elf.SHF_ALLOC)
        needed = max((s.sh_addralign for s in loaded if row.p_vaddr <= s.sh_addr < end), default=1)
        if (row.p_vaddr - row.p_offset) % self.page or needed > self.page:
            raise self.error(f"a segment needs an alignment of {row.p_align} bytes")
        return row._replace(p_align=self.page)

    def _split_section(self, number: int) -> None:
        """Write a header for every piece of a section between two cuts."""
        section = self.sections[number]
        cut_rooms = {cut.room for cut in self.cuts}
        rooms = [room for room in self.rooms if room.section == number]
        start, target = section.sh_offset, number
        self.pieces[number] = []
        for at, room in enumerate(rooms):
            if room not in cut_rooms and at + 1 < len(rooms):
                continue
            address = section.sh_addr + start - section.sh_offset
            end = room.free
            if self.table_pages is not None and start <= self.table_pages[0] <= room.end:
                end = self.table_pages[0]
            row = section._replace(
                sh_addr=address,
                sh_offset=self.moved(start),
                sh_size=max(end - start, 0),
                sh_addralign=min(section.sh_addralign, address & -address or section.sh_addralign),
            )
            if end > room.free and self.fill is not None:
                row = self._filled(row, end - room.free, self.fill)
            if target == number:
                self.sections[number] = row
            else:
                self.sections.append(row)
            self.pieces[number].append((address, target))
            if at + 1 < len(rooms):
                start = rooms[at + 1].start
                target = len(self.sections)

    def _filled(self, row: SectionHeader, size: int, name: int) -> SectionHeader:
        """Return a section without its last bytes, for which a section of zeros is added."""
        whole = row.sh_size - size
        fill = row._replace(
            sh_name=name,
            sh_addr=row.sh_addr + whole,
            sh_offset=row.sh_offset + whole,
            sh_size=size,
            sh_addralign=1,
        )
        self.sections.append(fill)
        return row._replace(sh_size=whole)

    def _move_symbol(self, offset: int, symbol: Symbol) -> None:
        """Set a symbol's section, to the piece that contains it, and its size."""
        number, value, size = symbol.st_shndx, symbol.st_value, symbol.st_size
        section = self.tables.sections[number]
        pieces = self.pieces[number]
        at = bisect.bisect_right([address for address, _ in pieces], value) if value else 1
        target = pieces[max(at - 1, 0)][1]
        position = value - section.sh_addr + section.sh_offset
        before = bisect.bisect_right(self.rooms, position, key=lambda room: room.start)
        if before and position < (room := self.rooms[before - 1]).end:
            begin = room.start
            if begin < position and position >= room.free:
                value += begin - position  # its target was cut; use the start of the replacement
                position = begin
            size = min(size, max(room.free - position, 0))
        self.set_symbol(offset, symbol, st_value=value, st_shndx=target, st_size=size)


class _Grown(_Mapped):
    """A program or library that gets content."""

    def has_room(self, row_size: int) -> bool:
        """Return whether zeros behind the table leave room for one more program header."""
        tables = self.tables
        start = tables.header.e_phoff + row_size * len(tables.segments)
        end = start + row_size
        loaded = any(
            row.p_offset <= tables.header.e_phoff and end <= row.p_offset + row.p_filesz
            for row in self.loads
        )
        used = any(
            row.has_content and row.sh_offset < end and row.sh_offset + row.sh_size > start
            for row in tables.sections
        )
        return loaded and not used and next_content(tables.data[:end], start) is None

    def place(self, end: int, *, moves_table: bool) -> tuple[int, int]:
        top = max(row.p_vaddr + row.p_memsz for row in self.loads)
        offset, address = (aligned(at, self.page) for at in (end, top))
        if self.is_program and moves_table:
            distance = self.distance()
            if distance % self.page:
                raise self.error(_CANNOT_MOVE)
            address = max(address, offset + distance)
            offset = address - distance
        return offset, address


class _Relocatable(_Rewriter):
    """An object: the section becomes shorter."""

    def plan(self) -> FilePlan:
        self._choose_cuts()
        for number in dict.fromkeys(room.section for room in self.rooms):
            section = self.sections[number]
            last = max(room.free for room in self.rooms if room.section == number)
            start = self.moved(section.sh_offset)
            size = self.moved(last) - start
            self.sections[number] = section._replace(sh_offset=start, sh_size=size)
        sections = {}
        for offset, symbol, identity in self.symbols():
            self._move_symbol(offset, symbol)
            if symbol.type == elf.STT_SECTION:
                sections[identity] = symbol.st_shndx
        self._move_relocations(sections)
        return self.finish()

    def _choose_cuts(self) -> None:
        cuts = []
        for room in self.rooms:
            behind = (
                row.sh_addralign
                for row in self.tables.sections
                if row.sh_offset >= room.end and row.has_content
            )
            step = max(self.tables.elf_class.address_size, *behind, 1)
            section = self.tables.sections[room.section]
            if room.end < section.sh_offset + section.sh_size:
                step = max(step, section.sh_addralign)  # the next replacement keeps its alignment
            size = (room.end - room.free) // step * step
            if size > 0:
                cuts.append(_Cut(room.end - size, room.end, room))
        self.cut(cuts)

    def _new_offset(self, number: int, value: int) -> int:
        """Return the new offset for an offset in section `number`."""
        start = self.tables.sections[number].sh_offset
        return self.moved(start + value) - self.moved(start)

    def _move_symbol(self, offset: int, symbol: Symbol) -> None:
        number, value, size = symbol.st_shndx, symbol.st_value, symbol.st_size
        section = self.tables.sections[number]
        start = section.sh_offset
        room = self.at_start.get(start + value)
        if value == section.sh_size and value:  # behind all bundles, where it stays
            self.set_symbol(offset, symbol, st_value=self.sections[number].sh_size)
            return
        if value and room is None:
            message = f"a symbol points into {self.tables.label(number)}"
            raise self.error(f"{message}, but to no bundle's beginning")
        if room is not None:
            size = min(size, room.plan.size)
        self.set_symbol(offset, symbol, st_value=self._new_offset(number, value), st_size=size)

    def _move_relocations(self, named: dict[tuple[int, int], int]) -> None:
        """Change addends that count from the beginning of a shortened section."""
        sections = self.tables.sections
        starts = (
            (room.section, room.start - sections[room.section].sh_offset) for room in self.rooms
        )
        moved = any(self._new_offset(number, start) != start for number, start in starts)
        numbers = {room.section for room in self.rooms}
        for index in self.tables.of_type(elf.SHT_RELA, elf.SHT_REL, elf.SHT_CREL):
            row = sections[index]
            if row.sh_info in numbers:
                raise self.error(f"{self.tables.label(index)} changes the bundles when linking")
            if not moved:
                continue  # only bundles at offset 0, which stay there
            if row.sh_type == elf.SHT_RELA:
                self._move_addends(index, row, named)
            elif named:
                raise self.error(f"{self.tables.label(index)} keeps its addends elsewhere")

    def _move_addends(
        self, index: int, row: SectionHeader, named: dict[tuple[int, int], int]
    ) -> None:
        elf_class = self.tables.elf_class
        layout = struct.Struct(elf_class.order + ("QQq" if elf_class.is_64 else "IIi"))
        content = self.tables.content(index)
        content = content[: len(content) // layout.size * layout.size]
        for number, (address, info, addend) in enumerate(layout.iter_unpack(content)):
            section = named.get((row.sh_link, info >> (32 if elf_class.is_64 else 8)))
            if section is None:
                continue
            start = self.tables.sections[section].sh_offset + addend
            if start not in self.at_start:
                message = f"{self.tables.label(index)} points into {self.tables.label(section)}, "
                raise self.error(f"{message}but to no bundle's beginning")
            offset = row.sh_offset + number * layout.size
            data = layout.pack(address, info, self._new_offset(section, addend))
            self.literals.append((offset, data))
