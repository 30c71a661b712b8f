"""``offload-tool launch`` and the compiler alone: a split compile, and one that passes through.

Wall time counts, because the passes run in parallel; the number of cores matters, too.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.measure import compare

TARGETS = ("gfx906", "gfx90a", "gfx942", "gfx1100")
HERE = Path(__file__).resolve().parent.parent
DECLARATIONS = '#include "hip_declarations.h"\n'
LIBRARY = """#include <algorithm>
#include <functional>
#include <map>
#include <regex>
#include <string>
"""
STEP = """template <int N> __device__ float step(float x) { return step<N - 1>(x) * x + N; }
template <> __device__ float step<0>(float x) { return x; }
"""
KERNEL = "__global__ void kernel{0}(float *x) {{ x[{0}] = step<{1}>(x[{0}]); }}\n"


def main(folder: Path, _: str) -> None:
    """Print the figures of both."""
    clang = shutil.which("clang++-22")
    script = shutil.which("offload-tool", path=str(Path(sys.executable).parent))
    assert clang
    assert script
    shutil.copy(HERE / "examples/saxpy/hip_declarations.h", folder)
    kernels = "".join(KERNEL.format(number, 300 + number) for number in range(60))
    (folder / "large.hip").write_text(f"{DECLARATIONS}{LIBRARY}{STEP}{kernels}")
    (folder / "small.hip").write_text(f"{DECLARATIONS}{STEP}{KERNEL.format(1, 3)}")
    (folder / "plain.cpp").write_text("int x;\n")
    archs = [f"--offload-arch={target}" for target in TARGETS]
    flags = ["-x", "hip", "-O3", "-nogpuinc", "-nogpulib", "-cuid=1", *archs, "-c"]
    os.environ.pop("MAKEFLAGS", None)
    cores = len(os.sched_getaffinity(0))
    print(f"launch: {len(TARGETS)} targets, {cores} cores")
    row("a large source", [clang, *flags, "large.hip", "-o", "s.o"], script, folder)
    row("a small source", [clang, *flags, "small.hip", "-o", "s.o"], script, folder)
    row("passed through", [clang, "-c", "plain.cpp", "-o", "s.o"], script, folder)


def row(name: str, command: Sequence[str], script: str, folder: Path) -> None:
    """Print one row: wall time and own processor time."""
    alone, launched = compare([command, [script, "launch", *command]], folder, runs=7)
    own = (launched.cpu - alone.cpu) * 1000
    print(f"  {name:15}: alone    {alone}")
    print(f"  {'':15}  launched {launched}")
    print(f"  {'':15}  {alone.wall / launched.wall:.2f} x as fast, {own:.0f} ms of our own (cpu)")
