"""First builds of small sources for eight targets, where processes cost more than the code.

The driver compiles all targets of a source in one call. It is compared with builds by the driver's
passes, and by passes without the driver (``OFFLOAD_DIRECT``), including SCons's own time.
"""

from __future__ import annotations

import statistics
from pathlib import Path

from benchmarks.measure import JOBS, TARGETS, in_turn, median, scons
from offload_tool.passes.choose_compiler import find_toolchain

SOURCES = (12, 1)
RUNS = 3
AIMS = {12: 1.0, 1: 1.2}

SCRIPT = """\
env = Environment(
    tools=["default", "offload"],
    toolpath=[PyPackageDir("offload_tool.scons")],
    OFFLOAD_ARCH={targets!r},
    OFFLOAD_FLAGS=["-nogpuinc", "-nogpulib", "-O2"],
    OFFLOAD_DIRECT=bool(int(ARGUMENTS["direct"])),
)
for number in range({sources}):
    env.OffloadBundle(f"k{{number}}.hip")
"""
KERNEL = """\
__attribute__((global)) void k{number}(float* p, int n) {{
    for (int i = 0; i < n; ++i) p[i] = p[i] * {number} + n;
}}
"""
DRIVER = """\
for source in $(seq 0 {last}); do
    {clang} -x hip -c --offload-device-only -nogpuinc -nogpulib -O2 {targets} \\
        -o driver$source.hipfb k$source.hip || exit 1
done
"""


def main(folder: Path, _llvm: str) -> None:
    """Measure and print processor time, and its ratio to the driver's."""
    for number in range(max(SOURCES)):
        (folder / f"k{number}.hip").write_text(KERNEL.format(number=number))
    for sources in SOURCES:
        _measure(folder, sources)


def _measure(folder: Path, sources: int) -> None:
    (folder / "SConstruct").write_text(SCRIPT.format(targets=list(TARGETS), sources=sources))
    flags = " ".join(f"--offload-arch={target}" for target in TARGETS)
    clang = " ".join(find_toolchain().clang)
    (folder / "driver").write_text(DRIVER.format(clang=clang, targets=flags, last=sources - 1))
    commands = {
        "driver": ["sh", "driver"],
        "offload": scons(JOBS, "direct=0"),
        "direct": scons(JOBS, "direct=1"),
    }
    taken = in_turn(commands, folder, RUNS, "*.co", "*.hipfb", "*.manifest", ".sconsign*")
    print(f"\nfirst build of {sources} small sources x {len(TARGETS)} targets")
    for name, figures in taken.items():
        pairs = zip(figures, taken["driver"], strict=True)
        ratio = statistics.median(own.cpu / other.cpu for own, other in pairs)
        aim = f" (aim: at most {AIMS[sources]})" if name == "direct" else ""
        print(f"  {name:8} cpu {median(figures).cpu:6.2f} s   {ratio:4.2f} x the driver{aim}")
