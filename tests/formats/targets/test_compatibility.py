"""Which code object a runtime loads for a device."""

from __future__ import annotations

import random
import re
import subprocess
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from offload_tool.formats.objects.device_elf import generic_version
from offload_tool.formats.targets.bundle_entry_id import BundleEntryID
from offload_tool.formats.targets.compatibility import (
    GENERIC_OF,
    RULES,
    CudaTarget,
    Fit,
    completions,
    find_fit,
)
from offload_tool.formats.targets.processors import PROCESSORS
from offload_tool.formats.targets.target_id import TargetID
from tests.conftest import Tool, run_tool, try_tool

GENERICS = [row for row in PROCESSORS.values() if row.covers]
HIP = "hipv4-amdgcn-amd-amdhsa--"
OPENMP = "openmp-amdgcn-amd-amdhsa--"
NVIDIA_OPENMP = "openmp-nvptx64-nvidia-cuda-unknown-"
CUDA = "cuda-nvptx64-nvidia-cuda-unknown-"
SPIRV = "hip-spirv64-amd-amdhsa--amdgcnspirv"
SOURCE = """
typedef float v4 __attribute__((ext_vector_type(4)));
__attribute__((amdgpu_kernel)) void work(float *a, v4 *b, int n, double *d, unsigned long *u,
                                         unsigned char *c, _Float16 *h) {
  int i = __builtin_amdgcn_workitem_id_x();
  float sum = 0;
  for (int j = 0; j < n; j++) {
    sum += a[j] * a[j + 1];
    d[j] = d[j + 1] * d[j] + d[j + 2];
    u[j] = u[j + 1] * u[j] + (u[j] >> 3);
    c[j] ^= c[j + 5];
    h[j] = h[j] * h[j + 1] + h[j + 2];
  }
  b[i] += sum;
  a[i] = __builtin_sqrtf(sum);
  u[i] /= n;
  __builtin_amdgcn_s_barrier();
  __atomic_fetch_add(u, 3, __ATOMIC_SEQ_CST);
}
"""


def cuda(name: str) -> BundleEntryID:
    return BundleEntryID.read(CUDA + name)


def rule(code: str, device: str) -> str | None:
    fit = find_fit(BundleEntryID.read(code), BundleEntryID.read(device))
    return fit.rule if isinstance(fit, Fit) else None


RULES_AND_REASONS = [
    (HIP + "gfx942", HIP + "gfx942", "exact"),
    (HIP + "gfx942:xnack-", HIP + "gfx942:sramecc+:xnack-", "compatible"),
    (HIP + "gfx942:xnack+", HIP + "gfx942:sramecc+:xnack-", "*needs xnack+, not xnack-*"),
    (HIP + "gfx90a", HIP + "gfx942", "*processor gfx90a is not gfx942*"),
    (HIP + "gfx9-4-generic", HIP + "gfx942:sramecc+:xnack-", "generic"),
    (HIP + "gfx9-4-generic:xnack-", HIP + "gfx950:sramecc+:xnack-", "generic"),
    (HIP + "gfx9-4-generic:xnack+", HIP + "gfx942:xnack-", "*needs xnack+, not xnack-*"),
    (
        HIP + "gfx9-4-generic:xnack+",
        HIP + "gfx942",
        "*needs xnack+, which gfx9-4-generic leaves open*",
    ),
    (HIP + "gfx9-generic", HIP + "gfx942", "*not gfx942"),
    (HIP + "gfx9-generic", HIP + "gfx908", "*not gfx908"),
    (HIP + "gfx9-generic:xnack-", HIP + "gfx906:sramecc+:xnack-", "generic"),
    (HIP + "gfx9-4-generic", HIP + "gfx9-4-generic", "exact"),
    (HIP + "gfx942", HIP + "gfx9-4-generic", "processor gfx942 is not gfx9-4-generic"),
    (HIP + "gfx9-4-generic", OPENMP + "gfx942", "offload kind hipv4 is not openmp"),
    (OPENMP + "gfx9-4-generic", OPENMP + "gfx942", "generic"),
    (HIP + "gfx11-generic", HIP + "gfx942", "*processor gfx11-generic covers gfx1100, gfx1101*"),
    (HIP + "gfx11-generic", OPENMP + "gfx942", "offload kind hipv4 is not openmp"),
    (HIP + "gfx12-generic", HIP + "gfx9999", "*covers gfx1200, gfx1201, not gfx9999*"),
    (
        "hip-amdgcn-amd-amdhsa--gfx9-generic",
        "hipv4-spirv64-amd-amdhsa--gfx90a:xnack+",
        "architecture amdgcn is not spirv64",
    ),
    (SPIRV, HIP + "gfx942", "spirv"),
    (SPIRV, HIP + "gfx9999", "spirv"),
    (SPIRV.replace("--", "-unknown-"), HIP + "gfx942", "spirv"),
    (SPIRV, SPIRV, "exact"),
    (SPIRV, OPENMP + "gfx942", "offload kind hip is not openmp"),
    (SPIRV, "hip-spirv64-amd-amdhsa--sm_80", "*is not*"),
    (
        SPIRV.replace("hip", "openmp"),
        OPENMP + "gfx942",
        "SPIR-V is loaded by HIP's runtime, not for openmp",
    ),
    (HIP + "amdgcnspirv", "openmp-nvptx64-nvidia-cuda--sm_80", "*is not*"),
    (CUDA + "sm_90a", CUDA + "sm_100", "sm_90a runs on sm_90 alone"),
    (CUDA + "sm_100f", CUDA + "sm_101", "sm_100f runs on sm_100 and later ones of its family"),
    (CUDA + "sm_86", CUDA + "sm_80", "sm_86 runs on 8.6 and later 8.x, not on sm_80"),
    (CUDA + "sm_86", CUDA + "sm_90", "sm_86 runs on 8.6 and later 8.x, not on sm_90"),
    (CUDA + "compute_90", CUDA + "sm_80", "compute_90 is PTX for sm_90 and later ones"),
    (CUDA + "lto_80", CUDA + "sm_80", "lto_80 is for a linker or compiler, not for a device"),
    (NVIDIA_OPENMP + "sm_80", NVIDIA_OPENMP + "sm_86", "compatible"),
    (NVIDIA_OPENMP + "sm_86", NVIDIA_OPENMP + "sm_80", "sm_86 runs on 8.6 and later 8.x, *"),
    (NVIDIA_OPENMP + "sm_80", CUDA + "sm_80", "offload kind openmp is not cuda"),
    (CUDA + "sm_80", CUDA + "gfx906", "'gfx906' names no NVIDIA device, such as sm_90"),
]


