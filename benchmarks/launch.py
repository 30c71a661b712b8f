"""``offload-tool launch`` and the compiler alone: a split compile, and one that passes through.

Wall time counts, because the passes run in parallel; the number of cores matters, too. After edits,
processor time counts: what `launch` remembers of each pass does not run again.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.measure import compare, run_process

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
HOST_CODE = "int host_code() {{ return {0}; }}\n"
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
    print("launch: processor time after edits of the large source, two targets")
    edit_rows([clang, *flags[:6], "-c", "large.hip"], script, folder)


def row(name: str, command: Sequence[str], script: str, folder: Path) -> None:
    """Print one row: wall time and own processor time."""
    alone, launched = compare([command, [script, "launch", *command]], folder, runs=7)
    own = (launched.cpu - alone.cpu) * 1000
    print(f"  {name:15}: alone    {alone}")
    print(f"  {'':15}  launched {launched}")
    print(f"  {'':15}  {alone.wall / launched.wall:.2f} x as fast, {own:.0f} ms of our own (cpu)")


def edit_rows(command: Sequence[str], script: str, folder: Path) -> None:
    """Print a row for each edit: processor seconds of both, and their ratio."""
    source, common, only = (folder / name for name in ("large.hip", "common.h", "only.h"))
    common.write_text("#pragma once\n")
    only.write_text("#pragma once\n")
    text = source.read_text()
    includes = '#include "common.h"\n#ifdef __gfx90a__\n#include "only.h"\n#endif\n'
    source.write_text(f"{includes}{text}{HOST_CODE.format(0)}")
    archs = ["--offload-arch=gfx906,gfx90a"]

    def edit(path: Path, old: str, new: str) -> None:
        path.write_text(path.read_text().replace(old, new))

    edits: dict[str, Callable[[], None]] = {
        "warm-up": lambda: None,
        "first build": (folder / "s.o").unlink,
        "a touch": common.touch,
        "first edit": lambda: edit(source, STEP, f"// a\n{STEP}"),  # until now, one stage
        "a comment": lambda: edit(source, "// a\n", "// a comment\n"),
        "host code": lambda: edit(source, HOST_CODE.format(0), HOST_CODE.format(1)),
        "common header": lambda: edit(common, "once\n", "once\n#define NOT_USED\n"),
        "header of one": lambda: edit(only, "once\n", "once\n#define NOT_USED\n"),
        "a kernel": lambda: edit(source, "<310>", "<299>"),
        "one target more": lambda: archs.append("--offload-arch=gfx1100"),
    }
    for name, change in edits.items():
        change()
        times = []
        for before, output in ((), "alone.o"), ((script, "launch"), "s.o"):
            words = [*before, *command, *archs, "-o", output]
            times.append(run_process(words, folder).cpu)
        is_same = (folder / "alone.o").read_bytes() == (folder / "s.o").read_bytes()
        assert is_same, name
        alone, launched = times
        print(
            f"  {name:15}: alone {alone:6.2f} s, launched {launched:6.2f} s, {launched / alone:.3f}"
        )
