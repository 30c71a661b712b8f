"""A kernel and its resources, as recorded in its code object.

Compilers put the directory, file or time of a build into some names::

    _ZL1kPi.intern.f31826be6faec592         clang: static kernels, with the hash of the CUID
    _ZL1kPi.static.f31826be6faec592
    _ZL1kPi__static__f31826be6faec592
    _GLOBAL__N__f824cfd9_10_onerank_cu_fdf47990     nvcc: unnamed namespaces and static kernels,
                                                    with the length and name of the file
    __omp_offloading_10302_1e2f3a_main_l5   clang: device and inode of the source

`stable_name` replaces each such number by ``*``. Source: clang 22.1.8, nvcc 12 and 13, observed.

Occupancy is the maximum number of waves on a SIMD of an AMD GPU, the minimum of four limits::

    waves       each SIMD has a fixed number of slots
    VGPRs       all waves of a SIMD share its register file, allocated in blocks
    SGPRs       likewise, before gfx10
    LDS         all workgroups of a compute unit (from gfx10 on, of a WGP: two units) share it; the
                waves of a workgroup (one, or those of the largest) use all SIMDs of the unit

Source of the limits: LLVM 22's AMDGPUBaseInfo.cpp (getTotalNumVGPRs, getVGPRAllocGranule,
getOccupancyWithNumSGPRs, getMaxWavesPerEU, getMaxWorkGroupsPerCU) and AMDGPU.td. A test compares
processors of each row with the output of clang 22.1.8 for the same kernels.
"""

from __future__ import annotations

import re
from functools import lru_cache
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


# -- occupancy ------------------------------------------------------------------------------------


class _Limits(NamedTuple):
    """Limits of a processor family, for waves of 64 work-items before gfx10 and 32 from then on."""

    waves: int
    """Slots per SIMD."""
    vgprs: int
    """VGPRs per SIMD, for each lane."""
    vgpr_block: int
    sgprs: tuple[int, ...] = ()
    """SGPR limits for `waves` waves, one fewer, and so on; above the last limit, one fewer again.
    Empty if each wave has all SGPRs."""
    lds: int = 64 << 10
    """Bytes that workgroups share."""
    barriers: int = 16
    """Workgroups of several waves that a unit can run at a time."""


_SIMDS = 4  # per unit
_GFX7 = _Limits(10, 256, 4, (48, 56, 64, 72, 80))
_GFX6 = _GFX7._replace(lds=32 << 10)
_GFX8 = _Limits(10, 256, 4, (80, 88, 100))
_GFX90A = _Limits(8, 512, 8, (100,))
_GFX950 = _GFX90A._replace(lds=160 << 10)
_GFX10_1 = _Limits(20, 1024, 8, lds=128 << 10, barriers=32)
_GFX10_3 = _GFX10_1._replace(waves=16, vgpr_block=16)
_GFX11_LARGE = _GFX10_3._replace(vgprs=1536, vgpr_block=24)
_GFX1250 = _GFX10_3._replace(lds=320 << 10, barriers=16)
_FAMILIES = (
    (r"gfx6\d\d", _GFX6),
    (r"gfx7\d\d", _GFX7),
    (r"gfx8\d\d", _GFX8),
    (r"gfx90a|gfx942|gfx9-4-generic", _GFX90A),
    (r"gfx950", _GFX950),
    (r"gfx9\w\w|gfx9-generic", _GFX8),
    (r"gfx101\d|gfx10-1-generic", _GFX10_1),
    (r"gfx103\d|gfx10-3-generic", _GFX10_3),
    (r"gfx110[01]|gfx1151|gfx120[01]|gfx12-generic", _GFX11_LARGE),
    (r"gfx11\d\d|gfx11-generic", _GFX10_3),
    (r"gfx125[01]", _GFX1250),
)


def waves_per_simd(kernel: Kernel, target_id: str) -> int | None:
    """Return the most waves of `kernel` on a SIMD; None if unknown, or no AMD GPU."""
    limits = _limits(target_id.partition(":")[0])
    if limits is None or not kernel.wavefront_size or kernel.vgprs is None:
        return None
    if kernel.wavefront_size == 64 and not limits.sgprs:  # native waves have 32
        limits = limits._replace(vgprs=limits.vgprs // 2, vgpr_block=limits.vgpr_block // 2)
    by_vgprs = limits.vgprs // (max(-(-kernel.vgprs // limits.vgpr_block), 1) * limits.vgpr_block)
    by_sgprs = limits.waves - sum((kernel.sgprs or 0) > most for most in limits.sgprs)
    return max(min(limits.waves, by_vgprs, by_sgprs, _waves_by_lds(kernel, limits)), 1)


@lru_cache(maxsize=64)  # called for every kernel
def _limits(processor: str) -> _Limits | None:
    return next((row for names, row in _FAMILIES if re.fullmatch(names, processor)), None)


def _waves_by_lds(kernel: Kernel, limits: _Limits) -> int:
    if not kernel.wavefront_size or not kernel.lds:
        return limits.waves
    largest = max(-(-(kernel.max_workgroup_size or 1) // kernel.wavefront_size), 1)
    most = 0
    for waves in {1, largest}:  # waves per workgroup
        groups = min(limits.lds // kernel.lds, limits.waves * _SIMDS // waves)
        if waves > 1:
            groups = min(groups, limits.barriers)
        most = max(most, -(-groups * waves // _SIMDS))
    return most
