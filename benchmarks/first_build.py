"""A first build and a rebuild after an edit, by clang's driver and SCons, with ``OFFLOAD_PCH``.

Twelve sources with the same headers are compiled for a growing number of targets: by one driver
call per source for all targets, and by SCons. The report shows processor time, including
precompiled headers and SCons, and that of a rebuild after an edit of one function body.

The headers are HIP's if ``OFFLOAD_BENCHMARK_ROCM`` names a ROCm folder (``OFFLOAD_CLANG`` its
compiler), else some of the C++ library's. Objects must have equal bytes with and without
precompiled headers. ``OFFLOAD_BENCHMARK_PLOT`` names an SVG file for the picture.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from benchmarks.measure import JOBS, remove, run_process, scons
from benchmarks.plot import draw, picture
from offload_tool.passes.choose_compiler import find_toolchain

SOURCES = 12
TARGETS = ("gfx900", "gfx902", "gfx904", "gfx906", "gfx908", "gfx90a", "gfx90c", "gfx942")
POINTS = (1, 4, 8)
_ROCM = "OFFLOAD_BENCHMARK_ROCM"
_NO_ROCM = ["-nogpuinc", "-nogpulib"]
_LIBRARY = "".join(f"#include <{name}>\n" for name in ("algorithm", "functional", "map", "regex"))
_DECLARED = """\
struct dim3 { unsigned x, y, z; dim3(unsigned x) : x(x), y(1), z(1) {} };
extern "C" int hipLaunchKernel(const void*, dim3, dim3, void**, unsigned long, struct stream*);
extern "C" unsigned __hipPushCallConfiguration(dim3, dim3, unsigned long = 0, struct stream* = 0);
#define __global__ __attribute__((global))
"""
_BODY = """\
__global__ void kernel{number}(float* p, const float* q, int n) {{
    for (int i = 0; i < n; ++i) p[i] = q[i] * {number} + p[i];
}}
void run{number}(float* p, const float* q, int n) {{
    kernel{number}<<<dim3((n + 255) / 256), dim3(256)>>>(p, q, n);
}}
"""
_SCONSTRUCT = """\
env = Environment(
    tools=["default", "offload"],
    toolpath=[PyPackageDir("offload_tool.scons")],
    OFFLOAD_ARCH={targets},
    OFFLOAD_ROCM_PATH={rocm!r},
    OFFLOAD_FLAGS={flags},
    OFFLOAD_HOST_FLAGS={flags},
    OFFLOAD_PCH={pch},
    CCFLAGS=["-O2"],
)
env.OffloadObject(["k%d.hip" % number for number in range({sources})])
"""


def _write(folder: Path, *, rocm: str) -> None:
    begin = "#include <hip/hip_runtime.h>\n" if rocm else _LIBRARY + _DECLARED
    for number in range(SOURCES):
        (folder / f"k{number}.hip").write_text(begin + _BODY.format(number=number))


def _driver(folder: Path, targets: Sequence[str], *, rocm: str) -> float:
    """Compile each source for all targets by one call; return the total seconds."""
    clang = find_toolchain().clang
    flags = [f"--rocm-path={rocm}"] if rocm else _NO_ROCM
    words = [*clang, "-x", "hip", f"--offload-arch={','.join(targets)}", "-O2", *flags, "-c"]
    names = [f"k{number}" for number in range(SOURCES)]
    return sum(run_process([*words, f"{n}.hip", "-o", f"{n}.out"], folder).cpu for n in names)


def _scons(folder: Path, targets: Sequence[str], *, rocm: str, pch: bool) -> tuple[float, float]:
    """Build from scratch, and after an edit of one source; return the seconds of each."""
    shutil.rmtree(folder / ".offload-pch", ignore_errors=True)
    remove(folder, "*.co", "*.o", "*.hipfb", "*.manifest", "*.dblite")
    first = _build(folder, targets, rocm=rocm, pch=pch)
    source = folder / "k0.hip"
    before = source.read_text()
    source.write_text(before.replace("+ p[i]", "- p[i]"))
    edit = _build(folder, targets, rocm=rocm, pch=pch)
    source.write_text(before)
    _build(folder, targets, rocm=rocm, pch=pch)
    return first, edit


def _build(folder: Path, targets: Sequence[str], *, rocm: str, pch: bool) -> float:
    """Run scons; return its seconds."""
    flags = [] if rocm else _NO_ROCM
    text = {"targets": list(targets), "rocm": rocm, "flags": flags, "pch": pch}
    (folder / "SConstruct").write_text(_SCONSTRUCT.format(sources=SOURCES, **text))
    return run_process(scons(JOBS), folder).cpu


def _objects(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.glob("*.o")}


def main(folder: Path, _llvm: str) -> None:
    """Measure and print."""
    rocm, file = os.environ.get(_ROCM, ""), picture()
    _write(folder, rocm=rocm)
    what = "HIP's headers" if rocm else "headers of the C++ library"
    print(f"\n{SOURCES} sources with {what}: processor seconds; {_version()}")
    print("  targets    driver      ours  with PCH | an edit: ours  with PCH")
    lines: dict[str, list[float]] = {"clang++": [], "SCons": [], "SCons with OFFLOAD_PCH": []}
    for count in POINTS:
        targets = TARGETS[:count]
        driver = _driver(folder, targets, rocm=rocm)
        first, edit = _scons(folder, targets, rocm=rocm, pch=False)
        plain = _objects(folder)
        first_pch, edit_pch = _scons(folder, targets, rocm=rocm, pch=True)
        assert _objects(folder) == plain, "precompiled headers change the objects"
        for line, seconds in zip(lines.values(), (driver, first, first_pch), strict=True):
            line.append(seconds)
        print(
            f"  {count:7}  {driver:8.1f}  {first:8.1f}  {first_pch:8.1f} | {edit:13.1f}  "
            f"{edit_pch:8.1f}"
        )
    print(
        f"  with PCH / driver, {count} targets: {first_pch / driver:.2f} (aim: at most 0.50); "
        f"an edit with / without: {edit_pch / edit:.2f} (aim: at most 0.35)"
    )
    if file is not None:
        draw(file, f"First build of {SOURCES} sources, {what}", POINTS, lines)


def _version() -> str:
    clang = shlex.join(find_toolchain().clang)
    done = subprocess.run(
        [*shlex.split(clang), "--version"], capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()[0]
