"""The kpack marker, a host program's reference to device code in archives, and its wrappers.

A wrapper (see `hip_fatbin`) that begins with ``HIPK`` points to it. The loader follows the pointer;
tools look for the section ``.rocm_kpack_ref`` (COFF: ``.kpackrf``)::

    .hipFatBinSegment                 .rocm_kpack_ref   MessagePack, one map
      "HIPK", version,                  kpack_search_paths   array of strings
      pointer to the marker  ------->   kernel_name          string
      index                           (bytes after the map are ignored)

A path is relative to the folder of the program or library that contains the wrapper. The loader
replaces its first ``@GFXARCH@`` by each target ID that the device may load, in turn::

    gfx942:sramecc+:xnack-   gfx942:sramecc+   gfx942:xnack-   gfx942
    gfx9-4-generic:sramecc+:xnack-   ...   gfx9-4-generic

For each target ID, it looks up the key ``kernel_name#index`` in each archive. It silently skips
missing and broken archives. Windows allows no ``:`` in file names. Source: ROCm/rocm-kpack
(loader.cpp, isa_target_match.cpp), ROCm's clr, observed.

Each translation unit has one wrapper (or all share one, with relocatable device code). Marking a
file removes its bundles, and replaces the first by one marker::

    before   .hipFatBinSegment  HIPF 1 .. 0 | HIPF 1 .. 0     .hip_fatbin      bundle | bundle
                                       |             |                         ^        ^
                                       +-------------|-------------------------+        |
                                                     +----------------------------------+
    after    .hipFatBinSegment  HIPK 1 .. 0 | HIPK 1 .. 1     .rocm_kpack_ref  marker  (hole)
                                       |             |                         ^
                                       +-------------+-------------------------+

Nothing moves in memory; only relocations for the wrappers' pointers change. The index is the
position of the first wrapper that pointed to the bundle. It is not the bundle's: sources without
code for a target ID have no bundle there. Source: clr; AMD's splitter; observed.

In a linked ELF file a wrapper's pointer is an address: in place, or in the relocation that a loader
applies. In an object it is a symbol, possibly of another object. COFF files are not supported.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from offload_tool.errors import ContentError, FormatError, UnsupportedError, UsageError
from offload_tool.formats import hip_fatbin
from offload_tool.formats.kpack.archive import kernel_key
from offload_tool.formats.msgpack_stream import MAPS, check_text, messagepack, reading
from offload_tool.formats.objects.elf import reader as elf
from offload_tool.formats.objects.elf.reader import ElfTables
from offload_tool.formats.objects.elf.relocations import LinkedPointers
from offload_tool.formats.objects.elf.segments import Replacement, plan_grown_elf, plan_shrunk_elf
from offload_tool.io import StrPath
from offload_tool.io.limits import effective_budget
from offload_tool.io.write_plan import FilePlan

SECTION = ".rocm_kpack_ref"
PLACEHOLDER = "@GFXARCH@"
MAX_SIZE = 64 << 10
"""Bytes of a marker; the loader reads no more."""
_PATHS, _NAME = "kpack_search_paths", "kernel_name"


class KpackMarker(NamedTuple):
    """The archives to search, and the kernel name to look up."""

    kernel_name: str
    search_paths: tuple[str, ...]


def pack_marker(marker: KpackMarker) -> bytes:
    """Return a marker's bytes as AMD's splitter does; raise UsageError if one is too long."""
    if not marker.search_paths or not marker.kernel_name:
        raise UsageError("a kpack marker needs a kernel name and at least one search path")
    pack = messagepack().packb
    check_text(*marker.search_paths, marker.kernel_name)
    data: bytes = pack({_PATHS: list(marker.search_paths), _NAME: marker.kernel_name})
    if len(data) > MAX_SIZE:
        raise UsageError(f"a kpack marker has at most {MAX_SIZE} bytes, not {len(data)}")
    return data


def read_marker(
    data: memoryview, *, path: StrPath | None = None, offset: int = 0
) -> tuple[KpackMarker, int]:
    """Return the marker at `offset` and its size in bytes; raise FormatError or UsageError."""

    def refusal(message: str) -> ContentError:
        message = f"expected a kpack marker: {message}"
        return FormatError(message, path=path, offset=offset, field=SECTION)

    name = None
    paths: tuple[str, ...] = ()
    with reading(data[offset : offset + MAX_SIZE], refusal) as reader:
        for key in reader.map_keys("a map", "a key"):
            if key == _NAME:
                name = reader.string(f"a string for {_NAME}")
            elif key == _PATHS:
                count = reader.array_size(f"an array for {_PATHS}")
                paths = tuple(reader.string("a path") for _ in range(count))
            else:
                reader.skip()
        size = reader.position
    if name is None or not paths:
        raise refusal(f"there is no {_NAME if name is None else _PATHS}")
    return KpackMarker(name, paths), size


_POINTER = 8
_INDEX = 16
_WORD = struct.Struct("<Q")
_RELA = struct.Struct("<QQq")
_MARKER_SECTIONS = {name.encode() for name in (SECTION, hip_fatbin.EMBEDDED_MARKER.name)}


# -- wrappers of linked files --------------------------------------------------------------------


class LinkedWrapper(NamedTuple):
    """A wrapper of a linked file."""

    wrapper: hip_fatbin.HipWrapper
    address: int
    target: int
    """The address in its pointer."""

    @property
    def is_marked(self) -> bool:
        """Whether the pointer leads to a marker, not to a bundle."""
        return self.wrapper.magic == hip_fatbin.KPACKED


class LinkedWrappers:
    """The wrappers of a program, in order, as `rows`; raise FormatError or UnsupportedError."""

    def __init__(self, tables: ElfTables) -> None:
        self.tables = tables
        self.pointers = LinkedPointers(tables)
        found: list[tuple[hip_fatbin.HipWrapper, int]] = []
        for wrapper in hip_fatbin.wrappers_of(tables):
            row = tables.sections[wrapper.section]
            found.append((wrapper, row.sh_addr + wrapper.offset - row.sh_offset))
        self.pointers.look_up({address + _POINTER for _, address in found})
        self.rows = [
            LinkedWrapper(wrapper, address, self.pointers.target(address + _POINTER))
            for wrapper, address in found
        ]

    def pointer_patches(
        self, magic: bytes, new: Sequence[tuple[int, int]]
    ) -> Iterator[tuple[int, bytes]]:
        """Yield (offset, bytes) patches that set `magic` and the (target, index) pairs `new`."""
        for row, (target, index) in zip(self.rows, new, strict=True):
            yield row.wrapper.offset, magic
            yield row.wrapper.offset + _INDEX, _WORD.pack(index)
            yield from self.pointers.patches(row.address + _POINTER, target)

    def indexes(self) -> dict[int, int]:
        """Return the index for each target address: the position of its first wrapper."""
        first: dict[int, int] = {}
        for at, row in enumerate(self.rows):
            first.setdefault(row.target, at)
        return first

    def check_inside(self, number: int) -> None:
        """Raise UnsupportedError if anything but wrappers points into a section."""
        section = self.tables.sections[number]
        own = {row.address + _POINTER for row in self.rows}
        start, end = section.sh_addr, section.sh_addr + section.sh_size
        pointer = self.pointers.find_pointer_into(start, end, own)
        if pointer is not None:
            message = f"the pointer at address {pointer:#x}, which is in no wrapper, leads into "
            message += self.tables.label(number)
            raise UnsupportedError(f"cannot be split: {message}", path=self.tables.path)


# -- marked wrappers ---------------------------------------------------------------------------


class MarkedWrapper(NamedTuple):
    """A wrapper with its marker."""

    position: int
    """Index of the wrapper in the file, from 0."""
    key: str
    marker: KpackMarker


def is_marked(tables: ElfTables, number: int) -> bool:
    """Return whether a wrapper in a section of wrappers may be marked."""
    has_markers = not _MARKER_SECTIONS.isdisjoint(tables.names)
    return has_markers or hip_fatbin.KPACKED in bytes(tables.content(number))


def marked_wrappers(tables: ElfTables) -> Iterator[MarkedWrapper]:
    """Yield an ELF file's marked wrappers, if their marker is in it, too; raise ContentError."""
    if tables.elf_class is not elf.ELF64_LITTLE:
        return
    if tables.header.e_type == elf.ET_REL:
        found = [
            (wrapper, _marker_in_object(tables, wrapper))
            for wrapper in hip_fatbin.wrappers_of(tables)
        ]
    else:
        linked = LinkedWrappers(tables)
        found = [(row.wrapper, linked.pointers.offset(row.target)) for row in linked.rows]
    markers: dict[int, KpackMarker] = {}
    limits = effective_budget(len(tables.data))
    for position, (wrapper, at) in enumerate(found):
        if at is None:
            continue
        # A marker is a map; passes/runtime/kpack_wrap.c changes the magic at program start.
        if wrapper.magic == hip_fatbin.KPACKED or (
            at < len(tables.data) and tables.data[at] in MAPS
        ):
            if at not in markers:
                markers[at], size = read_marker(tables.data, path=tables.path, offset=at)
                limits.reread(size, tables.path)
            key = kernel_key(markers[at].kernel_name, wrapper.number)
            yield MarkedWrapper(position, key, markers[at])


