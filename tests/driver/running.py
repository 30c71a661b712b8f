"""A checkout on disk: writing it, running scons in it, and a clean build in the same place."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.driver.state import State
from tests.driver.surroundings import put_compiler, put_times
from tests.scripts import script
from tests.zygote import killed_scons, run_scons

ROOT = Path(__file__).resolve().parents[2]
_NOISE = re.compile(r"offload: |.*is up to date\.|scons: Nothing to be done|.*[Ww]arning|$")
# What is not an output: SCons's and the tool's own records, and intermediate files of --save-temps.
_RECORDS = re.compile(
    r"\.sconsign|\.d$|-(hip|host|cuda|openmp)-|\.log$|(^|/)\.|\.(i|s)$|\.tmp\.bc$|(^|/)(k\d|runtime)\.bc$"
    r"|\.resolution\.txt$"
)


@dataclass
class Run:
    """One run of scons."""

    status: int
    text: str
    compiles: list[dict[str, Any]]
    """What the counting compiler noted, in order."""

    @property
    def compiled(self) -> list[str]:
        """The outputs of the compiles."""
        return [str(record["output"]) for record in self.compiles]

    @property
    def did_nothing(self) -> bool:
        lines = self.text.splitlines()
        return not self.compiles and all(_NOISE.match(line) for line in lines)


@dataclass
class CleanBuild:
    """What a build from nothing makes."""

    status: int
    text: str
    outputs: dict[str, str]
    """Digests by name."""
    passes: dict[str, dict[str, Any]]
    """What each compile depends on, by its output."""


@dataclass
class Bench:
    """The folder of a trial: checkouts beside one another, a cache, and the compiler."""

    folder: Path
    clang: Path
    package: Path = ROOT
    """The folder from which the tool is taken."""
    scons_runs: int = field(default=0)

    def __post_init__(self) -> None:
        counting = Path(__file__).with_name("counting_clang.py")
        for name, mode in (("clang", ""), ("clang++", " --driver-mode=g++")):
            words = f"{sys.executable} -IS {counting} {self.folder} {self.clang}{mode}"
            script(self.folder / name, f'exec {words} "$@"')
        self.compiler = f"{self.folder}/"
        """The folder of compilers, with a slash."""

    def control(self, **what: object) -> None:
        """Tell the compiler what to do at the next compile; nothing without arguments."""
        place = self.folder / "control.json"
        if what:
            place.write_text(json.dumps(what))
        else:
            place.unlink(missing_ok=True)

    def write(self, checkout: str, state: State, *, replace: bool = False) -> None:
        """Write the files that differ, and remove those that are no more.

        With `replace`, a file is put in the place of the old one, as many editors save.
        """
        here = self.folder / checkout
        known = self.folder / f"{checkout}.files"
        before, hard = json.loads(known.read_text()) if known.exists() else ([], {})
        wanted = state.names(self.compiler)
        gone = {name for name, target in hard.items() if state.hard.get(name) != target}
        for name in sorted({*before, *gone} - (wanted - gone)):
            (here / name).unlink(missing_ok=True)
        for name, text in state.all_files(self.compiler).items():
            _write(here / name, text.encode(), replace=replace)
        for name, target in state.links.items():
            _link(here / name, os.path.relpath(here / target, (here / name).parent))
        for name, target in state.hard.items():
            _link_hard(here / name, here / target)
        known.write_text(json.dumps([sorted(wanted), state.hard]))
        put_times(here, state)
        put_compiler(self.folder / f"{checkout}.llvm", f"{self.compiler}clang", state)

    def scons(self, checkout: str, *arguments: str) -> Run:
        """Run scons to its end."""
        where = {"cwd": self.folder / checkout, "env": self._environment}
        done = run_scons(self._arguments(arguments), **where)
        return Run(done.returncode, done.stdout + done.stderr, self.take_log())

    @property
    def _environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(self.package)}

    def _arguments(self, arguments: Sequence[str]) -> list[str]:
        self.scons_runs += 1
        # Not for a clean build, which judges the others.
        more = [] if "--cache-disable" in arguments else ["pch=1"]
        return ["-Q", *arguments, *more]

    def killed(self, checkout: str, *arguments: str) -> Run:
        """Run scons until the compiler waits, and kill all of it, without a chance to tidy up."""
        waiting = self.folder / "waiting"
        waiting.unlink(missing_ok=True)
        where = {"cwd": self.folder / checkout, "env": self._environment}
        status, text = killed_scons(self._arguments(arguments), waiting, **where)
        return Run(status, text, self.take_log())

    def take_log(self) -> list[dict[str, Any]]:
        log = self.folder / "compiles.log"
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return [json.loads(line) for line in lines]

    def made(self, checkout: str, state: State) -> list[str]:
        """Name the files that builds have made, relative to the checkout."""
        here = self.folder / checkout
        sources = state.names(self.compiler)
        found = (file for file in here.rglob("*") if not file.is_dir())
        names = (str(file.relative_to(here)) for file in found)
        return sorted(name for name in names if name not in sources)

    def outputs(self, checkout: str, state: State) -> dict[str, str]:
        """Return the digests of what builds have made."""
        names = [name for name in self.made(checkout, state) if not _RECORDS.search(name)]
        return {name: digest(self.folder / checkout / name) for name in names}

    def clean_build(self, checkout: str, state: State) -> CleanBuild:
        """Build from nothing in the same place; what was there is put back."""
        here, aside = self.folder / checkout, self.folder / "aside"
        _move(self.made(checkout, state), here, aside)
        self.control(inspect=True)
        try:
            run = self.scons(checkout, "-k", "-j2", "--cache-disable")
            outputs = self.outputs(checkout, state)
        finally:
            self.control()
            for name in self.made(checkout, state):
                (here / name).unlink()
            names = [str(f.relative_to(aside)) for f in aside.rglob("*") if not f.is_dir()]
            _move(names, aside, here)
            shutil.rmtree(aside, ignore_errors=True)
        passes = {str(record["output"]): record for record in run.compiles}
        return CleanBuild(run.status, run.text, outputs, passes)


def _write(place: Path, data: bytes, *, replace: bool) -> None:
    if place.is_symlink():
        place.unlink()
    elif place.exists() and place.read_bytes() == data:
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    if replace:
        other = place.with_name(f"{place.name}~")
        other.write_bytes(data)
        other.replace(place)
        return
    if place.exists():
        place.chmod(0o644)
    place.write_bytes(data)
    if place.parent.name == "tools":
        place.chmod(0o755)


def _link(place: Path, target: str) -> None:
    if place.is_symlink() and str(place.readlink()) == target:
        return
    if place.is_dir() and not place.is_symlink():
        place.rmdir()
    place.unlink(missing_ok=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(target)


def _link_hard(place: Path, target: Path) -> None:
    if place.exists() and not place.is_symlink() and place.samefile(target):
        return
    place.unlink(missing_ok=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.hardlink_to(target)


def _move(names: list[str], source: Path, target: Path) -> None:
    for name in names:
        place = target / name
        place.parent.mkdir(parents=True, exist_ok=True)
        (source / name).rename(place)


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16]
