"""Where the parts of a rewritten ELF file go.

::

    ELF header | segments | sections outside of segments | zeros | section header table
               |          |                              | to a multiple of 4 or 8
               |          by their old offsets, new ones last; each at a multiple of its
               |          alignment. Without content (NOBITS): an offset, no bytes
               as they were, each at an offset congruent to its address

A segment that begins inside another one, and a section that lies inside a segment, move
with it and keep their bytes; the outermost such segment decides. What is removed inside
a segment becomes zeros.

Source: llvm-objcopy 22.1.8, observed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from offload_tool.errors import UnsupportedError
from offload_tool.formats.objects.elf.reader import (
    PT_PHDR,
    PT_TLS,
    SHF_ALLOC,
    SHF_TLS,
    SHN_LORESERVE,
    SHN_XINDEX,
    SHT_NOBITS,
    ElfTables,
    SectionHeader,
    SegmentHeader,
)
from offload_tool.io.write_plan import HOST, FilePlan, Literal, Piece, Range, content, join

_MAX_SEGMENTS = 256
"""A program has about ten; the time grows with the square."""


class Section:
    """A section on its way into the new file; its header becomes valid step by step.

    `old` is its number in the host, or 0; `added` that among the contents to insert, None for a
    section of the host.
    """

    __slots__ = ("added", "data", "header", "name", "new", "old", "segment")

    def __init__(
        self, name: bytes, header: SectionHeader, old: int, added: int | None = None
    ) -> None:
        self.name = name
        self.header = header
        self.old = old
        self.added = added
        self.new = 0
        self.data: bytes | None = None
        """Rewritten content; None where the host's or the new content is copied."""
        self.segment: _Segment | None = None

    @property
    def file_size(self) -> int:
        """Bytes that it occupies in the file."""
        return self.header.sh_size if self.header.has_content else 0

    def set(self, **fields: int) -> None:
        """Change fields of the header."""
        self.header = self.header._replace(**fields)

    def rewrite(self, data: bytes) -> None:
        """Replace the content."""
        self.data = data
        self.set(sh_size=len(data))


class _Segment:
    """A range of the host that keeps its inner layout: a segment or a header table."""

    __slots__ = ("header", "index", "offset", "parent")

    def __init__(self, header: SegmentHeader, index: int) -> None:
        self.header = header
        self.index = index
        self.parent: _Segment | None = None
        self.offset = 0
        """Where it begins in the new file."""

    @property
    def order(self) -> tuple[int, int, int]:
        """Parents before children: by old offset, the larger alignment first."""
        return self.header.p_offset, -self.header.p_align, self.index

    @property
    def size(self) -> int:
        return self.header.p_filesz

    def holds(self, section: SectionHeader) -> bool:
        """Return whether `section` lies inside; an empty one counts as one byte."""
        size = section.sh_size or 1
        own = self.header
        if section.sh_type != SHT_NOBITS:
            start, first, end = section.sh_offset, own.p_offset, own.p_offset + self.size
        else:  # no bytes in the file: the addresses tell
            is_tls = bool(section.sh_flags & SHF_TLS)
            if not section.sh_flags & SHF_ALLOC or is_tls != (own.p_type == PT_TLS):
                return False
            start, first, end = section.sh_addr, own.p_vaddr, own.p_vaddr + own.p_memsz
        return first <= start and start + size <= end


