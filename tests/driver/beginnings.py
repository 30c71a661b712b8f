"""Random edits of sources with precompiled headers, judged by the compiler without any.

::

    python -m tests.driver.beginnings --seeds 4 --steps 60

Three sources begin alike, so that they share a precompiled header, and are edited again and again.
After each change scons runs, and each output is compared with what
the command of `compile_commands.json` gives, run by hand in the same folder. What is changed is
what precompiled headers could get wrong: edits of the same size with the old time, headers that
appear earlier on the path, links, the order of directives, and how bytes are spelled.
"""

# ruff: noqa: T201 - it prints what it finds.

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.driver.running import ROOT
from tests.zygote import run_scons

_SCONSTRUCT = """\
from offload_tool.scons import pch
pch.SMALLEST = 0
env = Environment(
    tools=["default", "offload"],
    toolpath=[PyPackageDir("offload_tool.scons")],
    OFFLOAD_ARCH=["gfx906"],
    OFFLOAD_FLAGS={device},
    OFFLOAD_HOST_FLAGS={device},
    OFFLOAD_PCH=True,
    OFFLOAD_PCH_CHECK={check},
    OFFLOAD_SUMMARY=True,
    CCFLAGS={flags},
    CPPPATH=["early", "inc", "late"],
)
env.Decider({decider!r})
{more}
sources = [{folder!r} + "k%d.hip" % number for number in range(3)]
env.OffloadDeviceObject(sources)
env.OffloadHostObject(sources)
env.OffloadCompilationDatabase("compile_commands.json")
"""
_LAUNCH = """\
#ifndef HIP_INCLUDE_HIP_HIP_RUNTIME_H
struct dim3 { unsigned x, y, z; };
extern "C" int hipLaunchKernel(const void*, dim3, dim3, void**, unsigned long, struct stream*);
#endif
"""
_HEADERS = {
    "inc/first.h": "#pragma once\n#include_next <first.h>\n#define FIRST 11\n",
    "late/first.h": "inline __attribute__((device, host)) int late() { return 11; }\n" + _LAUNCH,
    "inc/second.h": "#ifndef SECOND_H\n#define SECOND_H\n#define SECOND 12\n"
    "static const int second_line = __LINE__;\n#endif\n",
    "inc/third.h": "#define THIRD 13\nenum { counted = __COUNTER__ };\n"
    'inline const char* where() { return __FILE__ "(14)"; }\n',
    "inc/given.h": "#define GIVEN 15\n",
    "own.h": "#pragma once\n#ifdef SCALE\n#define OWN SCALE\n#else\n#define OWN 16\n#endif\n",
}
_LEAD = ["#include <first.h>", "#include <second.h>"]
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
__attribute__((global)) void kernel(int* p) {{
    p[0] = FIRST + SECOND * 100 + THIRD * 10000; p[1] = late() + OWN; p[2] = GIVEN + {value};
    p[3] = __LINE__ + __COUNTER__ * 1000 + second_line; p[4] = sizeof(TEXT);
}}
int host_{value}() {{ return FIRST + SECOND * 100 + late() + OWN + {value} + __LINE__; }}
const char* text() {{ return TEXT __FILE__; }}
"""
_LINES = (
    "// a comment",
    "/* one\n   of several lines */",
    "// a comment that goes on \\\nhere",
    "#define SCALE 17",
    "#define SCALE 18",
    "#define SCALE \\\n    19",
    '#include "own.h"',
    "#include <third.h>",
    "#if SCALE > 17\n#include <third.h>\n#endif",
    "#if __has_include(<asked.h>)\n#include <asked.h>\n#endif",
    '#define NAMED "own.h"\n#include NAMED',
    '#define TEXT R"(raw\n#include <nothing.h>\n)"',
    '#define TEXT "// no comment"',
    "#undef SCALE",
    "#pragma once",
    "%:define TEXT 0",
    "#define FIRST_TOO",
    "int code;",
)


class WrongError(Exception):
    """An output is not what the compiler makes without precompiled headers."""


@dataclass
class Beginnings:
    """One project, and the changes that were made to it."""

    seed: int
    folder: Path
    clang: str = "clang"
    begin: str = ""
    """A line with which all sources begin: of headers that take long."""
    device: str = "['-nogpuinc', '-nogpulib']"
    check: int = 0
    package: Path = ROOT
    story: list[str] = field(default_factory=list)
    script: str = _SCONSTRUCT
    used: int = 0
    """Compiles with a precompiled header."""
    compared: int = 0
    broken: int = 0
    """Outputs for which the compiler fails, in all builds and in the last one."""
    broken_now: int = 0

    def __post_init__(self) -> None:
        self.rng = random.Random(f"beginnings {self.seed}")
        self.layout = self.rng.choice(["", "", "out0/", "out1/"])
        self.cache = self.rng.random() < 0.3
        self.decider = "content"
        self.flags = ["-O2"]
        self.heads = {number: [*_LEAD] for number in range(3)}
        self.values = dict.fromkeys(range(3), 20)
        self.spelling = dict.fromkeys(range(3), "")
        self._known: dict[str, bytes] = {}
        self.folder.mkdir(parents=True)
        for name, text in _HEADERS.items():
            self._put(name, text)
        self._save()

    def run(self, steps: int) -> None:
        """Build, and change and build that many times.

        :raises WrongError: an output is another one.
        """
        self.build()
        for _ in range(steps):
            self.change()
            self.build()

    # -- changes -------------------------------------------------------------------------

    def change(self) -> None:
        """Make one change, or an edit of a body, which is the most frequent one."""
        changes: list[Callable[[], str]] = [
            *([self._edit] * 8),
            *([self._line] * 3),
            *([self._header] * 2),
            *([self._chain] * 2),
            *(self._touch, self._shadow, self._link, self._order, self._spell, self._guard),
            *(self._flag, self._decide, self._rename, self._map),
        ]
        mend = self.broken_now and self.rng.random() < 0.7
        self.story.append(self._mend() if mend else self.rng.choice(changes)())
        self._save()

    def _mend(self) -> str:
        self.heads = {number: [*_LEAD] for number in range(3)}
        self.spelling = dict.fromkeys(range(3), "")
        return f"all sources begin with {_LEAD}"

    def _edit(self) -> str:
        number = self.rng.choice([0, 0, 0, 1, 2])
        self.values[number] = self.rng.randint(20, 99)
        return f"k{number}'s value is {self.values[number]}"

    def _line(self) -> str:
        number, line = self.rng.randrange(3), self.rng.choice(_LINES)
        head = self.heads[number]
        if len(head) > 4:
            head.remove(self.rng.choice(head[2:]))
        head.insert(self.rng.randint(0, len(head)), line)
        return f"k{number} begins with {head}"

    def _chain(self) -> str:
        """Have the sources reach the first header through one of their own."""
        for number, head in self.heads.items():
            guard = self.rng.choice(["#pragma once\n", f"#ifndef C{number}\n#define C{number}\n"])
            end = "#endif\n" if "ifndef" in guard else ""
            before = self.rng.choice(["", "", "", "#define SCALE 17\n"])
            then = self.rng.choice(["#include <first.h>\n", '#include "own.h"\n'])
            at = "src/" if self.layout else ""
            self._put(f"{at}c{number}.h", f"{guard}{before}{then}{end}")
            line = f'#include "c{number}.h"'
            self.heads[number] = [line, *(each for each in head if each != line)]
        return "the sources begin with headers of their own"

    def _header(self) -> str:
        name = self.rng.choice([name for name in _HEADERS if (self.folder / name).exists()])
        file = self.folder / name
        before = file.stat()
        text = re.sub(r"1\d", str(self.rng.randint(10, 19)), file.read_text(), count=1)
        self._put(name, text)
        if self.rng.random() < 0.6:  # by its size and time it is the old one
            os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
        return f"{name} is {text!r}"

    def _touch(self) -> str:
        name = self.rng.choice([*_HEADERS, f"{self._place}k0.hip"])
        if (self.folder / name).exists():
            os.utime(self.folder / name)
        return f"{name} is touched"

    def _shadow(self) -> str:
        name = self.rng.choice(["first.h", "second.h", "third.h", "asked.h", "own.h"])
        place = self.rng.choice(["early", "inc" if name == "asked.h" else "early"])
        file = self.folder / place / name
        if file.exists():
            file.unlink()
            return f"{place}/{name} is gone"
        text = "" if name in ("asked.h", "own.h") else f"#include_next <{name}>\n"
        self._put(f"{place}/{name}", text)
        return f"{place}/{name} appears"

    def _link(self) -> str:
        name = self.rng.choice(["second.h", "third.h"])
        file = self.folder / "inc" / name
        text = re.sub(r"1\d", str(self.rng.randint(10, 19)), file.read_text(), count=1)
        target = f"real/{self.rng.randint(0, 2)}-{name}"
        self._put(target, text)
        file.unlink()
        file.symlink_to(f"../{target}")
        return f"inc/{name} links to {target}: {text!r}"

    def _order(self) -> str:
        number = self.rng.randrange(3)
        self.rng.shuffle(self.heads[number])
        return f"k{number} begins with {self.heads[number]}"

    def _spell(self) -> str:
        number = self.rng.randrange(3)
        self.spelling[number] = self.rng.choice(["", "crlf", "bom", "blanks"])
        return f"k{number} is spelled {self.spelling[number] or 'plainly'}"

    def _guard(self) -> str:
        kinds = ["#pragma once\n", "#ifndef F_H\n#define F_H\n"]
        text = (self.folder / "inc/first.h").read_text()
        before = kinds[text.startswith(kinds[1])]
        after = kinds[before == kinds[0]]
        end = "#endif\n" if after == kinds[1] else ""
        text = after + text.removeprefix(before).removesuffix("#endif\n") + end
        self._put("inc/first.h", text)
        return f"inc/first.h is {text!r}"

    def _flag(self) -> str:
        self.flags = ["-O2", *self.rng.sample(["-DSCALE=21", "-ffast-math", "-Ireal"], k=1)]
        if self.rng.random() < 0.4:
            self.flags += ["-include", "inc/given.h"]
        return f"CCFLAGS is {self.flags}"

    def _decide(self) -> str:
        deciders = ["content", "timestamp-newer", "timestamp-match", "content-timestamp"]
        self.decider = self.rng.choice(deciders)
        return f"the Decider is {self.decider}"

    def _rename(self) -> str:
        name = self.rng.choice(list(_HEADERS))
        file = self.folder / name
        if file.is_symlink():
            return "nothing"
        other = file.with_suffix(".tmp")
        shutil.copyfile(file, other)
        other.replace(file)
        return f"{name} is replaced by an equal file"

    def _map(self) -> str:
        file = self.folder / "inc/module.modulemap"
        if file.exists():
            file.unlink()
            return "the module map is gone"
        self._put("inc/module.modulemap", 'module m { header "second.h" }\n')
        return "a module map appears"

    # -- files ---------------------------------------------------------------------------

    @property
    def _place(self) -> str:
        return "src/" if self.layout else ""

    def _put(self, name: str, text: str) -> None:
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.is_symlink():
            file = file.resolve()
        file.write_bytes(text.encode())

    def _save(self) -> None:
        for number, head in self.heads.items():
            lines = [self.begin, *head] if self.begin else head
            text = "\n".join([*lines, _BODY.format(value=self.values[number])])
            how = self.spelling[number]
            data = text.encode()
            if how == "crlf":
                data = data.replace(b"\n", b"\r\n")
            if how == "bom":
                data = b"\xef\xbb\xbf" + data
            if how == "blanks":
                data = b" \t\n" + data.replace(b"#include <", b"#  include\t<")
            file = self.folder / f"{self._place}k{number}.hip"
            file.parent.mkdir(exist_ok=True)
            if not file.exists() or file.read_bytes() != data:
                file.write_bytes(data)
        more = [f"VariantDir({self.layout!r}, 'src', duplicate={self.layout == 'out1/'})"]
        more = more if self.layout else []
        if self.cache:
            more.append("env.CacheDir('../cache')")
        self._put(
            "SConstruct",
            self.script.format(
                device=self.device,
                check=self.check,
                flags=self.flags,
                decider=self.decider,
                more="\n".join(more),
                folder=self.layout,
            ),
        )
        if self.layout:  # beside the sources
            self._put("src/own.h", (self.folder / "own.h").read_text())

    # -- builds --------------------------------------------------------------------------

    def build(self) -> None:
        """Run scons, and judge each output.

        :raises WrongError: one is another than the compiler makes.
        """
        force = ["--config=force"] if self.rng.random() < 0.05 else []
        environ = {**os.environ, "OFFLOAD_CLANG": self.clang, "PYTHONPATH": str(self.package)}
        arguments = ["-k", f"-j{self.rng.choice([1, 2, 8])}", *force]
        done = run_scons(arguments, cwd=self.folder, env=environ)
        found = re.findall(r"(\d+) compiles with, ", done.stdout)
        self.used += int(found[-1]) if found else 0
        if "other bytes than without" in done.stderr:
            raise WrongError(done.stderr)
        database = self.folder / "compile_commands.json"
        if not database.exists():
            raise WrongError(f"no compile_commands.json:\n{done.stdout}{done.stderr}")
        failing = 0
        for entry in json.loads(database.read_text()):
            if "output" not in entry:
                continue  # a header's
            expected = self._expected(entry["arguments"], entry["output"])
            made = self.folder / entry["output"]
            failing += not expected
            if expected and (not made.exists() or made.read_bytes() != expected):
                raise WrongError(f"{entry['output']}: not what the compiler makes\n{done.stdout}")
            if not expected and made.exists():
                raise WrongError(f"{entry['output']}: the compiler fails:\n{done.stdout}")
            self.compared += bool(expected)
        self.broken, self.broken_now = self.broken + failing, failing
        if bool(done.returncode) != bool(failing):
            said = done.stdout + done.stderr
            raise WrongError(f"status {done.returncode}, {failing} fail:\n{said}")

    def _expected(self, words: list[str], output: str) -> bytes:
        """Return what a command gives without precompiled headers; nothing where it fails."""
        files = sorted(
            file
            for pattern in ("*.h", "*/*.h", "*.hip", "*/*.hip", "inc/*.modulemap")
            for file in self.folder.glob(pattern)
        )
        source = next(word for word in words if word.endswith(".hip"))
        digest = hashlib.sha256(repr(words).encode())
        for file in files:
            if file.suffix != ".hip" or file.name == Path(source).name:
                digest.update(f"{file} {file.resolve()}".encode() + file.read_bytes())
        key = digest.hexdigest()
        if key not in self._known:
            own = [*words]
            other = f"{output}.judge"
            own[own.index("-o") + 1] = other
            done = subprocess.run(own, cwd=self.folder, capture_output=True, check=False)
            made = self.folder / other
            self._known[key] = made.read_bytes() if done.returncode == 0 else b""
            made.unlink(missing_ok=True)
        return self._known[key]


def main() -> int:
    """Run some projects; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.driver.beginnings", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--clang", default="clang-22")
    parser.add_argument("--begin", default="", help="a line with which all sources begin")
    parser.add_argument("--device", default="['-nogpuinc', '-nogpulib']", help="OFFLOAD_FLAGS")
    given = parser.parse_args()
    failed = 0
    for seed in range(given.first, given.first + given.seeds):
        folder = Path(tempfile.mkdtemp(prefix=f"offload-beginnings-{seed}-"))
        trial = Beginnings(seed, folder / "project", given.clang, given.begin, given.device)
        try:
            trial.run(given.steps)
        except WrongError as error:
            failed += 1
            print(f"seed {seed}, in {folder}:", *trial.story, error, sep="\n  ")
        else:
            shutil.rmtree(folder)
        print(
            f"seed {seed}: {len(trial.story)} changes, {trial.compared} outputs compared, "
            f"{trial.broken} do not compile, "
            f"{trial.used} compiles with a precompiled header",
            flush=True,
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
