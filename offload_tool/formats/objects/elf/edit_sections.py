"""Add sections to ELF files and remove sections, with the bytes of llvm-objcopy 22.

The editor rewrites these parts and copies all others::

    section names    table rebuilt (`llvm_tables`); shared with the symbols' if it was
    symbol table     st_name, st_shndx; symbols of removed sections go, local ones first
    groups           member numbers; COMDAT is dropped when the signature is a local symbol
    relocations      symbol numbers, if they changed
    headers          sh_name, sh_offset, sh_link, sh_info; all of the ELF header

Positions::

    ELF header | segments | sections outside of segments | zeros | section header table
               |          |                              | to a multiple of 4 or 8
               |          by their old offsets, new ones last; each at a multiple of its
               |          alignment. Without content (NOBITS): an offset, no bytes
               as they were, each at an offset congruent to its address

A segment that begins inside another, and a section inside a segment, move with it and keep their
bytes; the outermost such segment decides. Removed sections inside a segment become zeros.

A symbol's section number is in st_shndx; if that is SHN_XINDEX, it is in the word of the same
number of the section SHT_SYMTAB_SHNDX. Local symbols come first.

Section numbers keep their order. New sections are last, and by default have type PROGBITS, only the
flag SHF_EXCLUDE, and alignment 1. Any number of sections works: SHT_SYMTAB_SHNDX is rewritten, and
dropped if it is not needed.

Source: llvm-objcopy 22.1.8 ``--add-section``, ``--set-section-flags=readonly,exclude`` and
``--remove-section``, observed: equal bytes for relocatable files, executables and shared libraries
of both classes and byte orders. One difference: string tables other than those of the symbols and
sections (``.stabstr``) keep their content, which llvm-objcopy loses.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise

from offload_tool.errors import UnsupportedError
from offload_tool.formats.llvm_tables import build_string_table
from offload_tool.formats.objects.elf import reader as elf
from offload_tool.io import StrPath
from offload_tool.io.write_plan import HOST, FilePlan, Literal, Part, Piece, Range, join

_EM_MIPS = 8
_RELOCATIONS = frozenset({elf.SHT_RELA, elf.SHT_REL, elf.SHT_CREL})
_GRP_COMDAT = 1
_MAX_SEGMENTS = 256  # a program has about ten; the time grows with the square


def plan_elf(
    host: memoryview,
    added: Sequence[tuple[bytes, Part]] = (),
    removed: Callable[[bytes], bool] = lambda _: False,
    *,
    path: StrPath | None = None,
    section_type: int = elf.SHT_PROGBITS,
    flags: int = elf.SHF_EXCLUDE,
    alignment: int = 1,
) -> FilePlan:
    """Return a plan of the host with sections added and removed; raise ContentError.

    `added` has (name, content) items, for sections of the type `section_type`; `removed` is called
    with each section's name.
    """
    tables = elf.read_elf_tables(host, path=path)
    if not tables.names_index:
        message = "expected a section header table with section names, found none"
        raise UnsupportedError(message, path=path, offset=0, field="e_shstrndx")
    header = elf.SectionHeader(0, section_type, flags, 0, 0, 0, 0, 0, alignment, 0)
    new = [
        _EditedSection(name, header._replace(sh_size=plan.size), 0, plan)
        for name, plan in ((name, FilePlan.of([content])) for name, content in added)
    ]
    return _SectionEditor(tables, new, removed).plan()


class _SectionEditor:
    """Makes one plan: selects sections, renumbers, renames, then lays out."""

    def __init__(
        self,
        tables: elf.ElfTables,
        added: Sequence[_EditedSection],
        is_removed: Callable[[bytes], bool],
    ) -> None:
        self.tables = tables
        self.sections = [
            _EditedSection(name, header, old)
            for old, (name, header) in enumerate(zip(tables.names, tables.sections, strict=True))
        ]
        self.layout = _Layout(tables, self.sections)
        self.added = added
        self.symtab = self._find_single(elf.SHT_SYMTAB)
        self.shndx = self._find_single(elf.SHT_SYMTAB_SHNDX)
        self.symbols = _Symbols(tables, self.symtab, self.shndx)
        self.removed = self._find_removed(is_removed)

    def plan(self) -> FilePlan:
        # As llvm-objcopy: a symbol table goes if no relocation can need it.
        if self.tables.header.e_type != elf.ET_REL and self.symtab and len(self.symbols) <= 1:
            names = self.tables.linked(self.symtab, "sh_link")
            self.removed |= {self.symtab, names} - {0, self.tables.names_index}
            self.symtab = 0
        self._number()
        if self.shndx and max(self.symbols.sections, default=0) < elf.SHN_LORESERVE:
            self.removed.add(self.shndx)
            self._number()
        for section in self.new_sections[1 : len(self.numbers)]:
            self._relink(section)
        self._rename()
        return self.layout.place(self.new_sections, self.numbers[self.tables.names_index])

    # -- which sections stay, and their numbers --------------------------------------

    def _find_single(self, section_type: int) -> int:
        found = self.tables.of_type(section_type)
        if len(found) > 1:
            message = f"section {found[0]} has type {section_type} too; expected only one"
            raise self.tables.error(found[1], "sh_type", message)
        return found[0] if found else 0

    def _find_removed(self, is_removed: Callable[[bytes], bool]) -> set[int]:
        names = enumerate(self.tables.names)
        chosen = {index for index, name in names if index and is_removed(name)}
        removed = set(chosen)
        for index, row in enumerate(self.tables.sections):
            needed: list[int] | None = None
            if row.sh_type in _RELOCATIONS:
                needed = [self.tables.linked(index, "sh_info")]
            elif row.sh_type == elf.SHT_GROUP:
                needed = self._read_group(index)[1:]
            if needed is not None and chosen.issuperset(needed):
                removed.add(index)
        for index in removed & {self.symtab, self.shndx, self.tables.names_index}:
            message = f"{self.tables.label(index)} cannot be removed: the file needs it"
            raise self.tables.unsupported(index, "sh_name", message)
        return removed

    def _number(self) -> None:
        kept = [section for section in self.sections if section.old not in self.removed]
        self.numbers = {section.old: number for number, section in enumerate(kept)}
        self.new_sections = [*kept, *self.added]
        self.symbols.select(self.numbers)

    # -- references between sections -------------------------------------------------

    def _new_target(self, user: int, field: str = "sh_link") -> int:
        number = self.tables.linked(user, field)
        if number in self.removed:
            needed = self.tables.label(number)
            message = f"{self.tables.label(user)} needs {needed}, which is removed"
            raise self.tables.unsupported(user, field, message)
        return self.numbers[number]

    def _relink(self, section: _EditedSection) -> None:
        section_type = section.header.sh_type
        if section_type == elf.SHT_GROUP:
            self._rewrite_group(section)
        elif section_type in _RELOCATIONS:
            self._rewrite_relocations(section)
        elif section_type == elf.SHT_SYMTAB_SHNDX:
            word = self.tables.elf_class.word
            numbers = (n if n >= elf.SHN_LORESERVE else 0 for n in self.symbols.sections)
            section.rewrite(b"".join(map(word.pack, numbers)))
            section.set(sh_link=self._new_target(section.old))
        elif not _is_rebuilt(section.header):
            stale = self.symbols.renumbered and section.header.sh_link == self.symtab
            # Symbol numbers in its content are stale then; a link of 0 marks that.
            section.set(sh_link=0 if stale else self._new_target(section.old))

    def _read_group(self, index: int) -> list[int]:
        """Return the checked words of a group: flags, then section numbers."""
        content = self.tables.content(index)
        if len(content) % 4 or not content:
            message = f"expected one or more words, found {len(content)} bytes"
            raise self.tables.error(index, "sh_size", message)
        words = [word for (word,) in self.tables.elf_class.word.iter_unpack(content)]
        if (highest := max(words[1:], default=0)) >= len(self.sections):
            message = f"expected section numbers below {len(self.sections)}, found {highest}"
            raise self.tables.error(index, "content", message)
        if not self.symtab or self.tables.sections[index].sh_link != self.symtab:
            message = f"expected the symbol table's number ({self.symtab})"
            raise self.tables.error(index, "sh_link", message)
        return words

    def _rewrite_group(self, section: _EditedSection) -> None:
        flags, *members = self._read_group(section.old)
        symbol = section.header.sh_info
        signature = self.symbols.new_number(symbol, section.old)
        if self.symbols.is_local(symbol):
            flags &= ~_GRP_COMDAT
        words = [flags, *(self.numbers[old] for old in members if old in self.numbers)]
        section.rewrite(b"".join(map(self.tables.elf_class.word.pack, words)))
        section.set(sh_link=self.numbers[self.symtab], sh_info=signature)

    def _rewrite_relocations(self, section: _EditedSection) -> None:
        old = section.header
        link, info = self._new_target(section.old), self._new_target(section.old, "sh_info")
        section.set(sh_link=link, sh_info=info)
        if not old.sh_flags & elf.SHF_ALLOC and old.sh_type != elf.SHT_CREL:
            section.set(sh_addralign=self.tables.elf_class.address_size)
        if self.symbols.renumbered and old.sh_link == self.symtab:
            section.rewrite(self._renumber_relocations(section))

    def _renumber_relocations(self, section: _EditedSection) -> bytes:
        is_64, order = self.tables.elf_class.is_64, self.tables.elf_class.order
        fields = 3 if section.header.sh_type == elf.SHT_RELA else 2
        layout = struct.Struct(order + fields * ("Q" if is_64 else "I"))
        content = self.tables.content(section.old)
        if section.header.sh_type == elf.SHT_CREL or len(content) % layout.size:
            message = "the symbol numbers of these relocations cannot be changed"
            raise self.tables.error(section.old, "sh_size", message)
        # r_info has the symbol above the type; 64-bit little-endian MIPS has it below.
        mips = is_64 and order == "<" and self.tables.header.e_machine == _EM_MIPS
        shift, mask = (0 if mips else 32, 0xFFFFFFFF) if is_64 else (8, 0xFFFFFF)
        out = bytearray()
        for offset, info, *addend in layout.iter_unpack(content):
            symbol = self.symbols.new_number(info >> shift & mask, section.old)
            out += layout.pack(offset, info & ~(mask << shift) | symbol << shift, *addend)
        return bytes(out)

    # -- names -----------------------------------------------------------------------

    def _rename(self) -> None:
        names_at = self.tables.names_index
        symbols_at = self.tables.linked(self.symtab, "sh_link") if self.symtab else names_at
        symbol_names = self.symbols.names() if self.symtab else {}
        wanted: dict[int, list[bytes]] = {names_at: [], symbols_at: []}
        wanted[names_at] += (section.name for section in self.new_sections)
        wanted[symbols_at] += symbol_names.values()
        offsets = {index: self._rebuild_strings(index, wanted[index]) for index in wanted}
        for section in self.new_sections:
            section.set(sh_name=offsets[names_at][section.name])
        if self.symtab:
            table = self.sections[self.symtab]
            names = {old: offsets[symbols_at][name] for old, name in symbol_names.items()}
            table.rewrite(self.symbols.pack(names))
            table.set(
                sh_link=self._new_target(self.symtab),
                sh_info=self.symbols.locals,
                sh_addralign=self.tables.elf_class.address_size,
            )

    def _rebuild_strings(self, index: int, strings: Iterable[bytes]) -> dict[bytes, int]:
        if index in self.removed or not _is_rebuilt(self.tables.sections[index]):
            message = f"{self.tables.label(index)} is not a string table that can be rewritten"
            raise self.tables.error(index, "sh_type", message)
        table, offsets = build_string_table(strings)
        self.sections[index].rewrite(table)
        return offsets


def _is_rebuilt(header: elf.SectionHeader) -> bool:
    """Return whether this is a string table of the file, not of the running program."""
    return header.sh_type == elf.SHT_STRTAB and not header.sh_flags & elf.SHF_ALLOC


class _EditedSection:
    """A section of the new file; the steps of the editor complete its header.

    `old` is its number in the host, or 0; `added` is its content, or None for a section of the
    host.
    """

    __slots__ = ("added", "data", "header", "name", "old", "segment")

    def __init__(
        self, name: bytes, header: elf.SectionHeader, old: int, added: FilePlan | None = None
    ) -> None:
        self.name = name
        self.header = header
        self.old = old
        self.added = added
        self.data: bytes | None = None
        """Rewritten content; None if the host's or the new content is copied."""
        self.segment: _Segment | None = None

    @property
    def file_size(self) -> int:
        return self.header.sh_size if self.header.has_content else 0

    def set(self, **fields: int) -> None:
        self.header = self.header._replace(**fields)

    def rewrite(self, data: bytes) -> None:
        self.data = data
        self.set(sh_size=len(data))


