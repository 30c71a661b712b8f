"""COFF objects and PE images: recognise them as LLVM does, and read them.

::

    file header (20 bytes)     NumberOfSections, PointerToSymbolTable
    section headers (40 each)  name: 8 bytes, or ``/`` and its offset in the string table
    for each section           raw data, then relocations (10 bytes each); no padding
    symbol table (18 each)     names likewise; section numbers count from 1
    string table               its size (4), then strings

Integers are little-endian. ``/bigobj`` objects have another header and larger symbols.

Source: the PE Format document, "COFF File Header" and following; LLVM's identify_magic (Magic.cpp).
"""

from __future__ import annotations

import struct
from functools import cached_property
from typing import NamedTuple

from offload_tool.errors import FormatError
from offload_tool.formats.magic import DOS
from offload_tool.io import StrPath

HEADER = struct.Struct("<HHIIIHH")
SECTION = struct.Struct("<8sIIIIIIHHI")
_PE_OFFSET_AT = 60
_PE = b"PE\0\0"
_BIGOBJ = b"\0\0\xff\xff"
_BIGOBJ_CLASS = bytes.fromhex("c7a1bad1eebaa94baf20faf66aa4dcb8")
_RESOURCE = b"\0\0\0\0\x20\0\0\0\xff"
MACHINES = frozenset(
    {0x0, 0x8664, 0xAA64, 0xA641, 0xA64E, 0x0150, 0x0250, 0x0268, 0x0290}
    | {version << 8 | low for version in (1, 2) for low in (0x4C, 0x66, 0x83, 0x84, 0xC4, 0xF0)}
)
"""Machines that LLVM recognises as COFF by the first two bytes, little-endian."""
SYMBOL = struct.Struct("<8sIHHBB")
_SHARED = 4
"""As in `offload_tool.formats.objects.elf.reader`."""
_BIGOBJ_HEADER = struct.Struct("<6xHI32xIII")
_BIGOBJ_SYMBOL = struct.Struct("<8sIIHBB")
_BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_CLASS_EXTERNAL, _CLASS_WEAK = 2, 105
_WEAK_ALIAS = 3


class CoffHeader(NamedTuple):
    """The file header."""

    machine: int
    sections: int
    timestamp: int
    symbols_at: int
    symbols: int
    optional_size: int
    characteristics: int


def is_coff(data: memoryview) -> bool:
    """Return whether LLVM recognises `data` as a COFF object or PE image."""
    first = bytes(data[:2])
    if first == DOS:
        at = int.from_bytes(data[_PE_OFFSET_AT : _PE_OFFSET_AT + 4], "little")
        return bytes(data[at : at + len(_PE)]) == _PE
    if int.from_bytes(first, "little") not in MACHINES:  # true for most files, so it comes first
        return False
    if _is_bigobj(data):
        return True
    if len(data) < HEADER.size or data[:4] == _BIGOBJ or data[:9] == _RESOURCE:
        return False
    header = CoffHeader._make(HEADER.unpack(data[: HEADER.size]))
    end = HEADER.size + header.optional_size + header.sections * SECTION.size
    return end <= len(data)


def _is_bigobj(data: memoryview) -> bool:
    """Return whether this is a ``/bigobj`` object, which has another header."""
    return data[:4] == _BIGOBJ and data[12:28] == _BIGOBJ_CLASS


class CoffSectionHeader(NamedTuple):
    """A section header."""

    name: bytes
    virtual_size: int
    virtual_address: int
    raw_size: int
    raw_at: int
    relocations_at: int
    lines_at: int
    relocations: int
    lines: int
    characteristics: int


class CoffSection(NamedTuple):
    """A section: its name, and the position of its content in the file (offset, size in bytes)."""

    name: bytes
    offset: int
    size: int


def read_coff_sections(data: memoryview, *, path: StrPath | None = None) -> tuple[CoffSection, ...]:
    """Read the section table of a COFF or PE file; raise FormatError if it is broken."""
    coff = Coff(data, path)
    return tuple(
        CoffSection(name, row.raw_at, row.raw_size if row.raw_at else 0)
        for name, row in zip(coff.names, coff.sections, strict=True)
    )


def coff_symbols(data: memoryview) -> bytes:
    """Return the external symbols and weak aliases that `data` defines, each ended by NUL.

    :raises FormatError: the file is truncated, or a name is outside it.
    """
    coff = Coff(data, None)
    absolute = 0xFFFF if coff.symbol is SYMBOL else 0xFFFFFFFF
    stride, symbols = coff.symbol.size, coff.symbols
    out = bytearray()
    position = 0
    while position < len(symbols):
        raw, value, section, _, storage, auxiliaries = coff.symbol.unpack_from(symbols, position)
        if storage == _CLASS_WEAK and auxiliaries:
            alias = symbols[position + stride + 4 : position + stride + 8]
            defined = int.from_bytes(alias, "little") == _WEAK_ALIAS
        else:
            defined = storage == _CLASS_EXTERNAL and (section or value) != 0
            defined = defined and not (section == absolute and auxiliaries)
        if defined:
            name = coff.symbol_name(raw, coff.header.symbols_at + position)
            out += name.partition(b"\0")[0] + b"\0"
        position += stride * (1 + auxiliaries)
    return bytes(out)


