"""Adds sections to ELF files and removes sections, with the bytes of llvm-objcopy 22.

What is rewritten; everything else is copied (`layout` says where it goes)::

    section names    table rebuilt (`string_table`); shared with the symbols' if it was
    symbol table     st_name, st_shndx; symbols of removed sections go, local ones first
    groups           member numbers; COMDAT is dropped when the signature is a local symbol
    relocations      symbol numbers, only where these changed
    headers          sh_name, sh_offset, sh_link, sh_info; all of the ELF header

Section numbers keep their order. New sections are last, have type PROGBITS, flag
SHF_EXCLUDE only, and alignment 1, unless another type is asked for. Any number of
sections works: SHT_SYMTAB_SHNDX is rewritten, and dropped where it is not needed any more.

Source: llvm-objcopy 22.1.8 ``--add-section``, ``--set-section-flags=readonly,exclude``
and ``--remove-section``, observed: byte for byte equal for relocatable files, executables
and shared libraries of both classes and byte orders. One difference: string tables other
than those of the symbols and sections (``.stabstr``) keep their content, which
llvm-objcopy loses.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence

from offload_tool.errors import UnsupportedError
from offload_tool.formats.objects.elf.layout import Layout, Section
from offload_tool.formats.objects.elf.reader import (
    ET_REL,
    SHF_ALLOC,
    SHF_EXCLUDE,
    SHN_LORESERVE,
    SHT_CREL,
    SHT_GROUP,
    SHT_PROGBITS,
    SHT_REL,
    SHT_RELA,
    SHT_STRTAB,
    SHT_SYMTAB,
    SHT_SYMTAB_SHNDX,
    ElfTables,
    SectionHeader,
    read_elf_tables,
)
from offload_tool.formats.objects.elf.symbols import Symbols
from offload_tool.formats.objects.string_table import build_string_table
from offload_tool.io import StrPath
from offload_tool.io.write_plan import FilePlan

_EM_MIPS = 8
_RELOCATIONS = frozenset({SHT_RELA, SHT_REL, SHT_CREL})
_GRP_COMDAT = 1


def plan_elf(
    host: memoryview,
    added: Sequence[tuple[bytes, int]] = (),
    removed: Callable[[bytes], bool] = lambda _: False,
    *,
    path: StrPath | None = None,
    section_type: int = SHT_PROGBITS,
    flags: int = SHF_EXCLUDE,
    alignment: int = 1,
) -> FilePlan:
    """Plan the host with (name, size in bytes) sections added and the `removed` ones gone.

    `removed` is asked with each section's name. New sections have the type `section_type` and
    these `flags`, and begin at a multiple of `alignment` bytes.

    :raises FormatError: the host's tables contradict it or each other.
    :raises UnsupportedError: something that stays needs what is removed, or the result would
        be too large.
    """
    tables = read_elf_tables(host, path=path)
    if not tables.names_index:
        message = "expected a section header table with section names, found none"
        raise UnsupportedError(message, path=path, offset=0, field="e_shstrndx")
    headers = [
        (name, SectionHeader(0, section_type, flags, 0, 0, size, 0, 0, alignment, 0))
        for name, size in added
    ]
    return _SectionEditor(tables, headers, removed).plan()


class _SectionEditor:
    """Makes one plan: chooses sections, renumbers, renames, then lays out."""

    def __init__(
        self,
        tables: ElfTables,
        added: Sequence[tuple[bytes, SectionHeader]],
        removed: Callable[[bytes], bool],
    ) -> None:
        self.tables = tables
        self.order = tables.elf_class.order
        self.sections = [
            Section(name, header, old)
            for old, (name, header) in enumerate(zip(tables.names, tables.sections, strict=True))
        ]
        self.layout = Layout(tables, self.sections)
        self.added = [
            Section(name, header, 0, number) for number, (name, header) in enumerate(added)
        ]
        self.symtab = self._find_single(SHT_SYMTAB)
        self.shndx = self._find_single(SHT_SYMTAB_SHNDX)
        self.symbols = Symbols(tables, self.symtab, self.shndx)
        self.gone = self._find_removed(removed)

    def plan(self) -> FilePlan:
        self._drop_empty_symbol_table()
        self._number()
        if self.shndx and max(self.homes, default=0) < SHN_LORESERVE:
            self.gone.add(self.shndx)
            self._number()
        for section in self.kept[1:]:
            if section.added is None:
                self._relink(section)
        self._rename()
        return self.layout.place(self.kept, self.new[self.tables.names_index])

    # -- which sections stay, and their numbers --------------------------------------

    def _find_single(self, section_type: int) -> int:
        found = [
            index for index, row in enumerate(self.tables.sections) if row.sh_type == section_type
        ]
        if len(found) > 1:
            message = f"section {found[0]} has type {section_type} too; expected only one"
            raise self.tables.error(found[1], "sh_type", message)
        return found[0] if found else 0

    def _find_removed(self, removed: Callable[[bytes], bool]) -> set[int]:
        chosen = {index for index, name in enumerate(self.tables.names) if index and removed(name)}
        gone = set(chosen)
        for index, row in enumerate(self.tables.sections):
            needed: list[int] | None = None
            if row.sh_type in _RELOCATIONS:
                needed = [self.tables.linked(index, "sh_info")]
            elif row.sh_type == SHT_GROUP:
                needed = self._read_group(index)[1:]
            if needed is not None and chosen.issuperset(needed):
                gone.add(index)
        for index in gone & {self.symtab, self.shndx, self.tables.names_index}:
            message = f"{self.tables.label(index)} cannot be removed: the file needs it"
            raise self.tables.unsupported(index, "sh_name", message)
        return gone

    def _drop_empty_symbol_table(self) -> None:
        """Remove it where no relocation can need it, as llvm-objcopy does."""
        if self.tables.header.e_type != ET_REL and self.symtab and len(self.symbols) <= 1:
            names = self.tables.linked(self.symtab, "sh_link")
            self.gone |= {self.symtab, names} - {0, self.tables.names_index}
            self.symtab = 0

    def _number(self) -> None:
        self.symbols.select(self.gone)
        self.kept = [section for section in self.sections if section.old not in self.gone]
        self.new = {section.old: number for number, section in enumerate(self.kept)}
        self.kept += self.added
        self.homes = self.symbols.new_homes(self.new)

    # -- references between sections -------------------------------------------------

    def _new_target(self, user: int, field: str = "sh_link") -> int:
        number = self.tables.linked(user, field)
        if number in self.gone:
            needed = self.tables.label(number)
            message = f"{self.tables.label(user)} needs {needed}, which is removed"
            raise self.tables.unsupported(user, field, message)
        return self.new[number]

    def _relink(self, section: Section) -> None:
        section_type = section.header.sh_type
        if section_type == SHT_GROUP:
            self._rewrite_group(section)
        elif section_type in _RELOCATIONS:
            self._rewrite_relocations(section)
        elif section_type == SHT_SYMTAB_SHNDX:
            section.rewrite(self.symbols.pack_indexes(self.homes))
            section.set(sh_link=self._new_target(section.old))
        elif not _is_rebuilt(section.header):
            stale = self.symbols.renumbered and section.header.sh_link == self.symtab
            # Symbol numbers in its content are stale then; a link of 0 tells readers so.
            section.set(sh_link=0 if stale else self._new_target(section.old))

    def _read_group(self, index: int) -> list[int]:
        """Return the words of a group: flags, then section numbers, checked."""
        content = self.tables.content(index)
        if len(content) % 4 or not content:
            message = f"expected one or more words, found {len(content)} bytes"
            raise self.tables.error(index, "sh_size", message)
        words = [word for (word,) in struct.iter_unpack(f"{self.order}I", content)]
        if (highest := max(words[1:], default=0)) >= len(self.sections):
            message = f"expected section numbers below {len(self.sections)}, found {highest}"
            raise self.tables.error(index, "content", message)
        if not self.symtab or self.tables.sections[index].sh_link != self.symtab:
            message = f"expected the symbol table's number ({self.symtab})"
            raise self.tables.error(index, "sh_link", message)
        return words

    def _rewrite_group(self, section: Section) -> None:
        flags, *members = self._read_group(section.old)
        old = section.header.sh_info
        signature = self.symbols.new_number(old, section.old)
        if self.symbols.is_local(old):
            flags &= ~_GRP_COMDAT
        words = [flags, *(self.new[member] for member in members if member in self.new)]
        section.rewrite(struct.pack(f"{self.order}{len(words)}I", *words))
        section.set(sh_link=self.new[self.symtab], sh_info=signature)

    def _rewrite_relocations(self, section: Section) -> None:
        old = section.header
        link, info = self._new_target(section.old), self._new_target(section.old, "sh_info")
        section.set(sh_link=link, sh_info=info)
        if not old.sh_flags & SHF_ALLOC and old.sh_type != SHT_CREL:
            section.set(sh_addralign=self.tables.elf_class.address_size)
        if self.symbols.renumbered and old.sh_link == self.symtab:
            section.rewrite(self._renumber_relocations(section))

    def _renumber_relocations(self, section: Section) -> bytes:
        is_64 = self.tables.elf_class.is_64
        fields = 3 if section.header.sh_type == SHT_RELA else 2
        layout = struct.Struct(self.order + fields * ("Q" if is_64 else "I"))
        content = self.tables.content(section.old)
        if section.header.sh_type == SHT_CREL or len(content) % layout.size:
            message = "the symbol numbers of these relocations cannot be changed"
            raise self.tables.error(section.old, "sh_size", message)
        # r_info has the symbol above the type; 64-bit little-endian MIPS has it below.
        mips = is_64 and self.order == "<" and self.tables.header.e_machine == _EM_MIPS
        shift, mask = (0 if mips else 32, 0xFFFFFFFF) if is_64 else (8, 0xFFFFFF)
        out = bytearray()
        for offset, info, *addend in layout.iter_unpack(content):
            symbol = self.symbols.new_number(info >> shift & mask, section.old)
            out += layout.pack(offset, info & ~(mask << shift) | symbol << shift, *addend)
        return bytes(out)

    # -- names -----------------------------------------------------------------------

    def _rename(self) -> None:
        names_at = self.tables.names_index
        symbols_at = self.tables.linked(self.symtab, "sh_link") if self.symtab else names_at
        symbol_names = self.symbols.names() if self.symtab else {}
        wanted: dict[int, list[bytes]] = {names_at: [], symbols_at: []}
        wanted[names_at] += (section.name for section in self.kept)
        wanted[symbols_at] += symbol_names.values()
        offsets = {index: self._rebuild_strings(index, wanted[index]) for index in wanted}
        for section in self.kept:
            section.set(sh_name=offsets[names_at][section.name])
        if self.symtab:
            table = self.sections[self.symtab]
            names = {old: offsets[symbols_at][name] for old, name in symbol_names.items()}
            table.rewrite(self.symbols.pack(self.homes, names))
            table.set(
                sh_link=self._new_target(self.symtab),
                sh_info=self.symbols.locals,
                sh_addralign=self.tables.elf_class.address_size,
            )

    def _rebuild_strings(self, index: int, strings: Iterable[bytes]) -> dict[bytes, int]:
        if index in self.gone or not _is_rebuilt(self.tables.sections[index]):
            message = f"{self.tables.label(index)} is not a string table that can be rewritten"
            raise self.tables.error(index, "sh_type", message)
        table, offsets = build_string_table(strings)
        self.sections[index].rewrite(table)
        return offsets


def _is_rebuilt(header: SectionHeader) -> bool:
    """Return whether it is a string table of the file, not of the running program."""
    return header.sh_type == SHT_STRTAB and not header.sh_flags & SHF_ALLOC