class _Segment:
    """A range of the host that keeps its inner layout: a segment or a header table."""

    __slots__ = ("header", "index", "offset", "parent")

    def __init__(self, header: elf.SegmentHeader, index: int) -> None:
        self.header = header
        self.index = index
        self.parent: _Segment | None = None
        self.offset = 0
        """Offset in the new file."""

    @property
    def order(self) -> tuple[int, int, int]:
        """Sort key, parents before children: by old offset, then larger alignment first."""
        return self.header.p_offset, -self.header.p_align, self.index

    @property
    def size(self) -> int:
        return self.header.p_filesz

    def holds(self, section: elf.SectionHeader) -> bool:
        """Return whether `section` lies inside; an empty one counts as one byte."""
        size = section.sh_size or 1
        own = self.header
        if section.sh_type != elf.SHT_NOBITS:
            start, first, end = section.sh_offset, own.p_offset, own.p_offset + self.size
        else:  # no bytes in the file: compare addresses
            is_tls = bool(section.sh_flags & elf.SHF_TLS)
            if not section.sh_flags & elf.SHF_ALLOC or is_tls != (own.p_type == elf.PT_TLS):
                return False
            start, first, end = section.sh_addr, own.p_vaddr, own.p_vaddr + own.p_memsz
        return first <= start and start + size <= end


