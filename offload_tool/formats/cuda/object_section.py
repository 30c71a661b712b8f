"""CUDA's fat binary inside host code: the sections of objects, and the wrappers of programs.

clang embeds the fat binary from its command line while it compiles the host code::

    .nvFatBinSegment                         .nv_fatbin   (read-only)
      __cuda_fatbin_wrapper:
        magic, version,
        pointer to .nv_fatbin + 0   ------->   the fat binary's bytes
        0

With a placeholder, the object does not depend on device code. Later, this module replaces the
placeholder: the fat binary is appended to a copy of the object, and the section's header points to
it. Nothing else changes::

    object as it was, with another offset and size | zeros | fat binary
    in the header of section .nv_fatbin

With relocatable device code, the section is ``__nv_relfatbin``: see `formats.host_symbols`. In a
linked program, the wrapper tells which fat binary is linked of several sources::

    .nvFatBinSegment                              .nv_fatbin
      0   u32 magic     0x466243b1
      4   u32 version   1: loaded as it is; 2: linked of the sources' relocatable code
      8   pointer       ----------------------->    the fat binary
      16  pointer       version 2: to pointers to the sources' fat binaries, and 0; may be set
                        when the program starts

A device without a linked image gets the sources' code, which the driver links.

Source: clang 22.1.8 and 19.1.7, observed; fatbinary_section.h and crt/link.stub of CUDA 13.0.
NVIDIA's own programs have the same sections.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from offload_tool.errors import CodeObjectError, ContentError, FormatError, UnsupportedError
from offload_tool.formats.magic import aligned
from offload_tool.formats.objects.elf import reader as elf
from offload_tool.formats.objects.elf.reader import ElfTables, is_elf, read_elf_tables
from offload_tool.formats.objects.elf.relocations import LinkedPointers
from offload_tool.io import StrPath
from offload_tool.io.write_plan import HOST, FilePlan, Literal, Part, Range, join

PLACEHOLDER = b"offload_tool: the fat binary goes here"
SECTION = ".nv_fatbin"
RELOCATABLE_SECTION = "__nv_relfatbin"
SECTIONS = (SECTION, RELOCATABLE_SECTION)
"""Full names; linked PE files have the first 8 characters."""
ALIGNMENT = 16
"""Alignment of the fat binary in the file, in bytes; the section requires 8."""


def find_placeholder(data: memoryview, *, path: StrPath | None = None) -> int | None:
    """Return the number of a host object's section that holds the placeholder; None without one.

    Clang creates none for a source without kernels and device variables. Raises CodeObjectError for
    other content, FormatError or UnsupportedError for no usable ELF file.
    """
    expected = "expected a 64-bit little-endian ELF object"
    if not is_elf(data):
        raise FormatError(expected, path=path, offset=0)
    tables = read_elf_tables(data, path=path)
    if tables.elf_class is not elf.ELF64_LITTLE:
        raise UnsupportedError(expected, path=path, offset=0)
    for index, (name, section) in enumerate(zip(tables.names, tables.sections, strict=True)):
        if name.decode("latin-1") in SECTIONS:
            found = data[section.sh_offset : section.sh_offset + section.sh_size]
            if found == PLACEHOLDER:
                return index
            raise CodeObjectError(
                f"'{path}': expected the placeholder of a fat binary in {name.decode()}, "
                f"found {bytes(found[:8])!r}"
            )
    return None


def plan_embedding(data: memoryview, content: Part, *, path: StrPath | None = None) -> FilePlan:
    """Return a plan of the host object `data` with a fat binary; errors of `find_placeholder`."""
    index = find_placeholder(data, path=path)
    if index is None:
        raise CodeObjectError(
            f"'{path}': expected a section {SECTION} for the fat binary, found none: it was not "
            "compiled with the placeholder; compile it with `offload-tool compile --host`"
        )
    tables = read_elf_tables(data, path=path)
    layout = tables.elf_class.section
    offset, fatbin = aligned(len(data), ALIGNMENT), FilePlan.of([content])
    header = tables.sections[index]._replace(sh_offset=offset, sh_size=fatbin.size)
    at = tables.header_offset(index)
    end = at + layout.size
    pieces = (
        Range(0, HOST, 0, at),
        Literal(at, layout.pack(*header)),
        Range(end, HOST, end, len(data) - end),
        *fatbin.moved(offset),
    )
    return FilePlan(join(pieces), offset + fatbin.size)


# -- linked programs ------------------------------------------------------------------------------

_SEGMENT = ".nvFatBinSegment"
_MAGIC, _LINKED = 0x466243B1, 2
_WRAPPER = struct.Struct("<IIQQ")
_POINTER = 8


def linked_fatbins(tables: ElfTables) -> list[int]:
    """Return the offsets of fat binaries linked of several sources; none for an object."""
    if tables.header.e_type == elf.ET_REL or tables.elf_class is not elf.ELF64_LITTLE:
        return []
    addresses = [*_linked_wrappers(tables)]
    if not addresses:
        return []
    try:
        pointers = LinkedPointers(tables)
        pointers.look_up({address + _POINTER for address in addresses})
        found = [pointers.offset(pointers.target(address + _POINTER)) for address in addresses]
    except ContentError:
        return []
    rows = [tables.sections[number] for number in tables.named(SECTION)]
    return [
        at for at in found if any(row.sh_offset <= at < row.sh_offset + row.sh_size for row in rows)
    ]


def _linked_wrappers(tables: ElfTables) -> Iterator[int]:
    """Yield the addresses of the wrappers of version 2."""
    for number in tables.named(_SEGMENT):
        content = tables.content(number)
        for at in range(0, len(content) - _WRAPPER.size + 1, _WRAPPER.size):
            if _WRAPPER.unpack_from(content, at)[:2] == (_MAGIC, _LINKED):
                yield tables.sections[number].sh_addr + at
