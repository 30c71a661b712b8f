"""`launch` with OFFLOAD_PCH: object, depfile and messages are the driver's."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import PIPE

import pytest

from offload_tool.io.file_digests import content_of
from offload_tool.launch.pch import FOLDER, LAUNCHED
from offload_tool.pch import pch
from tests.launch import test_memory
from tests.launch.compiles import ALWAYS_IN_STAGES, SOURCE, environment, run
from tests.launch.edit_trials import Trial, lines
from tests.launch.test_memory import ALL, NEW, OLD

WITH, FIRST = "with the precompiled header", "the headers are new: the next source makes it"
HEADER = '#pragma once\n#include "hip_declarations.h"\n#include "value.h"\ninline int v = VALUE;\n'
BODY = SOURCE.partition("#endif\n")[2]
SAID = "it has printed messages the last time"
_PATCHED = """
import os, resource, signal, sys
from offload_tool.pch import pch
make = pch.make_pch
def counted(*args, **options):
    print("made", file=sys.stderr)
    return make(*args, **options)
{}
from offload_tool.cli import main
sys.exit(main(["launch", *sys.argv[1:]]))
"""
COUNTED = "pch.make_pch = counted"
KILLED = "pch._reason_against = lambda *_: os.kill(os.getpid(), 9)"
"""The PCH is there, and its manifest is not."""
FULL = """
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, 150_000))
"""

pytestmark = pytest.mark.llvm


class Project(test_memory.Project):
    """A project with two sources that begin with one header."""

    source = "s"

    def command(self, output: str = "") -> list[str]:
        args = super().command(output or f"{self.source}.o")
        return [f"{self.source}.hip" if word == "s.hip" else word for word in args]

    def patch(self, text: str) -> None:
        """Change the program in some way."""
        self.launch = (sys.executable, "-c", _PATCHED.format(text))

    def compiled(self, source: str = "s") -> dict[str, str]:
        """Compile as the driver does; return what became of the PCH of each pass that runs."""
        self.source = source
        done = self.ours()
        assert done.returncode == 0, done.stderr
        names = [str(self.folder / f"{source}{end}") for end in (".o", ".d")]
        made = [content_of(name) for name in names]
        driver = run(self.command(), self.folder)
        assert made == [content_of(name) for name in names]
        assert lines(done.stderr) == lines(driver.stderr)
        found = re.findall(r"^offload-tool launch: (\S+): (with.*)$", done.stderr, re.M)
        return {name: why.removeprefix("without a precompiled header: ") for name, why in found}


@pytest.fixture
def project(tmp_path: Path, llvm: Callable[[str], str]) -> Project:
    made = Project(tmp_path / "project", llvm("clang++"))
    made.flags = ["--offload-arch=gfx906,gfx90a", "-O2", OLD]
    made.more |= {"OFFLOAD_PCH": "none.h:common.h", "OFFLOAD_CUTOFF": "0"}
    made.write("common.h", HEADER)
    for name in "st":
        made.write(f"{name}.hip", f'#include "common.h"\n{BODY}')
    return made


@pytest.mark.parametrize("flags", [OLD, NEW, f"{OLD} -MP -MT odd$$name", "--offload-device-only"])
def test_edits(flags: str, project: Project) -> None:
    """The second compile makes the PCHs; after an edit of a header they are made again."""
    project.flags += flags.split()
    passes = ALL - {"host"} if "only" in flags else ALL
    for name, text in (
        ("common.h", HEADER),
        ("common.h", f"{HEADER}static inline int unused() {{ return 3; }}\n"),
        ("value.h", "#pragma once\n#define VALUE 4\n"),
    ):
        project.write(name, text)
        assert project.compiled("s") == dict.fromkeys(passes, FIRST)
        assert project.compiled("t") == dict.fromkeys(passes, WITH)
        project.write("s.hip", f"{(project.folder / 's.hip').read_text()}\nint another();\n")
        assert project.compiled("s") == dict.fromkeys(passes, WITH)
        os.utime(project.folder / "value.h")
        assert [project.compiled("s"), project.compiled("t")] == [{}, {}]


def test_there_and_back(project: Project) -> None:
    """An edit that is undone finds its PCHs again; those of a third state replace the others."""
    first, second, third = (f"{HEADER}// {number}\n" for number in range(3))
    for text in (first, second):
        project.write("common.h", text)
        project.compiled("s")
        assert project.compiled("t") == dict.fromkeys(ALL, WITH)
    project.write("common.h", first)
    assert project.compiled("s") == dict.fromkeys(ALL, WITH)
    project.write("common.h", third)
    project.compiled("s")
    assert project.compiled("t") == dict.fromkeys(ALL, WITH)
    assert len([*(project.folder / FOLDER).glob("*.pch")]) == 2 * len(ALL)
    project.write("common.h", first)  # used after the second
    assert project.compiled("t") == dict.fromkeys(ALL, WITH)


def test_marks(project: Project) -> None:
    """Builds of one source each make no PCH until it would have paid for itself."""
    for source, expected in (("s", FIRST), ("s", FIRST), ("t", FIRST), ("t", WITH)):
        for mark in (project.folder / FOLDER).glob("*.mark"):
            os.utime(mark, (time.time() - 3600,) * 2)
        text = project.folder / f"{source}.hip"
        text.write_text(f"{text.read_text()}int more{os.urandom(4).hex()}();\n")
        assert project.compiled(source) == dict.fromkeys(ALL, expected)


def test_source_alone(project: Project) -> None:
    """An edit of a source whose passes ran without a PCH is cut off as if there were none."""
    project.launch, project.more["OFFLOAD_CUTOFF"] = ALWAYS_IN_STAGES, "1"
    for text in ("", "// new"):
        project.write("common.h", f"{HEADER}{text}\n")
        assert project.compiled("s") == dict.fromkeys(ALL, FIRST)
    assert project.compiled("t") == dict.fromkeys(ALL, WITH)
    project.write("s.hip", f'#include "common.h"\n// new\n{BODY}')
    assert {why[:29] for why in project.compiled("s").values()} == {"it ran without the last time,"}
    project.write("s.hip", f'#include "common.h"\n// both\n{BODY}')
    project.write("common.h", f"{HEADER}// both\n")
    assert project.compiled("s") == dict.fromkeys(ALL, FIRST)


def test_inputs(project: Project) -> None:
    """An object that was made with a PCH is stale when anything changes that the PCH has read."""
    project.flags = ["-Ifirst", "-Ilast", *project.flags]
    for name in ("last/found.h", "first/other.h"):
        project.write(name, "")
    project.write("common.h", f"{HEADER}#include <found.h>\n")
    project.compiled("s")
    assert project.compiled("t") == dict.fromkeys(ALL, WITH)
    first = project.write("first/found.h", "int appeared = 1;\n")
    assert [set(project.compiled("t")), project.compiled("t")] == [ALL, {}]
    first.unlink()
    assert [set(project.compiled("t")), project.compiled("t")] == [ALL, {}]
    (project.folder / "last/found.h").unlink()
    assert project.ours().returncode == 1


def _through_another(project: Project) -> None:
    project.write("common.h", f"{HEADER}#ifndef ANOTHER\n#error another.h is first\n#endif\n")
    project.write("another.h", '#ifndef ANOTHER\n#define ANOTHER\n#include "common.h"\n#endif\n')
    for name in "st":
        project.write(f"{name}.hip", f'#include "another.h"\n{BODY}')


def _flag(flag: str) -> Callable[[Project], None]:
    return lambda project: project.flags.append(flag)


def _text(name: str, text: str) -> Callable[[Project], object]:
    return lambda project: project.write(name, text)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (_flag("-g"), "debug information (-g)"),
        (_flag("-O0"), "no optimization (-O0): add -O1 or more"),
        (_flag("-fgpu-rdc"), "relocatable device code (-fgpu-rdc)"),
        (_flag("-fmacro-prefix-map=a=b"), "-fmacro-prefix-map= in its flags"),
        (_flag("-MMD"), "use -MD"),
        (_through_another, pch.ERRORS),
        (_text("common.h", f"{HEADER}#warning said\n"), SAID),
        (
            _text("t.hip", f'#include "common.h"\n{BODY}#warning said\n'),
            SAID,
        ),
        (_text(FOLDER, "no folder"), f"'{FOLDER}': File exists"),
        (lambda each: each.more.update(OFFLOAD_LAUNCHER="env"), LAUNCHED),
        (lambda each: each.more.update(OFFLOAD_PCH="value.h"), "have no header of OFFLOAD_PCH"),
    ],
)
def test_why_not(change: Callable[[Project], None], why: str, project: Project) -> None:
    """A pass without a PCH is the driver's, and says why with VERBOSE."""
    change(project)
    for source in "stst":
        text = project.folder / f"{source}.hip"
        text.write_text(f"{text.read_text()}int more();\n")
        found = project.compiled(source)
    assert all(why in found.get(name, "") for name in ALL), found


