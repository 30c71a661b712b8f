"""Real builds: a project in a temporary folder, real scons, a launcher that counts compiles."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from offload_tool.passes.choose_compiler import find_toolchain
from tests.conftest import ROOT, found_toolchain, try_tool
from tests.scripts import counting_launcher, script
from tests.toolchain.installed import write_device_libraries
from tests.zygote import run_scons

KERNEL = """\
struct dim3 { unsigned x, y, z; };
extern "C" int hipLaunchKernel(const void*, dim3, dim3, void**, unsigned long, struct stream*);
__attribute__((global)) void kernel(int* p) { *p = VALUE; }
int host_value() { return 1; }
"""


def environment(**variables: object) -> str:
    """Return the head of a SConstruct: an environment with the tool, and these variables."""
    tools = 'tools=["default", "offload"], toolpath=[PyPackageDir("offload_tool.scons")]'
    given = "".join(f", {name}={value!r}" for name, value in variables.items())
    return f"env = Environment({tools}{given})\n"


SCONSTRUCT = """\
env = Environment(
    tools=["default", "offload"],
    toolpath=[PyPackageDir("offload_tool.scons")],
    OFFLOAD_LAUNCHER=File("#count").abspath,
    OFFLOAD_FLAGS=["-nogpuinc", "-nogpulib"],
    OFFLOAD_HOST_FLAGS=["-nogpuinc", "-nogpulib"],
    CPPDEFINES={"VALUE": 1},
    OFFLOAD_ARCH=["gfx906", "gfx90a:xnack+"],
)
"""

BOTH = ("gfx906", "gfx90a:xnack+")
NODES = "env.OffloadDeviceObject('k.hip')\nenv.OffloadHostObject('k.hip')\n"
BODY = KERNEL.replace("VALUE", "HERE")
ONE, TWO, THREE = (f"#define HERE {number}\n" for number in (1, 2, 3))

RUNTIME = """\
#include <stdio.h>
static int loaded;
void **__hipRegisterFatBinary(const void *data) {
    static void *handle[1];
    printf("loaded %.24s %d\\n", *(const char **)((const char *)data + 8), ++loaded);
    return handle;
}
void __hipRegisterVar(void **h, char *v, char *a, const char *name, int external, long size,
                      int constant, int global) {
    printf("variable %s %d %ld %d\\n", name, external, size, constant);
}
void __hipRegisterManagedVar(void *h, void **pointer, void *init, const char *name, long size,
                             unsigned align) {
    printf("managed %s %d %ld %u\\n", name, *(int *)init, size, align);
}
void __hipRegisterSurface(void) {}
void __hipRegisterTexture(void) {}
void __hipRegisterFunction(void **h, const void *f, char *d, const char *name, unsigned t,
                           void *a, void *b, void *c, void *e, int *w) {
    printf("kernel %s\\n", name);
}
void __hipUnregisterFatBinary(void **h) { printf("unloaded %d\\n", loaded--); }
int __hipPushCallConfiguration() { return 0; }
int __hipPopCallConfiguration() { return 0; }
int hipLaunchKernel() { return 100; }
__attribute__((weak)) int main(void) { return 0; }
"""
"""A stand-in for the HIP runtime that says what is registered, so that programs link and run."""
BUNDLE = "loaded __CLANG_OFFLOAD_BUNDLE__"
"""What it says of HIP's bundles, but for their number."""

_PASSES = (
    (re.compile(r" -x ir "), "host"),
    (re.compile(r" -disable-llvm-passes "), "host-ir"),
    (re.compile(r" --offload-device-only "), None),
    (re.compile(r" --offload-host-only "), "host"),
    (re.compile(r" --offload-arch="), None),
)
"""What tells passes apart, the surest first; None: a device's, called by its target."""
_TARGETS = (
    re.compile(r" (?:--offload-arch|-mcpu|-march)=(\S+)"),
    re.compile(r" -fopenmp-targets=(\S+)"),
)
_ACTION = re.compile(r"[A-Z]+ (\[.*\] )?\S+")
_SOURCES = (".hip", ".c", ".cpp", ".cu", ".h", ".bin", ".cfg", "SConstruct", "SConscript")
_COMMAND_OUTPUT = re.compile(r" -o (\S+) ")


