"""Read untrusted ELF files of both classes and byte orders: headers, sections, symbols, strings.

::

    ELF header (52 or 64 bytes)      e_phoff -> program header table, e_shoff -> section
    program header table             header table, e_shstrndx -> section with the names
    contents of sections
    section header table             header 0 holds values too large for the ELF header:
                                     sh_size for e_shnum = 0, sh_link for SHN_XINDEX

Structs have the field order of ELFCLASS64, whatever the file's class.

Source: the System V gABI, chapters 4 and 5.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, partial
from typing import NamedTuple

from offload_tool.errors import FormatError, UnsupportedError
from offload_tool.formats.magic import ELF as _MAGIC
from offload_tool.formats.magic import aligned
from offload_tool.io import StrPath
from offload_tool.util.frozen import frozen

ET_REL, ET_EXEC, ET_DYN = 1, 2, 3
EM_CUDA, EM_AMDGPU = 190, 224
PT_LOAD, PT_INTERP, PT_NOTE, PT_PHDR, PT_TLS = 1, 3, 4, 6, 7
SHT_PROGBITS, SHT_SYMTAB, SHT_STRTAB, SHT_RELA, SHT_NOTE = 1, 2, 3, 4, 7
SHT_NOBITS, SHT_REL, SHT_DYNSYM, SHT_GROUP, SHT_SYMTAB_SHNDX = 8, 9, 11, 17, 18
SHT_CREL, SHT_LLVM_OFFLOADING = 0x40000014, 0x6FFF4C0B
SHF_ALLOC, SHF_TLS, SHF_COMPRESSED, SHF_EXCLUDE = 2, 0x400, 0x800, 0x80000000
SHN_LORESERVE, SHN_XINDEX = 0xFF00, 0xFFFF
STT_OBJECT, STT_FUNC, STT_SECTION, STT_FILE = 1, 2, 3, 4
_SHT_NULL = 0
_CUDA_TYPES = dict.fromkeys((0x70000007, 0x70000009, 0x7000000A, 0x70000015), SHT_NOBITS)
"""Sections of relocatable cubins: global, local, shared and reserved shared memory. Linked cubins
have them as SHT_NOBITS too. Source: ptxas 12.9 to 13.5, observed."""
_PN_XNUM = 0xFFFF
_MAX_ALIGN = 1 << 32  # bytes; a broken alignment must not make the new file larger than any disk
_NAMES_BUDGET = 16
_SHARED = 4
"""Limit of the total size of sections, or notes, in file sizes; known files need at most 1."""
_NOTE_ALIGNMENT = 4
_NUL = re.compile(rb"\0")


class ElfHeader(NamedTuple):
    """The ELF header, with field names of the gABI."""

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
    """A section header, with field names of the gABI."""

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
        """Return whether sh_offset and sh_size are a range of the file."""
        return self.sh_type not in (_SHT_NULL, SHT_NOBITS)


NO_SECTION = SectionHeader(0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
"""Section 0, regardless of its content in the file."""


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


class Symbol(NamedTuple):
    """A symbol, with field names of the gABI."""

    st_name: int
    st_info: int
    st_other: int
    st_shndx: int
    st_value: int
    st_size: int

    @property
    def type(self) -> int:
        """``STT_OBJECT``, ..."""
        return self.st_info & 15

    @property
    def is_local(self) -> bool:
        """Whether its binding is STB_LOCAL."""
        return self.st_info < 16


class NamedSymbol(NamedTuple):
    """A symbol as other files see it."""

    name: str
    """Bytes that are not UTF-8 are surrogates."""
    defined: bool
    local: bool


@frozen
class ElfClass:
    """The structs of one class and byte order."""

    is_64: bool
    order: str
    """``<`` or ``>``, as in `struct`."""
    header: struct.Struct
    section: struct.Struct
    segment: struct.Struct
    symbol: struct.Struct
    word: struct.Struct
    note: struct.Struct
    """Header of a note: sizes of name and description, type."""
    compression: struct.Struct
    """Header of a compressed section; last is the alignment of what it contains."""

    @property
    def address_size(self) -> int:
        """Size of an address in bytes."""
        return 8 if self.is_64 else 4

    def pack_segment(self, header: SegmentHeader) -> bytes:
        """Return the program header's bytes; ELFCLASS32 has p_flags seventh."""
        if self.is_64:
            return self.segment.pack(*header)
        segment_type, flags, *middle, align = header
        return self.segment.pack(segment_type, *middle, flags, align)

    def unpack_segments(self, data: memoryview) -> list[SegmentHeader]:
        """Read consecutive program headers."""
        rows = self.segment.iter_unpack(data)
        if self.is_64:
            return list(map(SegmentHeader._make, rows))
        return [SegmentHeader._make((row[0], row[6], *row[1:6], row[7])) for row in rows]

    def pack_symbol(self, symbol: Symbol) -> bytes:
        """Return the symbol's bytes; ELFCLASS32 has st_value and st_size second and third."""
        if self.is_64:
            return self.symbol.pack(*symbol)
        name, info, other, shndx, value, size = symbol
        return self.symbol.pack(name, value, size, info, other, shndx)

    def pack_note(self, name: bytes, number: int, description: bytes) -> bytes:
        """Return the bytes of a note; its `name` ends with NUL."""
        head = self.note.pack(len(name), len(description), number)
        return head + _padded(name) + _padded(description)

    def unpack_notes(self, data: memoryview) -> Iterator[tuple[bytes, int, memoryview]]:
        """Yield name, type and description of consecutive notes, up to a truncated one."""
        start = 0
        while start + self.note.size <= len(data):
            name_size, size, number = self.note.unpack_from(data, start)
            name = start + self.note.size
            description = name + aligned(name_size, _NOTE_ALIGNMENT)
            yield bytes(data[name : name + name_size]), number, data[description:][:size]
            start = description + aligned(size, _NOTE_ALIGNMENT)

    def unpack_symbols(self, data: memoryview) -> list[Symbol]:
        """Read consecutive symbols."""
        rows = self.symbol.iter_unpack(data)
        if self.is_64:
            return list(map(Symbol._make, rows))
        return [Symbol(row[0], *row[3:], *row[1:3]) for row in rows]


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % _NOTE_ALIGNMENT)