def _marker_in_object(tables: ElfTables, wrapper: hip_fatbin.HipWrapper) -> int | None:
    """Return the offset in an object of a wrapper's marker; None if it is in another object."""
    pointer = wrapper.offset + _POINTER - tables.sections[wrapper.section].sh_offset
    for index, other in enumerate(tables.sections):
        if other.sh_type != elf.SHT_RELA or other.sh_info != wrapper.section:
            continue
        content = tables.content(index)
        for found in re.finditer(re.escape(_WORD.pack(pointer)), content):
            if found.start() % _RELA.size == 0 and found.start() + _RELA.size <= len(content):
                _, info, addend = _RELA.unpack_from(content, found.start())
                return _at_symbol(tables, index, info >> 32, addend)
    return None


def _at_symbol(tables: ElfTables, index: int, symbol: int, addend: int) -> int | None:
    """Return the offset in an object to which a relocation of section `index` points."""
    table = tables.linked(index)
    if tables.sections[table].sh_type != elf.SHT_SYMTAB:
        raise tables.error(index, "sh_link", "expected a table of symbols")
    symbols = tables.symbols(table)
    if symbol >= len(symbols):
        raise tables.error(index, "r_info", f"expected a symbol below {len(symbols)}")
    home, offset = symbols[symbol].st_shndx, symbols[symbol].st_value + addend
    if not home or home >= elf.SHN_LORESERVE:
        return None
    if home >= len(tables.sections) or not 0 <= offset < tables.sections[home].sh_size:
        raise tables.error(index, "r_info", "expected a symbol within its section")
    return tables.sections[home].sh_offset + offset


