"""A kernel and its resources, as recorded in its code object.

Compilers put the directory, file or time of a build into some names::


    _ZL1kPi.intern.f31826be6faec592         clang: static kernels, with the hash of the CUID
    _ZL1kPi.static.f31826be6faec592
    _ZL1kPi__static__f31826be6faec592
    _GLOBAL__N__f824cfd9_10_onerank_cu_fdf47990     nvcc: unnamed namespaces and static kernels,
                                                    with the length and name of the file
    __omp_offloading_10302_1e2f3a_main_l5   clang: device and inode of the source

`stable_name` replaces each such number by ``*``. Source: clang 22.1.8, nvcc 12 and 13, observed.
"""

from __future__ import annotations

import re
from typing import NamedTuple

NUMBER_LIMIT = 1 << 32
"""Upper bound of all numbers of a kernel."""
WARP = 32
"""Work-items of a CUDA warp."""
_NUMBERS = (
    (re.compile(r"(\.|__)(intern|static)(\.|__)[0-9a-f]{1,16}"), r"\1\2\3*"),
    (re.compile(r"[0-9a-f]{8}_(\d+_[A-Za-z_]\w*?)_[0-9a-f]{8}"), r"*_\1_*"),
    (re.compile(r"__omp_offloading_[0-9a-f]+_[0-9a-f]+_"), "__omp_offloading_*_"),
)


class Kernel(NamedTuple):
    """A kernel of one device image; None means not recorded or not applicable.

    All numbers are at least 0 and recorded, not computed.
    """

    name: str
    """As in the symbol table, mangled; bytes that are not UTF-8 are surrogates."""
    code_size: int | None = None
    """Bytes of its machine code, without called functions."""
    vgprs: int | None = None
    """Vector registers per work-item: AMD's VGPRs (from gfx90a on including AGPRs, which share the
    register file), NVIDIA's registers."""
    agprs: int | None = None
    """Accumulation registers per work-item."""
    sgprs: int | None = None
    """Scalar registers per wave."""
    lds: int | None = None
    """Bytes per workgroup known at compile time: AMD's LDS, CUDA's shared memory."""
    scratch: int | None = None
    """Bytes per work-item: AMD's private segment, CUDA's stack and local memory."""
    vgpr_spills: int | None = None
    """Spills of vector registers to memory."""
    sgpr_spills: int | None = None
    """Spills of scalar registers to vector registers or memory."""
    wavefront_size: int | None = None
    """Work-items per wave: 32 or 64; for CUDA, `WARP`."""
    max_workgroup_size: int | None = None
    """Work-items of the largest allowed workgroup."""


def stable_name(name: str) -> str:
    """Return the name of a kernel that is equal in all builds of the same source."""
    for pattern, replacement in _NUMBERS:
        name = pattern.sub(replacement, name)
    return name
