"""The wrappers of a host program whose device code is apart, each with its marker.

In a linked ELF file a wrapper's pointer is an address: in place, or in the relocation that puts
it there when the file is loaded. In an object it is a symbol, which may be of another object.
COFF files are not looked into. See `fatbin_section` for wrappers and `marker` for markers.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

from offload_tool.errors import FormatError
from offload_tool.formats.hip.fatbin_section import (
    KPACKED,
    MARKER_PLACE,
    WRAPPER_SECTION,
    HipWrapper,
    wrappers_of,
)
from offload_tool.formats.kpack.archive import kernel_key
from offload_tool.formats.kpack.marker import SECTION, KpackMarker, read_marker
from offload_tool.formats.msgpack_stream import MAPS
from offload_tool.formats.objects.elf.reader import (
    ELF64_LITTLE,
    ET_REL,
    PT_LOAD,
    SHN_LORESERVE,
    SHT_RELA,
    SHT_SYMTAB,
    ElfTables,
)
from offload_tool.formats.objects.elf.relocations import LinkedPointers
from offload_tool.io.limits import budget

_RELA = struct.Struct("<QQq")
_SECTION = WRAPPER_SECTION.encode()
_MARKER_SECTIONS = {name.encode() for name in (SECTION, MARKER_PLACE.section)}


class MarkedWrapper(NamedTuple):
    """A wrapper, and what its marker says."""

    position: int
    """Which wrapper of the file, from 0."""
    key: str
    """Under which its code objects are in an archive."""
    marker: KpackMarker


def is_marked(tables: ElfTables, number: int) -> bool:
    """Return whether a section has wrappers, and one of them may be one with a marker."""
    row = tables.sections[number]
    if tables.names[number] != _SECTION or not row.has_content:
        return False
    wrappers = bytes(tables.data[row.sh_offset : row.sh_offset + row.sh_size])
    return KPACKED in wrappers or not _MARKER_SECTIONS.isdisjoint(tables.names)


def marked_wrappers(tables: ElfTables) -> Iterator[MarkedWrapper]:
    """Yield the wrappers of a 64-bit little-endian ELF file that have markers, in file order.

    Those of an object whose marker is in another object are left out.

    :raises FormatError: a wrapper or a marker is broken, or cannot be followed.
    :raises UnsupportedError: see `LinkedPointers`.
    """
    if tables.elf_class is not ELF64_LITTLE:
        return
    found = list(wrappers_of(tables))
    if tables.header.e_type == ET_REL:
        places = [_place_in_object(tables, *row) for row in found]
    else:
        places = _places_in_linked(tables, found)
    markers: dict[int, KpackMarker] = {}
    limits = budget(len(tables.data))
    for position, ((_, wrapper), at) in enumerate(zip(found, places, strict=True)):
        if at is not None and (wrapper.magic == KPACKED or _is_wrapped(tables, at)):
            if at not in markers:
                markers[at], size = read_marker(tables.data, path=tables.path, offset=at)
                limits.look(size, tables.path)
            marker = markers[at]
            key = kernel_key(marker.kernel_name, wrapper.number)
            yield MarkedWrapper(position, key, marker)


def _is_wrapped(tables: ElfTables, at: int) -> bool:
    """Return whether what a wrapper has in the place of a bundle is a map: a marker.

    Its magic is changed when the program starts, see ``passes/runtime/kpack_wrap.c``.
    """
    return at < len(tables.data) and tables.data[at] in MAPS


def _places_in_linked(tables: ElfTables, found: list[tuple[int, HipWrapper]]) -> list[int | None]:
    """Return where in the file the markers of a linked file's wrappers are."""
    pointers = LinkedPointers(tables)
    addresses = []
    for number, wrapper in found:
        row = tables.sections[number]
        addresses.append(row.sh_addr + wrapper.pointer_offset - row.sh_offset)
    pointers.look_up(set(addresses))
    return [_in_file(tables, pointers.target(address)) for address in addresses]


def _place_in_object(tables: ElfTables, number: int, wrapper: HipWrapper) -> int | None:
    """Return where in an object the marker of a wrapper is; None: in another object."""
    place = wrapper.pointer_offset - tables.sections[number].sh_offset
    for index, other in enumerate(tables.sections):
        if other.sh_type != SHT_RELA or other.sh_info != number:
            continue
        content = tables.content(index)
        for found in re.finditer(re.escape(struct.pack("<Q", place)), content):
            if found.start() % _RELA.size == 0 and found.start() + _RELA.size <= len(content):
                _, info, addend = _RELA.unpack_from(content, found.start())
                return _at_symbol(tables, index, info >> 32, addend)
    return None


def _at_symbol(tables: ElfTables, index: int, symbol: int, addend: int) -> int | None:
    """Return where in an object a relocation of section `index` points to."""
    table = tables.linked(index)
    if tables.sections[table].sh_type != SHT_SYMTAB:
        raise tables.error(index, "sh_link", "expected a table of symbols")
    symbols = tables.symbols(table)
    if symbol >= len(symbols):
        raise tables.error(index, "r_info", f"expected a symbol below {len(symbols)}")
    home, offset = symbols[symbol].st_shndx, symbols[symbol].st_value + addend
    if not home or home >= SHN_LORESERVE:
        return None
    if home >= len(tables.sections) or not 0 <= offset < tables.sections[home].sh_size:
        raise tables.error(index, "r_info", "expected a symbol within its section")
    return tables.sections[home].sh_offset + offset


def _in_file(tables: ElfTables, address: int) -> int:
    for segment in tables.segments:
        start = address - segment.p_vaddr
        if segment.p_type == PT_LOAD and 0 <= start < segment.p_filesz:
            return segment.p_offset + start
    message = (
        f"expected the address of a kpack marker, found {address:#x}, which is not in the file"
    )
    raise FormatError(message, path=tables.path, field=WRAPPER_SECTION)
