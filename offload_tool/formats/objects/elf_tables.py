"""ELF's header structs in both classes and byte orders, read without trust, for rewriting.

::

    ELF header (52 or 64 bytes)      e_phoff -> program header table, e_shoff -> section
    program header table             header table, e_shstrndx -> section with the names
    contents of sections
    section header table             header 0 holds what does not fit into the ELF header:
                                     sh_size for e_shnum = 0, sh_link for SHN_XINDEX

Source: the System V gABI, chapters 4 and 5. `offload_tool.formats.objects.elf` reads more of a
file with less care for its exact bytes.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from offload_tool.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Callable

    from offload_tool.files import StrPath

__all__ = [
    "SHN_LORESERVE",
    "SHN_XINDEX",
    "SHT_DYNSYM",
    "SHT_LLVM_OFFLOADING",
    "SHT_NOBITS",
    "SHT_SYMTAB",
    "ElfClass",
    "ElfHeader",
    "ElfTables",
    "SectionHeader",
    "SegmentHeader",
    "StringTable",
    "find_elf_class",
    "is_elf_header",
    "read_elf_tables",
]

SHN_LORESERVE = 0xFF00
SHN_XINDEX = 0xFFFF
SHT_SYMTAB, SHT_NOBITS, SHT_DYNSYM = 2, 8, 11
SHT_LLVM_OFFLOADING = 0x6FFF4C0B
_SHT_NULL = 0
_PN_XNUM = 0xFFFF
_MAX_ALIGN = 1 << 32
"""Bytes; a broken alignment must not make the new file larger than any disk."""
_NAMES_BUDGET = 16
"""Times the size of the file; no known file needs more than 1."""
_MAGIC = b"\x7fELF"
_NUL = re.compile(rb"\0")


class ElfHeader(NamedTuple):
    """The ELF header, fields named as in the gABI."""

    e_ident: bytes
    e_type: int
    e_machine: int
    e_version: int
    e_entry: int
    e_phoff: int
    e_shoff: int
    e_flags: int
    e_ehsize: int
    e_phentsize: int
    e_phnum: int
    e_shentsize: int
    e_shnum: int
    e_shstrndx: int


class SectionHeader(NamedTuple):
    """A section header, fields named as in the gABI."""

    sh_name: int
    sh_type: int
    sh_flags: int
    sh_addr: int
    sh_offset: int
    sh_size: int
    sh_link: int
    sh_info: int
    sh_addralign: int
    sh_entsize: int

    @property
    def has_content(self) -> bool:
        """Tell whether sh_offset and sh_size are a range of the file."""
        return self.sh_type not in (_SHT_NULL, SHT_NOBITS)


_UNDEFINED = SectionHeader(0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
"""Section 0, whatever the file has there."""


class SegmentHeader(NamedTuple):
    """A program header in the order of ELFCLASS64 (p_flags second)."""

    p_type: int
    p_flags: int
    p_offset: int
    p_vaddr: int
    p_paddr: int
    p_filesz: int
    p_memsz: int
    p_align: int


@dataclass(frozen=True, slots=True)
class ElfClass:
    """The structs of one class and byte order."""

    is_64: bool
    order: str
    """``<`` or ``>``, as `struct` has it."""
    header: struct.Struct
    section: struct.Struct
    segment: struct.Struct
    symbol: struct.Struct
    """Fields in file order; see `symbol_index`."""
    word: struct.Struct

    @property
    def address_size(self) -> int:
        """Bytes of an address."""
        return 8 if self.is_64 else 4

    @property
    def symbol_index(self) -> int:
        """Which field of a symbol is st_shndx; st_name is field 0."""
        return 3 if self.is_64 else 5

    @property
    def symbol_info(self) -> int:
        """Which field of a symbol is st_info."""
        return 1 if self.is_64 else 3

    def pack_segment(self, header: SegmentHeader) -> bytes:
        """Give the program header's bytes; ELFCLASS32 has p_flags seventh."""
        if self.is_64:
            return self.segment.pack(*header)
        kind, flags, *middle, align = header
        return self.segment.pack(kind, *middle, flags, align)

    def unpack_segment(self, data: memoryview) -> SegmentHeader:
        """Read one program header."""
        fields = self.segment.unpack(data)
        if self.is_64:
            return SegmentHeader(*fields)
        return SegmentHeader._make((fields[0], fields[6], *fields[1:6], fields[7]))


