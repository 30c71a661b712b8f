"""Replaces the content of a section of LLVM's object files, with the layout LLVM would choose.

LLVM writes the sections of an object one behind the other, each at the next multiple of its
alignment, and their headers at the end. So what comes behind a section that grows moves::

    header | .text | .hip_fatbin: placeholder | .data | .symtab | section headers
    header | .text | .hip_fatbin: a fat binary, larger  | .data | .symtab | section headers

Offsets in headers change, and the size of the symbol that is the section's content. An object that
was not laid out like this is refused: with the old size, the rule must give the object as it is.

Source: LLVM 22.1's ``ELFObjectWriter``, observed in objects of clang 21 to 23.
"""

from __future__ import annotations

from typing import NamedTuple

from offload_tool.errors import UnsupportedError
from offload_tool.formats.objects.elf.reader import (
    ET_REL,
    SHN_LORESERVE,
    SHT_SYMTAB,
    STT_OBJECT,
    ElfTables,
    read_elf_tables,
)
from offload_tool.io import StrPath
from offload_tool.io.write_plan import HOST, FilePlan, Literal, Piece, Range, content, join


class _Layout(NamedTuple):
    """Where everything is."""

    offsets: tuple[int, ...]
    """Of the sections."""
    headers: int
    """The offset of the section headers."""


def plan_with_content(
    data: memoryview, placeholder: bytes, size: int, *, path: StrPath | None = None
) -> FilePlan:
    """Plan an object whose one section that holds `placeholder` holds content 0, of `size` bytes.

    The object itself is `HOST` of the plan.

    :raises FormatError: it is no sound ELF file.
    :raises UnsupportedError: it is not laid out as LLVM does it, or has no such section.
    """
    tables = read_elf_tables(data, path=path)
    index = _section_with(tables, placeholder, path)
    order = _order(tables)
    _check_layout(tables, order, path, len(data))
    layout = _layout(tables, order, index, size)
    shape, count = tables.elf_class, len(tables.sections)
    pieces: list[Piece] = []
    header = tables.header._replace(e_shoff=layout.headers)
    pieces.append(Literal(0, shape.header.pack(*header)))
    for number in order:
        section, at = tables.sections[number], layout.offsets[number]
        if number == index:
            pieces.append(content(at, 0, size))
        elif section.has_content and section.sh_size:
            if section.sh_type == SHT_SYMTAB:
                pieces.append(Literal(at, _symbols(tables, number, index, placeholder, size)))
            else:
                pieces.append(Range(at, HOST, section.sh_offset, section.sh_size))
    changed = list(tables.sections)
    changed[index] = changed[index]._replace(sh_size=size)
    headers = b"".join(
        shape.section.pack(*section._replace(sh_offset=offset))
        for section, offset in zip(changed, layout.offsets, strict=True)
    )
    pieces.append(Literal(layout.headers, headers))
    pieces.sort(key=lambda piece: piece.position)
    return FilePlan(join(pieces), layout.headers + count * shape.section.size)


def _section_with(tables: ElfTables, placeholder: bytes, path: StrPath | None) -> int:
    found = [
        number
        for number, section in enumerate(tables.sections)
        if section.has_content
        and section.sh_size == len(placeholder)
        and tables.content(number) == placeholder
    ]
    if len(found) != 1:
        message = f"expected one section that is the placeholder, found {len(found)}"
        raise UnsupportedError(message, path=path)
    return found[0]


def _order(tables: ElfTables) -> list[int]:
    """Return the numbers of the sections in file order; number 0 is none."""
    sections = tables.sections

    def place(number: int) -> tuple[int, bool, int]:
        section = sections[number]
        return section.sh_offset, section.has_content and section.sh_size > 0, number

    return sorted(range(1, len(sections)), key=place)


def _layout(tables: ElfTables, order: list[int], index: int, size: int) -> _Layout:
    offsets = [section.sh_offset for section in tables.sections]
    end = tables.elf_class.header.size
    for number in order:
        section = tables.sections[number]
        offsets[number] = end = _aligned(end, section.sh_addralign)
        if section.has_content:
            end += size if number == index else section.sh_size
    return _Layout(tuple(offsets), _aligned(end, tables.elf_class.address_size))


def _aligned(offset: int, alignment: int) -> int:
    return offset + -offset % max(alignment, 1)


def _check_layout(tables: ElfTables, order: list[int], path: StrPath | None, length: int) -> None:
    header = tables.header
    found = _Layout(tuple(section.sh_offset for section in tables.sections), header.e_shoff)
    end = header.e_shoff + len(tables.sections) * tables.elf_class.section.size
    is_usual = header.e_type == ET_REL and not header.e_phnum and end == length
    is_usual = is_usual and len(tables.sections) < SHN_LORESERVE
    if not is_usual or _layout(tables, order, -1, 0) != found:
        raise UnsupportedError("not laid out as LLVM lays out objects", path=path)


def _symbols(tables: ElfTables, number: int, index: int, placeholder: bytes, size: int) -> bytes:
    """Return a symbol table in which the content of the section is as large as it is."""
    shape = tables.elf_class
    packed = []
    for symbol in tables.symbols(number):
        is_content = symbol.st_shndx == index and symbol.type == STT_OBJECT
        if is_content and symbol.st_size == len(placeholder):
            symbol = symbol._replace(st_size=size)
        packed.append(shape.pack_symbol(symbol))
    return b"".join(packed)
