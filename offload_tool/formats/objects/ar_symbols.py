"""The symbols for an archive's index: what a linker may take a member out of it for.

======================  =================================================================
content                 symbols
======================  =================================================================
ELF, of any type        of the static symbol table, in its order: bound global, weak or
                        unique, and not undefined; not those of sections and files
LLVM bitcode            `offload_tool.formats.bitcode.symbol_table`
COFF object, PE image   external ones and weak aliases, in the order of the symbol table;
                        not undefined ones
anything else           none: no object
======================  =================================================================

Source: the gABI, "Symbol Table"; the PE Format document, "COFF Symbol Table"; what
llvm-ar 22.1.8 puts in the index, observed. LLVM also knows Mach-O, WebAssembly and XCOFF.
Readers of what is not there are not imported, so that a run that needs none starts sooner.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

from offload_tool.errors import ContentError, FormatError
from offload_tool.formats.magic import BITCODES, DOS, ELF
from offload_tool.formats.objects.coff import MACHINES, PE_OFFSET_AT, is_bigobj, is_coff
from offload_tool.formats.objects.elf.reader import (
    SHT_STRTAB,
    SHT_SYMTAB,
    STT_FILE,
    STT_SECTION,
    ElfTables,
    read_elf_sections,
)

if TYPE_CHECKING:
    from offload_tool.io import StrPath

OBJECTS_BEGIN = frozenset(
    {magic[0] for magic in (ELF, *BITCODES, DOS)} | {machine & 0xFF for machine in MACHINES}
)
"""The first bytes of all objects: what has another one has no symbols."""

_ELF_MIN_SIZE = 18
"""LLVM takes less for no object."""
_NAMES_BUDGET = 16
"""Times the size of the file; names can overlap, so a small broken file could ask for any."""

_COFF = struct.Struct("<8xII")
_BIGOBJ = struct.Struct("<44x4xII")
_COFF_SYMBOL = struct.Struct("<8sIhHBB")
_BIGOBJ_SYMBOL = struct.Struct("<8sIiHBB")
_COFF_EXTERNAL, _COFF_WEAK = 2, 105
_COFF_ABSOLUTE = -1
_COFF_ALIAS = 3


def member_symbols(
    data: memoryview,
    *,
    path: StrPath | None = None,
    offset: int = 0,
    warn: Callable[[str], object] | None = None,
) -> bytes | None:
    """Return the names of the symbols that `data` defines for others, each ended by NUL.

    None means that it is not an object. `path` and `offset`, where `data` begins in that file,
    are for messages. Bitcode and COFF that cannot be read are not objects, as for LLVM in
    the case of bitcode; the reason is given to `warn`.

    :raises FormatError: it is an ELF file, but its symbol table is broken.
    """
    magic = bytes(data[:4])
    if magic == ELF and len(data) >= _ELF_MIN_SIZE:
        try:
            return _elf_symbols(read_elf_sections(data))
        except FormatError as error:
            place = offset + (error.offset or 0)
            raise FormatError(error.message, path=path, offset=place, field=error.field) from error
    try:
        if magic in BITCODES:
            from offload_tool.formats.bitcode.symbol_table import bitcode_symbols

            return bitcode_symbols(data)
        if is_coff(data):
            return _coff_symbols(data)
    except ContentError as error:
        if warn is not None:
            warn(error.message)
    return None


def _elf_symbols(tables: ElfTables) -> bytes:
    for index, section in enumerate(tables.sections):
        if section.sh_type == SHT_SYMTAB:
            return _elf_names(tables, index)
    return b""


def _elf_names(tables: ElfTables, index: int) -> bytes:
    """Read the symbol table, which is section `index`."""
    symbols = tables.symbols(index)
    names = tables.linked(index)
    strings = bytes(tables.content(names))
    if tables.sections[names].sh_type != SHT_STRTAB or not strings.endswith(b"\0"):
        message = f"expected strings in section {names}, the last one ended by NUL"
        raise tables.error(index, "sh_link", message)
    limit = _NAMES_BUDGET * len(tables.data)
    out = bytearray()
    for symbol in symbols[1:]:  # symbol 0 is none
        is_inner = symbol.is_local or symbol.type in (STT_SECTION, STT_FILE)
        if is_inner or not symbol.st_shndx:
            continue
        name = symbol.st_name
        if name >= len(strings) or len(out) > limit:
            message = f"expected less than {len(strings)} (the strings' size), found {name}"
            raise tables.error(index, "st_name in the content", message)
        out += strings[name : strings.index(b"\0", name) + 1]
    return bytes(out)


def _coff_symbols(data: memoryview) -> bytes:
    at, header, layout = 0, _COFF, _COFF_SYMBOL
    if is_bigobj(data):
        header, layout = _BIGOBJ, _BIGOBJ_SYMBOL
    elif data[: len(DOS)] == DOS:
        at = int.from_bytes(data[PE_OFFSET_AT : PE_OFFSET_AT + 4], "little") + 4
    if at + header.size > len(data):
        raise FormatError("COFF header is cut short", offset=at)
    start, count = header.unpack_from(data, at)
    if not start or not count:
        return b""
    end = start + layout.size * count
    if end > len(data):
        raise FormatError("COFF symbol table is cut short", offset=start)
    return _coff_names(data, layout, start, end)


def _coff_names(data: memoryview, layout: struct.Struct, start: int, end: int) -> bytes:
    """Read the symbol table from offset `start` to `end`; the strings are behind it."""
    stride = layout.size
    strings = bytes(data[end : end + int.from_bytes(data[end : end + 4], "little")])
    limit = _NAMES_BUDGET * len(data)
    out = bytearray()
    position = start
    while position < end:
        name, value, section, _, storage_class, aux = layout.unpack_from(data, position)
        weak = storage_class == _COFF_WEAK and aux
        if weak:
            tail = data[position + stride + 4 : position + stride + 8]
            defined = int.from_bytes(tail, "little") == _COFF_ALIAS
        else:
            defined = storage_class == _COFF_EXTERNAL and (section or value) != 0
            defined = defined and not (section == _COFF_ABSOLUTE and aux)
        if len(out) > limit:
            raise FormatError("COFF symbols' names, taken together, are far longer than the file")
        if defined:
            out += _coff_name(name, strings) + b"\0"
        position += stride * (1 + aux)
    return bytes(out)


def _coff_name(name: bytes, strings: bytes) -> bytes:
    if name[:4] != bytes(4):
        return name.partition(b"\0")[0]
    start = int.from_bytes(name[4:], "little")
    end = strings.find(b"\0", start)
    if end < 0:
        raise FormatError(f"COFF symbol's name is at {start}, behind the {len(strings)} of strings")
    return strings[start:end]
