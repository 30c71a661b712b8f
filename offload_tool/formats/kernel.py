"""A kernel and what it needs of a device, as its code object says it.

Compilers put the folder, the file or the moment of a build into some names::


    _ZL1kPi.intern.f31826be6faec592         clang: static kernels, with the hash of the CUID
    _ZL1kPi.static.f31826be6faec592
    _ZL1kPi__static__f31826be6faec592
    _GLOBAL__N__f824cfd9_10_onerank_cu_fdf47990     nvcc: unnamed namespaces and static kernels,
                                                    with the length and name of the file
    __omp_offloading_10302_1e2f3a_main_l5   clang: device and inode of the source

Each such number becomes ``*``. Source: clang 22.1.8, nvcc 12 and 13, observed.
"""

from __future__ import annotations

import re
from typing import NamedTuple

MOST = 1 << 32
"""Of any number of a kernel; more is no number of registers or bytes."""
WARP = 32
"""Work-items of a warp of CUDA."""
_NUMBERS = (
    (re.compile(r"(\.|__)(intern|static)(\.|__)[0-9a-f]{1,16}"), r"\1\2\3*"),
    (re.compile(r"[0-9a-f]{8}_(\d+_[A-Za-z_]\w*?)_[0-9a-f]{8}"), r"*_\1_*"),
    (re.compile(r"__omp_offloading_[0-9a-f]+_[0-9a-f]+_"), "__omp_offloading_*_"),
)


class Kernel(NamedTuple):
    """A kernel of one device image; None is what such code does not say, or does not have.

    All numbers are at least 0; none of them was computed from another.
    """

    name: str
    """As in the code's symbol table, mangled; bytes that are no UTF-8 are surrogates."""
    code_size: int | None = None
    """Bytes of its machine code, without what it calls."""
    vgprs: int | None = None
    """Vector registers of each work-item: AMD's VGPRs (from gfx90a on with the AGPRs, with which
    they share a file), NVIDIA's registers."""
    agprs: int | None = None
    """Accumulation registers of each work-item."""
    sgprs: int | None = None
    """Scalar registers of each wave."""
    lds: int | None = None
    """Bytes of each workgroup known at compile time: AMD's LDS, CUDA's shared memory."""
    scratch: int | None = None
    """Bytes of each work-item: AMD's private segment, CUDA's stack and local memory."""
    vgpr_spills: int | None = None
    """Stores of vector registers to memory, for want of registers."""
    sgpr_spills: int | None = None
    """Stores of scalar registers, to vector registers or memory."""
    wavefront_size: int | None = None
    """Work-items of a wave: 32 or 64; of a warp of CUDA, `WARP`."""
    max_workgroup_size: int | None = None
    """Work-items of the largest workgroup that it can be started with."""


def stable_name(name: str) -> str:
    """Return the name that a kernel has in all builds of the same source."""
    for pattern, replacement in _NUMBERS:
        name = pattern.sub(replacement, name)
    return name