def _make_class(order: str, *, is_64: bool) -> ElfClass:
    layouts = (
        ("16sHHIQQQIHHHHHH", "IIQQQQIIQQ", "IIQQQQQQ", "IBBHQQ")
        if is_64
        else ("16sHHIIIIIHHHHHH", "10I", "8I", "IIIBBH")
    )
    header, section, segment, symbol = (struct.Struct(order + layout) for layout in layouts)
    return ElfClass(is_64, order, header, section, segment, symbol, struct.Struct(order + "I"))


_CLASSES = {
    (size, data): _make_class(order, is_64=size == 2)
    for size in (1, 2)
    for data, order in ((1, "<"), (2, ">"))
}


class StringTable:
    """A section of NUL-terminated strings, read by offset.

    `budget` is how many bytes can be read in all: strings can overlap, so a small broken
    file could ask for any amount of memory.
    """

    def __init__(self, data: memoryview, budget: int, error: Callable[[str], FormatError]) -> None:
        self._data = data
        self._budget = budget
        self._error = error

    def __getitem__(self, offset: int) -> bytes:
        if offset == 0:
            return b""
        end = _NUL.search(self._data, offset) if offset < len(self._data) else None
        if end is None:
            raise self._error(
                f"expected a NUL-terminated string at offset {offset} of the string table of "
                f"{len(self._data)} bytes; the file may be cut short"
            )
        self._budget -= end.start() - offset
        if self._budget < 0:
            raise self._error("the names, taken together, are far longer than the file")
        return bytes(self._data[offset : end.start()])


@dataclass(frozen=True, slots=True)
class ElfTables:
    """An ELF file's tables; every range in them lies within the file."""

    data: memoryview
    path: StrPath | None
    elf_class: ElfClass
    header: ElfHeader
    segments: tuple[SegmentHeader, ...]
    sections: tuple[SectionHeader, ...]
    """All, with number 0; empty if the file has no section header table."""
    names: tuple[bytes, ...]
    """Of the sections."""
    names_index: int
    """Which section holds the names (0: none)."""

    def content(self, index: int) -> memoryview:
        """Give the bytes of section `index` that are in the file."""
        section = self.sections[index]
        if not section.has_content:
            return self.data[:0]
        return self.data[section.sh_offset : section.sh_offset + section.sh_size]

    def symbols(self, index: int) -> list[tuple[int, ...]]:
        """Give the symbols of section `index`, their fields in file order.

        :raises FormatError: it is no table of symbols.
        """
        content, size = self.content(index), self.elf_class.symbol.size
        entry = self.sections[index].sh_entsize
        if entry != size or len(content) % size:
            message = (
                f"expected a table of symbols of {size} bytes each, found {len(content)} bytes "
                f"and sh_entsize {entry}"
            )
            raise self.error(index, "sh_size", message)
        return list(self.elf_class.symbol.iter_unpack(content))

    def strings(self, index: int) -> StringTable:
        """Open section `index` as string table."""
        return StringTable(
            self.content(index),
            _NAMES_BUDGET * len(self.data),
            lambda message: self.error(index, "sh_name or st_name", message),
        )

    def label(self, index: int) -> str:
        """Name section `index` for messages."""
        name = self.names[index].decode("utf-8", "backslashreplace")
        return f"section {index} ('{name}')"

    def error(self, index: int, field: str, message: str) -> FormatError:
        """Make the error that `field` of section header `index` is wrong."""
        offset = self.header.e_shoff + index * self.elf_class.section.size
        field = f"{field} of section {index}"
        return FormatError(message, path=self.path, offset=offset, field=field)


def is_elf_header(data: memoryview) -> bool:
    """Tell whether `data` begins with an ELF header of a class and byte order that exist."""
    elf_class = find_elf_class(data)
    return elf_class is not None and len(data) >= elf_class.header.size


def find_elf_class(data: memoryview) -> ElfClass | None:
    """Give the structs of the ELF file that begins here, if one of a known class does."""
    return _CLASSES.get((data[4], data[5])) if data[:4] == _MAGIC and len(data) > 5 else None


def read_elf_tables(data: memoryview, *, path: StrPath | None = None) -> ElfTables:
    """Read the header, the program headers, the section headers and their names.

    :raises FormatError: it is no ELF file, or its tables contradict the data.
    """
    return _Reader(data, path).read()