@pytest.mark.parametrize(("code", "device", "expected"), RULES_AND_REASONS)
def test_rules(code: str, device: str, expected: str) -> None:
    """Native code, code of the generic processor with features as set, and HIP's SPIR-V serve.

    Of the reasons, the kind comes first, then the processor, what it covers, and the features.
    """
    fit = find_fit(BundleEntryID.read(code), BundleEntryID.read(device))
    assert fnmatchcase(fit, expected) if isinstance(fit, str) else fit.rule == expected


def test_unsure() -> None:
    """Generic code for gfx906 is not sure to be found: the device has a feature that it lacks."""
    device = BundleEntryID.read(HIP + "gfx906:sramecc+:xnack-")
    fit = find_fit(BundleEntryID.read(HIP + "gfx9-generic"), device)
    assert isinstance(fit, Fit)
    assert not fit.is_sure
    assert "ask gfx9-generic for sramecc pass it over" in fit.reason
    for name in ("gfx900:xnack-", "gfx942:sramecc+:xnack-", "gfx1030"):
        for row in GENERICS:
            other = find_fit(BundleEntryID.read(HIP + row.name), BundleEntryID.read(HIP + name))
            assert isinstance(other, str) or other.is_sure


def test_completions() -> None:
    """A target ID stands for devices with every feature of the processor set."""
    found = {str(target) for target in completions(TargetID.parse("gfx942:xnack+"))}
    assert found == {"gfx942:sramecc+:xnack+", "gfx942:sramecc-:xnack+"}
    assert [str(target) for target in completions(TargetID.parse("gfx1030"))] == ["gfx1030"]


def test_no_processor_is_covered_twice() -> None:
    covered = [name for row in GENERICS for name in row.covers]
    assert len(covered) == len(set(covered))
    assert "gfx908" not in GENERIC_OF
    assert GENERIC_OF["gfx1153"] is PROCESSORS["gfx11-generic"]


