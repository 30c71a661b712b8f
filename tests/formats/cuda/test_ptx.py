"""The kernels that PTX names; its variables in one order, under names that linkers accept."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from offload_tool.errors import LimitError
from offload_tool.formats.cuda.ptx import ptx_statements, read_ptx_kernels, settled, shorten
from tests.conftest import program, run_tool

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
BODIES = {
    ".visible .entry k() { ret; }": {"k": None},
    ".entry _Z1kPi(\n\t.param .u64 p\n)\n{\n\tret;\n}": {"_Z1kPi": None},
    ".weak .entry $k_1 () .maxntid 128, 2, 2 { ret; }": {"$k_1": 512},
    ".entry k()\n.reqntid 64\n.minnctapersm 2 { ret; }": {"k": 64},
    ".entry k() // .maxntid 5\n.maxntid 7 { ret; }": {"k": 7},
    ".entry k() /* .maxntid 5 */ .maxntid 7 { ret; }": {"k": 7},
    ".extern .entry k(.param .u64 p);": {},
    ".entry k();\n.entry k() .maxntid 3 { ret; }": {"k": 3},
    ".entry a() { ret; }\n.entry b() { ret; }\n.entry a() { ret; }": {"a": None, "b": None},
    "// .entry k() { ret; }": {},
    "/* \n.entry k() { ret; }\n*/": {},
    '.file 1 "a.entry k() {"': {},
    ".func f() { ret; }": {},
    "// a /* b\n.entry k() { ret; }": {"k": None},
    '.file 1 "/*.cu"\n.entry k() { ret; }': {"k": None},
    "/* // */ .entry k() { ret; }": {"k": None},
    ".entry // the name\n k // follows\n () { ret; }": {"k": None},
    ".entry k() .maxntid 0x20, 010U { ret; }": {"k": 256},
    ".entry k() .maxntid 99999999999, 2 { ret; }": {"k": None},
    ".entry k() .maxntid 1024, 09 { ret; }": {"k": None},
    f".entry /*{' ' * 2000}*/ k() {{ ret; }}": {"k": None},
    ".entry k": {},
    "": {},
}


@pytest.mark.parametrize("body", BODIES)
def test_entries(body: str) -> None:
    """Kernels that are defined are named, with the largest workgroup, and nothing else is."""
    found = read_ptx_kernels(memoryview((HEAD + body).encode()))
    assert {kernel.name: kernel.max_workgroup_size for kernel in found} == BODIES[body]
    assert len(found) == len(BODIES[body])
    assert all(kernel.vgprs is None and kernel.wavefront_size == 32 for kernel in found)


ENDLESS = [b".entry a;", b"//.entry\n", b".entry a\n", b".entry //.entry\n", b".entry a ", b'"\\']
ENDLESS += [b"/*", b"/**/a", b'/*"*/"//"', b".entry a(/**/", b".entry a .maxntid 1 ", b".maxntid "]


@pytest.mark.parametrize("unit", ENDLESS)
def test_time_grows_with_the_size(unit: bytes) -> None:
    """Eight times the text takes about eight times as long; too many directives are refused."""
    text = memoryview(unit * (8_000_000 // len(unit)))
    seconds = []
    for size in (1_000_000, 8_000_000):
        started = time.process_time()
        with contextlib.suppress(LimitError):
            assert read_ptx_kernels(text[:size]) == []
        seconds.append(time.process_time() - started)
    assert seconds[1] < 24 * max(seconds[0], 0.05)


def test_too_many_directives() -> None:
    text = memoryview(b".entry a .maxntid 1 " * 50_000)
    with pytest.raises(LimitError, match="expected one member for each 100 bytes"):
        read_ptx_kernels(text)


def test_many_kernels() -> None:
    text = "".join(f".entry k{i}(.param .u64 p) .maxntid 64 {{ ret; }}\n" for i in range(20_000))
    assert len(read_ptx_kernels(memoryview(text.encode()))) == 20_000


def test_comments_after_a_directive() -> None:
    """A directive with comments and no name takes linear time: each comment has one end."""
    assert read_ptx_kernels(memoryview(b".entry " + b"/**/" * 100_000 + b"(;")) == []


@pytest.mark.parametrize("comment", ["/*" + "x" * 2000 + "*/", "/* open"])
def test_statements_without_comments(comment: str) -> None:
    assert ptx_statements(memoryview(f"ret; {comment}".encode())) == b"ret;"


def test_short_form_ends_at_a_nul() -> None:
    """Other texts are compared with what NVIDIA's programs store."""
    assert shorten(b"\na\0 b") == b"\na"


# -- variables ------------------------------------------------------------------------------------

MACROS = """\
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
    path.write_text(MACROS + source)
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
