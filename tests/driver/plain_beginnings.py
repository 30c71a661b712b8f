"""Random edits of C and C++ sources with precompiled headers, judged by a twin without any.

::

    python -m tests.driver.plain_beginnings --seeds 4 --steps 60

Two folders have the same files with the same times; in one of them OFFLOAD_PCH is set. Whatever
SCons decides, and its scanner sees or does not see, both must compile the same sources, say the
same, end alike, and have the same files.
"""

# ruff: noqa: T201 - it prints what it finds.

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.driver.beginnings import Beginnings, WrongError

__all__ = ["PlainBeginnings"]

_SCONSTRUCT = """\
from offload_tool.scons import precompiled
precompiled.SMALLEST = 0
env = Environment(
    tools=["default", "offload"],
    toolpath=[PyPackageDir("offload_tool.scons")],
    OFFLOAD_ARCH=["gfx906"],
    OFFLOAD_PCH=int(ARGUMENTS["pch"]),
    OFFLOAD_PCH_CHECK={check},
    OFFLOAD_SUMMARY=True,
    CCFLAGS={flags},
    CPPPATH=["#early", "inc", "late"],
)
env.Decider({decider!r})
{more}
sources = [{folder!r} + "k%d{suffix}" % number for number in range(3)]
env.OffloadStaticLibrary("all", sources)
env.OffloadSharedLibrary("some", sources[:1])
env.OffloadCompilationDatabase("compile_commands.json")
"""
_HEADERS = {
    "inc/first.h": "#pragma once\n#include_next <first.h>\n#define FIRST 11\n",
    "late/first.h": "static inline int late(void) { return 11; }\n",
    "inc/second.h": "#ifndef SECOND_H\n#define SECOND_H\n#define SECOND 12\n"
    "static const int second_line = __LINE__;\n#endif\n",
    "inc/third.h": "#define THIRD 13\nenum { counted = __COUNTER__ };\n"
    'static inline const char* where(void) { return __FILE__ "(14)"; }\n',
    "inc/given.h": "#define GIVEN 15\n",
    "own.h": "#pragma once\n#ifdef SCALE\n#define OWN SCALE\n#else\n#define OWN 16\n#endif\n",
}
_BODY = """\
#ifndef GIVEN
#define GIVEN 0
#endif
#ifndef OWN
#define OWN 0
#endif
#ifndef THIRD
#define THIRD 0
#endif
#ifndef TEXT
#define TEXT ""
#endif
int sum_{value}(int* p) {{
    p[0] = FIRST + SECOND * 100 + THIRD * 10000; p[1] = late() + OWN; p[2] = GIVEN + {value};
    p[3] = __LINE__ + __COUNTER__ * 1000 + second_line; p[4] = sizeof(TEXT);
    return FIRST + SECOND * 100 + late() + OWN + {value} + __LINE__;
}}
const char* text_{value}(void) {{ return TEXT __FILE__; }}
"""
_FLAGS = (
    *("-DSCALE=21", "-ffast-math", "-Ireal", "-fPIC", "-Wall", "-Weverything", "-w", "-MMD"),
    *("-Werror", "-g", "-fvisibility=hidden", "-fno-inline", "-O0", "-Os", "-H"),
)
_OURS = (".offload-pch", ".sconsign.dblite", "__pycache__")


