"""The wrappers through which HIP host code registers its device code, and their marking.

One for each translation unit (or for all with relocatable device code), see `fatbin_section`.
What is marked has its bundles taken out, and one marker in the place of the first::

    before   .hipFatBinSegment  HIPF 1 .. 0 | HIPF 1 .. 0     .hip_fatbin      bundle | bundle
                                       |             |                         ^        ^
                                       +-------------|-------------------------+        |
                                                     +----------------------------------+
    after    .hipFatBinSegment  HIPK 1 .. 0 | HIPK 1 .. 1     .rocm_kpack_ref  marker  (hole)
                                       |             |                         ^
                                       +-------------+-------------------------+

Nothing moves in memory; of the relocations, those of the wrappers' pointers change. The index is
the position of the first wrapper that led to the bundle: not of the bundle, of which sources
without code for a target ID have none. Source: clr; AMD's splitter; observed.

In a linked ELF file a wrapper's pointer is an address: in place, or in the relocation that puts
it there when the file is loaded. In an object it is a symbol, which may be of another object.
COFF files are not looked into.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from offload_tool.errors import UnsupportedError
from offload_tool.formats.hip.fatbin_section import (
    EMBEDDED,
    KPACKED,
    MARKER_PLACE,
    SECTION,
    WRAPPER_SECTION,
    HipWrapper,
    wrappers_of,
)
from offload_tool.formats.kpack.archive import kernel_key
from offload_tool.formats.kpack.marker import SECTION as MARKER_SECTION
from offload_tool.formats.kpack.marker import KpackMarker, read_marker
from offload_tool.formats.msgpack_stream import MAPS
from offload_tool.formats.objects.elf.reader import (
    ELF64_LITTLE,
    ET_REL,
    SHN_LORESERVE,
    SHT_DYNSYM,
    SHT_RELA,
    SHT_SYMTAB,
    ElfTables,
)
from offload_tool.formats.objects.elf.relocations import LinkedPointers
from offload_tool.io.limits import budget
from offload_tool.io.write_plan import FilePlan

_POINTER = 8
_INDEX = 16
_WORD = struct.Struct("<Q")
_RELA = struct.Struct("<QQq")
_MARKER_SECTIONS = {name.encode() for name in (MARKER_SECTION, MARKER_PLACE.section)}


class LinkedWrapper(NamedTuple):
    """A wrapper of a linked file."""

    wrapper: HipWrapper
    address: int
    target: int
    """The address that its pointer leads to."""

    @property
    def is_marked(self) -> bool:
        """Whether it leads to a marker, not to a bundle."""
        return self.wrapper.magic == KPACKED


class LinkedWrappers:
    """The wrappers of a program or library, in order; `rows` has them.

    :raises FormatError: they are broken.
    :raises UnsupportedError: they are of another version, or their pointers are not known.
    """

    def __init__(self, tables: ElfTables) -> None:
        self.tables = tables
        self.pointers = LinkedPointers(tables)
        found: list[tuple[HipWrapper, int]] = []
        for number, wrapper in wrappers_of(tables):
            row = tables.sections[number]
            found.append((wrapper, row.sh_addr + wrapper.offset - row.sh_offset))
        self.pointers.look_up({address + _POINTER for _, address in found})
        self.rows = [
            LinkedWrapper(wrapper, address, self.pointers.target(address + _POINTER))
            for wrapper, address in found
        ]

    def rewired(self, magic: bytes, new: Sequence[tuple[int, int]]) -> Iterator[tuple[int, bytes]]:
        """Yield what to write where, for each to have the `magic` and (target, index) of `new`."""
        for row, (target, index) in zip(self.rows, new, strict=True):
            yield row.wrapper.offset, magic
            yield row.wrapper.offset + _INDEX, _WORD.pack(index)
            yield from self.pointers.patches(row.address + _POINTER, target)

    def indexes(self) -> dict[int, int]:
        """Return the index for what wrappers lead to, by address: the first one's position."""
        first: dict[int, int] = {}
        for at, row in enumerate(self.rows):
            first.setdefault(row.target, at)
        return first

    def check_inside(self, number: int) -> None:
        """Refuse a section into which other pointers than theirs lead.

        :raises UnsupportedError: there is one.
        """
        section = self.tables.sections[number]
        own = {row.address + _POINTER for row in self.rows}
        start, end = section.sh_addr, section.sh_addr + section.sh_size
        place = self.pointers.leading_into(start, end, own)
        if place is not None:
            message = f"the pointer at address {place:#x}, which is in no wrapper, leads into "
            message += self.tables.label(number)
            raise UnsupportedError(f"cannot be split: {message}", path=self.tables.path)


