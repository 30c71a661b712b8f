"""Names of kernels without what is of one build alone; occupancy, compared with clang's."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from offload_tool.formats.kernel import Kernel, stable_name, waves_per_simd
from offload_tool.formats.targets.processors import PROCESSORS
from tests.conftest import Tool
from tests.formats.kernel_info.code_objects import compiled

SAME = {
    "_ZL4statPi.intern.f31826be6faec592": "_ZL4statPi.intern.1314a7f6f3d5b1d5",
    "_ZL4statPi.static.f31826be6faec592": "_ZL4statPi.static.314a7f6f3d5b1d5",
    "_ZL4statPi__static__f31826be6faec592": "_ZL4statPi__static__1314a7f6f3d5b1d5",
    "__omp_offloading_10302_1e2f3a_main_l5": "__omp_offloading_fd01_77_main_l5",
    "__nv_static_32__f824cfd9_10_onerank_cu_fdf47990__ZN43_GLOBAL__N__f824cfd9_10_onerank_cu_"
    "fdf4799013oneRankReduceEv": "__nv_static_32__0000cfd9_10_onerank_cu_11147990__ZN43_GLOBAL__N_"
    "_0000cfd9_10_onerank_cu_1114799013oneRankReduceEv",
}
OTHERS = {
    "_Z4statPi": "_Z4statPl",
    "_ZL4statPi.intern.f31826be6faec592": "_ZL5otherPi.intern.f31826be6faec592",
    "__omp_offloading_10302_1e2f3a_main_l5": "__omp_offloading_10302_1e2f3a_main_l6",
    "__nv_static_2__f824cfd9_10_one_cu_fdf47990_a": "__nv_static_2__f824cfd9_10_two_cu_fdf47990_a",
}


@pytest.mark.parametrize("name", SAME)
def test_same(name: str) -> None:
    """Hashes of paths, inodes and devices are no part of a name."""
    assert stable_name(name) == stable_name(SAME[name]) != name


@pytest.mark.parametrize("name", OTHERS)
def test_others(name: str) -> None:
    assert stable_name(name) != stable_name(OTHERS[name])


# -- occupancy ------------------------------------------------------------------------------------

VGPRS = (1, 24, 32, 40, 47, 63, 64, 80, 84, 95, 96, 127, 128, 168, 200, 255)
SGPRS = (20, 48, 60, 79, 80, 81, 95)
LDS = (1000, 4000, 8192, 16000, 32768)
GROUPS = (64, 256, 1024)
TARGETS = (
    *("gfx600", "gfx701", "gfx803", "gfx906", "gfx90a", "gfx950", "gfx1010", "gfx1030"),
    *("gfx1100", "gfx1102", "gfx1201", "gfx1250"),
)
"""One of each row of limits."""
WAVES_OF_64 = ("gfx1010", "gfx1030", "gfx1100")
_META = re.compile(
    r"\.group_segment_fixed_size: (\d+).*?\.max_flat_workgroup_size: (\d+).*?\.name: +(\S+)"
    r".*?\.sgpr_count: +(\d+).*?\.vgpr_count: +(\d+).*?\.wavefront_size: (\d+)",
    re.DOTALL,
)
_PRINTED = re.compile(r"; -- Begin function (\S+).*?; Occupancy: (\d+)", re.DOTALL)


def _source() -> str:
    kernel = 'extern "C" __attribute__((global))'
    lines = [f'{kernel} void v{n}() {{ asm volatile("" ::: "v{n}"); }}' for n in VGPRS]
    lines += [f'{kernel} void s{n}() {{ asm volatile("" ::: "s{n}"); }}' for n in SGPRS]
    for size, group in itertools.product(LDS, GROUPS):
        name, limit = f"{size}_{group}", f"__attribute__((amdgpu_flat_work_group_size(1, {group})))"
        lines += [
            f"__attribute__((shared)) char b{name}[{size}];",
            f"{limit} {kernel} void l{name}(int *p)",
            f"{{ b{name}[p[0]] = 1; p[1] = b{name}[p[2]]; }}",
        ]
    return "\n".join(lines)


@pytest.mark.llvm
@pytest.mark.parametrize(
    ("target", "flags"),
    [*((name, ()) for name in TARGETS), *((name, ("-mwavefrontsize64",)) for name in WAVES_OF_64)],
)
def test_as_clang(target: str, flags: tuple[str, ...], llvm: Tool, tmp_path: Path) -> None:
    code = compiled(llvm("clang"), tmp_path, target, "-S", "-O1", *flags, source=_source())
    text = code.read_text()
    theirs = {name: int(waves) for name, waves in _PRINTED.findall(text)}
    ours = {}
    for lds, group, name, sgprs, vgprs, wave in _META.findall(text):
        kernel = Kernel(
            name,
            vgprs=int(vgprs),
            sgprs=int(sgprs),
            lds=int(lds),
            wavefront_size=int(wave),
            max_workgroup_size=int(group),
        )
        ours[name] = waves_per_simd(kernel, target)
    assert len(theirs) == len(VGPRS) + len(SGPRS) + len(LDS) * len(GROUPS)
    assert ours == theirs


def test_every_processor() -> None:
    """All AMD GPUs that are known have limits, but those that only LLVM 23 knows."""
    kernel = Kernel("k", vgprs=300, sgprs=0, lds=0, wavefront_size=32)
    unknown = {
        row.name
        for row in PROCESSORS.values()
        if row.family == "amdgcn" and waves_per_simd(kernel, f"{row.name}:xnack+") is None
    }
    assert unknown <= {row.name for row in PROCESSORS.values() if row.since > 22}


def test_nothing_said() -> None:
    """Other GPUs, and kernels that do not say what they need, have none."""
    kernel = Kernel("k", vgprs=32, wavefront_size=32)
    assert waves_per_simd(kernel, "sm_90") is None
    assert waves_per_simd(kernel, "gfx9999") is None
    assert waves_per_simd(Kernel("k"), "gfx90a") is None
    assert waves_per_simd(Kernel("k", vgprs=5000, wavefront_size=64), "gfx90a") == 1
