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
from typing import NamedTuple

from offload_tool.errors import FormatError
from offload_tool.formats.magic import DOS
from offload_tool.io import StrPath

_HEADER = struct.Struct("<2xH4xIIH2x")
"""Number of sections, position and number of symbols, size of the optional header."""
_SECTION = struct.Struct("<8s8xII16x")  # name, size and position of the raw data
_SYMBOL = struct.Struct("<8sIHHBB")
_PE_OFFSET_AT = 60
_PE = b"PE\0\0"
_BIGOBJ = b"\0\0\xff\xff"
_BIGOBJ_CLASS = bytes.fromhex("c7a1bad1eebaa94baf20faf66aa4dcb8")
_BIGOBJ_HEADER = struct.Struct("<44xIII")
_BIGOBJ_SYMBOL = struct.Struct("<8sIIHBB")
_RESOURCE = b"\0\0\0\0\x20\0\0\0\xff"
MACHINES = frozenset(
    {0x0, 0x8664, 0xAA64, 0xA641, 0xA64E, 0x0150, 0x0250, 0x0268, 0x0290}
    | {version << 8 | low for version in (1, 2) for low in (0x4C, 0x66, 0x83, 0x84, 0xC4, 0xF0)}
)
"""Machines that LLVM recognises as COFF by the first two bytes, little-endian."""
_SHARED = 4  # as in `offload_tool.formats.objects.elf.reader`
_BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_CLASS_EXTERNAL, _CLASS_WEAK = 2, 105
_WEAK_ALIAS = 3


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
    if len(data) < _HEADER.size or data[:4] == _BIGOBJ or data[:9] == _RESOURCE:
        return False
    sections, _, _, optional_size = _HEADER.unpack_from(data)
    return bool(_HEADER.size + optional_size + sections * _SECTION.size <= len(data))


def _is_bigobj(data: memoryview) -> bool:
    """Return whether this is a ``/bigobj`` object, which has another header."""
    return data[:4] == _BIGOBJ and data[12:28] == _BIGOBJ_CLASS


class CoffSection(NamedTuple):
    """A section: its name, and the position of its content in the file (offset, size in bytes)."""

    name: bytes
    offset: int
    size: int


def read_coff_sections(data: memoryview, *, path: StrPath | None = None) -> list[CoffSection]:
    """Read the section table of a COFF or PE file; raise FormatError if it is broken."""
    return _Coff(data, path).sections()


def coff_symbols(data: memoryview) -> bytes:
    """Return the external symbols and weak aliases, each ended by NUL; raise FormatError."""
    coff = _Coff(data, None)
    absolute = 0xFFFF if coff.symbol is _SYMBOL else 0xFFFFFFFF
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
            name = coff.symbol_name(raw, coff.symbols_at + position)
            out += name.partition(b"\0")[0] + b"\0"
        position += stride * (1 + auxiliaries)
    return bytes(out)


class _Coff:
    """The tables of a COFF file; every range in them lies within the file."""

    def __init__(self, data: memoryview, path: StrPath | None) -> None:
        self.data = data
        self.path = path
        # Strings can overlap: without a limit, a small broken file could need any amount of memory.
        self.budget = 16 * len(data)
        if _is_bigobj(data):
            self.symbol = _BIGOBJ_SYMBOL
            header = self.take(0, _BIGOBJ_HEADER.size, "file header")
            self.count, self.symbols_at, symbols = _BIGOBJ_HEADER.unpack(header)
            self.sections_at = _BIGOBJ_HEADER.size
        else:
            self.symbol, start = _SYMBOL, 0
            if data[: len(DOS)] == DOS:
                at = int.from_bytes(self.take(_PE_OFFSET_AT, 4, "e_lfanew"), "little")
                start = at + len(_PE)
            header = self.take(start, _HEADER.size, "file header")
            self.count, self.symbols_at, symbols, optional_size = _HEADER.unpack(header)
            self.sections_at = start + _HEADER.size + optional_size
        self.symbols, self.strings = data[:0], b""
        if self.symbols_at:
            size = symbols * self.symbol.size
            self.symbols = self.take(self.symbols_at, size, "symbol table")
            self.strings = self._read_strings(self.symbols_at + size)

    def _read_strings(self, at: int) -> bytes:
        is_outside = not self.symbols and at > len(self.data)
        if at == len(self.data) or is_outside:
            return b""
        size = int.from_bytes(self.take(at, 4, "size of the string table"), "little")
        return bytes(self.take(at, max(size, 4), "string table"))

    def sections(self) -> list[CoffSection]:
        raw = self.take(self.sections_at, self.count * _SECTION.size, "section headers")
        rows = list(_SECTION.iter_unpack(raw))
        for index, (_, size, at) in enumerate(rows, 1):
            if at:
                self.take(at, size, f"PointerToRawData of section header {index}")
        if sum(size for _, size, at in rows if at) > _SHARED * len(self.data):
            message = "the sections, taken together, are far longer than the file"
            raise self.error(self.sections_at, "section headers", message)
        return [
            CoffSection(self._section_name(index, name), at, size if at else 0)
            for index, (name, size, at) in enumerate(rows)
        ]

    def _section_name(self, index: int, raw: bytes) -> bytes:
        user = self.sections_at + index * _SECTION.size
        name = raw.rstrip(b"\0")
        if not name.startswith(b"/"):
            return name
        digits = name[1:]
        if digits.isdigit():
            return self.string(int(digits), user)
        if digits[:1] == b"/" and all(digit in _BASE64 for digit in digits[1:]):
            offset = 0
            for digit in digits[1:]:
                offset = offset * 64 + _BASE64.index(digit)
            return self.string(offset, user)
        message = f"expected '/' and an offset in the string table, found {name!r}"
        raise self.error(user, "Name", message)

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
