"""The wrappers through which HIP host code registers its device code, and their marking.

One for each translation unit (or for all with relocatable device code) in ``.hipFatBinSegment``::

    0   u32  "FPIH" (HIPF): the pointer leads to a bundle; "HIPK": to a kpack marker
    4   u32  version, 1
    8   u64  pointer
    16  u64  0; with HIPK, the index in the key of the kpack archive

What is marked has its bundles taken out, and one marker in the place of the first::

    before   .hipFatBinSegment  HIPF 1 .. 0 | HIPF 1 .. 0     .hip_fatbin      bundle | bundle
                                       |             |                         ^        ^
                                       +-------------|-------------------------+        |
                                                     +----------------------------------+
    after    .hipFatBinSegment  HIPK 1 .. 0 | HIPK 1 .. 1     .rocm_kpack_ref  marker  (hole)
                                       |             |                         ^
                                       +-------------+-------------------------+

Nothing moves in memory, and there are fewer relocations to change than wrappers. The index is
the position of the first wrapper that led to the bundle: not of the bundle, of which sources
without code for a target ID have none. Source: clang 22.1.8, observed; clr's hip_fatbin.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from offload_tool.errors import FormatError, UnsupportedError
from offload_tool.files.plan import FilePlan
from offload_tool.formats.hip_fatbin import SECTION
from offload_tool.formats.kpack_marker import SECTION as MARKER_SECTION
from offload_tool.formats.objects.elf_pointers import LinkedPointers
from offload_tool.formats.objects.elf_shrink import Replacement, plan_shrunk_elf

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offload_tool.formats.objects.elf import ElfTables

__all__ = ["FATBIN", "KPACK", "WRAPPERS", "Wrapper", "linked_wrappers", "plan_marked", "rewired"]

WRAPPERS = ".hipFatBinSegment"
FATBIN, KPACK = b"FPIH", b"HIPK"
_VERSION = 1
_WRAPPER = struct.Struct("<4sIQQ")
_POINTER = 8
_INDEX = 16


class Wrapper(NamedTuple):
    """One wrapper of a linked file."""

    offset: int
    """In the file."""
    address: int
    magic: bytes
    target: int
    """The address that its pointer leads to."""
    index: int


def linked_wrappers(tables: ElfTables) -> tuple[list[Wrapper], LinkedPointers]:
    """Read the wrappers of a program or library, in order, and what their pointers are.

    :raises FormatError: they are broken.
    :raises UnsupportedError: they are of another version, or their pointers are not known.
    """
    pointers = LinkedPointers(tables)
    places = []
    for number, name in enumerate(tables.names):
        row = tables.sections[number]
        if name != WRAPPERS.encode() or not row.has_content:
            continue
        content = tables.content(number)
        if len(content) % _WRAPPER.size:
            message = f"expected wrappers of {_WRAPPER.size} bytes each, found {len(content)} bytes"
            raise tables.error(number, "sh_size", message)
        places += [
            (row.sh_offset + at, row.sh_addr + at) for at in range(0, len(content), _WRAPPER.size)
        ]
    pointers.look_up({address + _POINTER for _, address in places})
    found = []
    for offset, address in places:
        magic, version, _, index = _WRAPPER.unpack_from(tables.data, offset)
        if magic not in (FATBIN, KPACK):
            message = f"expected a wrapper (HIPF or HIPK), found {magic!r}"
            raise FormatError(message, path=tables.path, offset=offset)
        if version != _VERSION:
            message = f"expected version {_VERSION} of a wrapper, found {version}"
            raise UnsupportedError(message, path=tables.path, offset=offset + 4)
        target = pointers.target(address + _POINTER)
        found.append(Wrapper(offset, address, magic, target, index))
    return found, pointers


def rewired(
    wrappers: Sequence[Wrapper], pointers: LinkedPointers, new: Sequence[tuple[bytes, int, int]]
) -> list[tuple[int, bytes]]:
    """Give what to write where, for wrappers to have (magic, target, index) of `new`."""
    patches = []
    for wrapper, (magic, target, index) in zip(wrappers, new, strict=True):
        patches.append((wrapper.offset, magic))
        patches.append((wrapper.offset + _INDEX, struct.pack("<Q", index)))
        patches += pointers.patches(wrapper.address + _POINTER, target)
    return patches


def plan_marked(
    tables: ElfTables, wrappers: Sequence[Wrapper], pointers: LinkedPointers, marker: bytes
) -> FilePlan:
    """Plan the file without its bundles, and with `marker` for its wrappers.

    :raises FormatError: its tables contradict it.
    :raises UnsupportedError: it cannot be done safely.
    """
    numbers = [at for at, name in enumerate(tables.names) if name == SECTION.encode()]
    numbers = [at for at in numbers if tables.sections[at].has_content]
    replacements = []
    own = {wrapper.address + _POINTER for wrapper in wrappers}
    for number in numbers:
        row = tables.sections[number]
        place = pointers.leading_into(row.sh_addr, row.sh_addr + row.sh_size, own)
        if place is not None:
            message = f"the pointer at address {place:#x}, which is in no wrapper, leads into "
            message += tables.label(number)
            raise UnsupportedError(f"cannot be split: {message}", path=tables.path)
        content = FilePlan.of([marker] if number == numbers[0] else [])
        replacements.append((number, Replacement(row.sh_offset, row.sh_size, content)))
    first: dict[int, int] = {}
    for at, wrapper in enumerate(wrappers):
        first.setdefault(wrapper.target, at)
    address = tables.sections[numbers[0]].sh_addr
    new = [(KPACK, address, first[wrapper.target]) for wrapper in wrappers]
    return plan_shrunk_elf(
        tables.data,
        replacements,
        patches=rewired(wrappers, pointers, new),
        renamed={numbers[0]: MARKER_SECTION.encode()},
        verb="split",
        path=tables.path,
    )
