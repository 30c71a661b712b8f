"""Read SConscripts of many sources for four targets, and plain SCons with as many nodes.

``scons -h`` reads the scripts without building. One script has one builder call for all sources,
the other a call for each source; plain SCons needs an ``Object`` call for each node.
"""

from __future__ import annotations

import os
import statistics
import sys
from pathlib import Path

from benchmarks.measure import Figures, run_process

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


def main(folder: Path, _llvm: str, sources: tuple[int, ...] = SOURCES) -> None:
    """Measure and print processor time and memory, and their ratios to plain SCons's."""
    folder = folder / "reading"
    folder.mkdir()
    for number in range(max(sources)):
        (folder / f"k{number}.hip").touch()
        (folder / f"plain{number}.c").touch()
    for count in sources:
        _measure(folder, count)


def _measure(folder: Path, sources: int) -> None:
    for name, text in SCRIPTS.items():
        (folder / name).write_text(text.format(targets=list(TARGETS), sources=sources))
    taken: dict[str, list[Figures]] = {name: [] for name in SCRIPTS}
    for _ in range(RUNS):  # in turn
        for name, figures in taken.items():
            figures.append(run_process(_scons(name), folder))
    print(f"\nreading {sources} sources x {len(TARGETS)} targets")
    plain = taken.pop("Object")
    cpu, memory = (statistics.median(getattr(each, key) for each in plain) for key in _KEYS)
    print(f"  {'Object':12} cpu {cpu:6.2f} s   {memory:4.0f} MiB")
    for name, figures in taken.items():
        cpu, memory = (statistics.median(getattr(each, key) for each in figures) for key in _KEYS)
        times, sizes = (
            statistics.median(
                getattr(own, key) / getattr(other, key)
                for own, other in zip(figures, plain, strict=True)
            )
            for key in _KEYS
        )
        print(
            f"  {name:12} cpu {cpu:6.2f} s   {memory:4.0f} MiB   "
            f"{times:4.2f} and {sizes:4.2f} of Object's (aim: at most 1.3)"
        )


_KEYS = ("cpu", "memory")


def _scons(script: str) -> list[str]:
    command = [sys.executable, "-m", "SCons", "-Q", "-f", script, "-h"]
    places = os.pathsep.join(filter(None, [str(Path.cwd()), os.environ.get("PYTHONPATH")]))
    return ["env", f"PYTHONPATH={places}", *command]
