"""The module-scope variables of clang's PTX: one order, and names that NVIDIA's linkers accept."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from offload_tool.formats.cuda.ptx import settled
from tests.conftest import program, run_tool

HEAD = """\
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
"""
TABLE = """\
static __device__ int a, b, c, d, e, f, g, h;
static __device__ int* const table[] = {&a, &b, &c, &d, &e, &f, &g, &h};
__global__ void k(int* p, int i) { *p = *table[i]; }
"""
STATIC = """\
static __device__ int counter;
static __device__ int* where[] = {&counter};
__global__ void k(int* p) { *p = counter + **where; }
void* address() { return &counter; }
"""
LAUNCH = """\
struct dim3 { unsigned x, y, z; };
struct stream;
extern "C" int cudaLaunchKernel(const void*, dim3, dim3, void**, unsigned long, stream*);
extern "C" unsigned __cudaPushCallConfiguration(dim3, dim3, unsigned long = 0, stream* = 0);
"""
STARTS = (
    LAUNCH
    + """\
__global__ void k(int*);
__global__ void l(int*);
extern __device__ int shared;
void* use() { return &shared; }
void start() { k<<<dim3{1, 1, 1}, dim3{1, 1, 1}>>>(0); l<<<dim3{1, 1, 1}, dim3{1, 1, 1}>>>(0); }
"""
)
DEFINES = (
    LAUNCH
    + """\
__device__ int shared;
__global__ void k(int* p) { *p = shared; }
__global__ void l(int* p) { *p = shared; }
"""
)


def ptx(folder: Path, source: str, name: str = "k") -> bytes:
    """Return the PTX of relocatable code by clang 22, as it is."""
    path = folder / f"{name}.cu"
    path.write_text(HEAD + source)
    flags = ["-x", "cuda", "--cuda-device-only", "--offload-arch=sm_80", "-fgpu-rdc", "-O2", "-S"]
    flags += [f"-cuid={name}", "-nocudainc", "-nocudalib", "--cuda-feature=+ptx70", "-o", "-"]
    flags += ["-Xclang", "-target-sdk-version=11.8", "-Wno-unknown-cuda-version"]
    done = subprocess.run([program("clang-22"), *flags, path], capture_output=True, check=True)
    return done.stdout


def link(folder: Path, nvidia: Callable[[str], Path], **modules: bytes) -> str:
    """Link the cubins of modules; return what nvlink says."""
    for name, module in modules.items():
        (folder / f"{name}.ptx").write_bytes(module)
        args = ["-c", "-m64", "--gpu-name=sm_80", f"{name}.ptx", "-o", f"{name}.cubin"]
        run_tool(nvidia("ptxas"), *args, cwd=folder)
    cubins = [f"{name}.cubin" for name in modules]
    command = [nvidia("nvlink"), "-arch=sm_80", "-m64", *cubins, "-o", "linked.cubin"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stderr


def test_one_order(tmp_path: Path) -> None:
    """Clang's order of the variables that an initializer names varies by run; ours does not."""
    found = {ptx(tmp_path, TABLE) for _ in range(8)}
    assert len(found) > 1
    (one,) = {settled(module) for module in found}
    assert all(sorted(one.splitlines()) == sorted(module.splitlines()) for module in found)


def test_static_variable(tmp_path: Path, nvidia: Callable[[str], Path]) -> None:
    """A static variable that device code uses first, and host code later, has one name."""
    module = ptx(tmp_path, STATIC)
    assert "Undefined reference to '_ZL7counter'" in link(tmp_path, nvidia, k=module)
    assert not link(tmp_path, nvidia, k=settled(module))
    assert settled(module).count(b"_ZL7counter__static__") == module.count(b"_ZL7counter") - 1


def test_kernel_of_another_source(tmp_path: Path, nvidia: Callable[[str], Path]) -> None:
    """A kernel of another source, which host code starts, is no function of the module."""
    one, two = ptx(tmp_path, STARTS, "one"), ptx(tmp_path, DEFINES, "two")
    assert "not declared __global__ in all source files" in link(tmp_path, nvidia, one=one, two=two)
    assert not link(tmp_path, nvidia, one=settled(one), two=settled(two))
    assert b"__clang_gpu_used_external[1] = {generic(shared)};" in settled(one)


@pytest.mark.parametrize("module", [b"", b".version 8.0\n", b".extern .global .u32 x;\n{\n"])
def test_unchanged(module: bytes) -> None:
    assert settled(module) == module