# -- markers ---------------------------------------------------------------------------


class MarkedWrapper(NamedTuple):
    """A wrapper, and what its marker says."""

    position: int
    """Which wrapper of the file, from 0."""
    key: str
    """Under which its code objects are in an archive."""
    marker: KpackMarker


def is_marked(tables: ElfTables, number: int) -> bool:
    """Return whether a section has wrappers, and one of them may be one with a marker."""
    row = tables.sections[number]
    if tables.names[number] != WRAPPER_SECTION.encode() or not row.has_content:
        return False
    wrappers = bytes(tables.data[row.sh_offset : row.sh_offset + row.sh_size])
    return KPACKED in wrappers or not _MARKER_SECTIONS.isdisjoint(tables.names)


def marked_wrappers(tables: ElfTables) -> Iterator[MarkedWrapper]:
    """Yield the wrappers of a 64-bit little-endian ELF file that have markers, in file order.

    Those of an object whose marker is in another object are left out.

    :raises FormatError: a wrapper or a marker is broken, or cannot be followed.
    :raises UnsupportedError: see `LinkedPointers`.
    """
    if tables.elf_class is not ELF64_LITTLE:
        return
    if tables.header.e_type == ET_REL:
        found = [(row[1], _place_in_object(tables, *row)) for row in wrappers_of(tables)]
    else:
        linked = LinkedWrappers(tables)
        found = [(row.wrapper, linked.pointers.offset(row.target)) for row in linked.rows]
    markers: dict[int, KpackMarker] = {}
    limits = budget(len(tables.data))
    for position, (wrapper, at) in enumerate(found):
        if at is not None and (wrapper.magic == KPACKED or _is_wrapped(tables, at)):
            if at not in markers:
                markers[at], size = read_marker(tables.data, path=tables.path, offset=at)
                limits.look(size, tables.path)
            key = kernel_key(markers[at].kernel_name, wrapper.number)
            yield MarkedWrapper(position, key, markers[at])


def _is_wrapped(tables: ElfTables, at: int) -> bool:
    """Return whether what a wrapper has in the place of a bundle is a map: a marker.

    Its magic is changed when the program starts, see ``passes/runtime/kpack_wrap.c``.
    """
    return at < len(tables.data) and tables.data[at] in MAPS


def _place_in_object(tables: ElfTables, number: int, wrapper: HipWrapper) -> int | None:
    """Return where in an object the marker of a wrapper is; None: in another object."""
    place = wrapper.pointer_offset - tables.sections[number].sh_offset
    for index, other in enumerate(tables.sections):
        if other.sh_type != SHT_RELA or other.sh_info != number:
            continue
        content = tables.content(index)
        for found in re.finditer(re.escape(struct.pack("<Q", place)), content):
            if found.start() % _RELA.size == 0 and found.start() + _RELA.size <= len(content):
                _, info, addend = _RELA.unpack_from(content, found.start())
                return _at_symbol(tables, index, info >> 32, addend)
    return None


