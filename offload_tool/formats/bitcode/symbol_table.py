"""The symbols of an LLVM bitcode module, from the symbol table that it carries.

::

    'B' 'C' 0xC0 0xDE              or behind the wrapper 0x0B17C0DE (20 bytes or more; bitcode's
                                   offset and size are the integers of 4 bytes at 8 and 12)
    blocks                         IDENTIFICATION (13), MODULE (8), SYMTAB (25), STRTAB (23)

    content of SYMTAB and STRTAB: an abbreviation of a literal 1 and a blob, one record of it

    offset  size  field of the symbol table (SYMTAB's blob)
    ------  ----  ---------------------------------------------------------------------
    0       4     version: 3, since LLVM 23 4 (what differs is behind the symbols)
    12      8     modules: offset in the blob, number
    28      8     symbols: offset in the blob, number
    44      8     the target's triple: offset in STRTAB's blob, size

    a symbol: name (offset in STRTAB's blob, size), name in the module (the same), comdat,
    flags; 4 bytes each

Integers are little-endian. Every LLVM since 13 writes such a table, linkers read it, and it
has what the module alone does not tell: mangled names and the symbols of module-level
assembler code. llvm-as and llvm-link leave it out where there is such code: that bitcode is
refused by name.

Source: the symbol table as clang 23.1.4, 22.1.8 and 19.1.7 write it, observed, and compared with
the symbols that llvm-ar 22.1.8 finds.
"""

from __future__ import annotations

import struct
from contextlib import suppress

from offload_tool.errors import FormatError, UnsupportedError
from offload_tool.formats.bitcode.bitstream import Bits, Block, Reader, Record, top_blocks
from offload_tool.formats.magic import BITCODE as MAGIC
from offload_tool.formats.magic import BITCODE_WRAPPER, BITCODES

_WRAPPER = struct.Struct("<8xII")
_MODULE, _STRTAB, _SYMTAB = 8, 23, 25
_VERSIONS = (3, 4)
_TABLE = struct.Struct("<I8x4xI8xII")
_TRIPLE = struct.Struct("<44xII")
_SYMBOL = struct.Struct("<II12xI")
_UNDEFINED, _GLOBAL, _FORMAT_SPECIFIC = 1 << 3, 1 << 10, 1 << 11
_NAMES_BUDGET = 16
"""Times the size of the module; names can overlap, so a small broken one could ask for any."""


def is_bitcode(data: memoryview) -> bool:
    """Return whether `data` begins with bitcode's magic or that of its wrapper."""
    return data[:4] in BITCODES


def bitcode_symbols(data: memoryview) -> bytes:
    """Return the names of the symbols that a module defines for others, each ended by NUL.

    The order is LLVM's: functions, variables, aliases, ifuncs, those of assembler code.

    :raises FormatError: the module is broken.
    :raises UnsupportedError: it has no symbol table.
    """
    return _symbols(data, 0)


def bitcode_undefined(data: memoryview) -> bytes:
    """Return the names of the symbols that a module wants of others, as `bitcode_symbols` does.

    :raises ContentError: as `bitcode_symbols`.
    """
    return _symbols(data, _UNDEFINED)


def _symbols(data: memoryview, undefined: int) -> bytes:
    module = unwrap_bitcode(data)
    tables = _find_tables(module)
    if tables is None:
        raise UnsupportedError(
            "bitcode without a symbol table; write it with clang or opt, not llvm-as or llvm-link"
        )
    return _read_symbols(*tables, _NAMES_BUDGET * len(module), undefined | _GLOBAL)


def bitcode_triple(data: memoryview) -> str:
    """Return the triple of the target that a module is for; empty if it has no symbol table.

    :raises FormatError: the module is broken.
    """
    tables = _find_tables(unwrap_bitcode(data))
    if tables is None or len(tables[0]) < _TRIPLE.size:
        return ""
    offset, size = _TRIPLE.unpack_from(tables[0])
    if offset + size > len(tables[1]):
        raise FormatError("bitcode's symbol table has a triple that is not in its strings")
    return bytes(tables[1][offset : offset + size]).decode("utf-8", "replace")


def unwrap_bitcode(data: memoryview) -> memoryview:
    """Return the module in `data` without the wrapper that Apple's targets have before it.

    :raises FormatError: the wrapper is broken.
    """
    if data[:4] != BITCODE_WRAPPER:
        return data
    if len(data) < _WRAPPER.size:
        raise FormatError("bitcode wrapper is cut short")
    offset, size = _WRAPPER.unpack_from(data)
    if offset + size > len(data) or data[offset : offset + 4] != MAGIC:
        raise FormatError(f"bitcode wrapper points to {size} bytes at {offset}: no bitcode")
    return data[offset : offset + size]


def _find_tables(data: memoryview) -> tuple[memoryview, memoryview] | None:
    """Return the symbol table and its strings, if they are there and tell of all modules."""
    modules = 0
    table = strings = None
    bits = Bits(data, 8 * len(MAGIC), 8 * len(data))
    try:
        for block in top_blocks(bits):
            if block.number == _MODULE:
                modules += 1
            elif block.number == _SYMTAB and table is None:
                table = _read_blob(data, block)
            elif block.number == _STRTAB and strings is None:
                strings = _read_blob(data, block)
        is_padding = bits.end - bits.position < 64 or not bits.peek(32)
    except FormatError:
        is_padding = False
    if not is_padding:
        raise FormatError("bitcode is broken or cut short", offset=bits.position // 8)
    if not modules:
        raise FormatError("bitcode without a module")
    if table is None or strings is None or len(table) < _TABLE.size:
        return None
    version, in_table, _, _ = _TABLE.unpack_from(table)
    if version not in _VERSIONS or in_table != modules:
        return None
    return table, strings


def _read_blob(data: memoryview, block: Block) -> memoryview | None:
    """Return the blob of a block that has one record, which is a blob."""
    with suppress(FormatError):
        for item in Reader(data).items(block):
            if isinstance(item, Record):
                return None if item.blob is None else memoryview(item.blob)
    return None


def _read_symbols(table: memoryview, strings: memoryview, budget: int, wanted: int) -> bytes:
    _, _, start, count = _TABLE.unpack_from(table)
    end = start + _SYMBOL.size * count
    if end > len(table):
        raise FormatError("bitcode's symbol table is cut short")
    names = bytes(strings)
    out = bytearray()
    for offset, size, flags in _SYMBOL.iter_unpack(table[start:end]):
        if flags & (_UNDEFINED | _GLOBAL | _FORMAT_SPECIFIC) != wanted:
            continue
        name = names[offset : offset + size]
        if len(name) != size or b"\0" in name or len(out) > budget:
            raise FormatError("bitcode's symbol table has a name that is not in its strings")
        out += name + b"\0"
    return bytes(out)