@dataclass
class Run:
    """One run of scons: its exit status, what it printed, and what it compiled."""

    status: int
    output: str
    errors: str
    compiles: list[str]
    """``<source> <target ID, host or host-ir>`` of each compile, sorted."""
    up_to_date: bool

    @property
    def actions(self) -> list[str]:
        """The messages of what was done, in order; of other commands ``-> <output>``."""
        lines = self.output.splitlines()
        outputs = [(line, _COMMAND_OUTPUT.search(line)) for line in lines]
        return [
            f"-> {output[1]}" if output else line
            for line, output in outputs
            if output or _ACTION.fullmatch(line)
        ]


@dataclass
class Project:
    """A source tree with an SConstruct."""

    folder: Path
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def edit(self, name: str, old: str, new: str) -> None:
        """Replace a text in a file; without an old one, add one at the end."""
        text = (self.folder / name).read_text()
        assert old in text
        self.write(name, text.replace(old, new) if old else text + new)

    def save_anew(self, name: str) -> None:
        """Save a file as editors do: an equal one, under another name first. It has a new inode."""
        path = self.folder / name
        new = path.with_name(f"{path.name}.new")
        shutil.copyfile(path, new)
        new.replace(path)

    def read(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()

    def script(self, name: str, text: str) -> Path:
        """Write a program, such as a launcher."""
        path = self.write(name, text)
        path.chmod(0o755)
        return path

    def sconstruct(self, body: str, head: str = SCONSTRUCT) -> Project:
        """Write the SConstruct; return the project, to be built."""
        self.write("SConstruct", head + body)
        return self

    def run(self, *arguments: str) -> Run:
        """Run scons, whatever becomes of it."""
        log = self.folder / "compiles.log"
        log.unlink(missing_ok=True)
        done = run_scons(arguments, cwd=self.folder, env=self.environment)
        lines = log.read_text().splitlines() if log.exists() else []
        return Run(
            done.returncode,
            done.stdout,
            done.stderr,
            sorted(described(line) for line in lines),
            "is up to date" in done.stdout or "Nothing to be done" in done.stdout,
        )

    def done(self, *arguments: str) -> Run:
        """Run scons, which must succeed."""
        run = self.run(*arguments)
        assert run.status == 0, run.output + run.errors
        return run

    def fails(self, *arguments: str) -> Run:
        """Run scons, which must fail with a message, and no traceback."""
        run = self.run(*arguments)
        assert run.status == 2, run.output + run.errors
        assert "Traceback" not in run.errors
        return run

    def build(self, *arguments: str) -> list[str]:
        """Run scons, which must succeed; return what it compiled."""
        return self.done(*arguments).compiles

    def build_once(self, *arguments: str) -> list[str]:
        """Build, and again, which must do nothing; return what the first build compiled."""
        compiled = self.build(*arguments)
        self.assert_up_to_date(*arguments)
        return compiled

    def start(self, program: str = "prog", **variables: str) -> list[str]:
        """Run a program, which must succeed, in the project's folder; return what it prints."""
        environment = {**os.environ, **variables}
        done = try_tool(self.folder / program, cwd=self.folder, env=environment)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.splitlines()

    def tool(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run ``offload-tool``, whatever becomes of it, in the project's folder."""
        command = [sys.executable, "-m", "offload_tool", *arguments]
        return try_tool(*command, cwd=self.folder, env={**self.environment, **variables})

    def assert_up_to_date(self, *arguments: str) -> None:
        run = self.done("--debug=explain", *arguments)
        assert run.compiles == [], run.output
        assert run.up_to_date, run.output


def described(command: str) -> str:
    """Return the source and the pass of a compile's command."""
    name = next((name or "" for mark, name in _PASSES if mark.search(command)), None)
    assert name is not None, command
    if not name:
        found = [match for match in (pattern.search(command) for pattern in _TARGETS) if match]
        assert found, command
        name = found[0][1]
    return f"{command.split()[-1]} {name}"


_MISTAKES = """\
import json
import sys
import traceback
import SCons.Errors
from SCons.Script.Main import find_deepest_user_frame
told = {}
for name in NAMES:
    try:
        SConscript(f"{name}/SConscript", {"env": env.Clone()})
    except SCons.Errors.UserError as error:
        frame = find_deepest_user_frame(traceback.extract_tb(sys.exc_info()[2]))
        told[name] = [str(error), f"{frame[0]}:{frame[2]}"]
with open("told.json", "w") as out:
    json.dump(told, out)
Default(Alias("nothing"))
"""


def mistakes(folder: Path, bodies: Mapping[str, str]) -> dict[str, str]:
    """Read SConscripts that each end with an error, in one run of scons; return what it says.

    Each is in a folder of its own with one kernel, and the error has to be at one of its lines.
    """
    made = empty_project(folder)
    for name, body in bodies.items():
        made.write(f"{name}/SConscript", f"Import('env')\n{body}")
        made.write(f"{name}/k.hip", KERNEL)
        made.write(f"{name}/runtime.c", "")
    made.sconstruct(_MISTAKES.replace("NAMES", repr([*bodies])))
    run = made.run("-Q")
    assert (run.status, run.compiles) == (0, []), run.output + run.errors
    told = json.loads((folder / "told.json").read_text())
    for name, (_, place) in told.items():
        assert place == f"{folder}/{name}/SConscript:<module>"
    return {name: message for name, (message, _) in told.items()}


def passes(source: str, *names: str) -> list[str]:
    """Name the compiles of `source`, as `Run.compiles` does."""
    return sorted(f"{source} {name}" for name in names)


def checkout(project: Project, folder: Path, copy: Callable[..., object] = shutil.copy2) -> Project:
    """Return another checkout of a project: its sources in a new folder, with nothing built."""

    def others(place: str, names: list[str]) -> list[str]:
        kept = {name for name in names if name.endswith(_SOURCES)}
        kept |= {name for name in names if name[0] != "." and Path(place, name).is_dir()}
        return [name for name in names if name not in kept]

    made = empty_project(folder)
    made.environment = dict(project.environment)
    shutil.copytree(project.folder, folder, True, others, copy, dirs_exist_ok=True)
    return made


ALL = passes("k.hip", "host", *BOTH)


def empty_project(folder: Path) -> Project:
    """Return a project in a new folder; its launcher ``count`` counts compiles."""
    folder.mkdir(parents=True)
    counting_launcher(folder)
    made = Project(folder)
    made.environment["PYTHONPATH"] = str(ROOT)
    return made


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Return a project of one kernel whose compiles are counted."""
    found_toolchain()
    made = empty_project(tmp_path / "project")
    made.write("k.hip", KERNEL)
    made.write("runtime.c", RUNTIME)
    return made


def flagged_clang(
    folder: Path, flag: str = "--offload-new-driver", *, clang: str = "", behind: bool = False
) -> Path:
    """Make a compiler of `clang` that compiles HIP with one flag more.

    It comes before all others, or `behind` them, where no other can undo it.
    """
    found = find_toolchain(clang=clang)
    command = shlex.join([*found.clang, *found.local_flags])
    flagged = f'"$@" {flag}' if behind else f'{flag} "$@"'
    text = f'case " $* " in *" -x hip "*) exec {command} {flagged};; esac\nexec {command} "$@"'
    return Path(script(folder / "flagged-clang", text))


def contents(folder: Path, names: Sequence[str]) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in names}


def device_library_folder(project: Project) -> Path:
    """Make a folder that clang takes for ROCm's device libraries."""
    return write_device_libraries(project.folder / "rocm/amdgcn/bitcode", find_toolchain().clang)
