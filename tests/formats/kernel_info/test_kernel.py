"""Names of kernels without what is of one build alone."""

from __future__ import annotations

import pytest

from offload_tool.formats.kernel import stable_name

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