class _Reader:
    def __init__(self, data: memoryview, path: StrPath | None) -> None:
        self.data = data
        self.path = path

    def read(self) -> ElfTables:
        elf_class = find_elf_class(self.data)
        if elf_class is None:
            found = bytes(self.data[:6])
            raise self._error(0, "e_ident", f"expected an ELF file, found {found!r}")
        self.elf_class = elf_class
        raw = self._take(0, elf_class.header.size, "ELF header")
        header = ElfHeader(*elf_class.header.unpack(raw))
        segments = self._read_segments(header)
        sections, names_index = self._read_sections(header)
        tables = ElfTables(
            self.data, self.path, elf_class, header, segments, sections, (), names_index
        )
        return self._with_names(tables)

    def _read_segments(self, header: ElfHeader) -> tuple[SegmentHeader, ...]:
        if not header.e_phnum:
            return ()
        struct_size = self.elf_class.segment.size
        self._expect_entry_size(header.e_phentsize, struct_size, "e_phentsize")
        if header.e_phnum == _PN_XNUM:
            raise self._error(0, "e_phnum", "more than 65534 program headers are not supported")
        raw = self._take(header.e_phoff, struct_size * header.e_phnum, "program header table")
        segments = tuple(
            self.elf_class.unpack_segment(raw[start : start + struct_size])
            for start in range(0, len(raw), struct_size)
        )
        for index, segment in enumerate(segments):
            at, field = header.e_phoff + index * struct_size, f"program header {index}"
            self._check_range(segment.p_offset, segment.p_filesz, at, field)
            self._check_alignment(segment.p_align, at, f"p_align of {field}")
        return segments

    def _read_sections(self, header: ElfHeader) -> tuple[tuple[SectionHeader, ...], int]:
        if not header.e_shoff:
            return (), 0
        struct_size = self.elf_class.section.size
        self._expect_entry_size(header.e_shentsize, struct_size, "e_shentsize")
        first = self._take(header.e_shoff, struct_size, "section header table")
        zero = SectionHeader(*self.elf_class.section.unpack(first))
        count = header.e_shnum or zero.sh_size
        raw = self._take(header.e_shoff, struct_size * count, "section header table")
        rows = [SectionHeader._make(row) for row in self.elf_class.section.iter_unpack(raw)]
        sections = (*([_UNDEFINED] if rows else []), *rows[1:])
        for index, section in enumerate(sections):
            at, field = header.e_shoff + index * struct_size, f"section header {index}"
            self._check_alignment(section.sh_addralign, at, f"sh_addralign of {field}")
            if section.has_content:
                self._check_range(section.sh_offset, section.sh_size, at, field)
        names_index = zero.sh_link if header.e_shstrndx == SHN_XINDEX else header.e_shstrndx
        if names_index >= max(count, 1):
            message = f"expected a section number below {count}, found {names_index}"
            raise self._error(0, "e_shstrndx", message)
        return sections, names_index

    @staticmethod
    def _with_names(tables: ElfTables) -> ElfTables:
        if not tables.names_index:
            return replace(tables, names=(b"",) * len(tables.sections))
        strings = tables.strings(tables.names_index)
        names = (strings[row.sh_name] for row in tables.sections[1:])
        return replace(tables, names=(b"", *names))

    def _take(self, offset: int, size: int, field: str) -> memoryview:
        if offset + size > len(self.data):
            raise self._error(
                min(offset, len(self.data)),
                field,
                f"expected {size} bytes at offset {offset}, but the file has {len(self.data)}; "
                "it may be cut short",
            )
        return self.data[offset : offset + size]

    def _check_range(self, offset: int, size: int, at: int, field: str) -> None:
        if offset + size > len(self.data):
            raise self._error(
                at,
                field,
                f"claims bytes {offset} to {offset + size}, but the file has {len(self.data)}; "
                "it may be cut short",
            )

    def _check_alignment(self, alignment: int, at: int, field: str) -> None:
        if alignment > _MAX_ALIGN or alignment & (alignment - 1):
            raise self._error(
                at, field, f"expected a power of two up to {_MAX_ALIGN}, found {alignment}"
            )

    def _expect_entry_size(self, found: int, expected: int, field: str) -> None:
        if found != expected:
            raise self._error(0, field, f"expected {expected} bytes, found {found}")

    def _error(self, offset: int, field: str, message: str) -> FormatError:
        return FormatError(message, path=self.path, offset=offset, field=field)