def _at_symbol(tables: ElfTables, index: int, symbol: int, addend: int) -> int | None:
    """Return where in an object a relocation of section `index` points to."""
    table = tables.linked(index)
    if tables.sections[table].sh_type != SHT_SYMTAB:
        raise tables.error(index, "sh_link", "expected a table of symbols")
    symbols = tables.symbols(table)
    if symbol >= len(symbols):
        raise tables.error(index, "r_info", f"expected a symbol below {len(symbols)}")
    home, offset = symbols[symbol].st_shndx, symbols[symbol].st_value + addend
    if not home or home >= SHN_LORESERVE:
        return None
    if home >= len(tables.sections) or not 0 <= offset < tables.sections[home].sh_size:
        raise tables.error(index, "r_info", "expected a symbol within its section")
    return tables.sections[home].sh_offset + offset


# -- marking ---------------------------------------------------------------------------


def plan_marked(wrappers: LinkedWrappers, marker: bytes) -> FilePlan:
    """Plan the file without its bundles, and with `marker` for its wrappers.

    :raises FormatError: its tables contradict it.
    :raises UnsupportedError: it cannot be done safely.
    """
    from offload_tool.formats.objects.elf.segments import Replacement, plan_shrunk_elf

    tables = wrappers.tables
    numbers = [
        at
        for at, name in enumerate(tables.names)
        if name == SECTION.encode() and tables.sections[at].has_content
    ]
    replacements = []
    for number in numbers:
        wrappers.check_inside(number)
        row = tables.sections[number]
        content = FilePlan.of([marker] if number == numbers[0] else [])
        replacements.append((number, Replacement(row.sh_offset, row.sh_size, content)))
    address = tables.sections[numbers[0]].sh_addr
    first = wrappers.indexes()
    new = [(address, first[row.target]) for row in wrappers.rows]
    return plan_shrunk_elf(
        tables.data,
        replacements,
        patches=wrappers.rewired(KPACKED, new),
        renamed={numbers[0]: MARKER_SECTION.encode()},
        verb="split",
        path=tables.path,
    )


def plan_unmarked(wrappers: LinkedWrappers, content: FilePlan, starts: Sequence[int]) -> FilePlan:
    """Plan a marked file with bundles, `content`, in it again.

    `starts` has, for each wrapper, where its bundle begins in `content`.

    :raises UnsupportedError: it cannot be done safely.
    """
    from offload_tool.formats.objects.elf.segments import plan_grown_elf

    tables = wrappers.tables
    markers = [at for at, name in enumerate(tables.names) if name == MARKER_SECTION.encode()]
    if len(markers) != 1:
        message = f"expected one section {MARKER_SECTION}, found {len(markers)}"
        raise UnsupportedError(f"cannot be joined: {message}", path=tables.path)
    empty = [  # AMD's splitter leaves it without content
        at
        for at, name in enumerate(tables.names)
        if name == SECTION.encode() and not tables.sections[at].has_content
    ]

    def patches(address: int) -> Iterator[tuple[int, bytes]]:
        row = tables.sections[markers[0]]
        yield row.sh_offset, bytes(row.sh_size)
        yield from wrappers.rewired(EMBEDDED, [(address + start, 0) for start in starts])
        yield from _moved_symbols(tables, {markers[0], *empty}, markers[0], address)

    return plan_grown_elf(
        tables, content, SECTION.encode(), patches, instead=markers[0], without=empty
    )


def _moved_symbols(
    tables: ElfTables, old: set[int], number: int, address: int
) -> Iterator[tuple[int, bytes]]:
    """Redirect symbols of sections that are gone to the beginning of another one."""
    size = tables.elf_class.symbol.size
    for index, row in enumerate(tables.sections):
        if row.sh_type not in (SHT_SYMTAB, SHT_DYNSYM):
            continue
        for at, symbol in enumerate(tables.symbols(index)):
            if symbol.st_shndx in old:
                new = symbol._replace(st_shndx=number, st_value=address, st_size=0)
                yield row.sh_offset + at * size, tables.elf_class.pack_symbol(new)
