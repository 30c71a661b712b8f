"""The notes by which an OpenMP device image says that it is one, in ELF.

::

    section .note.openmp, type SHT_NOTE: three notes
      4 bytes each     size of the name, size of the description, type
      name             "LLVMOMPOFFLOAD", NUL, zeros to a multiple of 4
      description      type 1: "1.0", version of the notes
                       type 2: "LLVM", the producer
                       type 3: "15.0.6", the producer's version
                       zeros to a multiple of 4

Integers have the image's byte order. Source: clang-offload-wrapper 15.0.6 with
``-add-omp-offload-notes``, observed: the same bytes.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from offload_tool.files.plan import HOST, FilePlan, Literal
from offload_tool.formats.objects.elf_edit import plan_elf
from offload_tool.formats.objects.elf_tables import SectionHeader, read_elf_tables

if TYPE_CHECKING:
    from offload_tool.files import StrPath

__all__ = ["plan_elf_with_notes"]

_SECTION = b".note.openmp"
_NAME = b"LLVMOMPOFFLOAD\0"
_DESCRIPTIONS = {1: b"1.0", 2: b"LLVM", 3: b"15.0.6"}
_SHT_NOTE = 7


def plan_elf_with_notes(image: memoryview, *, path: StrPath | None = None) -> FilePlan:
    """Plan the ELF file `image` with the notes in a section of their own, which is the last.

    :raises FormatError: its tables contradict it or each other.
    """
    shape = read_elf_tables(image, path=path).elf_class
    notes = b"".join(
        struct.pack(f"{shape.order}III", len(_NAME), len(text), number)
        + _padded(_NAME)
        + _padded(text)
        for number, text in _DESCRIPTIONS.items()
    )
    plan = plan_elf(image, [(_SECTION, len(notes))], path=path)
    *pieces, table = plan.pieces
    if not isinstance(table, Literal):
        raise TypeError  # the section header table is the last piece
    # A section of notes is not to be left out by the linker, as others that are added are.
    last = len(table.data) - shape.section.size
    header = SectionHeader(*shape.section.unpack_from(table.data, last))
    header = header._replace(sh_type=_SHT_NOTE, sh_flags=0)
    pieces.append(Literal(table.position, table.data[:last] + shape.section.pack(*header)))
    return FilePlan(tuple(pieces), plan.size).bound(HOST, [notes])


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)
