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
CUDA = ["-x", "cuda", "--offload-host-only", "-nocudainc", "-nocudalib"]
CUDA_CODE = KERNEL.replace("hipL", "cudaL")
OLDER = "extern char __hip_fatbin[]; void __hipRegisterFatBinary(void *);\n"
OLDER += "void __device_stub__k(void) { __hipRegisterFatBinary(__hip_fatbin); }\n"
LOST = "_Z1__device_stub__kPi"
OLD_DRIVER, NEW_DRIVER = "--no-offload-new-driver", "--offload-new-driver"
pytestmark = pytest.mark.llvm


def compiled(folder: Path, llvm: Tool, text: str, *flags: str, tool: str = "clang") -> HipHostCode:
    (folder / "source").write_text(text)
    run_tool(llvm(tool), *flags, "-c", "source", "-o", "host.o", cwd=folder)
    return hip_host_code(read_elf_tables(memoryview((folder / "host.o").read_bytes())))


@pytest.mark.parametrize(
    ("text", "flags", "expected"),
    [
        # Code of the old offload driver refers to the bundle of its CUID, and has no entries.
        (KERNEL, [*HIP, OLD_DRIVER], HipHostCode(hashes=X, cuids=X)),
        (KERNEL, [*HIP, OLD_DRIVER, "-fgpu-rdc"], HipHostCode(hashes=X, cuids=X)),
        # Relocatable code of the new one has entries, and refers to no bundle.
        (KERNEL, [*HIP, NEW_DRIVER, "-fgpu-rdc"], HipHostCode(has_entries=True, cuids=X)),
        # A source of device functions says nothing but its CUID, and has lost no kernel.
        (FUNCTION, [*HIP, OLD_DRIVER, "-fgpu-rdc"], HipHostCode(cuids=X)),
        (FUNCTION, [*HIP, NEW_DRIVER, "-fgpu-rdc"], HipHostCode(cuids=X)),
        (CUDA_CODE.replace("__attribute__((global))", ""), CUDA, HipHostCode()),
        (f"void {LOST}(int *p) {{}}\n", ["-x", "c"], HipHostCode(unregistered=frozenset([LOST]))),
        (OLDER, ["-x", "c"], HipHostCode(needs_program_bundle=True)),
    ],
)
def test_host_code(
    text: str, flags: list[str], expected: HipHostCode, tmp_path: Path, llvm: Tool
) -> None:
    assert compiled(tmp_path, llvm, text, *flags) == expected


def test_entries_of_another_kind(tmp_path: Path, llvm: Tool) -> None:
    """OpenMP's entries are in a section of the same name, and are none of HIP's."""
    text = "int main(void) {\n#pragma omp target\n  ;\n}\n"
    flags = ["-x", "c", "-fopenmp", "--offload-arch=gfx906", "--offload-host-only", "-nogpulib"]
    assert compiled(tmp_path, llvm, text, *flags) == HipHostCode()
    assert b"llvm_offload_entries" in (tmp_path / "host.o").read_bytes()


def test_cuda_registers_itself(tmp_path: Path, llvm: Tool) -> None:
    """CUDA's kernels have the same stubs, and a constructor of their own."""
    (tmp_path / "fatbin").write_bytes(b"fat binary")
    include = ["-Xclang", "-fcuda-include-gpubinary", "-Xclang", "fatbin"]
    flags = [*CUDA, *include, "-Xclang", "-target-sdk-version=11.8"]
    assert compiled(tmp_path, llvm, CUDA_CODE, *flags).unregistered == frozenset()


def test_several_objects(tmp_path: Path, llvm: Tool) -> None:
    old = compiled(tmp_path, llvm, KERNEL, *HIP, OLD_DRIVER)
    new = compiled(tmp_path, llvm, KERNEL, *HIP, NEW_DRIVER, "-fgpu-rdc")
    assert not new.needs_bundle
    assert union(old, new) == HipHostCode(hashes=X, has_entries=True, cuids=X)
