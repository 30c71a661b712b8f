"""Host programs of clang register their device code through our objects, when they start.

The runtime is a stand-in that prints what it is told; no GPU is needed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from offload_tool import wrap_images
from offload_tool.formats.registration_ir import RegisteredKind
from tests.conftest import Tool, run_tool

SOURCE = """
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __constant__ __attribute__((constant))
struct dim3 { unsigned x, y, z; };
extern "C" {
int RUNTIMELaunchKernel(const void *, dim3, dim3, void **, unsigned long, void *) { return 0; }
int __RUNTIMEPushCallConfiguration(dim3, dim3, unsigned long, void *) { return 0; }
int __RUNTIMEPopCallConfiguration(dim3 *, dim3 *, unsigned long *, void *) { return 0; }
}
__device__ int counter = 1;
__constant__ double factors[3] = {1, 2, 3};
__global__ void kernel(double *out) { *out = counter * factors[0]; }
extern "C" int puts(const char *);
int main() { puts("main"); return 0; }
"""

STAND_IN = r"""
#include <stdio.h>
static int handle;
struct wrapper { unsigned magic, version; const char *image; void *null; };
void *__RUNTIMERegisterFatBinary(const struct wrapper *w) {
  printf("fat binary %x %u %s\n", w->magic, w->version, w->image);
  return &handle;
}
void __RUNTIMERegisterFatBinaryEnd(void *h) { printf("end %d\n", h == &handle); }
void __RUNTIMEUnregisterFatBinary(void *h) { printf("unregister %d\n", h == &handle); }
int __RUNTIMERegisterFunction(void *h, const void *address, char *name, const char *device) {
  printf("function %s %s %d %d\n", name, device, address != 0, h == &handle);
  return 0;
}
void __RUNTIMERegisterVar(void *h, char *address, char *name, const char *device, int external,
                          size_t size, int constant, int global) {
  printf("variable %s %s %d %zu %d %d\n", name, device, external, size, constant, h == &handle);
}
void __RUNTIMERegisterManagedVar(void) {}
void __hipRegisterSurface(void) {}
void __hipRegisterTexture(void) {}
"""


LANGUAGES = {
    "hip": ["-x", "hip", "-nogpuinc", "-nogpulib", "--offload-arch=gfx906"],
    "cuda": [
        *("-x", "cuda", "-nocudainc", "-nocudalib", "--offload-arch=sm_70"),
        *("-Xclang", "-target-sdk-version=11.8"),
    ],
}


@pytest.mark.llvm
@pytest.mark.parametrize("linker", ["bfd", "lld"])
@pytest.mark.parametrize(
    ("kind", "magic", "before_main"),
    [("hip", "48495046", ["main"]), ("cuda", "466243b1", ["end 1", "main"])],
)
def test_registration_of_kernels_and_variables(
    tmp_path: Path,
    llvm: Tool,
    kind: RegisteredKind,
    magic: str,
    before_main: list[str],
    linker: str,
) -> None:
    """The constructor hands over the image and each entry, before main; unregisters at exit."""
    if linker == "lld":
        llvm("ld.lld")
    (tmp_path / "source").write_text(SOURCE.replace("RUNTIME", kind))
    (tmp_path / "runtime.c").write_text(STAND_IN.replace("RUNTIME", kind))
    (tmp_path / "image").write_bytes(b"device code\0")
    wrap_images([tmp_path / "image"], tmp_path / "registration.o", kind=kind)
    host = ["--offload-new-driver", "-fgpu-rdc", "--offload-host-only", "-c", "source"]
    for command in (
        [*LANGUAGES[kind], *host, "-o", "host.o"],
        ["-c", "runtime.c"],
        [f"-fuse-ld={linker}", "host.o", "registration.o", "runtime.o", "-o", "program"],
    ):
        run_tool(llvm("clang"), *command, cwd=tmp_path)
    done = run_tool(tmp_path / "program")
    lines = done.splitlines()
    assert lines[0] == f"fat binary {magic} 1 device code"
    assert sorted(lines[1:4]) == [
        "function _Z6kernelPd _Z6kernelPd 1 1",
        "variable counter counter 0 4 0 1",
        "variable factors factors 0 24 1 1",
    ]
    assert lines[4:] == [*before_main, "unregister 1"]
