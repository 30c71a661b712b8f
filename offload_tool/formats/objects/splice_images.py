"""Replace placeholders in LLVM's object files by images.

`plan_object_with_images`: LLVM's code generator emits three bytes for each image, in a section
``offload.image.N<section>`` of its own, so that the section can move::

    object from LLVM, except for the headers of these sections (position, size and name)
        and the symbols of the images (size)
    zeros | image 0 | zeros | image 1 ...    each at a multiple of its section's alignment

The new name is the end of the old one, which is in the string table already. Sections of equal name
stay separate; the linker concatenates them.

`plan_with_content` replaces the content of one section of an ELF object, with LLVM's layout: LLVM
writes the sections consecutively, each at the next multiple of its alignment, and their headers at
the end. It compresses debug information in its place. So all parts behind a section that grows
move::

    header | .text | .hip_fatbin: placeholder | .data | .symtab | section headers
    header | .text | .hip_fatbin: a fat binary, larger  | .data | .symtab | section headers

Objects of another layout are rejected: with the old size, the rule must reproduce the object.

Sources: the System V gABI, chapter 4; LLVM 22.1's ``ELFObjectWriter``, observed in objects of
clang 21 to 23. LLVM gives ``.llvm.offloading`` a section type of its own by its name (observed in
22.1.8).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from offload_tool.errors import FormatError, UnsupportedError
from offload_tool.formats.magic import aligned
from offload_tool.formats.objects.elf import reader as elf
from offload_tool.formats.objects.elf.reader import ElfTables, read_elf_tables
from offload_tool.formats.registration_ir import SECTION_MARK
from offload_tool.io import StrPath
from offload_tool.io.write_plan import HOST, FilePlan, Literal, Part, Piece, Range, join

_MARKED = re.compile(rb"%s([0-9]+)(.*)" % re.escape(SECTION_MARK.encode()), re.DOTALL)
_OFFLOADING = b".llvm.offloading"


def plan_object_with_images(module: bytes, images: Sequence[Part]) -> FilePlan:
    """Return a plan of the object with image N in marked section N."""
    data = memoryview(module)
    patched = bytearray(module)
    plans = [FilePlan.of([image]) for image in images]
    offsets, end = _patch_elf(data, patched, [plan.size for plan in plans])
    if sorted(offsets) != list(range(len(images))):
        raise FormatError(f"expected sections for {len(images)} images, found {sorted(offsets)}")
    contents = [piece for number, at in offsets.items() for piece in plans[number].moved(at)]
    contents.sort(key=lambda piece: piece.position)
    return FilePlan(join([Literal(0, bytes(patched)), *contents]), end)


def _patch_elf(
    data: memoryview, patched: bytearray, sizes: Sequence[int]
) -> tuple[dict[int, int], int]:
    """Change section headers and symbols; return each image's position, and the file's size."""
    tables = read_elf_tables(data)
    elf_class = tables.elf_class
    offsets: dict[int, int] = {}
    sections: dict[int, int] = {}
    end = len(data)
    for index, (name, header) in enumerate(zip(tables.names, tables.sections, strict=True)):
        if not (found := _MARKED.fullmatch(name)):
            continue
        image = int(found[1])
        sections[index] = size = sizes[image]
        offsets[image] = end = aligned(end, header.sh_addralign)
        new = header._replace(sh_name=header.sh_name + found.start(2), sh_offset=end, sh_size=size)
        if found[2] == _OFFLOADING:
            new = new._replace(sh_type=elf.SHT_LLVM_OFFLOADING)
        end += size
        if end >> (8 * elf_class.address_size):
            raise UnsupportedError(f"images of {end} bytes are too large for a 32-bit object")
        elf_class.section.pack_into(patched, tables.header_offset(index), *new)
    for index in tables.of_type(elf.SHT_SYMTAB):
        start = tables.sections[index].sh_offset
        symbols = _sized_symbols(tables, index, sections)
        patched[start : start + len(symbols)] = symbols
    return offsets, end


def plan_with_content(
    data: memoryview, placeholder: bytes, content: Part, *, path: StrPath | None = None
) -> FilePlan:
    """Return a plan of `HOST` with `content` in the section `placeholder`; raise ContentError."""
    tables = read_elf_tables(data, path=path)
    index = _section_with(tables, placeholder)
    order = _order(tables)
    header, count = tables.header, len(tables.sections)
    found = [section.sh_offset for section in tables.sections], header.e_shoff
    is_object = header.e_type == elf.ET_REL and not header.e_phnum and count < elf.SHN_LORESERVE
    at_end = tables.header_offset(count) == len(data)
    if not (is_object and at_end) or _layout(tables, order, -1, 0) != found:
        raise UnsupportedError("not laid out as LLVM lays out objects", path=path)
    new = FilePlan.of([content])
    size = new.size
    offsets, headers_at = _layout(tables, order, index, size)
    elf_class = tables.elf_class
    new_header = elf_class.header.pack(*header._replace(e_shoff=headers_at))
    pieces: list[Piece] = [Literal(0, new_header)]
    for number in order:
        section, at = tables.sections[number], offsets[number]
        if number == index:
            pieces += new.moved(at)
        elif section.has_content and section.sh_size:
            if section.sh_type == elf.SHT_SYMTAB:
                pieces.append(Literal(at, _sized_symbols(tables, number, {index: size})))
            else:
                pieces.append(Range(at, HOST, section.sh_offset, section.sh_size))
    changed = list(tables.sections)
    changed[index] = changed[index]._replace(sh_size=size)
    headers = b"".join(
        elf_class.section.pack(*section._replace(sh_offset=offset))
        for section, offset in zip(changed, offsets, strict=True)
    )
    pieces.append(Literal(headers_at, headers))
    return FilePlan(join(pieces), headers_at + count * elf_class.section.size)


def _section_with(tables: ElfTables, placeholder: bytes) -> int:
    found = [
        number
        for number, section in enumerate(tables.sections)
        if section.has_content
        and section.sh_size == len(placeholder)
        and tables.content(number) == placeholder
    ]
    if len(found) != 1:
        message = f"expected one section that is the placeholder, found {len(found)}"
        raise UnsupportedError(message, path=tables.path)
    return found[0]


def _order(tables: ElfTables) -> list[int]:
    sections = tables.sections

    def position(number: int) -> tuple[int, bool, int]:
        section = sections[number]
        return section.sh_offset, section.has_content and section.sh_size > 0, number

    return sorted(range(1, len(sections)), key=position)


def _layout(tables: ElfTables, order: list[int], index: int, size: int) -> tuple[list[int], int]:
    """Return the offsets of the sections, if one has `size` bytes, and that of their headers."""
    offsets = [section.sh_offset for section in tables.sections]
    end = tables.elf_class.header.size
    for number in order:
        section = tables.sections[number]
        offsets[number] = end = aligned(end, _alignment(tables, number))
        if section.has_content:
            end += size if number == index else section.sh_size
    return offsets, aligned(end, tables.elf_class.address_size)


def _alignment(tables: ElfTables, number: int) -> int:
    """Return the alignment of a section's place: that before it was compressed (``-gz``)."""
    section, header = tables.sections[number], tables.elf_class.compression
    if section.sh_flags & elf.SHF_COMPRESSED and section.sh_size >= header.size:
        return int(header.unpack_from(tables.content(number))[-1])
    return section.sh_addralign


def _sized_symbols(tables: ElfTables, number: int, sizes: Mapping[int, int]) -> bytes:
    """Return symbol table `number`; symbols that fill a section in `sizes` get its new size."""
    packed = bytearray()
    for symbol in tables.symbols(number):
        index, size = symbol.st_shndx, symbol.st_size
        if (
            index in sizes
            and symbol.type == elf.STT_OBJECT
            and size == tables.sections[index].sh_size
        ):
            size = sizes[index]
        packed += tables.elf_class.pack_symbol(symbol._replace(st_size=size))
    return bytes(packed)
