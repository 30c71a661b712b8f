"""The machine code of a code object's functions, and all that a device loads of it.

::

    symbol tables     functions (STT_FUNC); the code of one is st_size bytes of its section, from
                      st_value - sh_addr on. Where .symtab was stripped, .dynsym has the kernels
    sections          SHT_PROGBITS with SHF_ALLOC are what a device loads: code and data.
                      Symbols, their names, notes and debug information are not among them
    segments          of a file whose section headers were stripped, PT_LOAD: all of these

Source: the gABI. AMD's code objects and cubins are alike in this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from offload_tool.formats.objects.elf.reader import (
    PT_LOAD,
    SHF_ALLOC,
    SHT_DYNSYM,
    SHT_PROGBITS,
    SHT_SYMTAB,
    STT_FUNC,
    ElfTables,
    read_elf_sections,
    read_elf_segments,
)

if TYPE_CHECKING:
    from offload_tool.io import StrPath


class MachineCode(NamedTuple):
    """Of one ELF file; all are views of its bytes."""

    functions: dict[str, memoryview]
    """By their names; those whose code is no part of one section are left out."""
    loaded: list[memoryview]
    """The code and data that a device loads, section by section, or segment by segment."""


def read_machine_code(data: memoryview, *, path: StrPath | None = None) -> MachineCode:
    """Read the machine code of an ELF file.

    :raises FormatError: its tables are broken.
    """
    tables = read_elf_sections(data, path=path)
    loaded = [
        tables.content(index)
        for index, row in enumerate(tables.sections)
        if row.sh_type == SHT_PROGBITS and row.sh_flags & SHF_ALLOC
    ]
    if not tables.sections:
        loaded = [
            data[row.p_offset : row.p_offset + row.p_filesz]
            for row in read_elf_segments(data, path=path)
            if row.p_type == PT_LOAD
        ]
    return MachineCode(_functions(tables), loaded)


def _functions(tables: ElfTables) -> dict[str, memoryview]:
    found: dict[str, memoryview] = {}
    for index, row in enumerate(tables.sections):
        if row.sh_type not in (SHT_SYMTAB, SHT_DYNSYM):
            continue
        names = tables.strings(tables.linked(index))
        for symbol in tables.symbols(index):
            if symbol.type != STT_FUNC or not 0 < symbol.st_shndx < len(tables.sections):
                continue
            start = symbol.st_value - tables.sections[symbol.st_shndx].sh_addr
            code = tables.content(symbol.st_shndx)
            if 0 <= start <= start + symbol.st_size <= len(code):
                name = names[symbol.st_name].decode("utf-8", "surrogateescape")
                found[name] = code[start : start + symbol.st_size]
    return found
