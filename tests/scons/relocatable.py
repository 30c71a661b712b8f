"""Two sources that use each other's device code, in HIP or CUDA, and how their results start."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.conftest import run_tool

RELOCATABLE = "env['OFFLOAD_RDC'] = True\n"
_DECLARATIONS = """\
struct dim3 { unsigned x, y, z; };
extern "C" int LAUNCH(const void*, dim3, dim3, void**, unsigned long, struct stream*);
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#ifndef FACTOR
#define FACTOR 1
#endif
"""
_ONE = """\
extern __device__ int shared_by_all;
__device__ int helper(int);
__global__ void first(int* p) { *p = helper(shared_by_all); }
"""
_TWO = """\
static __device__ int counter;
void* address_of_counter() { return &counter; }
__device__ int shared_by_all = 5;
__device__ int helper(int value) { return value * FACTOR + ++counter; }
__global__ void second(int* p) { *p = helper(2); }
"""


def declarations(kind: str) -> str:
    """Return what sources of a kind, ``hip`` or ``cuda``, need of the language's headers."""
    return _DECLARATIONS.replace("LAUNCH", f"{kind}LaunchKernel")


def one(kind: str) -> str:
    """Return the source that needs the other."""
    return declarations(kind) + _ONE


def two(kind: str) -> str:
    """Return the source that has a function and variables for both."""
    return declarations(kind) + _TWO


def loaded(library: Path) -> list[str]:
    """Load a shared library; return what is printed meanwhile."""
    load = "import ctypes, sys; ctypes.CDLL(sys.argv[1])"
    return run_tool(sys.executable, "-c", load, library, cwd=library.parent).splitlines()
