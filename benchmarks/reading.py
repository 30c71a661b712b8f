"""Read SConscripts of many sources for four targets, and plain SCons with as many nodes.

``scons -h`` reads the scripts without building. One script has one builder call for all sources,
the other a call for each source; plain SCons needs an ``Object`` call for each node.
"""

from __future__ import annotations

import statistics
from pathlib import Path

from benchmarks.measure import in_turn, median, scons

TARGETS = ("gfx906", "gfx90a", "gfx1030", "gfx1100")
SOURCES = (2_500, 10_000)
RUNS = 3

OFFLOAD = """\
env = Environment(
    tools=["default", "offload"],
    toolpath=[PyPackageDir("offload_tool.scons")],
    OFFLOAD_ARCH={targets!r},
    OFFLOAD_FLAGS=["-nogpuinc", "-nogpulib"],
    CPPPATH=["."],
)
sources = [f"k{{number}}.hip" for number in range({sources})]
"""
SCRIPTS = {
    "Object": """\
env = Environment(CPPPATH=["."])
for number in range({sources}):
    for target in {targets!r}:
        flags = ["-DTARGET=" + target, "-nogpuinc", "-nogpulib"]
        env.Object(f"k{{number}}.{{target}}.o", f"plain{{number}}.c", CCFLAGS=flags)
""",
    "one call": OFFLOAD + "env.OffloadDeviceObject(sources)\n",
    "a call each": OFFLOAD + "for source in sources: env.OffloadDeviceObject(source)\n",
}


def main(folder: Path, _llvm: str) -> None:
    """Measure and print processor time and memory, and their ratios to plain SCons's."""
    for number in range(max(SOURCES)):
        (folder / f"k{number}.hip").touch()
        (folder / f"plain{number}.c").touch()
    for count in SOURCES:
        _measure(folder, count)


def _measure(folder: Path, sources: int) -> None:
    for name, text in SCRIPTS.items():
        (folder / name).write_text(text.format(targets=list(TARGETS), sources=sources))
    taken = in_turn({name: scons("-f", name, "-h") for name in SCRIPTS}, folder, RUNS)
    print(f"\nreading {sources} sources x {len(TARGETS)} targets")
    plain = taken.pop("Object")
    each = median(plain)
    print(f"  {'Object':12} cpu {each.cpu:6.2f} s   {each.memory:4.0f} MiB")
    for name, figures in taken.items():
        each = median(figures)
        times, sizes = (
            statistics.median(
                getattr(own, key) / getattr(other, key)
                for own, other in zip(figures, plain, strict=True)
            )
            for key in ("cpu", "memory")
        )
        print(
            f"  {name:12} cpu {each.cpu:6.2f} s   {each.memory:4.0f} MiB   "
            f"{times:4.2f} and {sizes:4.2f} of Object's (aim: at most 1.3)"
        )
