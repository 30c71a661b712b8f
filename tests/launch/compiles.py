"""A small HIP project, and the same compile by the driver and by ``offload-tool launch``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.conftest import ROOT, missing, try_tool
from tests.scripts import script

LAUNCH = (sys.executable, "-m", "offload_tool", "launch")
_IN_STAGES = """
import sys
from offload_tool.manifest import cut_off
cut_off._TOO_SHORT = 0
{}
from offload_tool.cli import main
sys.exit(main(sys.argv[1:]))
"""
"""The program, without the rule by which a short pass is one job."""
ALWAYS_IN_STAGES = (sys.executable, "-c", _IN_STAGES.format(""), "launch")
_MOST_MARKS = "from offload_tool.pch import marks; marks._MOST_MARKS = 1"
_EQUAL = "cut_off.digest_of = lambda data: 'equal'"
WITH_EQUAL_BITCODE = (sys.executable, "-c", _IN_STAGES.format(_EQUAL), "launch")
"""As `ALWAYS_IN_STAGES`; it takes all bitcode for equal."""
IN_STAGES_WITH_PCH = (sys.executable, "-c", _IN_STAGES.format(_MOST_MARKS), "launch")
"""As `ALWAYS_IN_STAGES`; the second compile of a source makes its precompiled headers."""
CUID = "-cuid=1234"
HIP = ("-x", "hip", "-nogpuinc", "-nogpulib", CUID)
TARGETS = ("--offload-arch=gfx906", "--offload-arch=gfx90a:xnack+")
SOURCE = """#include "hip_declarations.h"
#include "value.h"
#ifdef __gfx90a__
#include "only_gfx90a.h"
#endif
__global__ void kernel(float *x) { x[0] = VALUE + __LINE__; }
int run(float *x) { kernel<<<1, 1>>>(x); return 0; }
"""


def make_project(folder: Path) -> None:
    """Write a source ``s.hip`` and its headers; one of them is read by a device pass alone."""
    folder.mkdir(exist_ok=True)
    shutil.copy(ROOT / "examples/saxpy/hip_declarations.h", folder)
    (folder / "value.h").write_text("#pragma once\n#define VALUE 3\n")
    (folder / "only_gfx90a.h").write_text("#pragma once\n")
    (folder / "s.hip").write_text(SOURCE)


def environment(more: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which nothing is said of jobs or launchers but by `more`."""
    gone = ("MAKE", "MFLAGS", "OFFLOAD_LAUNCHER", "OFFLOAD_DIST", "CCACHE_")
    left = {name: value for name, value in os.environ.items() if not name.startswith(gone)}
    return {**left, "OFFLOAD_LAUNCH_VERBOSE": "1", **more}


def run(
    command: Sequence[str | Path], folder: Path, more: Mapping[str, str] = {}
) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder."""
    return try_tool(*command, cwd=folder, env=environment(more))


def files(folder: Path) -> dict[str, bytes]:
    """Return all files of a folder with their content, but our manifests."""
    found = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".manifest")
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


class Project:
    """A project, compiled behind `launch` and by the driver."""

    def __init__(self, folder: Path, clang: str) -> None:
        self.folder = folder
        self.clang = clang
        self.flags: list[str] = []
        self.more: dict[str, str] = {}
        """Variables of `launch` alone."""
        self.launch = LAUNCH
        make_project(folder)

    def write(self, name: str, text: str) -> Path:
        """Write a file that is older than all compiles: ccache does not believe newer ones."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (1, len(text)))
        return path

    def add(self, text: str) -> None:
        """Put something behind the source."""
        self.write("s.hip", f"{(self.folder / 's.hip').read_text()}{text}\n")

    def command(self, output: str = "s.o") -> list[str]:
        return [self.clang, *HIP, *self.flags, "-MD", "-c", "s.hip", "-o", output]

    def ours(self) -> subprocess.CompletedProcess[str]:
        return run([*self.launch, *self.command()], self.folder, self.more)


class Compiled(NamedTuple):
    """A compile, and what it has left."""

    status: int
    said: str
    files: dict[str, bytes]
    folder: Path

    @property
    def results(self) -> dict[str, bytes]:
        """What a compile that succeeds has made, but for the times of ``-ftime-trace``."""
        found = {name: data for name, data in self.files.items() if not name.endswith(".json")}
        for name in found:
            if name.endswith(".d"):  # ours may name the headers of one target
                found[name] = found[name].replace(b" \\\n  only_sm_90.h", b"")
                found[name] = found[name].replace(b"only_sm_90.h:\n", b"")
        return found if self.status == 0 else {}


def in_ways(
    folder: Path,
    args: Sequence[str | Path],
    prepare: Callable[[Path], None] = make_project,
    more: Mapping[str, str] = {},
    ways: Sequence[Sequence[str]] = ((), LAUNCH),
) -> list[Compiled]:
    """Run a compile behind each of some words: without any, it is the driver's.

    Each runs in a folder of one name, as that is in debug information.
    """
    made = []
    folder.mkdir(exist_ok=True)
    for number, before in enumerate(ways):
        place = folder / "build"
        prepare(place)
        done = run([*before, *args], place, more)
        place = place.rename(folder / f"done{number}")
        made.append(Compiled(done.returncode, done.stderr, files(place), place))
    return made


def compare(
    folder: Path,
    args: Sequence[str | Path],
    prepare: Callable[[Path], None] = make_project,
    ways: Sequence[Sequence[str]] = (LAUNCH,),
) -> str:
    """Compile in some ways with the driver's results and status; return the last one's messages."""
    driver, *others = in_ways(folder, args, prepare, ways=((), *ways))
    for ours in others:
        assert ours.status == driver.status, ours.said
        found, expected = ours.results, driver.results
        assert found.keys() == expected.keys(), ours.said
        assert [name for name in found if found[name] != expected[name]] == [], ours.said
    return ours.said


def ccache(folder: Path) -> dict[str, str]:
    """Return the variables for a ccache of the tests' own, in a folder."""
    if shutil.which("ccache") is None:
        missing("ccache")
    folder.mkdir(exist_ok=True)
    log = {"CCACHE_STATSLOG": str(folder / "log"), "CCACHE_CONFIGPATH": str(folder / "conf")}
    return {"OFFLOAD_LAUNCHER": "ccache", "CCACHE_DIR": str(folder / "ccache"), **log}


def counting(folder: Path) -> str:
    """Make a launcher that notes the words of each command that it runs."""
    return script(folder / "launcher", f'echo "$*" >>{folder}/log\nexec "$@"')


def misses(variables: Mapping[str, str]) -> int:
    """Return how many passes ccache has run since the last call."""
    log = Path(variables["CCACHE_STATSLOG"])
    found = log.read_text().splitlines().count("cache_miss") if log.exists() else 0
    log.unlink(missing_ok=True)
    return found
