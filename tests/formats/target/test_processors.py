"""The processor table is what LLVM 22's compiler and tools accept (23: test_amdgpu_triples)."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from offload_tool.formats.target.processors import (
    PROCESSORS,
    find_processor,
    nearest_names,
    processor_of_mach,
)

AMDGPU = [row for row in PROCESSORS.values() if row.family == "amdgcn"]
FEATURES = ("sramecc", "xnack")


def test_alternative_names_find_the_primary_row():
    """An alternative name finds the row of its primary name."""
    assert find_processor("polaris11") is find_processor("gfx803") is PROCESSORS["gfx803"]


@pytest.mark.parametrize("name", ["", "GFX906", "gfx906 ", "gfx90", "vega20", "gfx940"])
def test_other_names_find_nothing(name):
    """Neither other cases, nor prefixes, nor removed processors are names."""
    assert find_processor(name) is None


def test_no_name_is_listed_twice():
    """No two rows share a primary name, an alternative name or an ELF number."""
    names = [n for row in PROCESSORS.values() for n in (row.name, *row.alternative_names)]
    numbers = [row.mach for row in PROCESSORS.values() if row.mach is not None]
    assert len(set(names)) == len(names)
    assert len(set(numbers)) == len(numbers)


def test_generic_processors_cover_rows_and_promise_only_their_features():
    """A generic processor covers known ones; each has every feature of the generic one."""
    generics = [row for row in AMDGPU if row.covers]
    assert sorted(row.name for row in generics) == sorted(n for n in PROCESSORS if "-generic" in n)
    for generic in generics:
        for name in generic.covers:
            assert set(generic.features) <= set(PROCESSORS[name].features), (generic, name)


def test_elf_number_finds_its_processor():
    """The number of a code object's e_flags leads back to the processor."""
    assert processor_of_mach(0x3F) is PROCESSORS["gfx90a"]
    assert processor_of_mach(0) is None


def test_nearest_names_begin_with_the_likeliest():
    """A name in the wrong case or with one wrong letter leads to the right one."""
    assert nearest_names("GFX90A")[0] == "gfx90a"
    assert "sm_90" in nearest_names("sm_9O")
    assert nearest_names("quux") == ()


def _supported_cpus(clang: str, target: str) -> set[str]:
    command = [clang, f"--target={target}", "--print-supported-cpus"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = (run.stdout + run.stderr).splitlines()
    return {line.strip() for line in lines if line.startswith("\t")}


@pytest.mark.llvm
def test_clang_lists_the_same_amdgpu_names(llvm):
    """The AMD rows and their alternative names are clang's list of processors."""
    rows = [row for row in AMDGPU if row.since <= 22]
    ours = {name for row in rows for name in (row.name, *row.alternative_names)}
    assert ours == _supported_cpus(llvm("clang"), "amdgcn") - {"generic", "generic-hsa"}


@pytest.mark.llvm
def test_clang_lists_the_same_nvptx_names(llvm):
    """The NVIDIA rows are clang's list of processors."""
    ours = {row.name for row in PROCESSORS.values() if row.family == "nvptx"}
    assert ours == _supported_cpus(llvm("clang"), "nvptx64")


@pytest.mark.llvm
def test_clang_accepts_the_features_of_the_table_and_no_others(llvm):
    """For every AMD GPU and feature, --offload-arch takes what the table says."""
    clang = llvm("clang")

    def accepts(target_id: str) -> bool:
        command = [clang, "-###", "-x", "hip", "--cuda-device-only", "-nogpuinc", "-nogpulib"]
        command += [f"--offload-arch={target_id}", "/dev/null"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    rows = [row for row in AMDGPU if row.since <= 22]
    pairs = [(row, feature) for row in rows for feature in (*FEATURES, "wavefrontsize64")]
    with ThreadPoolExecutor(4) as pool:
        accepted = list(pool.map(accepts, [f"{row.name}:{feature}+" for row, feature in pairs]))
    assert len(pairs) == 53 * 3
    expected = [feature in {*row.features} - {*row.newer_features} for row, feature in pairs]
    assert accepted == expected


@pytest.mark.llvm
def test_code_objects_carry_the_numbers_of_the_table(llvm, tmp_path):
    """The ELF file that clang writes for a processor has the table's number in e_flags."""
    clang = llvm("clang")

    def mach(name: str) -> int:
        output = tmp_path / f"{name}.o"
        command = [clang, "--target=amdgcn-amd-amdhsa", f"-mcpu={name}", "-nogpulib"]
        command += ["-c", "-x", "assembler", "/dev/null", "-o", str(output)]
        subprocess.run(command, capture_output=True, check=True)
        return _low_byte_of_e_flags(output)

    rows = [row for row in AMDGPU if row.since <= 22]
    with ThreadPoolExecutor(4) as pool:
        numbers = list(pool.map(mach, [row.name for row in rows]))
    assert numbers == [row.mach for row in rows]


def _low_byte_of_e_flags(elf: Path) -> int:
    return elf.read_bytes()[48]
