"""The kernels of a device image of any sort, and the machine code of an ELF file.

::

    symbol tables     functions (STT_FUNC); the code of one is st_size bytes of its section, from
                      st_value - sh_addr on. Where .symtab was stripped, .dynsym has the kernels
    sections          SHT_PROGBITS with SHF_ALLOC are what a device loads: code and data.
                      Symbols, their names, notes and debug information are not among them
    segments          of a file whose section headers were stripped, PT_LOAD: all of these

Source: the gABI. AMD's code objects and cubins are alike in this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from offload_tool.errors import UnsupportedError
from offload_tool.formats.cuda.ptx import is_ptx, read_ptx_kernels
from offload_tool.formats.magic import BITCODES, SPIRVS
from offload_tool.formats.objects.elf.reader import (
    EM_AMDGPU,
    EM_CUDA,
    PT_LOAD,
    SHF_ALLOC,
    SHT_DYNSYM,
    SHT_PROGBITS,
    SHT_SYMTAB,
    STT_FUNC,
    ElfTables,
    is_elf_header,
    read_elf_header,
    read_elf_sections,
    read_elf_segments,
)

if TYPE_CHECKING:
    from offload_tool.formats.kernel import Kernel
    from offload_tool.io import StrPath

_PTX = ("ptx", "relocatable ptx")
_UNTOLD = (None, "none", "unknown")
"""What packages say of images whose files had other suffixes; bundles say nothing."""
_UNFINISHED = {
    "nvvm": "NVVM code",
    "bitcode": "LLVM bitcode",
    "spirv": "SPIR-V",
    "tile ir": "tile IR",
}
_MAGICS = {
    **dict.fromkeys(BITCODES, "LLVM bitcode"),
    **dict.fromkeys(SPIRVS, "SPIR-V"),
}


def silent_code(image: memoryview, image_kind: str | None = None) -> str | None:
    """Return why an image of a sort that is known says nothing of its kernels; None for all others.

    `image` is its first 64 bytes, or more, as they are stored; `image_kind` is what the container
    says of it.
    """
    unfinished = _UNFINISHED.get(image_kind or "") or _MAGICS.get(bytes(image[:4]))
    if unfinished:
        return f"is {unfinished}; what its kernels need is decided when code is made of it"
    if not is_elf_header(image):
        return None
    machine = read_elf_header(image).e_machine
    if machine not in (EM_AMDGPU, EM_CUDA):
        return f"is an ELF file for machine {machine}, which is no GPU's, and lists no kernels"
    return None


def read_kernels(
    image: memoryview, *, image_kind: str | None = None, path: StrPath | None = None
) -> list[Kernel]:
    """Read the kernels of a code object, of a cubin, or of PTX.

    An image without a byte has none. `path` names it in messages.

    :raises FormatError: what the image says of its kernels is broken.
    :raises UnsupportedError: it is of a sort, or of a version, that is not read.
    """
    is_elf = is_elf_header(image)
    if image_kind in _PTX or (image_kind in _UNTOLD and not is_elf and is_ptx(image)):
        return read_ptx_kernels(image)
    if not image:
        return []
    machine = read_elf_header(image, path=path).e_machine if is_elf else None
    if machine == EM_AMDGPU:
        from offload_tool.formats.kernel_info.amdgpu_metadata import read_amdgpu_kernels

        return read_amdgpu_kernels(image, path=path)
    if machine == EM_CUDA:
        from offload_tool.formats.kernel_info.nv_info import read_cubin_kernels

        return read_cubin_kernels(image, path=path)
    found = repr(bytes(image[:8])) if machine is None else f"an ELF file for machine {machine}"
    message = f"expected device code with kernels (of AMD's or NVIDIA's GPUs), found {found}"
    raise UnsupportedError(message, path=path)


class MachineCode(NamedTuple):
    """Of one ELF file; all are views of its bytes."""

    functions: dict[str, memoryview]
    """By their names; those whose code is no part of one section are left out."""
    loaded: list[memoryview]
    """The code and data that a device loads, section by section, or segment by segment."""


def read_machine_code(data: memoryview, *, path: StrPath | None = None) -> MachineCode:
    """Read the machine code of an ELF file.

    :raises FormatError: its tables are broken.
    """
    tables = read_elf_sections(data, path=path)
    loaded = [
        tables.content(index)
        for index, row in enumerate(tables.sections)
        if row.sh_type == SHT_PROGBITS and row.sh_flags & SHF_ALLOC
    ]
    if not tables.sections:
        loaded = [
            data[row.p_offset : row.p_offset + row.p_filesz]
            for row in read_elf_segments(data, path=path)
            if row.p_type == PT_LOAD
        ]
    return MachineCode(_functions(tables), loaded)


def _functions(tables: ElfTables) -> dict[str, memoryview]:
    found: dict[str, memoryview] = {}
    for index, row in enumerate(tables.sections):
        if row.sh_type not in (SHT_SYMTAB, SHT_DYNSYM):
            continue
        names = tables.strings(tables.linked(index))
        for symbol in tables.symbols(index):
            if symbol.type != STT_FUNC or not 0 < symbol.st_shndx < len(tables.sections):
                continue
            start = symbol.st_value - tables.sections[symbol.st_shndx].sh_addr
            code = tables.content(symbol.st_shndx)
            if 0 <= start <= start + symbol.st_size <= len(code):
                name = names[symbol.st_name].decode("utf-8", "surrogateescape")
                found[name] = code[start : start + symbol.st_size]
    return found