@pytest.mark.llvm
@pytest.mark.parametrize("generic", GENERICS, ids=lambda row: row.name)
def test_covered_processors_run_generic_code(generic, llvm: Tool, tmp_path: Path) -> None:
    """LLVM reads generic code the same for each covered processor, not for another family's.

    Its ELF header has a generic version, which native code has not.
    """
    clang, objdump = llvm("clang"), llvm("llvm-objdump")

    def compiled(processor: str) -> Path:
        output = tmp_path / f"{processor}.o"
        command = [clang, "--target=amdgcn-amd-amdhsa", f"-mcpu={processor}", "-nogpulib", "-O2"]
        command += ["-c", "-x", "c", "-", "-o", str(output)]
        subprocess.run(command, input=SOURCE, capture_output=True, text=True, check=True)
        return output

    def read_for(code: Path, processor: str) -> str:
        return try_tool(objdump, "-d", f"--mcpu={processor}", code).stdout

    listed = try_tool(clang, "--target=amdgcn", "--print-supported-cpus")
    known = set((listed.stdout + listed.stderr).split())
    if generic.name not in known:
        pytest.skip(f"{clang} does not know {generic.name}")
    covers = [name for name in generic.covers if name in known]
    code = compiled(generic.name)
    expected = read_for(code, generic.name)
    assert expected.count("\n") > 200
    assert {name for name in covers if read_for(code, name) != expected} == set()
    others = {"gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1200"} - set(generic.covers)
    same_family = {"gfx10-1-generic": {"gfx1030"}}.get(generic.name, set())
    assert all(read_for(code, name) != expected for name in others - same_family)
    assert generic_version(code.read_bytes()) == 1
    assert generic_version(compiled(covers[0]).read_bytes()) == 0


@pytest.mark.parametrize("code", [b"", b"\x7fELF\x02\x01" + bytes(20), b"BC\xc0\xde" + bytes(60)])
def test_no_elf_header(code: bytes) -> None:
    assert generic_version(code) is None


@pytest.mark.parametrize(
    ("device", "loaded", "others"),
    [
        ("sm_86", "sm_86", "sm_80 compute_80"),
        ("sm_89", "sm_86", "sm_80 sm_90 compute_86 compute_90"),
        ("sm_90", "sm_90a", "sm_90 sm_89 compute_90a compute_90"),
        ("sm_90a", "sm_90", "compute_90 sm_80"),
        ("sm_100", "sm_100a", "sm_100f sm_100"),
        ("sm_103", "sm_103f", "sm_103 sm_100f sm_100 sm_100a"),
        ("sm_103", "sm_100f", "sm_100 sm_100a compute_103"),
        ("sm_121", "sm_120f", "sm_120 sm_100f compute_120a"),
        ("sm_101", "sm_101", "sm_100 sm_100f"),
        ("sm_120", "compute_100", "sm_100 sm_100f compute_100f compute_90 lto_120"),
        ("sm_90", "compute_90a", "compute_90 sm_80 sm_100"),
        ("sm_70", "compute_61", "compute_60 sm_61 compute_75"),
        ("sm_87", "sm_80", "compute_87"),
    ],
)
def test_cuda_loads_the_nearest(device: str, loaded: str, others: str) -> None:
    """Of several images, the one that is nearest is loaded, in whatever order they are."""
    names = [loaded, *others.split()]
    fits = {name: find_fit(cuda(name), cuda(device)) for name in names}
    serving = [
        (RULES.index(fit.rule), fit.rank, name)
        for name, fit in fits.items()
        if isinstance(fit, Fit)
    ]
    assert min(serving)[2] == loaded
    assert all(fits.values())


@pytest.mark.parametrize("seed", range(8))
def test_rules_of_ptx(seed: int, nvidia: Callable[[str], Path], tmp_path: Path) -> None:
    """NVIDIA's assembler takes PTX for exactly the processors that we say can run it."""
    ptxas = nvidia("ptxas")
    output = run_tool(ptxas, "--help")
    known = sorted(set(re.findall(r"'(sm_\d+[af]?)'", output)))
    rng = random.Random(seed)
    for _ in range(12):
        target, processor = rng.choice(known), rng.choice(known)
        if rng.random() < 0.5:  # of the same major number, where more can happen
            processor = rng.choice([name for name in known if name[:5] == target[:5]])
        text = f".version 9.5\n.target {target}\n.address_size 64\n.visible .entry k(){{ret;}}\n"
        (tmp_path / "k.ptx").write_text(text)
        command = [ptxas, "-m64", f"--gpu-name={processor}", "k.ptx", "-o", "k.cubin"]
        taken = subprocess.run(command, cwd=tmp_path, capture_output=True).returncode == 0
        ours = rule(str(cuda(target.replace("sm", "compute"))), str(cuda(processor))) is not None
        if target[-1] == "a" and CudaTarget.parse(processor) != CudaTarget.parse(target):
            # The assembler compiles for a name, where a device has all of its number.
            ours = False
        assert taken == ours, (target, processor)
