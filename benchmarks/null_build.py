"""A null build and a first build of many sources for many targets.

The null build checks that each node is up to date. It is compared with plain SCons with as many
``Object`` nodes, each of one source and one header, too. A stand-in for the compiler makes the
tree in seconds, with correct depfiles. The first build has fewer sources and a real compiler. It
is compared with the driver, which compiles all targets of a source in one process, with the same
number of jobs.
"""

from __future__ import annotations

import statistics
from pathlib import Path

from benchmarks.measure import JOBS, TARGETS, in_turn, median, remove, run_process, scons
from benchmarks.scheduling import make_stand_in
from offload_tool.formats.hip_fatbin import cuid_symbol
from offload_tool.passes.choose_compiler import find_toolchain
from offload_tool.passes.source_kind import derive_cuid

SOURCES = 300
FIRST_BUILD_SOURCES = 12
RUNS = 7

HEAD = """\
SConsignFile({name!r})
env = Environment(
    tools=["default", "offload"],
    toolpath=[PyPackageDir("offload_tool.scons")],
    OFFLOAD_ARCH={targets!r},
    OFFLOAD_FLAGS=["-nogpuinc", "-nogpulib"],
    OFFLOAD_LAUNCHER=ARGUMENTS.get("launcher", ""),
    CPPPATH=["."],
)
env["ENV"].update(PREPARED="prepared", WAIT_SECONDS="0")
sources = [f"k{{number}}.hip" for number in range({sources})]
"""
DEVICE = HEAD + "env.OffloadDeviceObject(sources)\n"
PLAIN = """\
SConsignFile({name!r})
env = Environment(CC=ARGUMENTS["launcher"], CPPPATH=["."])
env["ENV"].update(PREPARED="prepared", WAIT_SECONDS="0")
for number in range({sources}):
    for target in {targets!r}:
        flags = ["-DTARGET=" + target, "-nogpuinc", "-nogpulib"]
        env.Object(f"k{{number}}.{{target}}.o", f"plain{{number}}.c", CCFLAGS=flags)
"""
DRIVER = """\
env = Environment(CPPPATH=["."])
flags = "{flags} -c --offload-device-only -nogpuinc -nogpulib -I."
for number in range({sources}):
    env.Command(f"k{{number}}.hipfb", f"k{{number}}.hip", f"{clang} {{flags}} -o $TARGET $SOURCE")
"""
KERNEL = """\
__attribute__((global)) void k{number}(float* p, int n) {{
    for (int i = 0; i < n; ++i)
        for (int j = 0; j < COMMON; ++j) p[i] = p[i] * p[j] + {number} / (p[i] + j);
}}
"""
FIRST_BUILD_KERNELS = 40
"""Per source: a compile for one target takes about half a second."""


def main(folder: Path, _llvm: str) -> None:
    """Measure and print a null build against plain SCons, a first one against the driver."""
    _null_build(folder)
    for file in folder.iterdir():
        if file.is_file():
            file.unlink()
    _first_build(folder, FIRST_BUILD_SOURCES)


def _null_build(folder: Path) -> None:
    _write_sources(folder, SOURCES)
    _write_stand_in(folder)
    commands = {}
    for name, text in (("offload", DEVICE), ("Object", PLAIN)):
        (folder / name).write_text(
            text.format(name=f".{name}", targets=list(TARGETS), sources=SOURCES)
        )
        commands[name] = _scons(name, f"launcher={folder / 'wait'}")
        run_process(commands[name], folder)
    taken = in_turn(commands, folder, RUNS)
    print(f"\nnull build of {SOURCES} sources x {len(TARGETS)} targets")
    for name, figures in taken.items():
        each = median(figures)
        print(
            f"  {name:8} cpu {each.cpu:6.2f} s   wall {each.wall:6.2f} s   {each.memory:4.0f} MiB"
        )
    pairs = [a.cpu / b.cpu for a, b in zip(taken["offload"], taken["Object"], strict=True)]
    print(f"  ratio of processor time {statistics.median(pairs):4.2f} (aim: at most 0.8)")


def _first_build(folder: Path, sources: int) -> None:
    _write_sources(folder, sources, FIRST_BUILD_KERNELS)
    clang = find_toolchain()
    flags = " ".join(f"--offload-arch={target}" for target in TARGETS)
    (folder / "offload").write_text(
        HEAD.format(name=".first", targets=list(TARGETS), sources=sources)
        + "for source in sources: env.OffloadBundle(source)\n"
    )
    (folder / "driver").write_text(
        DRIVER.format(clang=" ".join(clang.clang), flags=flags, sources=sources)
    )
    for wanted in (sources, 1):
        print(f"\nfirst build of {wanted} sources x {len(TARGETS)} targets, {JOBS}")
        outputs = [f"k{number}.hipfb" for number in range(wanted)]
        for name in ("offload", "driver"):
            figures = run_process(_scons(name, JOBS, *outputs), folder)
            print(f"  {name:8} wall {figures.wall:6.2f} s   cpu {figures.cpu:6.2f} s")
            remove(folder, "*.co", "*.hipfb")


def _write_sources(folder: Path, sources: int, kernels: int = 1) -> None:
    (folder / "common.h").write_text("#define COMMON 7\n")
    for number in range(sources):
        names = [number * kernels + index for index in range(kernels)]
        text = "".join(KERNEL.format(number=name) for name in names)
        (folder / f"k{number}.hip").write_text('#include "common.h"\n' + text)
        (folder / f"plain{number}.c").write_text('#include "common.h"\n')


def _write_stand_in(folder: Path) -> None:
    """Compile one source, and derive the other objects from its object: their CUIDs differ."""
    prepared = make_stand_in(folder)
    (folder / "one").write_text(DEVICE.format(name=".one", targets=list(TARGETS), sources=1))
    run_process(_scons("one"), folder)
    known = cuid_symbol(derive_cuid("k0.hip")).encode()
    for target in TARGETS:
        made = (folder / f"k0.{target}.co").read_bytes()
        for number in range(SOURCES):
            own = cuid_symbol(derive_cuid(f"k{number}.hip")).encode().ljust(len(known), b"\0")
            (prepared / f"k{number}.hip.{target}").write_bytes(made.replace(known, own))
    for number in range(SOURCES):
        (prepared / f"plain{number}.c.host").write_bytes(bytes(3000))


def _scons(script: str, *arguments: str) -> list[str]:
    # Each script has its own database of built files.
    return scons("-f", script, *arguments)