class Layout:
    """Places the parts of one file; segments are matched with their sections at once."""

    def __init__(self, tables: ElfTables, sections: Sequence[Section]) -> None:
        self.tables = tables
        self.old_sections = sections
        if len(tables.segments) > _MAX_SEGMENTS:
            message = f"expected at most {_MAX_SEGMENTS} segments, found {len(tables.segments)}"
            raise UnsupportedError(message, path=tables.path, offset=0, field="e_phnum")
        self.segments = [_Segment(row, index) for index, row in enumerate(tables.segments)]
        size, count = tables.elf_class.header.size, len(self.segments)
        self.header_table = _Segment(SegmentHeader(PT_PHDR, 0, 0, 0, 0, size, size, 0), count)
        size = tables.elf_class.segment.size * count
        start = tables.header.e_phoff
        row = SegmentHeader(PT_PHDR, 0, start, start, 0, size, size, tables.elf_class.address_size)
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
        """Refuse sections that share bytes: their copies could outgrow any disk.

        What a program loads may overlap; it stays within its segment.
        """
        rows = sorted(
            (section.header.sh_offset, section.file_size, section.old)
            for section in self.old_sections
            if section.file_size
            and (section.segment is None or not section.header.sh_flags & SHF_ALLOC)
        )
        for (start, size, first), (next_start, _, second) in pairwise(rows):
            if start + size > next_start:
                message = f"overlaps {self.tables.label(first)}, which ends at {start + size}"
                raise self.tables.error(second, "sh_offset", message)

    def place(self, kept: Sequence[Section], names_index: int) -> FilePlan:
        """Return the plan of the file of these sections, number 0 included, in their order.

        :raises UnsupportedError: a section whose content changes lies inside a segment.
        """
        segments_end = self._place_segments()
        end = self._place_sections(kept[1:], segments_end)
        end += -end % self.tables.elf_class.address_size
        self._check_end(end)
        table = b"".join(
            self.tables.elf_class.section.pack(*row)
            for row in (_first_header(len(kept), names_index), *(part.header for part in kept[1:]))
        )
        header = self._pack_header(end, len(kept), names_index)
        outside = sorted(
            (part for part in kept[1:] if part.segment is None and part.file_size),
            key=lambda part: part.header.sh_offset,
        )
        pieces = (
            *self._segment_pieces(kept, header),
            *(self._section_piece(part) for part in outside),
            Literal(end, table),
        )
        return FilePlan(join(pieces), end + len(table))

    def _check_end(self, end: int) -> None:
        if end >> (8 * self.tables.elf_class.address_size):
            message = f"the result would have {end} bytes, too many for this class of ELF file"
            raise UnsupportedError(message, path=self.tables.path, offset=0, field="e_shoff")

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

    def _place_sections(self, sections: Iterable[Section], end: int) -> int:
        outside = []
        for section in sections:
            if section.segment is None:
                outside.append(section)
                continue
            self._check_unchanged(section)
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

    def _check_unchanged(self, section: Section) -> None:
        if section.data is not None and section.data != self.tables.content(section.old):
            message = f"{self.tables.label(section.old)} must change, but lies inside a segment"
            raise self.tables.unsupported(section.old, "sh_offset", message)

    # -- bytes -----------------------------------------------------------------------

    def _pack_header(self, section_table: int, count: int, names_index: int) -> bytes:
        elf_class = self.tables.elf_class
        ident = self.tables.header.e_ident
        header = self.tables.header._replace(
            # With the one version that there is, as LLVM writes it, and nothing behind the ABI's.
            e_ident=(ident[:6] + b"\1" + ident[7:9]).ljust(16, b"\0"),
            e_phoff=self.segment_table.offset if self.segments else 0,
            e_phentsize=elf_class.segment.size if self.segments else 0,
            e_shoff=section_table,
            e_ehsize=elf_class.header.size,
            e_shnum=count if count < SHN_LORESERVE else 0,
            e_shstrndx=names_index if names_index < SHN_LORESERVE else SHN_XINDEX,
        )
        return elf_class.header.pack(*header)

    def _segment_pieces(self, kept: Sequence[Section], header: bytes) -> Sequence[Piece]:
        writes: list[Piece] = [
            Range(part.offset, HOST, part.header.p_offset, part.size) for part in self.segments
        ]
        remaining = {section.old for section in kept if section.added is None}
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

    def _section_piece(self, section: Section) -> Piece:
        position, size = section.header.sh_offset, section.file_size
        if section.data is not None:
            return Literal(position, section.data)
        if section.added is not None:
            return content(position, section.added, size)
        return Range(position, HOST, self.tables.sections[section.old].sh_offset, size)


def _first_header(count: int, names_index: int) -> SectionHeader:
    """Section header 0 holds the numbers that are too large for the ELF header."""
    size = count if count >= SHN_LORESERVE else 0
    link = names_index if names_index >= SHN_LORESERVE else 0
    return SectionHeader(0, 0, 0, 0, 0, size, link, 0, 0, 0)


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
    """Return the part of `piece` between two positions of the new file; maybe empty."""
    first = max(piece.position, start)
    last = piece.position + piece.size
    size = max((last if end is None else min(last, end)) - first, 0)
    skipped = first - piece.position
    if isinstance(piece, Range):
        return Range(first, piece.source, piece.offset + skipped, size)
    return Literal(first, piece.data[skipped : skipped + size])
