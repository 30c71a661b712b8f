"""ELF files as this package sees them: headers, sections and symbols, read with pyelftools.

Three kinds of ELF file occur: host objects, programs and libraries that carry device
images; AMDGPU code objects; and the objects that embed a bundle (`hip_fatbin`).

AMDGPU's ``e_flags`` (AMDGPUUsage, "ELF Header", code object version 4 and later)::

    bits   8..9         sramecc 10..11 / xnack 8..9: 0 unsupported, 1 any, 2 off, 3 on
    bits   0..7         EF_AMDGPU_MACH, the processor
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, cast

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from offload_tool.errors import FormatError

if TYPE_CHECKING:
    from offload_tool.files import StrPath

__all__ = ["EM_AMDGPU", "EM_CUDA", "ElfFacts", "ElfSection", "ElfSymbol", "is_elf", "read_elf"]

MAGIC = b"\x7fELF"
EM_CUDA = 190
EM_AMDGPU = 224


@dataclass(frozen=True, slots=True)
class ElfSection:
    """A section: its name, and where its content is in the file (offset, size in bytes)."""

    name: str
    offset: int
    size: int
    has_content: bool


@dataclass(frozen=True, slots=True)
class ElfSymbol:
    """A symbol: its name and whether this file defines it."""

    name: str
    defined: bool


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
    try:
        return _read(data, symbols=symbols, path=path)
    except FormatError:
        raise
    except ELFError as error:
        raise FormatError(f"broken ELF file: {error or 'cut short'}", path=path) from error
    except Exception as error:
        # The reader answers a broken table with whatever its parser met: KeyError,
        # struct's and construct's errors, AttributeError. All mean the same here.
        raise FormatError(f"broken ELF file: {error!r}", path=path) from error


def _read(data: memoryview, *, symbols: bool, path: StrPath | None) -> ElfFacts:
    elf = ELFFile(cast("IO[bytes]", _MemoryStream(data)))
    sections = []
    for index, section in enumerate(elf.iter_sections()):
        has_content = section["sh_type"] != "SHT_NOBITS" and section["sh_size"] > 0
        offset, size = section["sh_offset"], section["sh_size"]
        if has_content and offset + size > len(data):
            raise FormatError(
                f"section '{section.name}' claims bytes {offset} to {offset + size}, but the file "
                f"has {len(data)}; it may be cut short",
                path=path,
                field=f"section header {index}",
            )
        sections.append(ElfSection(section.name, offset, size, has_content))
    return ElfFacts(
        type=str(elf["e_type"]),
        machine=_machine(data, little_endian=elf.little_endian),
        flags=elf["e_flags"],
        sections=tuple(sections),
        symbols=_read_symbols(elf) if symbols else (),
    )


def _machine(data: memoryview, *, little_endian: bool) -> int:
    # The reader translates the machines that it knows to names; the number is what we compare.
    return int.from_bytes(data[18:20], "little" if little_endian else "big")


def _read_symbols(elf: ELFFile) -> tuple[ElfSymbol, ...]:
    return tuple(
        ElfSymbol(symbol.name, symbol["st_shndx"] != "SHN_UNDEF")
        for section in elf.iter_sections()
        if isinstance(section, SymbolTableSection)
        for symbol in section.iter_symbols()
        if symbol.name
    )


class _MemoryStream(io.RawIOBase):
    """A seekable binary stream over mapped memory; unlike BytesIO, it copies nothing."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._position = 0

    def read(self, size: int | None = -1) -> bytes:
        end = len(self._data) if size is None or size < 0 else self._position + size
        chunk = bytes(self._data[self._position : end])
        self._position += len(chunk)
        return chunk

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: len(self._data)}[whence]
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True
