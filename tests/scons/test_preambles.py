"""Precompiled headers of single sources, for edits in a row: faster, and the same bytes.

The judge is the same project, changed in the same way, without.
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from offload_tool.scons import preambles
from offload_tool.scons.precompiled import PCH_FOLDER
from tests.cli.test_compile_pch import LAUNCH
from tests.scons.conftest import SCONSTRUCT, Project
from tests.scons.test_precompiled import BUILD, ON, assert_same, made, said, twin

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = """\
// {name}
#include "own.h"
#define SCALE 3
#if defined(__HIP_DEVICE_COMPILE__)
#include <device.h>
#else
#include <host.h>
#endif
#if __has_include("asked.h")
#include "asked.h"
#endif

__global__ void {name}(int* p) {{ *p = twice(NUMBER) * SCALE + side + __LINE__; }}
const char* file_{name}() {{ return where(); }}
int use_{name}(int x) {{ return twice(x) + side; }}
"""
OWN = """\
#pragma once
#include <launch.h>
template <class T> __host__ __device__ T twice(T v) { return v + v; }
inline const char* where() { return __FILE__; }
#include "config.h"
"""
NAMES = ("a", "b")


def write(project: Project) -> None:
    project.write("src/own.h", OWN)
    project.write("first/empty.h", "")
    project.write("second/launch.h", LAUNCH)
    # Found beside own.h; the one of "second" is found from there.
    project.write("src/config.h", "constexpr int config = 1;\n")
    project.write("second/config.h", "constexpr int other = 2;\n")
    project.write("second/device.h", '#pragma once\n#include "config.h"\nenum { side = 1 };\n')
    project.write("second/host.h", "#pragma once\nenum { side = 2 };\n")
    for name in NAMES:
        edit(project, name, 1)


def edit(project: Project, name: str, number: int) -> None:
    text = SOURCE.format(name=name).replace("NUMBER", str(number))
    project.write(f"src/{name}.hip", text)


def settings(project: Project, *lines: str) -> None:
    body = BUILD.format([f"src/{name}.hip" for name in NAMES])
    one_target = "env.Replace(OFFLOAD_ARCH='gfx906', OFFLOAD_SUMMARY=True)"
    project.sconstruct("\n".join([one_target, *lines, body]), SCONSTRUCT)


@pytest.fixture
def pair(project: Project, tmp_path: Path) -> tuple[Project, Project]:
    """Give two like projects in folders of one name; the first has precompiled headers."""
    write(project)
    other = twin(project, tmp_path)
    settings(project, ON)
    settings(other)
    return project, other


def own_pchs(project: Project) -> list[str]:
    """Name the precompiled headers of single sources, without their digests."""
    found = (project.folder / PCH_FOLDER).glob("*/*.pch")
    names = (str(file.relative_to(project.folder / PCH_FOLDER)) for file in found)
    return sorted(re.sub(r"\.[0-9a-f]{8}(?=[./])", "", name) for name in names)


def test_changes(pair: tuple[Project, Project]) -> None:
    """From the first edit on there is one; whatever changes, outputs are those without."""
    first, _ = assert_same(pair)
    assert said(first) == "0 compiles with, 4 without (4: no leading includes)"
    assert own_pchs(pair[0]) == []
    for number in (2, 3):
        for project in pair:
            edit(project, "a", number)
        run, _ = assert_same(pair)
        assert said(run) == "2 compiles with, 0 without"
    assert own_pchs(pair[0]) == ["a.hip/gfx906.hip.1.pch", "a.hip/host.hip.1.pch"]
    changes = {
        "src/own.h": (OWN + "// more\n", 0),
        "first/device.h": ("enum { side = 7 };\n", 0),
        "src/asked.h": ("enum { asked = 1 };\n", 0),
    }
    number = 3
    for name, (text, used) in changes.items():
        for project in pair:
            project.write(name, text)
        run, _ = assert_same(pair, "-j2")
        assert said(run).startswith(f"{used} compiles with")
        number += 1
        for project in pair:
            edit(project, "a", number)
        assert_same(pair)
        pair[0].assert_up_to_date()
    for project in pair:
        (project.folder / "src/own.h").touch()
        (project.folder / "first/device.h").unlink()
        edit(project, "a", 90)
    assert_same(pair)


def test_edit_of_the_preamble(pair: tuple[Project, Project]) -> None:
    """Where the leading directives are edited, too, not each edit makes one."""
    assert_same(pair)
    used = []
    for number, more in ((2, ""), (3, "#define MORE 1\n"), (4, "#define MORE 1\n"), (5, "")):
        for project in pair:
            text = SOURCE.format(name="a").replace("NUMBER", str(number))
            project.write("src/a.hip", more + text)
        run, _ = assert_same(pair)
        used.append(said(run)[0])
    # A second one would not pay yet; and the first one is still there.
    assert used == ["2", "0", "0", "2"]
    assert own_pchs(pair[0]) == ["a.hip/gfx906.hip.1.pch", "a.hip/host.hip.1.pch"]


def test_many_edited_sources(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """A build in which many sources have changed makes them for two of these alone."""
    monkeypatch.setattr("tests.scons.test_preambles.NAMES", ("a", "b", "c", "d"))
    write(project)
    for name in NAMES:  # each begins otherwise, so that they share none
        text = SOURCE.format(name=name).replace("NUMBER", "1")
        project.write(f"src/{name}.hip", f"#define IS_{name}\n{text}")
    settings(project, ON)
    project.build()
    for name in NAMES:
        file = project.folder / f"src/{name}.hip"
        file.write_text(file.read_text().replace("twice(1)", "twice(2)"))
    assert len(project.build()) == 8
    assert len({name.split("/")[0] for name in own_pchs(project)}) == preambles.MOST_SOURCES


def test_messages_and_errors(pair: tuple[Project, Project]) -> None:
    """A body that does not compile, or warns, says the same; headers that warn have none."""
    for project in pair:
        project.build()
    texts = ["int a = missing;\n", "#warning told\n", '#include "gone.h"\n']
    for number, text in enumerate(texts):
        runs = []
        for project in pair:
            edit(project, "a", number + 2)
            with (project.folder / "src/a.hip").open("a") as file:
                file.write(text)
            runs.append(project.run())
        assert runs[0].status == runs[1].status
        clean = [run.errors.replace(str(project.folder), "") for run in runs]
        assert clean[0] == clean[1]
    for project in pair:
        project.write("src/own.h", f"{OWN}#warning told\n")
        edit(project, "a", 10)
        project.run()
        edit(project, "a", 11)
    runs = [project.run() for project in pair]
    assert runs[0].errors.count("warning: told") == runs[1].errors.count("warning: told") == 2
    assert made(pair[0]) == made(pair[1])


def test_cache(pair: tuple[Project, Project], tmp_path: Path) -> None:
    """A CacheDir serves builds with them and without alike."""
    cache = f"CacheDir({str(tmp_path / 'cache')!r})"
    settings(pair[0], ON, cache)
    pair[0].build()
    for number in (2, 3):
        edit(pair[0], "a", number)
        assert len(pair[0].build()) == 2
    assert len(own_pchs(pair[0])) == 2
    pair[0].build("-c")
    assert not (pair[0].folder / PCH_FOLDER).exists()
    settings(pair[1], cache)
    for number in (2, 3):
        edit(pair[1], "a", number)
        assert pair[1].build() == [] or number == 2
    assert pair[0].build() == []
    assert made(pair[0]) == made(pair[1])


def test_environments(pair: tuple[Project, Project]) -> None:
    """Two environments that compile one source with other flags have one each."""
    again = "other = env.Clone(CPPDEFINES={'VALUE': 9}, OFFLOADHOSTSUFFIX='.2.o')\n"
    again += "other.OffloadObject('again.o', 'src/a.hip', OFFLOADDEVICESUFFIX='.2.co')\n"
    for project in pair:
        with (project.folder / "SConstruct").open("a") as file:
            file.write(again)
    for number in (1, 2, 3):
        for project in pair:
            edit(project, "a", number)
        run, _ = assert_same(pair, "-j2")
    assert said(run) == "4 compiles with, 0 without"
    assert len(own_pchs(pair[0])) == 4


def test_killed(pair: tuple[Project, Project]) -> None:
    """After ``kill -9`` at any moment of the making the next build is right."""
    assert_same(pair)
    random_ = random.Random(19)
    for number in range(2, 8):
        for project in pair:
            edit(project, "a", number)
        pair[1].build()
        running = subprocess.Popen(
            [sys.executable, "-m", "SCons", "-j2"],
            cwd=pair[0].folder,
            env=pair[0].environment,
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(random_.uniform(0.3, 0.9))
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()
        pair[0].build()
        assert made(pair[0]) == made(pair[1])


def test_damaged(pair: tuple[Project, Project]) -> None:
    """Damaged or missing files of them are only a reason to compile without."""
    assert_same(pair)
    for project in pair:
        edit(project, "a", 2)
    assert_same(pair)
    folder = next((pair[0].folder / PCH_FOLDER).iterdir())
    for number, file in enumerate(sorted(folder.glob("*gfx906*"))):
        before = file.read_bytes()
        file.write_bytes(before[: number % 2 * len(before) // 2])
        for project in pair:
            edit(project, "a", number + 3)
            project.build()
        assert made(pair[0]) == made(pair[1])
        file.write_bytes(before)


def test_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Together they take a bounded space: those used longest ago go, but for the one just made."""
    monkeypatch.setattr(preambles, "LARGEST", 250)
    for number, name in enumerate("abcd"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "x.pch").write_bytes(bytes(100))
        os.utime(folder / "x.pch", (number, number))
    (tmp_path / "shared.pch").write_bytes(bytes(1000))
    preambles.make_room(str(tmp_path), f"{tmp_path}/a")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a", "d", "shared.pch"]


def test_check(project: Project) -> None:
    """``OFFLOAD_PCH_CHECK`` compares compiles with them, too."""
    write(project)
    settings(project, ON, "env.Replace(OFFLOAD_PCH_CHECK=1)")
    project.build()
    edit(project, "a", 2)
    assert len(project.build()) == 4
