"""A kernel and what it needs of a device, as its code object says it."""

from __future__ import annotations

from typing import NamedTuple

MOST = 1 << 32
"""Of any number of a kernel; more is no number of registers or bytes."""
WARP = 32
"""Work-items of a warp of CUDA."""


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