@dataclass
class PlainBeginnings(Beginnings):
    """Two projects, and the changes that were made to both."""

    script: str = _SCONSTRUCT
    body: str = _BODY

    def __post_init__(self) -> None:
        self.headers = _HEADERS
        self.suffix = ".cpp" if self.seed % 3 else ".c"
        self.script = self.script.replace("{suffix}", self.suffix)
        self.twin = self.folder.parent / "twin" / self.folder.name
        super().__post_init__()

    def _flag(self) -> str:
        self.flags = ["-O2", *self.rng.sample(_FLAGS, k=self.rng.choice([0, 1, 1, 2]))]
        if "-g" in self.flags:  # which names the folder
            self.flags.append("-ffile-compilation-dir=.")
        if self.rng.random() < 0.3:
            self.flags += ["-include", "inc/given.h"]
        return f"CCFLAGS is {self.flags}"

    def _decide(self) -> str:
        # Not by which of two files is newer: that is decided by the second in which they are made.
        self.decider = self.rng.choice(["content", "timestamp-match", "content-timestamp"])
        return f"the Decider is {self.decider}"

    def build(self) -> None:
        """Run scons in both folders, and compare all.

        :raises WrongError: there is a difference.
        """
        self._mirror()
        options = ["-k", f"-j{self.rng.choice([1, 2, 8])}"]
        if self.rng.random() < 0.05:
            options.append("--config=force")
        if self.rng.random() < 0.05:
            options = ["-c"]  # in several threads, SCons says what one of them has removed
        runs = [self._scons(self.folder, "1", options), self._scons(self.twin, "0", options)]
        found = re.findall(r"(\d+) compiles with, ", runs[0].stdout)
        self.used += int(found[-1]) if found else 0
        told = [(done.returncode, *map(_told, (done.stdout, done.stderr))) for done in runs]
        if told[0] != told[1]:
            raise WrongError(f"other builds:\n{told[0]}\n{told[1]}")
        made = [_files(folder) for folder in (self.folder, self.twin)]
        if made[0] != made[1]:
            names = sorted(made[0].keys() | made[1].keys())
            raise WrongError(f"not alike: {[n for n in names if made[0].get(n) != made[1].get(n)]}")
        self.compared += len(made[0])
        self.broken_now = int(runs[0].returncode != 0)
        self.broken += self.broken_now

    def _scons(
        self, folder: Path, pch: str, options: list[str]
    ) -> subprocess.CompletedProcess[str]:
        environ = {**os.environ, "OFFLOAD_CLANG": self.clang, "PYTHONPATH": str(self.package)}
        command = [sys.executable, "-m", "SCons", f"pch={pch}", *options]
        return subprocess.run(
            command, cwd=folder, env=environ, capture_output=True, text=True, check=False
        )

    def _mirror(self) -> None:
        """Give the twin the same files, with the same times."""
        self.twin.mkdir(parents=True, exist_ok=True)
        kept = set()
        for file in _sources(self.folder):
            name = file.relative_to(self.folder)
            kept.add(name)
            other = self.twin / name
            other.parent.mkdir(parents=True, exist_ok=True)
            other.unlink(missing_ok=True)
            shutil.copy2(file, other, follow_symlinks=False)
        for file in _sources(self.twin):
            if file.relative_to(self.twin) not in kept:
                file.unlink()


def _sources(folder: Path) -> list[Path]:
    """Give what a user has written: what is built is elsewhere, or has other names."""
    patterns = ("SConstruct", "*.h", "*/*.h", "*.cpp", "*.c", "src/*", "inc/*")
    found = {file for pattern in patterns for file in folder.glob(pattern)}
    return sorted(
        file
        for file in found
        if not file.relative_to(folder).parts[0].startswith((".", "out"))
        and not file.is_dir()
        # Objects beside sources, and depfiles.
        and file.suffix in ("", ".h", ".cpp", ".c", ".modulemap")
    )


def _files(folder: Path) -> dict[str, bytes]:
    return {
        name: file.read_bytes().replace(os.fsencode(folder), b"")
        for file in folder.rglob("*")
        if file.is_file() and (name := str(file.relative_to(folder))).partition("/")[0] not in _OURS
    }


def _told(text: str) -> list[str]:
    """Give the lines, in any order, without what is said of precompiled headers."""
    return sorted(
        line
        for line in text.splitlines()
        if not line.startswith(("offload: precompiled", "offload: host", "offload: target"))
        and not line.startswith(("Removed .offload-pch", "Removed directory .offload-pch"))
    )


def main() -> int:
    """Run some projects; give the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.driver.plain_beginnings")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--clang", default="clang-22")
    parser.add_argument("--begin", default="", help="a line with which all sources begin")
    given = parser.parse_args()
    failed = 0
    for seed in range(given.first, given.first + given.seeds):
        folder = Path(tempfile.mkdtemp(prefix=f"offload-plain-{seed}-"))
        trial = PlainBeginnings(seed, folder / "project", given.clang, given.begin)
        try:
            trial.run(given.steps)
        except WrongError as error:
            failed += 1
            print(f"seed {seed}, in {folder}:", *trial.story, error, sep="\n  ")
        else:
            shutil.rmtree(folder)
        print(
            f"seed {seed}: {len(trial.story)} changes, {trial.compared} files compared, "
            f"{trial.broken} builds failed, {trial.used} compiles with a precompiled header",
            flush=True,
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
