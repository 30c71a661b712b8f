"""Entries of clang's new offload driver: which kernels and variables host code has.

One struct each, in a section that an object of the link's making walks through when the
program starts (see `offload_tool.formats.registration_ir` for the struct)::

    llvm_offload_entries              of all offload kinds, since LLVM 21
    hip_offloading_entries,           of one kind, before
    cuda_offloading_entries

Source: ``llvm/Frontend/Offloading/Utility.h`` of LLVM 22; objects of clang 19 to 23, observed.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from offload_tool.formats.objects.elf.reader import ElfTables

SECTION = "llvm_offload_entries"
_ENTRY = struct.Struct("<8xHH44x")  # reserved, version, kind, flags and five words
_KINDS = {"cuda": 2, "hip": 4}


def section_before(kind: str) -> str:
    """Name the section of one offload kind, before LLVM 21."""
    return f"{kind}_offloading_entries"


def has_entries(tables: ElfTables, kind: str) -> bool:
    """Return whether an ELF object has entries of an offload kind: ``hip`` or ``cuda``."""
    for index, name in enumerate(tables.names):
        content = tables.content(index)
        if name == section_before(kind).encode() and len(content):
            return True
        if name == SECTION.encode():
            rows = content[: len(content) // _ENTRY.size * _ENTRY.size]
            if any(found == _KINDS[kind] for _, found in _ENTRY.iter_unpack(rows)):
                return True
    return False
