"""Random sources, flags and variables: passes by the driver, and by `DirectPasses`.

``python -m tests.run.driverless_trials CLANG COUNT [SEED]`` prints what differs: status, messages,
or any file that was written. A trial is one project; of its sources and targets, each with the same
flags, the later ones are run as the driver has told of the first. Then something is edited, and all
are run again. What the driver has told is kept between the trials, which are in one folder.
"""

from __future__ import annotations

import os
import random
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import BinaryIO, NamedTuple

from offload_tool.run.driverless import DirectPasses
from offload_tool.toolchain.disk_cache import cache_folder
from tests.terminal import Terminal

TARGETS = (
    *("gfx906", "gfx90a:xnack+", "gfx90a:sramecc+:xnack-", "gfx942", "gfx1030", "gfx1100"),
    *("gfx1201", "gfx9-4-generic", "gfx950", "host"),
)
STEMS = (
    *("a", "b", "with space", "c.d", "with$dollar", "über", "quote'", 'two"', "back\\slash"),
    *("sub/e", "null", "hash#", "per%cent", "semi;colon", "a.gfx906", "日本"),
)
USUAL = """\
-O0 | -O1 | -O2 | -O3 | -Os | -Oz | -Og | -Ofast
-g | -gline-tables-only | -ggdb3 | -g0 | -gdwarf-4 | -gembed-source -g
-DVALUE=7 | -UVALUE -DX | '-DTEXT="a b\\"c$d"' | -D A=1 | -D__HIP__=1
-Isub | -isystem sub | -iquote . | -idirafter sub | '-Iü b'
-include sub/x.h | -imacros sub/x.h | -include /dev/null | -include a.hip
-ffp-contract=off | -ffp-contract=fast | -ffast-math | -fno-math-errno
-mllvm -amdgpu-early-inline-all | -mllvm -inline-threshold=10 | -Xclang -fno-validate-pch
-fno-exceptions | -fno-rtti | -std=c++20 | -std=gnu++14 | -fms-extensions
-Wall -Wextra | -Weverything | -w | -Wno-no-such | -Wsystem-headers
-Rpass=.* | -Rpass-missed=.* -O2 | -ferror-limit=1 | -H
-fdiagnostics-color=always | -fno-caret-diagnostics | -fdiagnostics-format=msvc
-fdiagnostics-absolute-paths | -fansi-escape-codes -fcolor-diagnostics | -pthread
-mcode-object-version=4 | -mcode-object-version=6 | -mcumode | -mllvm -stats
-munsafe-fp-atomics | -fgpu-flush-denormals-to-zero | -mno-unsafe-fp-atomics
-Xoffload-linker --no-gc-sections | -Xoffload-linker --build-id=sha1
-Xoffload-linker --verbose | -Xoffload-linker -v | -Xoffload-linker --time-trace
-Xoffload-linker -t | -Xoffload-linker --trace-symbol=k0 | -Xoffload-linker --print-map
-fdebug-prefix-map=/tmp=/y | -ffile-prefix-map=sub=z | -fdebug-compilation-dir=/q
-fvisibility=default | -fPIC | -fno-pic | -fgpu-default-stream=per-thread
-fsanitize=undefined -fsanitize-trap=all | -fsanitize=undefined | -ftime-report
-frandom-seed=1 | -fno-lto | -fgpu-rdc -fno-gpu-rdc | -ftrivial-auto-var-init=zero
-fno-integrated-cc1 | -no-canonical-prefixes | --sysroot=/ | -fstandalone-debug
-Xclang -disable-llvm-passes | -nostdinc | -nostdinc++ | --no-default-config
-include-pch p.pch | -include-pch p.pch -fpch-instantiate-templates
-Xclang -ast-print | -Xclang -print-stats | -fproc-stat-report=o.csv
"""
ODD = """\
-gz | -gsplit-dwarf | -fdebug-types-section | -DVALUE=no | -include missing.h | -mllvm -no-such
-Xclang -ast-dump | -Xclang -verify | -std=c++99 | -save-temps | -save-temps=obj
--save-temps=cwd | -fstack-usage | -Werror | -Wall -Werror | -pedantic-errors | -MD | -MMD
-MD -MP | -MD -MF o.d | -MMD -MT x | -M | -MD -MQ 'a$b' | -MJ o.json | -MP | @options
--config c.cfg | --config=c.cfg | -flto | -flto=thin | -foffload-lto | -foffload-lto=thin
-fgpu-rdc | --offload-compress | -fsanitize=address | -fgpu-sanitize | -fsanitize-recover=all
-frecord-command-line | -g -grecord-command-line | -grecord-gcc-switches
--coverage | -fcoverage-mapping -fprofile-instr-generate | -ftest-coverage | -pg
-fprofile-use=none.profdata | -ftime-trace | -fsave-optimization-record
--serialize-diagnostics o.dia | -mwavefrontsize64 | -Xoffload-linker --no-such | -Wl,-z,now
-lm -L. | -Xarch_device -O1 | -Xarch_gfx906 -DONE | -Xarch_host -g | -fmodules | -march=native
-m64 | -mavx2 | -static | -s | -r | -v | -### | -time | -fproc-stat-report | -no-such-option
-Xclang -no | -fintegrated-cc1 | -fno-integrated-as | -ccc-print-phases | -print-search-dirs
-fsyntax-only | -S | -E | -emit-llvm | -dumpdir q | -working-directory sub | -fuse-cuid=none
-fuse-ld=lld | -B. | -Wl,--verbose | -fcrash-diagnostics-dir=. | -gen-reproducer=always
-Xclang -o -Xclang x | -Xoffload-linker @options | -mno-wavefrontsize64 | -fopenmp
--offload-host-only | -Xclang -dependency-dot -Xclang o.dot | -fdriver-only | -o other.co
-Xoffload-linker -Map=o.map | -Xoffload-linker --reproduce=o.tar
"""
VARIABLES = """\
CPATH=sub | CPLUS_INCLUDE_PATH=sub:. | SOURCE_DATE_EPOCH=1000000000 | SOURCE_DATE_EPOCH=no
CCC_OVERRIDE_OPTIONS=+-O3 | CC_PRINT_OPTIONS=1 | 'CCC_OVERRIDE_OPTIONS=# O0'
'TMPDIR=temporary ü' | TMPDIR=/no/such | TEMP=/tmp | CLANG_NO_DEFAULT_CONFIG=1
COMPILER_PATH=/usr/bin | LIBRARY_PATH=. | LC_ALL=C | LANG=de_DE.UTF-8 | NO_COLOR=1
CLICOLOR_FORCE=1 | TERM=xterm | GCC_EXEC_PREFIX=/usr/lib/gcc | HIP_PATH=/nowhere
ROCM_PATH=/nowhere | DEPENDENCIES_OUTPUT=o.dep | SUNPRO_DEPENDENCIES=o.sun | CC_PRINT_HEADERS=1
CC_LOG_DIAGNOSTICS=1 | FORCE_CLANG_DIAGNOSTICS_CRASH=1 | PWD=/ | HOME=.
LLVM_DISABLE_CRASH_REPORT=1 | SDKROOT=/ | CLANG_TOOLCHAIN_PROGRAM_TIMEOUT=1
"""
SOURCE = """\
#include "a header.h"
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
__global__ void k{number}(float *p) {{ *p = VALUE + __LINE__; }}
"""
PIECES = (
    "__device__ int state; __device__ int *where() { return &state; }\n",
    "template <class T> __global__ void t(T *x) { *x = 1; }\ntemplate __global__ void t(int *);\n",
    "static int unused; int f(int x) { int y; return 1; }\n",
    "#ifdef __gfx942__\n#warning only for gfx942\n#endif\n",
    "const char *name = __FILE__ __DATE__ __TIME__ __TIMESTAMP__ __BASE_FILE__;\n",
    "__device__ const char *file = __FILE__ __BASE_FILE__;\n",
    "__global__ void trap() { __builtin_trap(); }\n",
    "__global__ void loop(int *p, int n) { for (int i = 0; i < n; ++i) p[i] = p[i] / n; }\n",
    '#if __has_include("appears.h")\n#include "appears.h"\n#endif\n',
    "struct S { ~S(); virtual void f(); }; static S s;\n",
    "#include <cstdint>\nint64_t i;\n",
)  # fmt: skip
WRONG = (
    "#ifdef __gfx906__\n#error not for gfx906\n#endif\n",
    '#include "missing.h"\n',
    "extern __device__ int absent; __device__ int get() { return absent; }\n",
    "#pragma clang __debug crash\n",
    'asm("junk");\n',
    '__global__ void bad() { asm volatile("no_such_instruction"); }\n',
)
_AT_TERMINAL = 0.3
_ODD = 0.25
"""Of trials that have one of the options mostly for the driver; half as many have a mistake."""


