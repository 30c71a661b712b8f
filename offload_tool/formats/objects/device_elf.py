"""Standalone device code: AMD's code object, and NVIDIA's cubin.

Both are ELF files whose header identifies the processor::

    offset  size  ELF header
    ------  ----  ----------------------------------------------------------------
    7       1     EI_OSABI: 64 is HSA, AMD's runtime; 51 (older: 65) CUDA
    8       1     EI_ABIVERSION, see below
    16      2     e_type: 1 relocatable, 2 and 3 loadable by a runtime
    18      2     e_machine: 224 AMDGPU, 190 CUDA
    48      4     e_flags

    AMDGPU's EI_ABIVERSION  code object  e_flags
    ----------------------  -----------  ----------------------------------------------
    0                       version 2    the processor is in a note; not read here
    1                       version 3    0..7 processor, 8 xnack is on, 9 sramecc is on
    2, 3, 4                 4, 5, 6      0..7 processor, 8..9 xnack, 10..11 sramecc:
                                         0 unsupported, 1 any, 2 off, 3 on
    4                       6            24..31 the version of a generic processor

    CUDA's EI_ABIVERSION    e_flags
    --------------------    ----------------------------------------------------------
    7                       0..7 the number of the processor, 11 set for the suffix "a"
    8                       8..15 the number of the processor; the record 02 09 01 00 in section
                            .nv.compat marks the suffix "a" (nothing marks "f")

HIP's loader treats a code object as if it had a bundle entry ID, so this module derives the offload
kind of one: ``hip`` up to version 3, ``hipv4`` from then on.

An OpenMP device image can identify itself in notes::

    section .note.openmp, type SHT_NOTE: three notes of the name "LLVMOMPOFFLOAD"
      type 1: "1.0", version of the notes
      type 2: "LLVM", the producer
      type 3: "15.0.6", the producer's version

Source: AMDGPUUsage, "ELF Header"; cubins of ptxas 13.0, and llvm-readelf 22.1.8 for both;
clang-offload-wrapper 15.0.6 with ``-add-omp-offload-notes``, observed: the same bytes.
"""

from __future__ import annotations

from typing import NamedTuple

from offload_tool.errors import UnsupportedError
from offload_tool.formats.objects.elf import reader as elf
from offload_tool.formats.targets.processors import PROCESSOR_OF_MACH
from offload_tool.io import StrPath
from offload_tool.io.write_plan import FilePlan

_ELF64_LITTLE = b"\2\1"  # e_ident[EI_CLASS] and e_ident[EI_DATA]
_ABI, _ABI_VERSION, _FLAGS_AT, _HEADER_SIZE = 7, 8, 48, 64
_HSA = 64
_ABI_V6 = 4  # ELFABIVERSION_AMDGPU_HSA_V6
_GENERIC_VERSION = 24  # lowest bit of the generic version in e_flags of version 6
_AMD_TRIPLE, _CUDA_TRIPLE = "amdgcn-amd-amdhsa-", "nvptx64-nvidia-cuda-unknown"
_FEATURES = (("sramecc", 10, 9), ("xnack", 8, 8))
"""Name, lowest bit from version 4 on, and bit of version 3."""
_SETTINGS = ("", "", "-", "+")
_CUDA_SHIFTS = {7: 0, 8: 8}  # lowest bit of the processor's number by EI_ABIVERSION
_OLD_LETTER = 11
_NOTES_SECTION, _NOTE_NAME = b".note.openmp", b"LLVMOMPOFFLOAD\0"
_NOTES = {1: b"1.0", 2: b"LLVM", 3: b"15.0.6"}
_COMPATIBILITY, _RECORD_SIZE, _SPECIFIC = ".nv.compat", 4, b"\x02\x09\x01\x00"


class CodeObject(NamedTuple):
    """The information in a code object's header."""

    kind: str
    """Offload kind of the runtime that loads it."""
    triple: str
    target_id: str
    image_kind: str
    """``object``, which is loadable, or ``relocatable``, which is not linked yet."""