class _Layout:
    """Places the parts of one file; each segment is matched with its sections at once."""

    def __init__(self, tables: elf.ElfTables, sections: Sequence[_EditedSection]) -> None:
        self.tables = tables
        self.old_sections = sections
        if len(tables.segments) > _MAX_SEGMENTS:
            message = f"expected at most {_MAX_SEGMENTS} segments, found {len(tables.segments)}"
            raise UnsupportedError(message, path=tables.path, offset=0, field="e_phnum")
        self.segments = [_Segment(row, index) for index, row in enumerate(tables.segments)]
        size, count = tables.elf_class.header.size, len(self.segments)
        self.header_table = _Segment(
            elf.SegmentHeader(elf.PT_PHDR, 0, 0, 0, 0, size, size, 0), count
        )
        size = tables.elf_class.segment.size * count
        start = tables.header.e_phoff
        row = elf.SegmentHeader(
            elf.PT_PHDR, 0, start, start, 0, size, size, tables.elf_class.address_size
        )
        self.segment_table = _Segment(row, count + 1)
        for child in (*self.segments, self.header_table, self.segment_table):
            child.parent = self._parent_of(child)
        for section in sections[1:] if self.segments else ():
            holders = [segment for segment in self.segments if segment.holds(section.header)]
            section.segment = min(holders, key=lambda held: held.header.p_offset, default=None)
        self._check_overlaps()

    def _parent_of(self, child: _Segment) -> _Segment | None:
        start = child.header.p_offset
        around = (
            other
            for other in self.segments
            if other.header.p_offset <= start < other.header.p_offset + other.size
            and other.order < child.order
        )
        return min(around, key=lambda other: other.order, default=None)

    def _check_overlaps(self) -> None:
        """Raise if sections share bytes, outside of segments: their copies could fill any disk."""
        rows = sorted(
            (section.header.sh_offset, section.file_size, section.old)
            for section in self.old_sections
            if section.file_size
            and (section.segment is None or not section.header.sh_flags & elf.SHF_ALLOC)
        )
        for (start, size, first), (next_start, _, second) in pairwise(rows):
            if start + size > next_start:
                message = f"overlaps {self.tables.label(first)}, which ends at {start + size}"
                raise self.tables.error(second, "sh_offset", message)

    def place(self, sections: Sequence[_EditedSection], names_index: int) -> FilePlan:
        """Return the file's plan; raise UnsupportedError if changed content is inside a segment."""
        elf_class, count = self.tables.elf_class, len(sections)
        end = self._place_sections(sections[1:], self._place_segments())
        end += -end % elf_class.address_size
        if end >> (8 * elf_class.address_size):
            message = f"the result would have {end} bytes, too many for this class of ELF file"
            raise UnsupportedError(message, path=self.tables.path, offset=0, field="e_shoff")
        first = elf.NO_SECTION._replace(
            sh_size=count if count >= elf.SHN_LORESERVE else 0,
            sh_link=names_index if names_index >= elf.SHN_LORESERVE else 0,
        )
        rows = (first, *(part.header for part in sections[1:]))
        table = b"".join(elf_class.section.pack(*row) for row in rows)
        header = self._pack_header(end, count, names_index)
        outside = sorted(
            (part for part in sections[1:] if part.segment is None and part.file_size),
            key=lambda part: part.header.sh_offset,
        )
        pieces = (
            *self._segment_pieces(sections, header),
            *(piece for part in outside for piece in self._section_pieces(part)),
            Literal(end, table),
        )
        return FilePlan(join(pieces), end + len(table))

    # -- offsets ---------------------------------------------------------------------

    def _place_segments(self) -> int:
        end = 0
        parts = [*self.segments, self.header_table, self.segment_table]
        for segment in sorted(parts, key=lambda part: part.order):
            if segment.parent is not None:
                delta = segment.header.p_offset - segment.parent.header.p_offset
                segment.offset = segment.parent.offset + delta
            else:
                skew = segment.header.p_vaddr - end
                segment.offset = end + skew % max(segment.header.p_align, 1)
            end = max(end, segment.offset + segment.size)
        return end

    def _place_sections(self, sections: Iterable[_EditedSection], end: int) -> int:
        outside = []
        for section in sections:
            if section.segment is None:
                outside.append(section)
                continue
            old = section.old
            if section.data is not None and section.data != self.tables.content(old):
                message = f"{self.tables.label(old)} must change, but lies inside a segment"
                raise self.tables.unsupported(old, "sh_offset", message)
            delta = section.header.sh_offset - section.segment.header.p_offset
            offset = section.segment.offset + delta
            # Without content, the offset is arbitrary and may even wrap around.
            section.set(sh_offset=offset % (1 << 8 * self.tables.elf_class.address_size))
        outside.sort(key=lambda part: (part.added is not None, part.header.sh_offset))
        for section in outside:
            end += -end % max(section.header.sh_addralign, 1)
            section.set(sh_offset=end)
            end += section.file_size
        return end

    # -- bytes -----------------------------------------------------------------------

    def _pack_header(self, section_table: int, count: int, names_index: int) -> bytes:
        elf_class = self.tables.elf_class
        ident = self.tables.header.e_ident
        header = self.tables.header._replace(
            # As LLVM writes it: the only version, and zeros behind the ABI version.
            e_ident=(ident[:6] + b"\1" + ident[7:9]).ljust(16, b"\0"),
            e_phoff=self.segment_table.offset if self.segments else 0,
            e_phentsize=elf_class.segment.size if self.segments else 0,
            e_shoff=section_table,
            e_ehsize=elf_class.header.size,
            e_shnum=count if count < elf.SHN_LORESERVE else 0,
            e_shstrndx=names_index if names_index < elf.SHN_LORESERVE else elf.SHN_XINDEX,
        )
        return elf_class.header.pack(*header)

    def _segment_pieces(self, sections: Sequence[_EditedSection], header: bytes) -> Sequence[Piece]:
        writes: list[Piece] = [
            Range(part.offset, HOST, part.header.p_offset, part.size) for part in self.segments
        ]
        remaining = {section.old for section in sections if section.added is None}
        for section in self.old_sections:
            if section.segment is not None and section.old not in remaining:
                delta = section.header.sh_offset - section.segment.header.p_offset
                zeros = bytes(section.file_size)
                writes.append(Literal(section.segment.offset + delta, zeros))
        writes.append(Literal(0, header))
        rows = (part.header._replace(p_offset=part.offset) for part in self.segments)
        table = b"".join(self.tables.elf_class.pack_segment(row) for row in rows)
        writes.append(Literal(self.segment_table.offset, table))
        return _overlay(writes)

    def _section_pieces(self, section: _EditedSection) -> Sequence[Piece]:
        position, size = section.header.sh_offset, section.file_size
        if section.data is not None:
            return [Literal(position, section.data)]
        if section.added is not None:
            return [*section.added.moved(position)]
        return [Range(position, HOST, self.tables.sections[section.old].sh_offset, size)]


