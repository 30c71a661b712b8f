"""ELF files as this package sees them: headers, sections and symbols.

Three kinds of ELF file occur: host objects, programs and libraries that carry device
images; AMDGPU code objects; and the objects that embed a bundle (`hip_fatbin`).

AMDGPU's ``e_flags`` (AMDGPUUsage, "ELF Header", code object version 4 and later)::

    bits   8..9         sramecc 10..11 / xnack 8..9: 0 unsupported, 1 any, 2 off, 3 on
    bits   0..7         EF_AMDGPU_MACH, the processor
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from offload_tool.errors import FormatError
from offload_tool.formats.objects.elf_tables import (
    SHT_DYNSYM,
    SHT_SYMTAB,
    ElfTables,
    is_elf_header,
    read_elf_tables,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from offload_tool.files import StrPath

__all__ = ["EM_AMDGPU", "EM_CUDA", "ElfFacts", "ElfSection", "ElfSymbol", "is_elf", "read_elf"]

MAGIC = b"\x7fELF"
EM_CUDA = 190
EM_AMDGPU = 224
_TYPES = ("ET_NONE", "ET_REL", "ET_EXEC", "ET_DYN", "ET_CORE")
_STB_LOCAL = 0


@dataclass(frozen=True, slots=True)
class ElfSection:
    """A section: its name, and where its content is in the file (offset, size in bytes)."""

    name: str
    offset: int
    size: int
    has_content: bool


@dataclass(frozen=True, slots=True)
class ElfSymbol:
    """A symbol: its name, whether this file defines it, and whether it is for this file only."""

    name: str
    defined: bool
    local: bool


@dataclass(frozen=True, slots=True)
class ElfFacts:
    """What this package asks of an ELF file."""

    type: str
    """``ET_REL``, ``ET_DYN``, ``ET_EXEC``, ..."""
    machine: int
    """``e_machine``: 224 is AMDGPU, 190 is CUDA."""
    flags: int
    """``e_flags``."""
    sections: tuple[ElfSection, ...]
    symbols: tuple[ElfSymbol, ...]
    """The static and the dynamic symbol table; empty unless asked for."""


def is_elf(data: memoryview) -> bool:
    """Tell whether `data` begins with ELF's magic."""
    return data[: len(MAGIC)] == MAGIC


def read_elf(data: memoryview, *, symbols: bool = False, path: StrPath | None = None) -> ElfFacts:
    """Read an ELF file's header and section table, and its symbols if asked.

    :raises FormatError: it is no ELF file, or its tables contradict the data.
    """
    if not is_elf(data):
        found = bytes(data[:4])
        raise FormatError(f"expected an ELF file, found {found!r}", path=path, offset=0)
    if not is_elf_header(data):
        message = "broken ELF file: cut short, or of a class or byte order that does not exist"
        raise FormatError(message, path=path, offset=len(MAGIC), field="e_ident")
    tables = read_elf_tables(data, path=path)
    sections = (
        ElfSection(
            name.decode("utf-8", "surrogateescape"),
            row.sh_offset,
            row.sh_size,
            row.has_content and row.sh_size > 0,
        )
        for name, row in zip(tables.names, tables.sections, strict=True)
    )
    number = tables.header.e_type
    return ElfFacts(
        type=_TYPES[number] if number < len(_TYPES) else f"{number:#x}",
        machine=tables.header.e_machine,
        flags=tables.header.e_flags,
        sections=tuple(sections),
        symbols=tuple(_symbols(tables)) if symbols else (),
    )


def _symbols(tables: ElfTables) -> Iterator[ElfSymbol]:
    home, info = tables.elf_class.symbol_index, tables.elf_class.symbol_info
    for index, section in enumerate(tables.sections):
        if section.sh_type not in (SHT_SYMTAB, SHT_DYNSYM):
            continue
        rows = tables.symbols(index)
        if section.sh_link >= len(tables.sections):
            count = len(tables.sections)
            message = f"expected a section number below {count}, found {section.sh_link}"
            raise tables.error(index, "sh_link", message)
        names = tables.strings(section.sh_link)
        for row in rows:
            name = names[row[0]]
            if name:
                spelled = name.decode("utf-8", "surrogateescape")
                yield ElfSymbol(spelled, row[home] != 0, row[info] >> 4 == _STB_LOCAL)
