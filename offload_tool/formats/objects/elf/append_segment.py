"""Adds content to a linked ELF file, behind everything that it has, in memory and in the file.

::

    before  | headers | .text ... .data |                          | names, section headers |
    after   | headers | .text ... .data | content                  | names, section headers |
                                          ^ a PT_LOAD, read-only, above all others

Nothing moves in memory, so no other pointer changes. The program header table grows where it is,
if there is room. Else it comes behind, into a segment of its own that begins where the content's
section ends, as GNU's strip needs it. A program's then has the same distance between address and
offset as its first segment, as Linux before 5.18 wants it.

Source: as for `shrink_section`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from offload_tool.errors import UnsupportedError
from offload_tool.formats.objects.elf.reader import (
    ET_EXEC,
    PT_INTERP,
    PT_LOAD,
    PT_PHDR,
    SHF_ALLOC,
    SHT_PROGBITS,
    ElfTables,
    SectionHeader,
    SegmentHeader,
)
from offload_tool.formats.objects.elf.shrink_section import page_size
from offload_tool.io.write_plan import HOST, FilePlan, Literal, Piece, Range, join

_PF_R = 4
_NOT_ZERO = re.compile(rb"[^\0]")
_NULL = SectionHeader(0, 0, 0, 0, 0, 0, 0, 0, 0, 0)


def plan_grown_elf(
    tables: ElfTables,
    content: FilePlan,
    name: bytes,
    patches: Callable[[int], Iterable[tuple[int, bytes]]],
    *,
    instead: int,
    without: Iterable[int] = (),
) -> FilePlan:
    """Plan the file with `content` in a section `name`, which begins at a page.

    `patches` gives bytes to write at offsets of the old file, for the section's address. It has
    the number `instead`, of a section that has none any more, as those in `without`.

    :raises UnsupportedError: it cannot be done safely.
    """
    return _Grower(tables, content).plan(name, patches, instead, tuple(without))


class _Grower:
    def __init__(self, tables: ElfTables, content: FilePlan) -> None:
        self.tables = tables
        self.content = content
        self.page = page_size(tables, "joined")
        self.loads = [row for row in tables.segments if row.p_type == PT_LOAD]
        self.is_program = tables.header.e_type == ET_EXEC or any(
            row.p_type == PT_INTERP for row in tables.segments
        )

    def _error(self, message: str) -> UnsupportedError:
        return UnsupportedError(f"cannot be joined safely: {message}", path=self.tables.path)

    def plan(
        self,
        name: bytes,
        patches: Callable[[int], Iterable[tuple[int, bytes]]],
        instead: int,
        without: tuple[int, ...],
    ) -> FilePlan:
        tables, header = self.tables, self.tables.header
        row_size = tables.elf_class.segment.size
        end = self._content_end()
        stays = self._has_room(row_size)
        offset, address = self._place(end, moves_table=not stays)
        size = self.content.size + -self.content.size % self.page
        new_rows = [self._segment(offset, address, size)]
        table_at, behind_at = header.e_phoff, offset + size
        if not stays:
            table_at = behind_at
            table_size = row_size * (len(tables.segments) + 2)
            new_rows.append(self._segment(table_at, address + size, table_size))
            behind_at += table_size
        count = len(tables.segments) + len(new_rows)
        literals = list(patches(address))
        literals.append(
            (table_at, self._table(new_rows, table_at, None if stays else address + size))
        )
        names = bytes(tables.content(tables.names_index)) + name + b"\0"
        names_at = behind_at
        sections = list(tables.sections)
        for number in without:
            sections[number] = _NULL
        sections[instead] = SectionHeader(
            *(len(names) - len(name) - 1, SHT_PROGBITS, SHF_ALLOC, address),
            *(offset, size, 0, 0, self.page, 0),
        )
        sections[tables.names_index] = sections[tables.names_index]._replace(
            sh_offset=names_at, sh_size=len(names)
        )
        headers_at = names_at + len(names)
        headers_at += -headers_at % tables.elf_class.address_size
        new = header._replace(
            e_phoff=table_at, e_phnum=count, e_shoff=headers_at, e_shnum=len(sections)
        )
        literals.append((0, tables.elf_class.header.pack(*new)))
        packed = b"".join(tables.elf_class.section.pack(*row) for row in sections)
        inside = sorted(item for item in literals if item[0] < end)
        behind = [Literal(*item) for item in literals if item[0] >= end]
        pieces: list[Piece] = [*self._patched(inside, end), *self.content.moved(offset), *behind]
        pieces += [Literal(names_at, names), Literal(headers_at, packed)]
        return FilePlan(join(pieces), headers_at + len(packed))

    def _segment(self, offset: int, address: int, size: int) -> SegmentHeader:
        return SegmentHeader(PT_LOAD, _PF_R, offset, address, address, size, size, self.page)

    def _content_end(self) -> int:
        """Return where the file ends, without a section header table at its end."""
        header = self.tables.header
        size = self.tables.elf_class.section.size * len(self.tables.sections)
        at_end = header.e_shoff + size == len(self.tables.data)
        return header.e_shoff if at_end else len(self.tables.data)

    def _has_room(self, row_size: int) -> bool:
        """Return whether one more program header can stand behind the table, where zeros are."""
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
        return loaded and not used and not _NOT_ZERO.search(tables.data, start, end)

    def _place(self, end: int, *, moves_table: bool) -> tuple[int, int]:
        """Return offset and address of the new segment."""
        top = max(row.p_vaddr + row.p_memsz for row in self.loads)
        offset, address = (at + -at % self.page for at in (end, top))
        if self.is_program and moves_table:
            first = min(self.loads, key=lambda row: row.p_vaddr)
            distance = first.p_vaddr - first.p_offset
            if distance % self.page:
                raise self._error("its program header table cannot move")
            address = max(address, offset + distance)
            offset = address - distance
        return offset, address

    def _table(self, new: list[SegmentHeader], table_at: int, address: int | None) -> bytes:
        rows = list(self.tables.segments)
        last = max(at for at, row in enumerate(rows) if row.p_type == PT_LOAD)
        rows[last + 1 : last + 1] = new
        size = self.tables.elf_class.segment.size * len(rows)
        for at, row in enumerate(rows):
            if row.p_type == PT_PHDR:
                place = row.p_vaddr if address is None else address
                rows[at] = row._replace(
                    p_offset=table_at, p_vaddr=place, p_paddr=place, p_filesz=size, p_memsz=size
                )
        return b"".join(map(self.tables.elf_class.pack_segment, rows))

    def _patched(self, literals: list[tuple[int, bytes]], end: int) -> Iterator[Piece]:
        """Yield the old file with literals over it."""
        position = 0
        for offset, data in literals:
            if offset < position or offset + len(data) > end:
                raise self._error("parts of its headers share bytes")
            yield Range(position, HOST, position, offset - position)
            yield Literal(offset, data)
            position = offset + len(data)
        yield Range(position, HOST, position, end - position)
