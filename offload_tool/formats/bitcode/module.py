"""The symbols of an LLVM bitcode module, and the objects embedded in it.

::

    'B' 'C' 0xC0 0xDE              or behind the wrapper 0x0B17C0DE (20 bytes or more; bitcode's
                                   offset and size are the integers of 4 bytes at 8 and 12)
    blocks                         IDENTIFICATION (13), MODULE (8), SYMTAB (25), STRTAB (23)

Symbols are in a table. SYMTAB and STRTAB each contain an abbreviation (a literal 1 and a blob) and
one record of it::

    offset  size  field of the symbol table (SYMTAB's blob)
    ------  ----  ---------------------------------------------------------------------
    0       4     version: 3, since LLVM 23 4 (the difference is behind the symbols)
    12      8     modules: offset in the blob, number
    28      8     symbols: offset in the blob, number
    44      8     the target's triple: offset in STRTAB's blob, size

    a symbol: name (offset in STRTAB's blob, size), name in the module (the same), comdat,
    flags; 4 bytes each

Integers are little-endian. LLVM has written this table since version 13, and linkers read it. It
has what the module lacks: mangled names, and the symbols of module-level assembler code. llvm-as
and llvm-link omit the table if there is such code; the reader rejects that bitcode.

Embedded objects. clang puts offload binaries into host bitcode as constants, which become a section
of the object file. Named metadata lists them::

    @llvm.embedded.object = private constant [272 x i8] c"...", section ".llvm.offloading"
    !llvm.embedded.objects = !{!7}
    !7 = !{ptr @llvm.embedded.object, !".llvm.offloading"}

In the bitstream (see `offload_tool.formats.bitcode.bitstream` for its items)::

    MODULE (8)
      VERSION (1)          2: global variables begin with their name, two operands
      GLOBALVAR (7)        type, constant?, initializer (value number + 1, 0: none), ...
      FUNCTION (8), alias (9, 14), IFUNC (15)
      CONSTANTS (11)       SETTYPE (1); STRING (8), an array of fixed numbers of 8 bits,
                           CSTRING (9), which has a NUL more; others
      METADATA (15)        STRINGS (35); VALUE (2): type, value number; NODE (3):
                           metadata numbers + 1; NAME (4), then NAMED_NODE (10): metadata
                           numbers
    other blocks           functions, types, ...: skipped by their size

Global variables, functions and aliases have consecutive value numbers, followed by the constants.
Strings and nodes have consecutive metadata numbers.

A string of 8-bit numbers can begin at any bit, so it is not a range of the file. It is yielded in
pieces, so memory does not grow with its size.

Source: the LLVM Bitcode File Format document; numbers as clang 22.1.8 and 15.0.6 write them,
observed with llvm-bcanalyzer. The symbol table is as clang 23.1.4, 22.1.8 and 19.1.7 write it,
observed, and compared with the symbols that llvm-ar 22.1.8 finds.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress

from offload_tool.errors import FormatError, UnsupportedError
from offload_tool.formats.bitcode import bitstream
from offload_tool.formats.magic import BITCODE as MAGIC
from offload_tool.formats.magic import BITCODE_WRAPPER, BITCODES
from offload_tool.io import StrPath
from offload_tool.util.frozen import frozen

_MODULE, _CONSTANTS, _METADATA, _STRTAB, _SYMTAB = 8, 11, 15, 23, 25
_WRAPPER = struct.Struct("<8xII")
_VERSIONS = (3, 4)
_TABLE = struct.Struct("<I8x4xI8xII")
_TRIPLE = struct.Struct("<44xII")
_SYMBOL = struct.Struct("<II12xI")
_UNDEFINED, _GLOBAL, _FORMAT_SPECIFIC = 1 << 3, 1 << 10, 1 << 11
_NAMES_BUDGET = 16
"""Names may have this many times the module's size; overlapping names could need any amount."""
_LIST = b"llvm.embedded.objects"

_WITH_STRTAB = 2
"""From this version on, names are in a block behind the module; LLVM requires the block."""
_VERSION, _GLOBALVAR = 1, 7
_VALUES = frozenset({_GLOBALVAR, 8, 9, 14, 15})
_SETTYPE, _STRING, _CSTRING = 1, 8, 9
_STRINGS, _VALUE, _NODE, _NAME, _NAMED_NODE = 35, 2, 3, 4, 10
_NOT_NUMBERED = frozenset({_NAME, 6, _NAMED_NODE, 36, 38, 39})
"""METADATA records that have no metadata number: names, kinds, attachments, indexes."""
_SEARCHED = 32 << 20


def is_bitcode(data: memoryview) -> bool:
    """Return whether `data` begins with bitcode's magic or that of its wrapper."""
    return data[:4] in BITCODES


