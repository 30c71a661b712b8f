"""An ELF file's symbol table, rewritten when sections come and go.

A symbol's section number is in st_shndx; where that is SHN_XINDEX, it is in the word of
the same number of the section SHT_SYMTAB_SHNDX. Local symbols come first.

Source: the gABI, "Symbol Table"; order and removal as llvm-objcopy 22.1.8, observed.
"""

from __future__ import annotations

from collections.abc import Mapping

from offload_tool.formats.objects.elf.reader import SHN_LORESERVE, SHN_XINDEX, ElfTables


class Symbols:
    """Which symbols stay, their numbers, and which sections define them.

    `symtab` and `shndx` are section numbers, 0 where there is no such section.

    :raises FormatError: the table contradicts its section or the section table.
    """

    def __init__(self, tables: ElfTables, symtab: int, shndx: int) -> None:
        self._tables = tables
        self._symtab = symtab
        self._rows = tables.symbols(symtab) if symtab else []
        self._indexes = self._read_indexes(shndx) if symtab and shndx else []
        self._homes = [self._read_home(number) for number in range(len(self._rows))]
        self.locals = 0
        """How many of the symbols that stay are local."""
        self.renumbered = False
        self.select(set())

    def __len__(self) -> int:
        return len(self._rows)

    def _read_indexes(self, shndx: int) -> list[int]:
        content = self._tables.content(shndx)
        if len(content) != 4 * len(self._rows):
            message = f"expected {4 * len(self._rows)} bytes, found {len(content)}"
            raise self._tables.error(shndx, "sh_size", message)
        return [word for (word,) in self._tables.elf_class.word.iter_unpack(content)]

    def _read_home(self, number: int) -> int:
        """Return the section that defines a symbol; 0 for none (undefined, absolute, common)."""
        home = self._rows[number].st_shndx
        if home == SHN_XINDEX and self._indexes:
            home = self._indexes[number]
        elif SHN_LORESERVE <= home < SHN_XINDEX:
            return 0
        if home >= len(self._tables.sections):
            count = len(self._tables.sections)
            message = f"symbol {number} is in section {home}, but the file has {count}"
            raise self._tables.error(self._symtab, "st_shndx", message)
        return home

    def is_local(self, number: int) -> bool:
        """Return whether a symbol of the host has binding STB_LOCAL."""
        return self._rows[number].is_local

    def select(self, gone: set[int]) -> None:
        """Drop the symbols of the sections in `gone`; put the local ones first."""
        kept = [number for number, home in enumerate(self._homes) if home not in gone]
        self._order = [number for number in kept if self.is_local(number)]
        self.locals = len(self._order)
        self._order += [number for number in kept if not self.is_local(number)]
        self.renumbered = self._order != list(range(len(self._rows)))
        self._numbers = {old: new for new, old in enumerate(self._order)}

    def new_number(self, number: int, user: int) -> int:
        """Return the new number of a symbol of the host that section `user` refers to.

        :raises FormatError: there is no such symbol.
        :raises UnsupportedError: it does not stay.
        """
        if number not in self._numbers:
            message = f"{self._tables.label(user)} refers to symbol {number}, which"
            if number >= len(self._rows):
                raise self._tables.error(user, "content", f"{message} does not exist")
            raise self._tables.unsupported(user, "content", f"{message} is removed")
        return self._numbers[number]

    def names(self) -> dict[int, bytes]:
        """Return the names of the symbols that stay, by their old st_name."""
        strings = self._tables.strings(self._tables.sections[self._symtab].sh_link)
        return {old: strings[old] for old in {self._rows[number].st_name for number in self._order}}

    def new_homes(self, new_numbers: Mapping[int, int]) -> list[int]:
        """Return the new numbers of the sections that define the symbols, in their new order."""
        return [new_numbers[home] if (home := self._homes[old]) else 0 for old in self._order]

    def pack(self, homes: list[int], names: Mapping[int, int]) -> bytes:
        """Return the table's new bytes; `names` has the new st_name of each old one."""
        out = bytearray()
        for old, home in zip(self._order, homes, strict=True):
            row = self._rows[old]
            row = row._replace(st_name=names[row.st_name])
            if home:
                row = row._replace(st_shndx=home if home < SHN_LORESERVE else SHN_XINDEX)
            out += self._tables.elf_class.pack_symbol(row)
        return bytes(out)

    def pack_indexes(self, homes: list[int]) -> bytes:
        """Return the new bytes of the SHT_SYMTAB_SHNDX section."""
        word = self._tables.elf_class.word
        return b"".join(word.pack(home if home >= SHN_LORESERVE else 0) for home in homes)