class Outcome(NamedTuple):
    """What a pass has said and made."""

    status: int
    output: bytes
    errors: bytes
    files: dict[str, bytes]


def alternatives(text: str) -> list[str]:
    return [each for line in text.splitlines() for each in line.split(" | ")]


class Runs:
    """Runs passes in a folder, and takes away what each has written."""

    def __init__(self, folder: Path, variables: dict[str, str], *, at_terminal: bool) -> None:
        self.folder = folder
        self.variables = variables
        self.at_terminal = at_terminal

    def files(self) -> dict[str, bytes]:
        """Return all files."""
        found = (path for path in self.folder.rglob("*") if path.is_file())
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in found}

    def undo(self, before: dict[str, bytes]) -> dict[str, bytes]:
        """Return what was written since, and take it away."""
        now = self.files()
        made = {name: data for name, data in now.items() if before.get(name) != data}
        for name in made:
            path = self.folder / name
            path.unlink()
            if name in before:
                path.write_bytes(before[name])
        for name in before.keys() - now.keys():
            (self.folder / name).write_bytes(before[name])
            made[name] = b"(removed)"
        return made

    def by_driver(self, args: list[str]) -> Outcome:
        """Run a command as it is."""
        return self._outcome(lambda: subprocess.call(args, env=self.variables))

    def directly(self, passes: DirectPasses, args: list[str]) -> tuple[Outcome, bool]:
        """Run a command as builds do, and tell whether that was without the driver."""
        ways = []

        def run() -> int:
            done = passes.run(args, self.variables)
            ways.append(done is not None)
            return subprocess.call(args, env=self.variables) if done is None else done

        return self._outcome(run), ways[0]

    def _outcome(self, call: Callable[[], int]) -> Outcome:
        """Call in the folder of the trial, with descriptors that keep what is said."""
        before = self.files()
        kept = [os.dup(number) for number in (1, 2)]
        home = Path.cwd()
        with (
            tempfile.TemporaryFile() as output,
            tempfile.TemporaryFile() as file,
            Terminal() if self.at_terminal else nullcontext(_File(file)) as errors,
        ):
            try:
                os.chdir(self.folder)
                os.dup2(output.fileno(), 1)
                os.dup2(errors.descriptor, 2)
                status = call()
            finally:
                os.chdir(home)
                for number, saved in zip((1, 2), kept, strict=True):
                    os.dup2(saved, number)
                    os.close(saved)
            output.seek(0)
            return Outcome(status, output.read(), errors.end(), self.undo(before))