def bitcode_symbols(data: memoryview, *, undefined: bool = False) -> bytes:
    """Return a module's defined or `undefined` external symbols, NUL-ended; raise ContentError."""
    wanted = _GLOBAL | (_UNDEFINED if undefined else 0)
    mask = _UNDEFINED | _GLOBAL | _FORMAT_SPECIFIC
    return b"".join(name + b"\0" for name, flags in _symbols(data) if flags & mask == wanted)


def bitcode_names(data: memoryview) -> set[bytes]:
    """Return the names of all symbols of a module, also local ones; raise ContentError."""
    return {name for name, _ in _symbols(data)}


def _symbols(data: memoryview) -> Iterator[tuple[bytes, int]]:
    """Yield the name and the flags of each symbol of a module's table."""
    module = unwrap_bitcode(data)
    tables = _find_tables(module)
    if tables is None:
        raise UnsupportedError(
            "bitcode without a symbol table; write it with clang or opt, not llvm-as or llvm-link"
        )
    table, strings = tables
    _, _, start, count = _TABLE.unpack_from(table)
    end = start + _SYMBOL.size * count
    if end > len(table):
        raise FormatError("bitcode's symbol table is cut short")
    names, budget = bytes(strings), _NAMES_BUDGET * len(module)
    for offset, size, flags in _SYMBOL.iter_unpack(table[start:end]):
        name = names[offset : offset + size]
        budget -= size
        if len(name) != size or b"\0" in name or budget < 0:
            raise FormatError("bitcode's symbol table has a name that is not in its strings")
        yield name, flags


def bitcode_triple(data: memoryview) -> str:
    """Return a module's triple, empty without a symbol table; raise FormatError if it is broken."""
    tables = _find_tables(unwrap_bitcode(data))
    if tables is None or len(tables[0]) < _TRIPLE.size:
        return ""
    offset, size = _TRIPLE.unpack_from(tables[0])
    if offset + size > len(tables[1]):
        raise FormatError("bitcode's symbol table has a triple that is not in its strings")
    return bytes(tables[1][offset : offset + size]).decode("utf-8", "replace")


def unwrap_bitcode(data: memoryview) -> memoryview:
    """Return the module in Apple's wrapper, if it has one; raise FormatError if that is broken."""
    if data[:4] != BITCODE_WRAPPER:
        return data
    if len(data) < _WRAPPER.size:
        raise FormatError("bitcode wrapper is cut short")
    offset, size = _WRAPPER.unpack_from(data)
    if offset + size > len(data) or data[offset : offset + 4] != MAGIC:
        raise FormatError(f"bitcode wrapper points to {size} bytes at {offset}: no bitcode")
    return data[offset : offset + size]


def _find_tables(data: memoryview) -> tuple[memoryview, memoryview] | None:
    """Return the symbol table and its strings if they exist and cover all modules."""
    modules = 0
    table = strings = None
    bits = bitstream.Bits(data, 8 * len(MAGIC), 8 * len(data))
    try:
        for block in bitstream.top_blocks(bits):
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


def _read_blob(data: memoryview, block: bitstream.Block) -> memoryview | None:
    """Return the blob of a block whose only record is a blob."""
    with suppress(FormatError):
        for item in bitstream.Reader(data).items(block):
            if isinstance(item, bitstream.Record):
                return None if item.blob is None else memoryview(item.blob)
    return None


@frozen
class EmbeddedObject:
    """An object embedded in a module, of `size` bytes."""

    data: memoryview
    bit: int
    """Its start in `data`, in bits."""
    size: int
    has_nul: bool
    """Whether the last byte is a NUL that is not stored."""

    def chunks(self) -> Iterator[bytes]:
        """Yield the content in pieces."""
        yield from bitstream.packed_bytes(self.data, self.bit, self.size - self.has_nul)
        if self.has_nul:
            yield b"\0"


def find_embedded_objects(
    data: memoryview,
    section: str,
    *,
    path: StrPath | None = None,
    forget: Callable[[], object] = lambda: None,
) -> list[EmbeddedObject]:
    """Return the objects embedded for a section; `forget` releases pages. Raise FormatError."""
    name = section.encode()
    try:
        data = unwrap_bitcode(data)
        modules = _modules(data)
        if not _contains(data, name, forget):  # embedded objects are rare
            return []
        found: list[EmbeddedObject] = []
        for module in modules:
            found += _ModuleScan(data, module, name).find()
    except FormatError as error:
        raise FormatError(f"broken bitcode: {error.message}", path=path) from error
    return found


def _modules(data: memoryview) -> list[bitstream.Block]:
    blocks = list(bitstream.top_blocks(bitstream.Bits(data, 8 * len(MAGIC), 8 * len(data))))
    modules = [block for block in blocks if block.number == _MODULE]
    if not modules:
        raise FormatError("expected a module, found none; the file may be cut short")
    last = max((b.header_at for b in blocks if b.number == _STRTAB), default=-1)
    for module in modules:
        if module.header_at > last and _version(data, module) >= _WITH_STRTAB:
            message = "expected the strings of a module behind it, found none"
            raise FormatError(f"{message}; the file may be cut short")
    return modules


