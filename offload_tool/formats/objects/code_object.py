"""What the ELF header of an AMDGPU code object says beyond ELF.

Source: LLVM's AMDGPUUsage (e_flags of code object version 6).
"""

from __future__ import annotations

from offload_tool.formats.objects.elf import is_elf_header, read_elf_header

__all__ = ["generic_version"]

_ELF64_LITTLE = b"\2\1"  # e_ident[EI_CLASS] and e_ident[EI_DATA]
_ABI_VERSION, _ABI_V6 = 8, 4  # e_ident[EI_ABIVERSION], ELFABIVERSION_AMDGPU_HSA_V6


def generic_version(code: bytes | memoryview) -> int | None:
    """Read the generic version of an AMDGPU code object's ELF header (64 bytes, or more).

    0 where it has none, which code objects before version 6 have not; None for what is no
    64-bit little-endian ELF file.
    """
    data = memoryview(code)
    if not is_elf_header(data):
        return None
    header = read_elf_header(data)
    if header.e_ident[4:6] != _ELF64_LITTLE:
        return None
    return header.e_flags >> 24 if header.e_ident[_ABI_VERSION] == _ABI_V6 else 0