class Coff:
    """The tables of a COFF file; every range in them lies within the file."""

    def __init__(self, data: memoryview, path: StrPath | None) -> None:
        self.data = data
        self.path = path
        self.start = 0
        # Strings can overlap: without a limit, a small broken file could need any amount of memory.
        self.budget = 16 * len(data)
        self.symbol = SYMBOL
        if data[: len(DOS)] == DOS:
            at = int.from_bytes(self.take(_PE_OFFSET_AT, 4, "e_lfanew"), "little")
            self.start = at + len(_PE)
        self.header = self._read_header()
        self.symbols = self._read_symbols()
        self.strings = self._read_strings()

    def section_at(self, index: int) -> int:
        """Return the offset of section header `index`, which counts from 0."""
        return self.header_end + self.header.optional_size + index * SECTION.size

    def _read_header(self) -> CoffHeader:
        if not _is_bigobj(self.data):
            self.header_end = self.start + HEADER.size
            raw = self.take(self.start, HEADER.size, "file header")
            return CoffHeader._make(HEADER.unpack(raw))
        self.symbol = _BIGOBJ_SYMBOL
        self.header_end = _BIGOBJ_HEADER.size
        raw = self.take(0, _BIGOBJ_HEADER.size, "file header")
        machine, timestamp, sections, symbols_at, symbols = _BIGOBJ_HEADER.unpack(raw)
        return CoffHeader(machine, sections, timestamp, symbols_at, symbols, 0, 0)

    def _read_symbols(self) -> memoryview:
        if not self.header.symbols_at:
            return self.data[:0]
        size = self.header.symbols * self.symbol.size
        return self.take(self.header.symbols_at, size, "symbol table")

    def _read_strings(self) -> bytes:
        at = self.header.symbols_at + len(self.symbols)
        is_outside = not self.header.symbols and at > len(self.data)
        if not self.header.symbols_at or at == len(self.data) or is_outside:
            return b""
        size = int.from_bytes(self.take(at, 4, "size of the string table"), "little")
        return bytes(self.take(at, max(size, 4), "string table"))

    @cached_property
    def names(self) -> list[bytes]:
        """Names of the sections."""
        return [self._section_name(index, row.name) for index, row in enumerate(self.sections)]

    @cached_property
    def sections(self) -> list[CoffSectionHeader]:
        """The section headers."""
        size = self.header.sections * SECTION.size
        raw = self.take(self.section_at(0), size, "section headers")
        rows = [CoffSectionHeader._make(fields) for fields in SECTION.iter_unpack(raw)]
        for index, row in enumerate(rows, 1):
            if row.raw_at:
                self.take(row.raw_at, row.raw_size, f"PointerToRawData of section header {index}")
        if sum(row.raw_size for row in rows if row.raw_at) > _SHARED * len(self.data):
            message = "the sections, taken together, are far longer than the file"
            raise self.error(self.section_at(0), "section headers", message)
        return rows

    def _section_name(self, index: int, raw: bytes) -> bytes:
        name = raw.rstrip(b"\0")
        if not name.startswith(b"/"):
            return name
        digits = name[1:]
        if digits.isdigit():
            return self.string(int(digits), self.section_at(index))
        if digits[:1] == b"/" and all(digit in _BASE64 for digit in digits[1:]):
            offset = 0
            for digit in digits[1:]:
                offset = offset * 64 + _BASE64.index(digit)
            return self.string(offset, self.section_at(index))
        message = f"expected '/' and an offset in the string table, found {name!r}"
        raise self.error(self.section_at(index), "Name", message)

    def string(self, offset: int, user: int) -> bytes:
        """Return the string at `offset` of the string table, for the record at `user`."""
        end = self.strings.find(b"\0", offset) if offset >= 4 else -1
        if end < 0:
            message = f"expected a NUL-terminated string at offset {offset} of the string table of "
            message += f"{len(self.strings)} bytes; the file may be cut short"
            raise self.error(user, "Name", message)
        self.budget -= end - offset
        if self.budget < 0:
            message = "the names, taken together, are far longer than the file"
            raise self.error(user, "Name", message)
        return self.strings[offset:end]

    def symbol_name(self, raw: bytes, user: int) -> bytes:
        """Return the name in the 8 bytes `raw` of the symbol at `user`, or at their offset."""
        if raw[:4] == bytes(4):
            return self.string(int.from_bytes(raw[4:], "little"), user) if any(raw) else b""
        return raw.rstrip(b"\0")

    def take(self, offset: int, size: int, field: str) -> memoryview:
        """Return bytes of the file; raise if it is too short."""
        if size and offset + size > len(self.data):
            message = f"expected {size} bytes at offset {offset}, but the file has "
            message += f"{len(self.data)}; it may be cut short"
            raise self.error(min(offset, len(self.data)), field, message)
        return self.data[offset : offset + size]

    def error(self, offset: int, field: str, message: str) -> FormatError:
        """Return the error that `field` at `offset` is wrong."""
        return FormatError(message, path=self.path, offset=offset, field=field)