def _overlay(writes: Iterable[Piece]) -> Sequence[Piece]:
    """Return disjoint pieces in file order; where two overlap, the later one wins."""
    result: list[Piece] = []
    for write in writes:
        start, end = write.position, write.position + write.size
        cuts = (part for piece in result for part in (_cut(piece, 0, start), _cut(piece, end)))
        result = [piece for piece in cuts if piece.size]
        result.append(write)
    return sorted(result, key=lambda piece: piece.position)


def _cut(piece: Piece, start: int, end: int | None = None) -> Piece:
    """Return the part of `piece` between two positions of the new file, possibly empty."""
    first = max(piece.position, start)
    last = piece.position + piece.size
    size = max((last if end is None else min(last, end)) - first, 0)
    skipped = first - piece.position
    if isinstance(piece, Range):
        return Range(first, piece.source, piece.offset + skipped, size)
    return Literal(first, piece.data[skipped : skipped + size])


class _Symbols:
    """The remaining symbols, with the numbers of their sections or 0; raise FormatError."""

    def __init__(self, tables: elf.ElfTables, symtab: int, shndx: int) -> None:
        self._tables = tables
        self._symtab = symtab
        self._rows = tables.symbols(symtab) if symtab else []
        self._indexes: list[int] = []
        if symtab and shndx:
            words = tables.content(shndx)
            if len(words) != 4 * len(self._rows):
                message = f"expected {4 * len(self._rows)} bytes, found {len(words)}"
                raise tables.error(shndx, "sh_size", message)
            self._indexes = [word for (word,) in tables.elf_class.word.iter_unpack(words)]
        self._old_sections = [self._section_of(number) for number in range(len(self._rows))]
        self.sections: list[int] = []
        """New numbers of the sections that define the remaining symbols, in new symbol order."""
        self.locals = 0
        """Number of remaining local symbols."""
        self.renumbered = False

    def __len__(self) -> int:
        return len(self._rows)

    def _section_of(self, number: int) -> int:
        """Return the section that defines a symbol; 0 for none (undefined, absolute, common)."""
        section = self._rows[number].st_shndx
        if section == elf.SHN_XINDEX and self._indexes:
            section = self._indexes[number]
        elif elf.SHN_LORESERVE <= section < elf.SHN_XINDEX:
            return 0
        if section >= len(self._tables.sections):
            count = len(self._tables.sections)
            message = f"symbol {number} is in section {section}, but the file has {count}"
            raise self._tables.error(self._symtab, "st_shndx", message)
        return section

    def is_local(self, number: int) -> bool:
        return self._rows[number].is_local

    def select(self, new_numbers: Mapping[int, int]) -> None:
        """Keep the symbols of the sections in `new_numbers` (old to new), the local ones first."""
        kept = [n for n, section in enumerate(self._old_sections) if section in new_numbers]
        self._order = [number for number in kept if self.is_local(number)]
        self.locals = len(self._order)
        self._order += [number for number in kept if not self.is_local(number)]
        self.renumbered = self._order != list(range(len(self._rows)))
        self._numbers = {old: new for new, old in enumerate(self._order)}
        self.sections = [new_numbers[self._old_sections[old]] for old in self._order]

    def new_number(self, number: int, user: int) -> int:
        """Return the new number of a host's symbol; raise FormatError or UnsupportedError."""
        if number not in self._numbers:
            message = f"{self._tables.label(user)} refers to symbol {number}, which"
            if number >= len(self._rows):
                raise self._tables.error(user, "content", f"{message} does not exist")
            raise self._tables.unsupported(user, "content", f"{message} is removed")
        return self._numbers[number]

    def names(self) -> dict[int, bytes]:
        """Return the names of the remaining symbols, by old st_name."""
        strings = self._tables.strings(self._tables.sections[self._symtab].sh_link)
        return {old: strings[old] for old in {self._rows[number].st_name for number in self._order}}

    def pack(self, names: Mapping[int, int]) -> bytes:
        out = bytearray()
        for old, section in zip(self._order, self.sections, strict=True):
            row = self._rows[old]
            row = row._replace(st_name=names[row.st_name])
            if section:
                row = row._replace(
                    st_shndx=section if section < elf.SHN_LORESERVE else elf.SHN_XINDEX
                )
            out += self._tables.elf_class.pack_symbol(row)
        return bytes(out)
