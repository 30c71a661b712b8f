"""The wrappers of fat binaries in a linked CUDA program: which one is linked of several sources.

::

    .nvFatBinSegment                              .nv_fatbin
      0   u32 magic     0x466243b1
      4   u32 version   1: loaded as it is; 2: linked of the sources' relocatable code
      8   pointer       ----------------------->    the fat binary
      16  pointer       version 2: to pointers to the sources' fat binaries, and 0; may be set
                        when the program starts

A device without a linked image gets the sources' code, which the driver links. Source:
fatbinary_section.h and crt/link.stub of CUDA 13.0; NVIDIA's own programs have the same sections.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from offload_tool.errors import ContentError
from offload_tool.formats.cuda.object_section import SECTION
from offload_tool.formats.objects.elf.reader import ELF64_LITTLE, ET_REL, ElfTables
from offload_tool.formats.objects.elf.relocations import LinkedPointers

_SEGMENT = b".nvFatBinSegment"
_MAGIC, _LINKED = 0x466243B1, 2
_WRAPPER = struct.Struct("<IIQQ")
_POINTER = 8


def linked_fatbins(tables: ElfTables) -> list[int]:
    """Return the offsets of fat binaries linked of several sources; none for an object."""
    if tables.header.e_type == ET_REL or tables.elf_class is not ELF64_LITTLE:
        return []
    addresses = [*_linked_wrappers(tables)]
    try:
        pointers = LinkedPointers(tables)
        pointers.look_up({address + _POINTER for address in addresses})
        found = [pointers.offset(pointers.target(address + _POINTER)) for address in addresses]
    except ContentError:
        return []
    named = zip(tables.sections, tables.names, strict=True)
    rows = [row for row, name in named if name == SECTION.encode()]
    return [
        at for at in found if any(row.sh_offset <= at < row.sh_offset + row.sh_size for row in rows)
    ]


def _linked_wrappers(tables: ElfTables) -> Iterator[int]:
    """Yield the addresses of the wrappers of version 2."""
    for number, row in enumerate(tables.sections):
        if tables.names[number] != _SEGMENT or not row.has_content:
            continue
        content = tables.content(number)
        for at in range(0, len(content) - _WRAPPER.size + 1, _WRAPPER.size):
            if _WRAPPER.unpack_from(content, at)[:2] == (_MAGIC, _LINKED):
                yield row.sh_addr + at
