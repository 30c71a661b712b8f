"""Random changes of a project whose passes are kept in a cache, judged by the driver alone.

``python -m tests.launch.cached [SEED...]`` runs one trial for each seed, with 40 changes.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.launch.compiles import HIP, LAUNCH, environment, make_project, run

if TYPE_CHECKING:
    from collections.abc import Callable

SOURCE = """#include "hip_declarations.h"
#include "value.h"
#include <found.h>
#ifdef __gfx90a__
#include "only_gfx90a.h"
#endif
#if __has_include("maybe.h")
#include "maybe.h"
#else
#define MAYBE 0
#endif
#include NAMED
__global__ void kernel(float *x) { x[0] = VALUE + FOUND + MAYBE + GIVEN + FROM_FILE + IN_NAMED; }
int run(float *x) { kernel<<<1, 1>>>(x); return VALUE + FOUND + MAYBE + GIVEN; }
"""
MORE = (
    "const char *date = __DATE__;",
    "const char *stamp = __TIMESTAMP__;",
    "const char *name = __FILE__;",
    '#ifndef __HIP_DEVICE_COMPILE__\nasm(".data\\n.incbin \\"data\\"\\n.text");\n#endif',
    '#if __has_include("ABSOLUTE/late/x.h")\nint late;\n#endif',
    '#include "a.h"\n#include "b.h"\nint once = ONCE;',
    '#include "linked.h"\n__global__ void linked(float *x) { x[1] = LINKED; }',
    "int divided(int a, int b) { return a / b; }",
    '#define ASKED "maybe.h"\n#if __has_include(ASKED)\nint asked;\n#endif',
)
"""What a source may have beside the rest."""
ONCE = "#pragma once\n#ifdef ONCE\n#undef ONCE\n#define ONCE 2\n#else\n#define ONCE 1\n#endif\n"
ARCHS = ("gfx906", "gfx90a:xnack+", "gfx942", "gfx1100")


def _host(word: str) -> list[str]:
    return ["-Xarch_host", word]


class Trial:
    """A project, the state of its command, and how to change both."""

    def __init__(self, folder: Path, clang: str, seed: int) -> None:
        self.folder = folder / "project"
        self.clang = clang
        self.random = random.Random(seed)
        self.cache = folder / "cache"
        self.archs = [*ARCHS[:2]]
        self.defines = {"GIVEN": 1}
        self.options: list[str] = []
        self.driver: list[str] = []
        self.environment: dict[str, str] = {}
        self.epoch = 0
        self.succeeded = 0
        make_project(self.folder)
        for name in ("first", "second", "third"):
            (self.folder / name).mkdir()
        self.write("s.hip", SOURCE)
        self.write("second/found.h", "#define FOUND 1\n")
        self.write("words", "-DFROM_FILE=1\n")
        self.write("named.h", "#define IN_NAMED 1\n")
        self.write("only_gfx90a.h", "// 10\n")
        self.write("data", "0")
        self.write("list,a", "src:nothing\n")
        self.write("a.h", ONCE)
        (self.folder / "b.h").symlink_to("a.h")
        for digit in (0, 1):
            self.write(f"linked{digit}.h", f"#define LINKED {digit}\n")
        (self.folder / "linked.h").symlink_to("linked0.h")
        (self.folder / "late").mkdir()

    def write(self, name: str, text: str) -> None:
        """Write a file; half of the time with the times that it had."""
        path = self.folder / name
        before = path.stat() if path.exists() else None
        path.write_text(text)
        if before is not None and self.random.random() < 0.5:
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    def words(self) -> list[str]:
        """Return the words of the compile."""
        named = [f"-D{name}={value}" for name, value in self.defines.items()]
        return [
            *(self.clang, *HIP, *(f"--offload-arch={arch}" for arch in self.archs), *named),
            *("-DNAMED=<named.h>", "-I.", "-Ifirst", "-Isecond", "@words", *self.driver),
            *self.options,
            *("-MD", "-c", "s.hip", "-o", "s.o"),
        ]

    def change(self) -> str:
        """Change something; say what."""
        names = [name for name in dir(self) if name.startswith("change_")]
        name = self.random.choice(names)
        change: Callable[[int], None] = getattr(self, name)
        change(self.random.randrange(10))
        return name

    def change_value(self, digit: int) -> None:
        self.write("value.h", f"#pragma once\n#define VALUE {digit}\n")

    def change_found(self, digit: int) -> None:
        self.write("second/found.h", f"#define FOUND {digit}\n")

    def change_earlier(self, digit: int) -> None:
        self.toggle(self.folder / "first/found.h", f"#define FOUND {digit}\n")

    def change_maybe(self, digit: int) -> None:
        self.toggle(self.folder / "maybe.h", f"#define MAYBE {digit}\n")

    def change_maybe_earlier(self, digit: int) -> None:
        self.toggle(self.folder / "first/maybe.h", f"#define MAYBE {digit}\n")

    def change_named(self, digit: int) -> None:
        self.write("named.h", f"#define IN_NAMED {digit}\n")

    def change_one_target(self, digit: int) -> None:
        self.write("only_gfx90a.h", f"#undef VALUE\n#define VALUE {digit}\n")

    def change_define(self, digit: int) -> None:
        self.defines["GIVEN"] = digit

    def change_words_in_file(self, digit: int) -> None:
        self.write("words", f"-DFROM_FILE={digit}\n")

    def change_archs(self, digit: int) -> None:
        self.archs = self.random.sample(ARCHS, 1 + digit % 4)

    def change_options(self, digit: int) -> None:
        choices = (
            *([], ["-O2"], ["-g"], ["-fPIC"], ["-Xarch_gfx906", "-O1"], ["-fgpu-rdc"]),
            *(["-Xarch_device", "-O1"], ["-march=native"], ["-frandom-seed=1"], ["-foffload-lto"]),
            *(["-Xoffload-linker", "-O1"], ["-save-temps"]),
            *(
                ["-include", "named.h"],
                ["-isystem", "third"],
                ["-fmodules"],
                ["--offload-compress"],
            ),
            ["-iprefix", f"{self.folder}/", "-iwithprefixbefore", "third"],
            [*_host("-fsanitize=undefined"), *_host("-fsanitize-ignorelist=list,a")],
        )
        self.options = list(self.random.choice(choices))

    def change_driver(self, digit: int) -> None:
        """Take the new offload driver, the old one, or what is clang's default."""
        self.driver = [[], ["--offload-new-driver"], ["--no-offload-new-driver"]][digit % 3]

    def change_source(self, digit: int) -> None:
        """Let the source have something more, or less."""
        more = "\n".join(self.random.sample(MORE, digit % 4))
        self.write("s.hip", f"{SOURCE}{more}\n".replace("ABSOLUTE", str(self.folder)))

    def change_epoch(self, digit: int) -> None:
        self.epoch = digit * 86400

    def change_data(self, digit: int) -> None:
        self.write("data", str(digit))

    def change_ignored(self, digit: int) -> None:
        self.write("list,a", "src:*.hip\n" if digit % 2 else "src:nothing\n")

    def change_late(self, _: int) -> None:
        self.toggle(self.folder / "late/x.h", "")

    def change_link(self, digit: int) -> None:
        (self.folder / "linked.h").unlink()
        (self.folder / "linked.h").symlink_to(f"linked{digit % 2}.h")

    def change_copy(self, digit: int) -> None:
        """Let a header be a link to another one, or a copy of it."""
        path = self.folder / "b.h"
        path.unlink()
        if digit % 2:
            path.symlink_to("a.h")
        else:
            path.write_text(ONCE)

    def change_place(self, _: int) -> None:
        """Let the whole project be somewhere else."""
        other = {"project": "moved it", "moved it": "project"}[self.folder.name]
        self.folder = self.folder.rename(self.folder.with_name(other))

    def change_killed(self, digit: int) -> None:
        """Kill a compile."""
        more = {"OFFLOAD_LAUNCH_CACHE": str(self.cache), **self.environment}
        process = subprocess.Popen(
            [*LAUNCH, *self.words()],
            cwd=self.folder,
            env=environment(more),
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        time.sleep(0.05 + digit / 10)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def change_at_once(self, digit: int) -> None:
        """Compile twice at the same time, with another value for one of them."""
        more = {"OFFLOAD_LAUNCH_CACHE": str(self.cache), **self.environment}
        commands = [[*self.words(), "-o", "one.o"], [*self.words(), "-o", "two.o", "-DGIVEN=7"]]
        processes = [
            subprocess.Popen(
                [*LAUNCH, *words], cwd=self.folder, env=environment(more), stderr=subprocess.DEVNULL
            )
            for words in commands
        ]
        for process in processes:
            process.wait()

    def change_environment(self, digit: int) -> None:
        self.toggle(self.folder / "third/found.h", f"#define FOUND {digit}\n")
        self.environment = {"CPATH": str(self.folder / "third")} if digit % 2 else {}
        self.toggle(self.folder / "second/found.h", f"#define FOUND {digit}\n")
        if not (self.folder / "third/found.h").exists() or not self.environment:
            self.write("second/found.h", f"#define FOUND {digit}\n")

    def change_compiler(self, digit: int) -> None:
        """Let the driver find another program to link with, or none but its own."""
        tools = self.folder.with_name(f"tools{digit % 3}")
        if digit % 3:
            tools.mkdir(exist_ok=True)
            real = Path(shutil.which(self.clang) or "").resolve()
            for name in ("lld", "ld.lld"):
                program = real.with_name(name)
                (tools / name).write_text(f'#!/bin/sh\n# {digit}\nexec {program} "$@"\n')
                (tools / name).chmod(0o755)
        self.environment["COMPILER_PATH"] = str(tools)

    def change_nothing(self, digit: int) -> None:
        for path in self.folder.rglob("*.h"):
            if digit % 2:
                path.touch()

    def change_damage(self, digit: int) -> None:
        """Break a file of the cache: cut it short, change a byte, or remove it."""
        paths = [path for path in self.cache.rglob("*") if path.is_file()]
        if not paths:
            return
        path = self.random.choice(sorted(paths))
        data = bytearray(path.read_bytes())
        if digit < 3 or not data:
            path.unlink()
        elif digit < 6:
            path.write_bytes(data[: len(data) // 2])
        else:
            data[self.random.randrange(len(data))] ^= 1
            path.write_bytes(data)

    def toggle(self, path: Path, text: str) -> None:
        if path.exists():
            path.unlink()
        else:
            path.write_text(text)

    def compare(self) -> int:
        """Compile both ways; return how many passes were taken from the cache."""
        words = self.words()
        results = []
        more = {"OFFLOAD_LAUNCH_CACHE": str(self.cache), **self.environment}
        more["SOURCE_DATE_EPOCH"] = str(self.epoch)
        for command in (words, [*LAUNCH, *words]):
            for name in ("s.o", "s.d"):
                (self.folder / name).unlink(missing_ok=True)
            done = run(command, self.folder, more)
            made = self.folder / "s.o"
            results.append((done.returncode, made.read_bytes() if made.exists() else b""))
        assert results[0] == results[1], (words, self.environment, done.stderr)
        self.succeeded += done.returncode == 0
        if done.returncode:
            self.options = []  # of a compile that fails, nothing is kept
            sys.stdout.write(f"failed: {words[-20:]}\n{done.stderr[-300:]}\n")
        return done.stderr.count(": from the cache")


def trial(
    folder: Path, clang: str, seed: int, changes: int, kind: type[Trial] = Trial
) -> tuple[int, int]:
    """Run a trial; return how many compiles there were, and how many passes came from the cache."""
    project = kind(folder, clang, seed)
    hits = project.compare()
    for _ in range(changes):
        what = project.change()
        try:
            hits += project.compare()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, after {what}: {error}") from error
    assert project.succeeded > changes / 2
    return changes + 1, hits


def main(seeds: list[str], kind: type[Trial] = Trial) -> None:
    for seed in seeds or ["0"]:
        with tempfile.TemporaryDirectory() as folder:
            clang = os.environ.get("OFFLOAD_TEST_CLANG", "clang++-22")
            compiles, hits = trial(Path(folder), clang, int(seed), 40, kind)
            sys.stdout.write(f"seed {seed}: {compiles} compiles, {hits} passes from the cache\n")


if __name__ == "__main__":
    main(sys.argv[1:])
