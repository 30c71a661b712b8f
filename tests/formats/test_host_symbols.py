"""What HIP host code says of its device code, in objects that clang has compiled."""

from __future__ import annotations

from pathlib import Path

import pytest

from offload_tool.formats.hip_fatbin import cuid_hash
from offload_tool.formats.host_symbols import HipHostCode, hip_host_code, union
from offload_tool.formats.objects.elf.reader import read_elf_tables
from tests.conftest import Tool, run_tool

KERNEL = """\
struct dim3 { unsigned x, y, z; };
extern "C" int hipLaunchKernel(const void*, dim3, dim3, void**, unsigned long, struct stream*);
__attribute__((global)) void kernel(int* p) { *p = 1; }
"""
FUNCTION = "__attribute__((device)) int function(int x) { return x; }\n"
HIP = ["-x", "hip", "--offload-host-only", "-nogpuinc", "-nogpulib", "-cuid=13"]
X = frozenset([cuid_hash("13")])
pytestmark = pytest.mark.llvm


def compiled(folder: Path, llvm: Tool, text: str, *flags: str, tool: str = "clang") -> HipHostCode:
    (folder / "source").write_text(text)
    run_tool(llvm(tool), *flags, "-c", "source", "-o", "host.o", cwd=folder)
    return hip_host_code(read_elf_tables(memoryview((folder / "host.o").read_bytes())))


@pytest.mark.parametrize("rdc", [[], ["-fgpu-rdc"]], ids=["whole", "relocatable"])
def test_old_driver(tmp_path: Path, llvm: Tool, rdc: list[str]) -> None:
    """Code of the old offload driver refers to the bundle of its CUID, and has no entries."""
    flags = [*HIP, "--no-offload-new-driver", *rdc]
    assert compiled(tmp_path, llvm, KERNEL, *flags) == HipHostCode(hashes=X, cuids=X)


def test_new_driver(tmp_path: Path, llvm: Tool) -> None:
    """Relocatable code of the new one has entries, and refers to no bundle."""
    found = compiled(tmp_path, llvm, KERNEL, *HIP, "--offload-new-driver", "-fgpu-rdc")
    assert found == HipHostCode(has_entries=True, cuids=X)
    assert not found.needs_bundle


@pytest.mark.parametrize("driver", ["--no-offload-new-driver", "--offload-new-driver"])
def test_functions_alone(tmp_path: Path, llvm: Tool, driver: str) -> None:
    """A source of device functions says nothing but its CUID, and has lost no kernel."""
    found = compiled(tmp_path, llvm, FUNCTION, *HIP, driver, "-fgpu-rdc")
    assert found == HipHostCode(cuids=X)


def test_entries_of_another_kind(tmp_path: Path, llvm: Tool) -> None:
    """OpenMP's entries are in a section of the same name, and are none of HIP's."""
    text = "int main(void) {\n#pragma omp target\n  ;\n}\n"
    flags = ["-x", "c", "-fopenmp", "--offload-arch=gfx906", "--offload-host-only", "-nogpulib"]
    assert compiled(tmp_path, llvm, text, *flags) == HipHostCode()
    assert b"llvm_offload_entries" in (tmp_path / "host.o").read_bytes()


def test_cuda_registers_itself(tmp_path: Path, llvm: Tool) -> None:
    """CUDA's kernels have the same stubs, and a constructor of their own."""
    flags = ["-x", "cuda", "--offload-host-only", "-nocudainc", "-nocudalib"]
    text = KERNEL.replace("hipL", "cudaL").replace("__attribute__((global))", "")
    assert compiled(tmp_path, llvm, text, *flags) == HipHostCode()
    host = KERNEL.replace("hipL", "cudaL")
    placeholder = tmp_path / "fatbin"
    placeholder.write_bytes(b"fat binary")
    include = ["-Xclang", "-fcuda-include-gpubinary", "-Xclang", "fatbin"]
    sdk = ["-Xclang", "-target-sdk-version=11.8"]
    assert compiled(tmp_path, llvm, host, *flags, *include, *sdk).unregistered == frozenset()


def test_lost_kernels(tmp_path: Path, llvm: Tool) -> None:
    text = "void _Z1__device_stub__kPi(int *p) {}\n"
    found = compiled(tmp_path, llvm, text, "-x", "c")
    assert found.unregistered == {"_Z1__device_stub__kPi"}


def test_older_clangs_name(tmp_path: Path, llvm: Tool) -> None:
    text = "extern char __hip_fatbin[]; void __hipRegisterFatBinary(void *);\n"
    text += "void __device_stub__k(void) { __hipRegisterFatBinary(__hip_fatbin); }\n"
    found = compiled(tmp_path, llvm, text, "-x", "c")
    assert found == HipHostCode(needs_program_bundle=True)


def test_several_objects(tmp_path: Path, llvm: Tool) -> None:
    old = compiled(tmp_path, llvm, KERNEL, *HIP, "--no-offload-new-driver")
    new = compiled(tmp_path, llvm, KERNEL, *HIP, "--offload-new-driver", "-fgpu-rdc")
    assert union(old, new) == HipHostCode(hashes=X, has_entries=True, cuids=X)
