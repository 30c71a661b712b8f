"""Compositions as one SCons project: with precompiled headers, without, in a second checkout."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from tests.driver.running import ROOT
from tests.pch_constructs.compositions import Composition
from tests.zygote import run_scons

_SCONSTRUCT = """\
from offload_tool.scons import pch
pch.SMALLEST = 0
base = Environment(
    tools=["default", "offload"],
    toolpath=[PyPackageDir("offload_tool.scons")],
    OFFLOAD_PCH=int(ARGUMENTS["pch"]),
    OFFLOAD_SUMMARY=True,
)
if "cache" in ARGUMENTS:
    base.CacheDir(ARGUMENTS["cache"])
for kind, is_rdc, flags, sources in GROUPS:
    env = base.Clone(CCFLAGS=flags, OFFLOAD_RDC=is_rdc)
    env.Replace(OFFLOAD_ARCH="gfx906" if kind == "hip" else "sm_80")
    env.OffloadHostObject(sources)
    if kind == "hip":
        env.OffloadDeviceObject(sources)
"""
_SOURCES = 3
_OUTPUTS = (".o", ".co", ".bc")


@dataclass
class Project:
    """One project, of three sources for each composition, in a folder of its own."""

    folder: Path
    compositions: list[Composition]
    clang: str
    package: Path = ROOT
    summaries: list[str] = field(default_factory=list)

    def judge(self) -> list[str]:
        """Build it in all ways; return what differs."""
        first, second = self.folder / "first/project", self.folder / "second/project"
        self._write(first)
        cache = f"cache={self.folder / 'cache'}"
        with_pch = self._built(first, "pch=1", cache)
        plain = self._built(first, "pch=0")
        self._write(second)
        by_cache = self._built(second, "pch=1", cache)
        plain_there = self._built(second, "pch=0")
        found = [f"{name}: with and without" for name in _differing(with_pch, plain)]
        return found + [f"{name}: by the cache" for name in _differing(by_cache, plain_there)]

    def used(self) -> int:
        """Return how many compiles had a precompiled header."""
        return sum(int(re.findall(r"(\d+) compiles with, ", text)[0]) for text in self.summaries)

    def _write(self, project: Path) -> None:
        groups = []
        for number, composition in enumerate(self.compositions):
            at = f"g{number}/"
            composition.write(project / at)
            source = project / at / composition.source
            copies = [source.with_name(f"k{copy}{source.suffix}") for copy in range(_SOURCES)]
            for copy in copies:
                shutil.copy2(source, copy)
            names = [str(copy.relative_to(project)) for copy in copies]
            flags = composition.command(project / at, at)
            groups.append((composition.kind, composition.is_rdc, flags, names))
        (project / "SConstruct").write_text(f"GROUPS = {groups!r}\n{_SCONSTRUCT}")

    def _built(self, project: Path, *arguments: str) -> dict[str, bytes]:
        """Build from nothing; return the outputs."""
        for file in project.rglob("*"):
            if file.name.startswith(".sconsign") or file.suffix in _OUTPUTS:
                file.unlink()
        environ = {**os.environ, "OFFLOAD_CLANG": self.clang, "PYTHONPATH": str(self.package)}
        done = run_scons(["-k", "-j2", *arguments], cwd=project, env=environ)
        summaries = re.findall(r"precompiled headers: (.*)", done.stdout)
        self.summaries += summaries
        found = {
            str(file.relative_to(project)): file.read_bytes()
            for file in project.rglob("*")
            if file.suffix in _OUTPUTS and not file.name.startswith(".")
        }
        assert found, done.stdout + done.stderr
        return found


def _differing(one: dict[str, bytes], other: dict[str, bytes]) -> list[str]:
    return sorted(name for name in {*one, *other} if one.get(name) != other.get(name))