def is_code_object(data: memoryview, offset: int = 0) -> bool:
    """Return whether `data` has the ELF header of HSA or CUDA device code at `offset`."""
    header = _header(data[offset : offset + _HEADER_SIZE])
    if header is None:
        return False
    is_hsa = header.e_machine == elf.EM_AMDGPU and header.e_ident[_ABI] == _HSA
    return is_hsa or header.e_machine == elf.EM_CUDA


def generic_version(code: bytes | memoryview) -> int | None:
    """Return the generic version of an AMDGPU code object, 0 if it has none; None for others."""
    header = _header(memoryview(code))
    if header is None:
        return None
    is_v6 = header.e_ident[_ABI_VERSION] == _ABI_V6
    return header.e_flags >> _GENERIC_VERSION if is_v6 else 0


def _header(data: memoryview) -> elf.ElfHeader | None:
    if not elf.is_elf_header(data):
        return None
    header = elf.ElfTables(data).header
    return header if header.e_ident[4:6] == _ELF64_LITTLE else None


def read_code_object(data: memoryview, *, path: StrPath | None = None) -> CodeObject:
    """Read kind and processor of a code object; raise UnsupportedError if they are unknown."""
    header = elf.ElfTables(data, path).header
    version = header.e_ident[_ABI_VERSION]
    image_kind = "relocatable" if header.e_type == elf.ET_REL else "object"
    if header.e_machine == elf.EM_CUDA:
        target_id = _cuda_target_id(data, header.e_flags, version, path)
        return CodeObject("cuda", _CUDA_TRIPLE, target_id, image_kind)
    kind = "hip" if version < 2 else "hipv4"
    return CodeObject(kind, _AMD_TRIPLE, _amd_target_id(header.e_flags, version, path), image_kind)


def _cuda_target_id(data: memoryview, flags: int, version: int, path: StrPath | None) -> str:
    if version not in _CUDA_SHIFTS:
        message = f"expected 7 or 8 for the ABI version of a cubin, found {version}"
        raise UnsupportedError(message, path=path, offset=8, field="EI_ABIVERSION")
    shift = _CUDA_SHIFTS[version]
    is_specific = bool(flags >> _OLD_LETTER & 1)
    if shift:
        tables = elf.read_elf_tables(data, path=path)
        numbers = tables.named(_COMPATIBILITY)
        records = bytes(tables.content(numbers[0])) if numbers else b""
        starts = range(0, len(records), _RECORD_SIZE)
        is_specific = any(records[at : at + _RECORD_SIZE] == _SPECIFIC for at in starts)
    return f"sm_{flags >> shift & 0xFF}{'a' if is_specific else ''}"


def _amd_target_id(flags: int, version: int, path: StrPath | None) -> str:
    if not 1 <= version <= 4:
        message = f"expected a code object of version 3 to 6 (1 to 4 here), found {version}"
        raise UnsupportedError(message, path=path, offset=8, field="EI_ABIVERSION")
    processor = PROCESSOR_OF_MACH.get(flags & 0xFF)
    if processor is None:
        message = f"expected the number of an AMD GPU that is known, found {flags & 0xFF:#x}"
        raise UnsupportedError(message, path=path, offset=_FLAGS_AT, field="e_flags")
    parts = [processor.name]
    for feature, shift, old_bit in _FEATURES:
        if version > 1:
            setting = _SETTINGS[flags >> shift & 3]
        elif feature in processor.features:
            setting = "+" if flags >> old_bit & 1 else "-"
        else:
            setting = ""
        parts += [f"{feature}{setting}"] if setting else []
    return ":".join(parts)


def plan_elf_with_notes(image: memoryview, *, path: StrPath | None = None) -> FilePlan:
    """Return a plan of the ELF file `image` with the notes in a new last section."""
    from offload_tool.formats.objects.elf.edit_sections import plan_elf  # readers need none

    elf_class = elf.ElfTables(image, path).elf_class
    notes = b"".join(
        elf_class.pack_note(_NOTE_NAME, number, text) for number, text in _NOTES.items()
    )
    # Without flags: unlike other added sections, the linker must keep this one.
    added = [(_NOTES_SECTION, notes)]
    return plan_elf(image, added, path=path, section_type=elf.SHT_NOTE, flags=0)