def test_two_at_once(project: Project) -> None:
    """Of two launches, one makes a PCH, and the other one waits for it."""
    project.write("u.hip", f'#include "common.h"\n{BODY}')
    project.compiled("u")
    project.patch(COUNTED)
    started = []
    for project.source in "st":
        project.write(f"{project.source}.hip", f'#include "common.h"\n{BODY}\nint more;\n')
        command, more = [*project.launch, *project.command()], environment(project.more)
        started.append(subprocess.Popen(command, cwd=project.folder, env=more, stderr=PIPE))
    messages = "".join(each.communicate()[1].decode() for each in started)
    assert [messages.count(text) for text in ("made\n", WITH)] == [3, 6], messages
    assert [project.compiled("s"), project.compiled("t")] == [{}, {}]


@pytest.mark.parametrize("harm", [KILLED, FULL])
def test_harm(harm: str, project: Project) -> None:
    """A PCH that a killed launch has not checked, or that found no room, is made again."""
    project.compiled("s")
    launch = project.launch
    project.patch(harm)
    project.source = "t"
    done = project.ours()
    assert done.returncode == (-9 if harm == KILLED else 0)
    assert WITH not in done.stderr
    project.launch = launch
    (project.folder / "t.o").unlink(missing_ok=True)
    assert project.compiled("t") == dict.fromkeys(ALL, WITH)


@pytest.mark.parametrize("value", ["1", "True", "<common.h>", '"common.h"'])
def test_no_names(value: str, project: Project) -> None:
    """What names no header is an error with a fix."""
    project.more["OFFLOAD_PCH"] = value
    done = project.ours()
    assert done.returncode == 1
    assert f"OFFLOAD_PCH={value}: expected names of headers" in done.stderr


@pytest.mark.parametrize("seed", range(2))
def test_trials(seed: int, tmp_path: Path, llvm: Callable[[str], str]) -> None:
    """After random edits, all is the driver's."""
    assert Trial([llvm("clang++")], seed, tmp_path / "trial", pch="pch").judge() == []
