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

from offload_tool.formats.objects.elf.edit_sections import plan_elf
from offload_tool.formats.objects.elf.reader import SHT_NOTE, read_elf_tables
from offload_tool.io import StrPath
from offload_tool.io.write_plan import HOST, FilePlan

_SECTION = b".note.openmp"
_NAME = b"LLVMOMPOFFLOAD\0"
_DESCRIPTIONS = {1: b"1.0", 2: b"LLVM", 3: b"15.0.6"}


def plan_elf_with_notes(image: memoryview, *, path: StrPath | None = None) -> FilePlan:
    """Plan the ELF file `image` with the notes in a section of their own, which is the last.

    :raises FormatError: its tables contradict it or each other.
    """
    elf_class = read_elf_tables(image, path=path).elf_class
    notes = b"".join(
        elf_class.pack_note(_NAME, number, text) for number, text in _DESCRIPTIONS.items()
    )
    # Unlike other sections that are added, the linker is not to leave this one out: no flags.
    plan = plan_elf(image, [(_SECTION, len(notes))], path=path, section_type=SHT_NOTE, flags=0)
    return plan.bound(HOST, [notes])
