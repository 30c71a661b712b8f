"""``offload-tool compile``: cost of a call compared with clang, of a first build with SCons.

The call finds a new source (without a manifest), a changed one (the manifest is read in vain),
or a current one.

Pairs of commands alternate. The report shows wall and processor time of the best run of each,
since other load on a machine only makes a run slower.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.measure import JOBS, Figures, remove, run_process, scons
from offload_tool.passes.command import dependency_flags
from offload_tool.run.pass_command import WantedPass, pass_command

TARGETS = ("gfx906", "gfx90a:xnack+", "gfx942", "gfx1100")
SOURCES = 50
CALLS = 40
BUILDS = 3
FLAGS = ["-O3", "-nogpuinc", "-nogpulib"]

KERNEL = """\
struct dim3 {{ unsigned x, y, z; }};
extern "C" int hipLaunchKernel(const void*, dim3, dim3, void**, unsigned long, struct stream*);
__attribute__((global)) void k{number}(int* p, int n) {{
    for (int i = 0; i < n; ++i) p[i] = p[i] * {number} + i;
}}
"""

RUNTIME = """\
void **__hipRegisterFatBinary(const void *data) { return 0; }
void __hipRegisterFunction() {}
void __hipUnregisterFatBinary(void **handle) {}
int __hipPushCallConfiguration() { return 0; }
int __hipPopCallConfiguration() { return 0; }
int hipLaunchKernel() { return 100; }
int main(void) { return 0; }
"""

MESON = """\
project('many', 'c')
offload = find_program('offload-tool')
objects = []
foreach number : range({sources})
  name = 'k' + number.to_string()
  compile = [offload, 'compile', '@INPUT@', '-o', '@OUTPUT@', '--cuid', name,
    '--depfile', '@DEPFILE@']
  images = []
  entries = ['-targets=host-x86_64-unknown-linux-gnu-', '-input=/dev/null']
  foreach target : {targets}
    stem = name + '.' + target.replace(':', '_')
    image = custom_target(input: name + '.hip', output: stem + '.co', depfile: stem + '.d',
      command: compile + ['--target-id', target, '--', {flags}])
    entries += ['-targets=hipv4-amdgcn-amd-amdhsa--' + target, '-input=' + image.full_path()]
    images += image
  endforeach
  host = custom_target(input: name + '.hip', output: name + '.host.o', depfile: name + '.host.d',
    command: compile + ['--host', '--', {flags}])
  bundle = custom_target(output: name + '.hipfb', depends: images,
    command: [offload, 'bundler', '--restat', '-type=o', '-bundle-align=4096', entries,
      '-output=@OUTPUT@'])
  embedded = custom_target(input: bundle, output: name + '.fatbin.o',
    command: [offload, 'embed', '@INPUT@', '-o', '@OUTPUT@', '--cuid', name])
  objects += [host, embedded]