def _make_class(order: str, *, is_64: bool) -> ElfClass:
    layouts = (
        ("16sHHIQQQIHHHHHH", "IIQQQQIIQQ", "IIQQQQQQ", "IBBHQQ")
        if is_64
        else ("16sHHIIIIIHHHHHH", "10I", "8I", "IIIBBH")
    )
    header, section, segment, symbol = (struct.Struct(order + layout) for layout in layouts)
    word, note = struct.Struct(order + "I"), struct.Struct(order + "III")
    compression = struct.Struct(order + "IIQQ") if is_64 else note
    return ElfClass(is_64, order, header, section, segment, symbol, word, note, compression)


_CLASSES = {
    (size, data): _make_class(order, is_64=size == 2)
    for size in (1, 2)
    for data, order in ((1, "<"), (2, ">"))
}
ELF64_LITTLE = _CLASSES[2, 1]


class StringTable:
    """A section of NUL-terminated strings, read by offset.

    `budget` limits the bytes read in total: strings can overlap, so a small broken file could need
    any amount of memory.
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


class ElfTables:
    """An ELF file's tables, read and checked on first use; raise FormatError."""

    def __init__(self, data: memoryview, path: StrPath | None = None) -> None:
        self.data = data
        self.path = path
        elf_class = _find_class(data)
        if elf_class is None:
            found = bytes(data[:6])
            raise self._error(0, "e_ident", f"expected an ELF file, found {found!r}")
        self.elf_class = elf_class
        raw = self._take(0, elf_class.header.size, "ELF header")
        self.header = ElfHeader(*elf_class.header.unpack(raw))

    @cached_property
    def segments(self) -> tuple[SegmentHeader, ...]:
        """The program headers."""
        header, struct_size = self.header, self.elf_class.segment.size
        if not header.e_phnum:
            return ()
        self._expect_entry_size(header.e_phentsize, struct_size, "e_phentsize")
        if header.e_phnum == _PN_XNUM:
            message = "more than 65534 program headers are not supported"
            raise UnsupportedError(message, path=self.path, offset=0, field="e_phnum")
        raw = self._take(header.e_phoff, struct_size * header.e_phnum, "program header table")
        segments = tuple(self.elf_class.unpack_segments(raw))
        for index, segment in enumerate(segments):
            at, field = header.e_phoff + index * struct_size, f"program header {index}"
            end = segment.p_offset + segment.p_filesz
            if end > len(self.data):
                raise self._error(at, field, self._outside(segment.p_offset, end))
            self._check_alignment(segment.p_align, at, f"p_align of {field}")
        notes = ((s.p_offset, s.p_filesz) for s in segments if s.p_type == PT_NOTE)
        self._check_together(notes, header.e_phoff, "program header table")
        return segments

    @cached_property
    def sections(self) -> tuple[SectionHeader, ...]:
        """All sections, including number 0; empty if the file has no section header table."""
        header, struct_size = self.header, self.elf_class.section.size
        if not header.e_shoff:
            return ()
        first = self._first_header
        count = header.e_shnum or first.sh_size
        raw = self._take(header.e_shoff, struct_size * count, "section header table")
        rows = [SectionHeader._make(row) for row in self.elf_class.section.iter_unpack(raw)]
        if header.e_machine == EM_CUDA:
            rows = [row._replace(sh_type=_CUDA_TYPES.get(row.sh_type, row.sh_type)) for row in rows]
        sections = (NO_SECTION, *rows[1:]) if rows else ()
        parts = ((row.sh_offset, row.sh_size) for row in sections if row.has_content)
        self._check_together(parts, header.e_shoff, "section header table")
        return sections

    @cached_property
    def _first_header(self) -> SectionHeader:
        """Section header 0 as stored, with the values that are too large for the ELF header."""
        size = self.elf_class.section.size
        self._expect_entry_size(self.header.e_shentsize, size, "e_shentsize")
        raw = self._take(self.header.e_shoff, size, "section header table")
        return SectionHeader(*self.elf_class.section.unpack(raw))

    @cached_property
    def names_index(self) -> int:
        """Number of the section with the names (0: none)."""
        if not self.header.e_shoff:
            return 0
        index = self.header.e_shstrndx
        return self._first_header.sh_link if index == SHN_XINDEX else index

    @cached_property
    def names(self) -> tuple[bytes, ...]:
        """Names of the sections."""
        if not self.names_index:
            return (b"",) * len(self.sections)
        strings = self.strings(self.names_index)
        return (b"", *(strings[row.sh_name] for row in self.sections[1:]))

    def check(self) -> None:
        """Read all tables; raise FormatError if they contradict the file."""
        _ = self.segments
        for index, section in enumerate(self.sections):
            at, field = self.header_offset(index), f"sh_addralign of section header {index}"
            self._check_alignment(section.sh_addralign, at, field)
            self.content(index)
        count = len(self.sections)
        if self.names_index >= max(count, 1):
            message = f"expected a section number below {count}, found {self.names_index}"
            raise self._error(0, "e_shstrndx", message)
        _ = self.names

    def content(self, index: int) -> memoryview:
        """Return the bytes of a section; raise FormatError if it exceeds the file."""
        section = self.sections[index]
        if not section.has_content:
            return self.data[:0]
        end = section.sh_offset + section.sh_size
        if end > len(self.data):
            message = self._outside(section.sh_offset, end)
            raise self._error(self.header_offset(index), f"section header {index}", message)
        return self.data[section.sh_offset : end]

    def named(self, name: str) -> list[int]:
        """Return the numbers of the sections that have a name, and content."""
        rows = enumerate(zip(self.names, self.sections, strict=True))
        return [index for index, (each, row) in rows if each == name.encode() and row.has_content]

    def of_type(self, *types: int) -> list[int]:
        """Return the numbers of the sections that have one of the types."""
        return [index for index, row in enumerate(self.sections) if row.sh_type in types]

    def linked(self, index: int, field: str = "sh_link") -> int:
        """Return the number in a section's sh_link or sh_info; raise FormatError if none."""
        number: int = getattr(self.sections[index], field)
        if number >= len(self.sections):
            message = f"expected a section number below {len(self.sections)}, found {number}"
            raise self.error(index, field, message)
        return number

    def symbols(self, index: int) -> list[Symbol]:
        """Return the symbols of a section; raise FormatError if it is no symbol table."""
        content, size = self.content(index), self.elf_class.symbol.size
        entry = self.sections[index].sh_entsize
        if entry != size or len(content) % size:
            message = (
                f"expected a table of symbols of {size} bytes each, found {len(content)} bytes "
                f"and sh_entsize {entry}"
            )
            raise self.error(index, "sh_size", message)
        return self.elf_class.unpack_symbols(content)

    def named_symbols(self) -> Iterator[NamedSymbol]:
        """Yield the named symbols of both symbol tables; raise FormatError if one is broken."""
        for index in self.of_type(SHT_SYMTAB, SHT_DYNSYM):
            symbols = self.symbols(index)
            names = self.strings(self.linked(index))
            for symbol in symbols:
                if name := names[symbol.st_name]:
                    spelled = name.decode("utf-8", "surrogateescape")
                    yield NamedSymbol(spelled, symbol.st_shndx != 0, symbol.is_local)

    def exported_names(self) -> bytes:
        """Return the static table's symbols for other files, NUL-ended; raise FormatError."""
        tables = self.of_type(SHT_SYMTAB)
        if not tables:
            return b""
        index = tables[0]
        symbols, names = self.symbols(index), self.linked(index)
        strings = bytes(self.content(names))
        if self.sections[names].sh_type != SHT_STRTAB or not strings.endswith(b"\0"):
            message = f"expected strings in section {names}, the last one ended by NUL"
            raise self.error(index, "sh_link", message)
        limit = _NAMES_BUDGET * len(self.data)
        out = bytearray()
        for symbol in symbols[1:]:  # symbol 0 is none
            is_inner = symbol.is_local or symbol.type in (STT_SECTION, STT_FILE)
            if is_inner or not symbol.st_shndx:
                continue
            name = symbol.st_name
            if name >= len(strings) or len(out) > limit:
                message = f"expected less than {len(strings)} (the strings' size), found {name}"
                raise self.error(index, "st_name in the content", message)
            out += strings[name : strings.index(b"\0", name) + 1]
        return bytes(out)

    def strings(self, index: int) -> StringTable:
        """Open section `index` as a string table."""
        error = partial(self.error, index, "sh_name or st_name")
        return StringTable(self.content(index), _NAMES_BUDGET * len(self.data), error)

    def label(self, index: int) -> str:
        """Return the name of section `index` for messages."""
        name = self.names[index].decode("utf-8", "backslashreplace")
        return f"section {index} ('{name}')"

    def error(self, index: int, field: str, message: str) -> FormatError:
        """Return the error that `field` of section header `index` is wrong."""
        return self._error(self.header_offset(index), f"{field} of section {index}", message)

    def unsupported(self, index: int, field: str, message: str) -> UnsupportedError:
        """Return the error that something valid in section `index` prevents the change."""
        at, field = self.header_offset(index), f"{field} of section {index}"
        return UnsupportedError(message, path=self.path, offset=at, field=field)

    def header_offset(self, index: int) -> int:
        """Return the offset of section header `index` in the file."""
        return self.header.e_shoff + index * self.elf_class.section.size

    def _outside(self, start: int, end: int) -> str:
        size = len(self.data)
        return f"claims bytes {start} to {end}, but the file has {size}; it may be cut short"

    def _check_together(self, parts: Iterable[tuple[int, int]], at: int, field: str) -> None:
        """Raise if parts overlap too much: a small file could cause any amount of work."""
        whole = len(self.data)
        if sum(size for start, size in parts if start + size <= whole) > _SHARED * whole:
            message = "what it names, taken together, is far longer than the file"
            raise self._error(at, field, message)

    def _take(self, offset: int, size: int, field: str) -> memoryview:
        if offset + size > len(self.data):
            message = f"expected {size} bytes at offset {offset}, but the file has "
            message += f"{len(self.data)}; it may be cut short"
            raise self._error(min(offset, len(self.data)), field, message)
        return self.data[offset : offset + size]

    def _check_alignment(self, alignment: int, at: int, field: str) -> None:
        if alignment > _MAX_ALIGN or alignment & (alignment - 1):
            message = f"expected a power of two up to {_MAX_ALIGN}, found {alignment}"
            raise self._error(at, field, message)

    def _expect_entry_size(self, found: int, expected: int, field: str) -> None:
        if found != expected:
            raise self._error(0, field, f"expected {expected} bytes, found {found}")

    def _error(self, offset: int, field: str, message: str) -> FormatError:
        return FormatError(message, path=self.path, offset=offset, field=field)


def is_elf(data: memoryview) -> bool:
    """Return whether `data` begins with ELF's magic."""
    return data[: len(_MAGIC)] == _MAGIC


def is_elf_header(data: memoryview) -> bool:
    """Return whether `data` begins with an ELF header of a valid class and byte order."""
    elf_class = _find_class(data)
    return elf_class is not None and len(data) >= elf_class.header.size


def _find_class(data: memoryview) -> ElfClass | None:
    return _CLASSES.get((data[4], data[5])) if is_elf(data) and len(data) > 5 else None


def read_elf_tables(data: memoryview, *, path: StrPath | None = None) -> ElfTables:
    """Read headers and section names; raise FormatError if they contradict the data."""
    tables = ElfTables(data, path)
    tables.check()
    return tables