# -- marking ---------------------------------------------------------------------------


def plan_marked(wrappers: LinkedWrappers, marker: bytes) -> FilePlan:
    """Return a plan of the file with `marker` in place of its bundles; raise ContentError."""
    tables = wrappers.tables
    numbers = tables.named(hip_fatbin.SECTION)
    replacements = []
    for number in numbers:
        wrappers.check_inside(number)
        row = tables.sections[number]
        content = FilePlan.of([marker] if number == numbers[0] else [])
        replacements.append(Replacement(number, row.sh_offset, row.sh_size, content))
    address = tables.sections[numbers[0]].sh_addr
    first = wrappers.indexes()
    new = [(address, first[row.target]) for row in wrappers.rows]
    return plan_shrunk_elf(
        tables,
        replacements,
        patches=wrappers.pointer_patches(hip_fatbin.KPACKED, new),
        renamed=(numbers[0], SECTION.encode()),
        verb="split",
    )


def plan_unmarked(wrappers: LinkedWrappers, content: FilePlan, starts: Sequence[int]) -> FilePlan:
    """Return a plan of a marked file with its bundles, `content`, restored; raise UnsupportedError.

    `starts` has the start of each wrapper's bundle in `content`.
    """
    tables = wrappers.tables
    markers = tables.named(SECTION)
    if len(markers) != 1:
        message = f"expected one section {SECTION}, found {len(markers)}"
        raise UnsupportedError(f"cannot be joined: {message}", path=tables.path)
    empty = [  # AMD's splitter leaves the section empty
        at
        for at, name in enumerate(tables.names)
        if name == hip_fatbin.SECTION.encode() and not tables.sections[at].has_content
    ]

    def patches(address: int) -> Iterator[tuple[int, bytes]]:
        row = tables.sections[markers[0]]
        yield row.sh_offset, bytes(row.sh_size)
        yield from wrappers.pointer_patches(
            hip_fatbin.EMBEDDED, [(address + start, 0) for start in starts]
        )
        yield from _moved_symbols(tables, {markers[0], *empty}, markers[0], address)

    return plan_grown_elf(
        tables, content, hip_fatbin.SECTION.encode(), patches, replaced=markers[0], dropped=empty
    )


def _moved_symbols(
    tables: ElfTables, old: set[int], number: int, address: int
) -> Iterator[tuple[int, bytes]]:
    """Redirect symbols of removed sections to the beginning of the new section."""
    size = tables.elf_class.symbol.size
    for index in tables.of_type(elf.SHT_SYMTAB, elf.SHT_DYNSYM):
        start = tables.sections[index].sh_offset
        for at, symbol in enumerate(tables.symbols(index)):
            if symbol.st_shndx in old:
                new = symbol._replace(st_shndx=number, st_value=address, st_size=0)
                yield start + at * size, tables.elf_class.pack_symbol(new)