def _version(data: memoryview, module: bitstream.Block) -> int:
    for item in bitstream.Reader(data).items(module):
        if isinstance(item, bitstream.Record) and item.code == _VERSION and item.operands:
            return item.operands[0]
    return 0


def _contains(data: memoryview, name: bytes, forget: Callable[[], object]) -> bool:
    """Return whether a module may have `name` in its metadata, where strings are unencoded."""
    pattern = re.compile(re.escape(name))
    for start in range(0, len(data), _SEARCHED):
        if pattern.search(data, start, start + _SEARCHED + len(name)):
            return True
        forget()
    return False


class _ModuleScan:
    """The parts of a module that describe its embedded objects."""

    def __init__(self, data: memoryview, block: bitstream.Block, section: bytes) -> None:
        self.data = data
        self.section = section
        self.initializers: dict[int, int] = {}
        """Initializer of each global variable: value number + 1, by value number."""
        self.contents: dict[int, EmbeddedObject] = {}
        """String constants by value number."""
        self.sections: set[int] = set()
        """Metadata numbers of the section's name."""
        self.variables: dict[int, int] = {}
        """Value numbers by metadata number; `nodes` likewise has the operands of nodes."""
        self.nodes: dict[int, tuple[int, int]] = {}
        self.listed: list[int] = []
        self._count = 0
        self._version = 0
        self._read(block)

    def find(self) -> Iterator[EmbeddedObject]:
        """Yield the objects for the section, in listed order."""
        for node in self.listed:
            variable, section = self.nodes.get(node, (0, 0))
            if section - 1 not in self.sections:
                continue
            value = self.variables.get(variable - 1, -1)
            found = self.contents.get(self.initializers.get(value, 0) - 1)
            if found is not None:
                yield found

    def _read(self, block: bitstream.Block) -> None:
        reader = bitstream.Reader(self.data)
        for item in reader.items(block):
            if isinstance(item, bitstream.Record):
                self._read_record(item)
            elif isinstance(item, bitstream.Block) and item.number == _CONSTANTS:
                self._read_constants(reader, item)
            elif isinstance(item, bitstream.Block) and item.number == _METADATA:
                self._read_metadata(reader, item)

    def _read_record(self, record: bitstream.Record) -> None:
        if record.code == _VERSION and record.operands:
            self._version = record.operands[0]
        elif record.code in _VALUES:
            at = 4 if self._version >= _WITH_STRTAB else 2
            if record.code == _GLOBALVAR and len(record.operands) > at:
                self.initializers[self._count] = record.operands[at]
            self._count += 1

    def _read_constants(self, reader: bitstream.Reader, block: bitstream.Block) -> None:
        for item in reader.items(block):
            if not isinstance(item, bitstream.Record) or item.code == _SETTYPE:
                continue
            if item.code in (_STRING, _CSTRING):
                self.contents[self._count] = self._content(item, has_nul=item.code == _CSTRING)
            self._count += 1

    def _content(self, record: bitstream.Record, *, has_nul: bool) -> EmbeddedObject:
        if record.operands:  # not 8-bit numbers
            raw = bytes(number & 0xFF for number in record.operands)
            return EmbeddedObject(memoryview(raw), 0, len(raw) + has_nul, has_nul)
        return EmbeddedObject(self.data, record.bit, record.count + has_nul, has_nul)

    def _read_metadata(self, reader: bitstream.Reader, block: bitstream.Block) -> None:
        number = 0
        name = b""
        for item in reader.items(block):
            if not isinstance(item, bitstream.Record):
                continue
            operands = item.operands
            if item.code == _NAME:
                name = b"".join(self._content(item, has_nul=False).chunks())
            elif item.code == _NAMED_NODE and name == _LIST:
                self.listed += operands
            elif item.code == _STRINGS and len(operands) == 2:
                self._read_strings(number, operands[0], memoryview(item.blob or b""), operands[1])
                number += operands[0]
            elif item.code == _VALUE and len(operands) == 2:
                self.variables[number] = operands[1]
            elif item.code == _NODE and len(operands) == 2:
                self.nodes[number] = operands[0], operands[1]
            if item.code not in _NOT_NUMBERED and item.code != _STRINGS:
                number += 1

    def _read_strings(self, number: int, count: int, blob: memoryview, offset: int) -> None:
        """Read strings: lengths (vbr6), and from `offset` on the characters."""
        if offset > len(blob):
            raise FormatError("the strings of metadata are cut short")
        lengths = bitstream.Bits(blob, 0, 8 * offset)
        for index in range(count):
            size = lengths.vbr(6)
            if offset + size > len(blob):
                raise FormatError("the strings of metadata are cut short")
            if blob[offset : offset + size] == self.section:
                self.sections.add(number + index)
            offset += size
