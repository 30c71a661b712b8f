"""The kernels of a device image, whatever sort of device code it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from offload_tool.errors import UnsupportedError
from offload_tool.formats.cuda.ptx import is_ptx
from offload_tool.formats.magic import BITCODES, SPIRVS
from offload_tool.formats.objects.elf.reader import (
    EM_AMDGPU,
    EM_CUDA,
    is_elf_header,
    read_elf_header,
)

if TYPE_CHECKING:
    from offload_tool.formats.kernel_info.kernel import Kernel
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
        from offload_tool.formats.kernel_info.ptx_entries import read_ptx_kernels

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
