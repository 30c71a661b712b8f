"""How many waves of a kernel a SIMD of an AMD GPU holds at a time, at most.

The least of what four things leave room for:

    waves       each SIMD has so many slots for them
    VGPRs       all waves of a SIMD share its file, in which they are given whole blocks
    SGPRs       likewise, before gfx10
    LDS         all workgroups of a compute unit (from gfx10 on: of two, a WGP) share it; their
                waves, be it one or those of the largest workgroup, go to all SIMDs of the unit

Source of the limits: LLVM 22's AMDGPUBaseInfo.cpp (getTotalNumVGPRs, getVGPRAllocGranule,
getOccupancyWithNumSGPRs, getMaxWavesPerEU, getMaxWorkGroupsPerCU) and AMDGPU.td; a test compares
processors of each row with what clang 22.1.8 prints for the same kernels.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from offload_tool.formats.kernel import Kernel


class _Limits(NamedTuple):
    """Of one family of processors, with waves of 64 work-items before gfx10 and 32 from then on."""

    waves: int
    """Slots of a SIMD."""
    vgprs: int
    """Of a SIMD, for each lane."""
    vgpr_block: int
    sgprs: tuple[int, ...] = ()
    """How many registers `waves` may use, one wave fewer, and so on; more than the last leave one
    fewer again. Empty where each wave has all that it can name."""
    lds: int = 64 << 10
    """Bytes that workgroups share."""
    barriers: int = 16
    """Workgroups of more than one wave that can be at work in a unit."""
    simds: int = 4
    """Of a unit."""


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
    """Return how many waves of `kernel`, of code for `target_id`, a SIMD holds at most.

    None for other than AMD's GPUs, for processors whose limits are not known, and for kernels that
    do not say what they need.
    """
    limits = _limits(target_id.partition(":")[0])
    if limits is None or not kernel.wavefront_size or kernel.vgprs is None:
        return None
    if kernel.wavefront_size == 64 and not limits.sgprs:  # of a machine with waves of 32
        limits = limits._replace(vgprs=limits.vgprs // 2, vgpr_block=limits.vgpr_block // 2)
    by_vgprs = limits.vgprs // (max(-(-kernel.vgprs // limits.vgpr_block), 1) * limits.vgpr_block)
    by_sgprs = limits.waves - sum((kernel.sgprs or 0) > most for most in limits.sgprs)
    return max(min(limits.waves, by_vgprs, by_sgprs, _waves_by_lds(kernel, limits)), 1)


@lru_cache(maxsize=64)  # asked for every kernel
def _limits(processor: str) -> _Limits | None:
    return next((row for names, row in _FAMILIES if re.fullmatch(names, processor)), None)


def _waves_by_lds(kernel: Kernel, limits: _Limits) -> int:
    if not kernel.wavefront_size or not kernel.lds:
        return limits.waves
    largest = max(-(-(kernel.max_workgroup_size or 1) // kernel.wavefront_size), 1)
    most = 0
    for waves in {1, largest}:  # of a workgroup
        groups = min(limits.lds // kernel.lds, limits.waves * limits.simds // waves)
        if waves > 1:
            groups = min(groups, limits.barriers)
        most = max(most, -(-groups * waves // limits.simds))
    return most