endforeach
executable('many', 'runtime.c', objects)
"""

SCONSTRUCT = """\
env = Environment(
    tools=["default", "offload"],
    toolpath=[PyPackageDir("offload_tool.scons")],
    OFFLOAD_ARCH={targets},
    OFFLOAD_FLAGS={flags},
    OFFLOAD_HOST_FLAGS={flags},
)
env.OffloadProgram("many", ["runtime.c"] + [f"k{{number}}.hip" for number in range({sources})])
"""


def _best(runs: Sequence[Figures]) -> Figures:
    walls, cpus = (min(getattr(run, name) for run in runs) for name in ("wall", "cpu"))
    return Figures(walls, cpus, max(run.memory for run in runs))


def _call(folder: Path) -> None:
    (folder / "k.hip").write_text(KERNEL.format(number=1))
    wanted = WantedPass("hip", "device", "13", "k.hip", os.environ, FLAGS, "gfx906")
    direct = pass_command(wanted)
    options = [*direct.args, *FLAGS, *direct.last, *dependency_flags("direct.d")]
    own = [*_tool(), "compile", "k.hip", "-o", "own.co", "--target-id", "gfx906"]
    commands = {
        "clang": [*options, "-o", "direct.co", "k.hip"],
        "offload-tool compile": [*own, "--cuid", "13", "--depfile", "own.d", "--", *FLAGS],
        "python -c pass": [sys.executable, "-c", "pass"],
    }
    for command in commands.values():
        run_process(command, folder)
    assert (folder / "direct.co").read_bytes() == (folder / "own.co").read_bytes()
    names = ("offload-tool compile, changed", "offload-tool compile, current")
    runs: dict[str, list[Figures]] = {name: [] for name in (*commands, *names)}
    for number in range(CALLS):
        (folder / ".own.co.manifest").unlink()
        for name, command in commands.items():
            runs[name].append(run_process(command, folder))
        (folder / "k.hip").write_text(KERNEL.format(number=1) + f"// {number}\n")
        for name in names:
            runs[name].append(run_process(commands["offload-tool compile"], folder))
    print(f"\none device compile of a small source, with depfile and check; best of {CALLS}")
    for name in runs:
        print(f"  {name:30} {_best(runs[name])}")
    clang, ours = _best(runs["clang"]), _best(runs["offload-tool compile"])
    print(
        f"  overhead a call        {(ours.wall - clang.wall) * 1000:8.1f} ms wall "
        f"{(ours.cpu - clang.cpu) * 1000:8.1f} ms cpu   (aim: at most 30 ms cpu)"
    )


def _tool() -> list[str]:
    script = Path(sys.executable).parent / "offload-tool"
    return [str(script)] if script.exists() else [sys.executable, "-m", "offload_tool"]


def _builds(folder: Path) -> None:
    bin_folder = str(Path(sys.executable).parent)
    environment = os.environ | {
        "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.getcwd(),  # noqa: PTH109
    }
    meson, ninja = (shutil.which(name, path=environment["PATH"]) for name in ("meson", "ninja"))
    if meson is None or ninja is None:
        print("\nMeson beside SCons: not measured, meson or ninja is not installed")
        return
    _write_sources(folder)
    commands = {"Meson and Ninja": [ninja, "-C", "build", JOBS], "SCons": scons(JOBS)}
    first: dict[str, list[Figures]] = {name: [] for name in [*commands, "meson setup"]}
    null: dict[str, list[Figures]] = {name: [] for name in commands}
    for _ in range(BUILDS):
        _remove_outputs(folder)
        first["meson setup"].append(run_process([meson, "setup", "build"], folder, environment))
        for name, command in commands.items():
            first[name].append(run_process(command, folder, environment))
        for name, command in commands.items():
            null[name].append(run_process(command, folder, environment))
    print(f"\nfirst build of {SOURCES} sources x {len(TARGETS)} targets, {JOBS}; best of {BUILDS}")
    for name, runs in first.items():
        print(f"  {name:16} {_best(runs)}")
    print("a build with nothing to do")
    for name, runs in null.items():
        print(f"  {name:16} {_best(runs)}")


def _write_sources(folder: Path) -> None:
    text = {"targets": list(TARGETS), "sources": SOURCES}
    (folder / "meson.build").write_text(MESON.format(flags=str(FLAGS)[1:-1], **text))
    (folder / "SConstruct").write_text(SCONSTRUCT.format(flags=FLAGS, **text))
    (folder / "runtime.c").write_text(RUNTIME)
    for number in range(SOURCES):
        (folder / f"k{number}.hip").write_text(KERNEL.format(number=number))


def _remove_outputs(folder: Path) -> None:
    shutil.rmtree(folder / "build", ignore_errors=True)
    remove(folder, "*.co", "*.o", "*.hipfb", "many", ".sconsign.dblite")


def main(folder: Path, _llvm: str) -> None:
    """Measure and print."""
    _call(folder)
    _builds(folder)
