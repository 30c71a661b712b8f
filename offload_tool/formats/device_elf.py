"""Device code that is a file of its own: AMD's code object, and NVIDIA's cubin.

Both are ELF files that say for which processor they are::

    offset  size  ELF header
    ------  ----  ----------------------------------------------------------------
    7       1     EI_OSABI: 64 is HSA, AMD's runtime; 51 (older: 65) CUDA
    8       1     EI_ABIVERSION, see below
    16      2     e_type: 1 relocatable, 2 and 3 what a runtime loads
    18      2     e_machine: 224 AMDGPU, 190 CUDA
    48      4     e_flags

    AMDGPU's EI_ABIVERSION  code object  e_flags
    ----------------------  -----------  ----------------------------------------------
    0                       version 2    the processor is in a note; not read here
    1                       version 3    0..7 processor, 8 xnack is on, 9 sramecc is on
    2, 3, 4                 4, 5, 6      0..7 processor, 8..9 xnack, 10..11 sramecc:
                                         0 unsupported, 1 any, 2 off, 3 on

    CUDA's EI_ABIVERSION    e_flags
    --------------------    ----------------------------------------------------------
    7                       0..7 the number of the processor, 11 one with an "a"
    8                       8..15 the number of the processor; where section .nv.compat has
                            the record 02 09 01 00, it is one with an "a" (nothing tells
                            an "f")

HIP's loader takes a code object for what its bundle entry ID would say, so that is given for
a bare one: ``hip`` up to version 3, ``hipv4`` from then on.

Source: AMDGPUUsage, "ELF Header"; cubins of ptxas 13.0, and llvm-readelf 22.1.8 for both.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from offload_tool.errors import UnsupportedError
from offload_tool.formats.names.processors import processor_of_mach
from offload_tool.formats.objects.elf import read_elf_tables

if TYPE_CHECKING:
    from offload_tool.files import StrPath

__all__ = ["CodeObject", "is_code_object", "read_code_object"]

_IDENT = struct.Struct("<4sBBBBB")
_TYPES = struct.Struct("<HH")
_TYPES_AT, _FLAGS_AT, _HEADER_SIZE = 16, 48, 64
_ELF64_LITTLE = (b"\x7fELF", 2, 1)
_CUDA, _AMDGPU = 190, 224
_HSA = 64
_RELOCATABLE = 1
_AMD_TRIPLE, _CUDA_TRIPLE = "amdgcn-amd-amdhsa-", "nvptx64-nvidia-cuda-unknown"
_FEATURES = (("sramecc", 10, 9), ("xnack", 8, 8))
"""Name, the lowest bit from version 4 on, and version 3's bit."""
_SETTINGS = ("", "", "-", "+")
_CUDA_SHIFTS = {7: 0, 8: 8}
"""By EI_ABIVERSION: the lowest bit of the processor's number."""
_OLD_LETTER = 11
_COMPATIBILITY, _RECORD_SIZE, _SPECIFIC = b".nv.compat", 4, b"\x02\x09\x01\x00"


class CodeObject(NamedTuple):
    """What the header of a code object says."""

    kind: str
    """The offload kind whose runtime loads it."""
    triple: str
    target_id: str
    image_kind: str
    """``object``, which is ready to be loaded, or ``relocatable``, which is not linked yet."""


def is_code_object(data: memoryview, offset: int = 0) -> bool:
    """Tell whether the ELF header of device code for HSA or CUDA is at `offset`."""
    head = data[offset : offset + _HEADER_SIZE]
    if len(head) < _HEADER_SIZE:
        return False
    magic, size, order, _, abi, _ = _IDENT.unpack_from(head)
    if (magic, size, order) != _ELF64_LITTLE:
        return False
    machine: int = _TYPES.unpack_from(head, _TYPES_AT)[1]
    return machine == _CUDA or (machine == _AMDGPU and int(abi) == _HSA)


def read_code_object(data: memoryview, *, path: StrPath | None = None) -> CodeObject:
    """Read for what the code object at the beginning of `data` is.

    :raises UnsupportedError: its version or processor is not known.
    """
    version = data[8]
    file_type, machine = _TYPES.unpack_from(data, _TYPES_AT)
    flags = int.from_bytes(data[_FLAGS_AT : _FLAGS_AT + 4], "little")
    image_kind = "relocatable" if file_type == _RELOCATABLE else "object"
    if machine == _CUDA:
        return CodeObject("cuda", _CUDA_TRIPLE, _sm(data, flags, version, path), image_kind)
    kind = "hip" if version < 2 else "hipv4"
    return CodeObject(kind, _AMD_TRIPLE, _gfx(flags, version, path), image_kind)


def _sm(data: memoryview, flags: int, version: int, path: StrPath | None) -> str:
    if version not in _CUDA_SHIFTS:
        message = f"expected 7 or 8 for the ABI version of a cubin, found {version}"
        raise UnsupportedError(message, path=path, offset=8, field="EI_ABIVERSION")
    shift = _CUDA_SHIFTS[version]
    is_specific = _is_specific(data, path) if shift else flags >> _OLD_LETTER & 1
    return f"sm_{flags >> shift & 0xFF}{'a' if is_specific else ''}"


def _is_specific(data: memoryview, path: StrPath | None) -> bool:
    tables = read_elf_tables(data, path=path)
    if _COMPATIBILITY not in tables.names:
        return False
    records = bytes(tables.content(tables.names.index(_COMPATIBILITY)))
    starts = range(0, len(records), _RECORD_SIZE)
    return any(records[at : at + _RECORD_SIZE] == _SPECIFIC for at in starts)


def _gfx(flags: int, version: int, path: StrPath | None) -> str:
    if not 1 <= version <= 4:
        message = f"expected a code object of version 3 to 6 (1 to 4 here), found {version}"
        raise UnsupportedError(message, path=path, offset=8, field="EI_ABIVERSION")
    processor = processor_of_mach(flags & 0xFF)
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
