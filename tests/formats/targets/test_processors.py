"""The processor table is what the compilers of LLVM 22 and 23 accept."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from offload_tool.formats.targets.processors import (
    AMDGPU_ARCHES,
    PROCESSORS,
    find_processor,
    nearest_names,
)
from tests.conftest import Tool, run_tool

AMDGPU = [row for row in PROCESSORS.values() if row.family == "amdgcn"]
FEATURES = ("sramecc", "xnack")


@pytest.mark.parametrize("name", ["", "GFX906", "gfx906 ", "gfx90", "vega20", "gfx940"])
def test_other_names_find_nothing(name):
    """Neither other cases, nor prefixes, nor removed processors are names."""
    assert find_processor(name) is None


def test_no_name_is_listed_twice():
    names = [n for row in PROCESSORS.values() for n in (row.name, *row.alternative_names)]
    numbers = [row.mach for row in PROCESSORS.values() if row.mach is not None]
    assert len(set(names)) == len(names)
    assert len(set(numbers)) == len(numbers)


def test_generic_processors_cover_rows_and_promise_only_their_features():
    generics = [row for row in AMDGPU if row.covers]
    assert sorted(row.name for row in generics) == sorted(n for n in PROCESSORS if "-generic" in n)
    for generic in generics:
        for name in generic.covers:
            assert set(generic.features) <= set(PROCESSORS[name].features), (generic, name)


def test_nearest_names_begin_with_the_likeliest():
    assert nearest_names("GFX90A")[0] == "gfx90a"
    assert "sm_90" in nearest_names("sm_9O")
    assert nearest_names("8.0") == ("sm_80",)
    assert nearest_names("gfx120X-all") == ("gfx1200", "gfx1201")
    assert nearest_names("gfx90a-xnack") == ("gfx90a:xnack+",)
    assert nearest_names("hip-amdgcn-amd-amdhsa--gfx906") == ("gfx906",)
    assert nearest_names("MI300X") == nearest_names("gfx94X-dcgpu") == ("gfx942",)
    assert nearest_names("80-real") == nearest_names("compute_80") == ("sm_80",)
    assert nearest_names("quux") == ()


class Clang(NamedTuple):
    """A compiler, and the AMD GPUs that it is to know."""

    path: str
    generation: int

    @property
    def rows(self):
        return [row for row in AMDGPU if row.since <= self.generation]

    def cpus(self, target: str) -> set[str]:
        command = [self.path, f"--target={target}", "--print-supported-cpus"]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = (run.stdout + run.stderr).splitlines()
        return {line.strip() for line in lines if line.startswith("\t")}

    def number(self, output: Path, *options: str) -> int:
        """Compile for a GPU; return the low byte of e_flags."""
        run_tool(
            self.path, *options, "-nogpulib", "-c", "-x", "assembler", "/dev/null", "-o", output
        )
        return output.read_bytes()[48]


@pytest.fixture(params=[22, 23])
def clang(request) -> Clang:
    if request.param == 22:
        return Clang(request.getfixturevalue("llvm")("clang"), 22)
    found = Clang(request.getfixturevalue("llvm23")("clang-23"), 23)
    if not found.cpus("amdgcn-amd-amdhsa"):
        pytest.skip("this clang has no AMDGPU target")
    return found


@pytest.mark.llvm
def test_clang_lists_the_same_amdgpu_names(clang: Clang):
    ours = {name for row in clang.rows for name in (row.name, *row.alternative_names)}
    assert ours == clang.cpus("amdgcn-amd-amdhsa") - {"generic", "generic-hsa"}


@pytest.mark.llvm
def test_clang_lists_the_same_nvptx_names(llvm: Tool):
    ours = {row.name for row in PROCESSORS.values() if row.family == "nvptx"}
    assert ours == Clang(llvm("clang"), 22).cpus("nvptx64")


@pytest.mark.llvm
def test_clang_accepts_the_features_of_the_table_and_no_others(clang: Clang):
    def accepts(target_id: str) -> bool:
        command = [clang.path, "-###", "-x", "hip", "--cuda-device-only", "-nogpuinc", "-nogpulib"]
        command += [f"--offload-arch={target_id}", "/dev/null"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    pairs = [(row, feature) for row in clang.rows for feature in (*FEATURES, "wavefrontsize64")]
    with ThreadPoolExecutor(4) as pool:
        accepted = list(pool.map(accepts, [f"{row.name}:{feature}+" for row, feature in pairs]))
    assert len(pairs) >= 53 * 3
    newer = clang.generation == 22
    wrong = [
        (row.name, feature)
        for (row, feature), taken in zip(pairs, accepted, strict=True)
        if taken != (feature in row.features and not (newer and feature in row.newer_features))
    ]
    assert wrong == []


@pytest.mark.llvm
def test_code_objects_carry_the_numbers_of_the_table(clang: Clang, tmp_path: Path):
    def number(name: str) -> int:
        return clang.number(tmp_path / name, "--target=amdgcn-amd-amdhsa", f"-mcpu={name}")

    with ThreadPoolExecutor(4) as pool:
        numbers = list(pool.map(number, [row.name for row in clang.rows]))
    assert numbers == [row.mach for row in clang.rows]


@pytest.mark.llvm
@pytest.mark.parametrize("clang", [23], indirect=True)
def test_clang_names_architectures_as_we_do(clang: Clang, tmp_path: Path):
    for arch in AMDGPU_ARCHES:
        number = clang.number(tmp_path / "x.o", f"--target={arch}-amd-amdhsa")
        row = find_processor(arch)
        if row is not None:  # a family without a processor of its own is clang's choice
            assert number == row.mach, arch
