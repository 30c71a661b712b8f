"""Puts images into an object file, as the content of sections that were made for them.

The object comes from LLVM's code generator with three bytes for each image, in a section
``offload.image.N<section>`` with nothing else, so that the section can grow and move::

    object from LLVM, but for the headers of these sections (their place, size and name)
        and the symbols of the images (their size)
    zeros | image 0 | zeros | image 1 ...    each at a multiple of its section's alignment

The new name is the end of the old one, which is in the string table already. Sections of
one name stay apart; the linker puts them behind each other.

Sources: the System V gABI, chapter 4; the PE Format document, "Section Table" and
"Auxiliary Format 5: Section Definitions". LLVM gives ``.llvm.offloading`` a section type
of its own by its name (observed in 22.1.8).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence

from offload_tool.errors import FormatError, UnsupportedError
from offload_tool.formats.objects.elf.reader import (
    SHT_LLVM_OFFLOADING,
    SHT_SYMTAB,
    STT_OBJECT,
    is_elf_header,
    read_elf_tables,
)
from offload_tool.formats.registration_ir import SECTION_MARK
from offload_tool.io.write_plan import FilePlan, Literal, content, join

_MARKED = re.compile(rb"%s([0-9]+)(.*)" % re.escape(SECTION_MARK.encode()), re.DOTALL)
_OFFLOADING = b".llvm.offloading"

_COFF_HEADER = struct.Struct("<HHIIIHH")
_COFF_SECTION = struct.Struct("<8sIIIIIIHHI")
_COFF_SYMBOL = struct.Struct("<8sIHHBB")
_COFF_SECTION_AUX = struct.Struct("<IHHIHB3x")
_COFF_STATIC = 3
_COFF_ALIGN_SHIFT = 20
_COFF_MAX = (1 << 32) - 1


def plan_object_with_images(module: bytes, sizes: Sequence[int]) -> FilePlan:
    """Plan the object whose marked section N has content N, of `sizes[N]` bytes.

    :raises FormatError: it is not an ELF or COFF object of LLVM's with these sections.
    :raises UnsupportedError: an image is too large for its format.
    """
    data = memoryview(module)
    patched = bytearray(module)
    if is_elf_header(data):
        places, end = _patch_elf(data, patched, sizes)
    else:
        places, end = _patch_coff(data, patched, sizes)
    if sorted(places) != list(range(len(sizes))):
        raise FormatError(f"expected sections for {len(sizes)} images, found {sorted(places)}")
    contents = [content(at, number, sizes[number]) for number, at in places.items()]
    contents.sort(key=lambda piece: piece.position)
    return FilePlan(join([Literal(0, bytes(patched)), *contents]), end)


def _patch_elf(
    data: memoryview, patched: bytearray, sizes: Sequence[int]
) -> tuple[dict[int, int], int]:
    """Change section headers and symbols; give where each image goes, and the file's size."""
    tables = read_elf_tables(data)
    shape = tables.elf_class
    places: dict[int, int] = {}
    images: dict[int, int] = {}
    end = len(data)
    for index, (name, header) in enumerate(zip(tables.names, tables.sections, strict=True)):
        if not (found := _MARKED.fullmatch(name)):
            continue
        image = int(found[1])
        images[index], size = image, sizes[image]
        places[image] = end = end + -end % max(header.sh_addralign, 1)
        new = header._replace(sh_name=header.sh_name + found.start(2), sh_offset=end, sh_size=size)
        if found[2] == _OFFLOADING:
            new = new._replace(sh_type=SHT_LLVM_OFFLOADING)
        end += size
        if end >> (8 * shape.address_size):
            raise UnsupportedError(f"images of {end} bytes are too large for a 32-bit object")
        shape.section.pack_into(patched, tables.header.e_shoff + index * shape.section.size, *new)
    for index, header in enumerate(tables.sections):
        if header.sh_type != SHT_SYMTAB:
            continue
        for number, symbol in enumerate(tables.symbols(index)):
            if symbol.st_shndx in images and symbol.type == STT_OBJECT:
                at = header.sh_offset + number * shape.symbol.size
                symbol = symbol._replace(st_size=sizes[images[symbol.st_shndx]])
                patched[at : at + shape.symbol.size] = shape.pack_symbol(symbol)
    return places, end


def _patch_coff(
    data: memoryview, patched: bytearray, sizes: Sequence[int]
) -> tuple[dict[int, int], int]:
    """Do the same for COFF, where it is the section's own symbol that has a size."""
    if len(data) < _COFF_HEADER.size:
        raise FormatError("expected an ELF or COFF object")
    _, count, _, symbols_at, symbols, optional, _ = _COFF_HEADER.unpack_from(data)
    strings_at = symbols_at + symbols * _COFF_SYMBOL.size
    if max(_COFF_HEADER.size + optional + count * _COFF_SECTION.size, strings_at) > len(data):
        raise FormatError("expected an ELF or COFF object")
    strings = bytes(data[strings_at:])
    places: dict[int, int] = {}
    sections: dict[int, tuple[int, int]] = {}
    end = len(data)
    for index in range(count):
        at = _COFF_HEADER.size + optional + index * _COFF_SECTION.size
        fields = list(_COFF_SECTION.unpack_from(data, at))
        name = fields[0].rstrip(b"\0")
        if not (name.startswith(b"/") and name[1:].isdigit()):
            continue
        offset = int(name[1:])
        if not (found := _MARKED.fullmatch(strings[offset : strings.find(b"\0", offset)])):
            continue
        image = int(found[1])
        size, new_name = sizes[image], offset + found.start(2)
        sections[index + 1] = size, new_name
        alignment = 1 << max((fields[9] >> _COFF_ALIGN_SHIFT & 15) - 1, 0)
        places[image] = end = end + -end % alignment
        fields[0] = b"/%d" % new_name
        fields[3], fields[4] = size, end if size else 0
        end += size
        if end > _COFF_MAX:
            raise UnsupportedError(f"images of {end} bytes are too large for a COFF object")
        _COFF_SECTION.pack_into(patched, at, *fields)
    _patch_coff_symbols(patched, symbols_at, symbols, sections)
    return places, end


def _patch_coff_symbols(
    patched: bytearray, symbols_at: int, symbols: int, sections: dict[int, tuple[int, int]]
) -> None:
    """Set size and name of the symbols of `sections`: number to (size, offset of the new name)."""
    number = 0
    while number < symbols:
        at = symbols_at + number * _COFF_SYMBOL.size
        _, _, section, _, storage, auxiliaries = _COFF_SYMBOL.unpack_from(patched, at)
        number += 1 + auxiliaries
        if section in sections and storage == _COFF_STATIC and auxiliaries == 1:
            size, name = sections[section]
            struct.pack_into("<II", patched, at, 0, name)
            fields = list(_COFF_SECTION_AUX.unpack_from(patched, at + _COFF_SYMBOL.size))
            fields[0] = size
            fields[3] = 0  # the checksum, which only merged sections need
            _COFF_SECTION_AUX.pack_into(patched, at + _COFF_SYMBOL.size, *fields)
