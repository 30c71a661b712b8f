"""The pointers in a linked ELF file's data: their values after loading.

::

    e_type ET_EXEC         the address is in the data (if no relocation applies)
    SHT_RELA               r_offset, r_info, r_addend; with R_*_RELATIVE the addend is the address,
                           with R_*_64 the symbol's value and the addend
    SHT_RELR               even word: the next address; odd word: a bitmap of the 63 after it;
                           the address is in the data

Only relocations that a loader applies are read, in 64-bit little-endian files. The loader ignores
the data at the address of a RELA relocation, but tools that do not read relocations use it.

Source: the System V gABI, chapter 4 and its RELR proposal, and the psABIs of the machines.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from offload_tool.errors import FormatError, UnsupportedError
from offload_tool.formats.objects.elf import reader as elf
from offload_tool.formats.objects.elf.reader import ElfTables

_SHT_RELR = 19
_PACKED = {
    elf.SHT_REL: "SHT_REL",
    elf.SHT_CREL: "SHT_CREL",
    0x60000001: "SHT_ANDROID_REL",
    0x60000002: "SHT_ANDROID_RELA",
    0x6FFFFF00: "SHT_ANDROID_RELR",
}
# e_machine -> the numbers of R_*_RELATIVE and R_*_64.
_TYPES = {62: (8, 1), 183: (1027, 257), 21: (22, 38), 243: (3, 2), 258: (3, 2)}
"""x86-64, AArch64, 64-bit PowerPC, RISC-V, LoongArch."""
_RELA, _WORD = struct.Struct("<QQq"), struct.Struct("<Q")
_MASK = (1 << 64) - 1


class _Relocation(NamedTuple):
    """An entry of a section, at an offset of the file, for the pointer at an address."""

    offset: int
    address: int
    info: int
    addend: int
    section: int


class LinkedPointers:
    """A program's pointers; raise UnsupportedError if its machine or relocations are unknown."""

    def __init__(self, tables: ElfTables) -> None:
        self.tables = tables
        machine = tables.header.e_machine
        if tables.elf_class != elf.ELF64_LITTLE or machine not in _TYPES:
            message = "expected a 64-bit little-endian program or library of x86-64, AArch64, "
            message += f"PowerPC, RISC-V or LoongArch, found e_machine {machine}"
            raise UnsupportedError(message, path=tables.path, offset=18, field="e_machine")
        if tables.header.e_type == elf.ET_REL:
            message = "expected a linked program or library, found an object"
            raise UnsupportedError(message, path=tables.path, offset=16, field="e_type")
        self._relative, self._absolute = _TYPES[machine]
        for number in self._loaded(*_PACKED):
            name = _PACKED[tables.sections[number].sh_type]
            message = f"relocations of the type {name} are not supported; link "
            raise tables.unsupported(number, "sh_type", message + "it without packing them")
        self._rela = self._loaded(elf.SHT_RELA)
        self._relocations: dict[int, _Relocation] = {}
        self._packed: set[int] = set()

    def _loaded(self, *types: int) -> list[int]:
        sections = self.tables.sections
        return [n for n in self.tables.of_type(*types) if sections[n].sh_flags & elf.SHF_ALLOC]

    def look_up(self, addresses: set[int]) -> None:
        """Find the relocations for pointers at these addresses; `target` needs them."""
        for number in self._rela:
            for offset, address, info, addend in self._rows(number):
                if address in addresses:
                    self._relocations[address] = _Relocation(offset, address, info, addend, number)
        self._packed |= {address for address in self._relr() if address in addresses}

    def target(self, address: int) -> int:
        """Return the address in a pointer; raise FormatError or UnsupportedError (`look_up`)."""
        found = self._relocations.get(address)
        if found is None:
            if self.tables.header.e_type != elf.ET_EXEC and address not in self._packed:
                message = (
                    f"expected a relocation for the pointer at address {address:#x}, found none"
                )
                raise UnsupportedError(message, path=self.tables.path)
            return int(_WORD.unpack_from(self.tables.data, self.offset(address))[0])
        kind = found.info & 0xFFFFFFFF
        if kind == self._relative:
            return found.addend & _MASK
        if kind == self._absolute:
            return self._value(found) + found.addend & _MASK
        message = f"expected a relocation of type {self._relative} for the pointer at address "
        message += f"{address:#x}, found {kind}"
        raise UnsupportedError(message, path=self.tables.path, offset=found.offset)

    def patches(self, address: int, target: int) -> Iterator[tuple[int, bytes]]:
        """Yield (offset, bytes) patches that set the pointer at address `address` to `target`."""
        yield self.offset(address), _WORD.pack(target)
        found = self._relocations.get(address)
        if found is not None:
            signed = target - (1 << 64) if target >> 63 else target
            yield found.offset, _RELA.pack(address, self._relative, signed)

    def find_pointer_into(self, start: int, end: int, ignored: set[int]) -> int | None:
        """Return the address of a pointer into a range, but not one of `ignored`, if any."""
        for number in self._rela:
            inside = self._symbols_inside(number, start, end)
            for _, address, info, addend in self._rows(number):
                leads = start <= addend < end and info & 0xFFFFFFFF == self._relative
                if (leads or (inside and info >> 32 in inside)) and address not in ignored:
                    return address
        for address in self._relr():
            value = _WORD.unpack_from(self.tables.data, self.offset(address))[0]
            if start <= value < end and address not in ignored:
                return address
        return None

    def offset(self, address: int) -> int:
        """Return the file offset of 8 bytes; raise FormatError if they are not in the file."""
        for row in self.tables.segments:
            inside = address - row.p_vaddr
            if row.p_type == elf.PT_LOAD and inside >= 0 and inside + _WORD.size <= row.p_filesz:
                return row.p_offset + inside
        message = f"expected address {address:#x} in a loaded segment of the file"
        raise FormatError(message, path=self.tables.path)

    def _rows(self, number: int) -> Iterator[tuple[int, int, int, int]]:
        content = self.tables.content(number)
        start = self.tables.sections[number].sh_offset
        if len(content) % _RELA.size:
            message = f"expected relocations of {_RELA.size} bytes each, found {len(content)} bytes"
            raise self.tables.error(number, "sh_size", message)
        for at, row in enumerate(_RELA.iter_unpack(content)):
            yield (start + at * _RELA.size, *row)

    def _value(self, found: _Relocation) -> int:
        """Return the address of a relocation's symbol; raise UnsupportedError if undefined."""
        number = found.info >> 32
        symbols = self.tables.symbols(self.tables.linked(found.section))
        if number >= len(symbols) or not 0 < symbols[number].st_shndx < elf.SHN_LORESERVE:
            message = f"the pointer at address {found.address:#x} is for a symbol of another file"
            raise UnsupportedError(message, path=self.tables.path, offset=found.offset)
        return symbols[number].st_value

    def _symbols_inside(self, number: int, start: int, end: int) -> set[int]:
        """Return the numbers of symbols in an address range, for a relocation section."""
        linked = self.tables.linked(number)
        if not linked:
            return set()
        return {
            at
            for at, symbol in enumerate(self.tables.symbols(linked))
            if symbol.st_shndx and start <= symbol.st_value < end
        }

    def _relr(self) -> Iterator[int]:
        """Yield the addresses of packed pointers, possibly many more than the file has bytes."""
        for number in self._loaded(_SHT_RELR):
            content = self.tables.content(number)
            if len(content) % _WORD.size:
                message = f"expected words of {_WORD.size} bytes, found {len(content)} bytes"
                raise self.tables.error(number, "sh_size", message)
            base = 0
            for (word,) in _WORD.iter_unpack(content):
                if not word & 1:
                    yield word
                    base = word + _WORD.size
                    continue
                for bit in range(63):
                    if word >> bit + 1 & 1:
                        yield base + bit * _WORD.size
                base += 63 * _WORD.size