class Trial(Runs):
    """One project, the flags that its passes share, and their variables."""

    def __init__(self, clang: str, seed: int, folder: Path) -> None:
        self.chosen = chosen = random.Random(seed)
        self.stems = chosen.sample(STEMS, chosen.randint(1, 3))
        self.targets = chosen.sample(TARGETS, chosen.randint(1, 2))
        groups = chosen.sample(USUAL.splitlines(), chosen.choice((0, 1, 1, 2, 2, 3, 4, 6)))
        picked = [chosen.choice(group.split(" | ")) for group in groups]
        if chosen.random() < _ODD:
            picked.insert(chosen.randint(0, len(picked)), chosen.choice(alternatives(ODD)))
        self.flags = shlex.split(" ".join(picked))
        changed = chosen.sample(
            shlex.split(VARIABLES.replace(" | ", "\n")), chosen.choice((0, 0, 0, 0, 1, 2))
        )
        given = dict(each.split("=", 1) for each in changed)
        self.changed = changed
        self.clang = clang
        variables = {"TERM": "xterm", **os.environ, **given}
        super().__init__(folder, variables, at_terminal=chosen.random() < _AT_TERMINAL)
        self._make()

    def _make(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        for name in ("sub", "ü b", "temporary ü"):
            (self.folder / name).mkdir(parents=True)
        write = self._write
        write("a header.h", "#ifndef VALUE\n#define VALUE 2\n#endif\n")
        write("sub/x.h", "#define X_H 1\n")
        write("options", "-O1 -DFROM_FILE\n")
        write("c.cfg", "-O1 -DFROM_CONFIGURATION\n")
        write("p.h", "#define P 1\ninline int p() { return 1; }\n")
        for number, stem in enumerate(dict.fromkeys(["a", *self.stems])):
            pieces = self.chosen.sample(PIECES, self.chosen.choice((0, 0, 1, 2)))
            if self.chosen.random() < _ODD / 2:
                pieces.append(self.chosen.choice(WRONG))
            write(f"{stem}.hip", SOURCE.format(number=number) + "".join(pieces))

    def _write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def edit(self) -> None:
        """Change something, as users do between builds."""
        kind = self.chosen.randrange(5)
        source = f"{self.stems[0]}.hip"
        if kind == 0:
            self._write(source, SOURCE.format(number=9) + self.chosen.choice(PIECES + WRONG))
        elif kind == 1:
            self._write("appears.h", "#define APPEARED 1\n#warning appeared\n")
        elif kind == 2:
            (self.folder / "a header.h").unlink()
        elif kind == 3:
            self._write("a header.h", "#define VALUE 33\n")
        else:
            (self.folder / source).unlink()

    def command(self, stem: str, target: str) -> list[str]:
        """Return the command of a pass, as builds with `OFFLOAD_DIRECT` have it."""
        suffix, cuid = "co", f"-cuid={stem.encode().hex()[:16]}"
        kind = ["--cuda-device-only", f"--offload-arch={target}", "--no-gpu-bundle-output", cuid]
        if target == "host":
            suffix, kind = "o", ["--offload-host-only", cuid, "-Xclang", cuid]
        output = f"{stem}.{target.replace(':', '_')}.{suffix}"
        dependencies = ["-dependency-file", f"{output}.d", "-MT", "object"]
        return [
            *(self.clang, "-x", "hip", *kind, "-c"),
            *("-nogpuinc", "-nogpulib", *self.flags, "--no-offload-new-driver"),
            *(word for each in dependencies for word in ("-Xclang", each)),
            *("-Xclang=-sys-header-deps", "-o", output, f"{stem}.hip"),
        ]

    def make_pch(self, target: str) -> None:
        """Let there be the precompiled header that the flags name."""
        if "-include-pch" in self.flags:
            args = self.command("a", target)
            at = args.index("-include-pch")
            kept = [*args[:at], *args[at + 2 : -3]]
            kept[kept.index("-x") + 1] = "hip-header"
            subprocess.run(
                [*kept, "-o", "p.pch", "p.h"], cwd=self.folder, capture_output=True, check=False
            )


class _File:
    """Where errors go to, unless that is a terminal."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.descriptor = file.fileno()

    def end(self) -> bytes:
        self._file.seek(0)
        return self._file.read()


def _compared(expected: Outcome, found: Outcome, *, at_terminal: bool) -> list[str]:
    """Return what differs.

    At a terminal lines may be folded elsewhere: clang 23 asks for the width of a real one.
    """
    wrong = []
    if expected.status != found.status:
        wrong.append(f"status {found.status} for {expected.status}")
    for name in ("output", "errors"):
        before, after = getattr(expected, name), getattr(found, name)
        if before != after and not (at_terminal and before.split() == after.split()):
            wrong.append(f"{name}: {after[:300]!r} for {before[:300]!r}")
    for name in sorted(expected.files.keys() | found.files.keys()):
        if expected.files.get(name) != found.files.get(name):
            wrong.append(f"'{name}' differs")
    return wrong


def trial(clang: str, seed: int, folder: Path) -> tuple[list[str], int, int]:
    """Run one trial; return what differs, how many passes there were, and how many were direct."""
    made = Trial(clang, seed, folder)
    wrong: list[str] = []
    count = directly = 0
    passes = DirectPasses()
    for is_edited in (False, True):
        if is_edited:
            made.edit()
        if is_edited and made.chosen.random() < 0.5:
            passes = DirectPasses()  # another build
        for target in made.targets:
            made.make_pch(target)
            for stem in made.stems:
                args = made.command(stem, target)
                expected = made.by_driver(args)
                found, direct = made.directly(passes, args)
                count += 1
                directly += direct
                if not direct:  # the driver itself, twice: names of temporary files may differ
                    assert found.status == expected.status, args
                    continue
                differences = _compared(expected, found, at_terminal=made.at_terminal)
                source = made.folder / f"{stem}.hip"
                has_time = source.exists() and "__TIME__" in source.read_text()
                if differences and has_time and made.by_driver(args) != expected:
                    continue  # the driver's own bytes change with the time
                wrong += [f"{seed}: {each}; {made.changed} {args}" for each in differences]
    return wrong, count, directly


def main(clang: str, count: int, first: int = 0) -> int:
    """Run trials; give in how many passes something differs."""
    wrong = passes = directly = 0
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = f"{folder}/answers"
        cache_folder.cache_clear()
        for seed in range(first, first + count):
            lines, some, direct = trial(clang, seed, Path(folder, "trial"))
            passes += some
            directly += direct
            wrong += len(lines)
            for line in lines:
                sys.stdout.write(f"{line}\n")
                sys.stdout.flush()
    sys.stdout.write(f"{count} trials, {passes} passes, {directly} direct, {wrong} differences\n")
    return wrong


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), *map(int, sys.argv[3:])) > 0)
