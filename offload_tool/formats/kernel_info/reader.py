"""Read the kernels of a device image of any kind, and the machine code of an ELF file.

::

    symbol tables     functions (STT_FUNC); the code of one is st_size bytes of its section, from
                      st_value - sh_addr on. If .symtab is stripped, .dynsym has the kernels
    sections          a device loads SHT_PROGBITS with SHF_ALLOC: code and data, but not
                      symbols, their names, notes and debug information
    segments          without section headers (stripped): all PT_LOAD

Source: the gABI. It applies to AMD's code objects and to cubins.
"""

from __future__ import annotations

from offload_tool.errors import UnsupportedError
from offload_tool.formats.cuda.ptx import is_ptx, read_ptx_kernels
from offload_tool.formats.kernel import Kernel
from offload_tool.formats.kernel_info.amdgpu_metadata import read_amdgpu_kernels
from offload_tool.formats.kernel_info.nv_info import read_cubin_kernels
from offload_tool.formats.magic import BITCODES, SPIRVS
from offload_tool.formats.objects.elf import reader as elf
from offload_tool.formats.objects.elf.reader import ElfTables, is_elf_header
from offload_tool.formats.targets import triple as triples
from offload_tool.io import StrPath

_PTX = ("ptx", "relocatable ptx")
_NO_KIND = (None, "none", "unknown")
"""Image kinds in packages whose files have other suffixes; bundles have no kind."""
_INTERMEDIATE = {
    "nvvm": "NVVM code",
    "bitcode": "LLVM bitcode",
    "spirv": "SPIR-V",
    "tile ir": "tile IR",
}
_MAGICS = {**dict.fromkeys(BITCODES, "LLVM bitcode"), **dict.fromkeys(SPIRVS, "SPIR-V")}


_GPU_ARCHES = ("", "amdgcn", "r600", "nvptx", "nvptx64")
"""The architectures, by their triples, of code that may list kernels; empty if unknown."""


def why_no_kernels(image: memoryview, triple: str, image_kind: str | None = None) -> str | None:
    """Return why an image lists no kernels (from its first 64 bytes); None if it may."""
    unfinished = _INTERMEDIATE.get(image_kind or "") or _MAGICS.get(bytes(image[:4]))
    if unfinished:
        return f"is {unfinished}; what its kernels need is decided when code is made of it"
    if triples.meaning(triple).arch not in _GPU_ARCHES:
        name = triple.rstrip("-")
        return f"is code for {name}, which is no GPU of AMD or NVIDIA, and lists no kernels"
    if not is_elf_header(image):
        return None
    machine = ElfTables(image).header.e_machine
    if machine not in (elf.EM_AMDGPU, elf.EM_CUDA):
        return f"is an ELF file for machine {machine}, which is no GPU's, and lists no kernels"
    return None


def read_kernels(
    image: memoryview, *, image_kind: str | None = None, path: StrPath | None = None
) -> list[Kernel]:
    """Read the kernels of a code object, a cubin, or PTX, or of no bytes; raise ContentError."""
    is_elf = is_elf_header(image)
    if image_kind in _PTX or (image_kind in _NO_KIND and not is_elf and is_ptx(image)):
        return read_ptx_kernels(image)
    if not image:
        return []
    machine = ElfTables(image, path).header.e_machine if is_elf else None
    if machine == elf.EM_AMDGPU:
        return read_amdgpu_kernels(image, path=path)
    if machine == elf.EM_CUDA:
        return read_cubin_kernels(image, path=path)
    found = repr(bytes(image[:8])) if machine is None else f"an ELF file for machine {machine}"
    message = f"expected device code with kernels (of AMD's or NVIDIA's GPUs), found {found}"
    raise UnsupportedError(message, path=path)


def read_machine_code(
    data: memoryview, *, path: StrPath | None = None
) -> tuple[dict[str, memoryview], list[memoryview]]:
    """Return an ELF file's functions by name, and what a device loads; raise FormatError.

    Functions whose code is not within one section are left out. What is loaded is by section, or
    without sections by segment.
    """
    tables = ElfTables(data, path)
    loaded = [
        tables.content(index)
        for index in tables.of_type(elf.SHT_PROGBITS)
        if tables.sections[index].sh_flags & elf.SHF_ALLOC
    ]
    if not tables.sections:
        loaded = [
            data[row.p_offset : row.p_offset + row.p_filesz]
            for row in tables.segments
            if row.p_type == elf.PT_LOAD
        ]
    return _functions(tables), loaded


def _functions(tables: ElfTables) -> dict[str, memoryview]:
    found: dict[str, memoryview] = {}
    for index in tables.of_type(elf.SHT_SYMTAB, elf.SHT_DYNSYM):
        names = tables.strings(tables.linked(index))
        for symbol in tables.symbols(index):
            if symbol.type != elf.STT_FUNC or not 0 < symbol.st_shndx < len(tables.sections):
                continue
            start = symbol.st_value - tables.sections[symbol.st_shndx].sh_addr
            code = tables.content(symbol.st_shndx)
            if 0 <= start <= start + symbol.st_size <= len(code):
                name = names[symbol.st_name].decode("utf-8", "surrogateescape")
                found[name] = code[start : start + symbol.st_size]
    return found
