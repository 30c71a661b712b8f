"""``OFFLOAD_PCH``: precompiled headers save time, and change nothing else.

The judge is the same project, changed in the same way, without.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

from offload_tool.pch.include_prefix import Candidate
from offload_tool.pch.pch import SMALL, refusal_of
from offload_tool.scons.pch import PCH_FOLDER, shared_headers
from tests.cli.test_compile_pch import HEADER, LAUNCH
from tests.conftest import program
from tests.scons.conftest import SCONSTRUCT, Project, Run, checkout
from tests.scons.test_launchers import Cache
from tests.scons.test_launchers import cache as cache

BEGIN = "// text\n#include <launch.h>\n#include <header.h>\n"
BODY = """
#include "own.h"
__global__ void NAME(int* p) { *p = device_value + twice(2) + OWN; }
static int host_NAME(int x) {
  templated<char><<<dim3{1, 1, 1}, dim3{1, 1, 1}>>>(nullptr);
  return x;
}
int (*use_NAME)(int) = host_NAME;
"""
SOURCES = ["a", "b", "c"]
NO_INCLUDES = (
    "no leading includes up to '{}': begin the source with '#include <...>', or with a header that "
    "has '#pragma once' or an include guard"
)
UNLIKE = "different leading includes: begin 3 sources alike"
NOT_NAMED = "different leading includes: begin the source with the headers of OFFLOAD_PCH"
BUILD = "env.Append(CPPPATH=['#first', '#second'], CCFLAGS=['-O2'])\n"


def write(project: Project) -> None:
    project.write("second/launch.h", LAUNCH)
    project.write("second/header.h", HEADER)
    project.write("first/empty.h", "")
    project.write("own.h", "#define OWN 1\n")
    for name in SOURCES:
        project.write(f"{name}.hip", BEGIN + BODY.replace("NAME", name))


def settings(project: Project, *lines: str, names: list[str] = SOURCES, calls: str = "") -> Project:
    """Write the SConstruct, with objects of sources, or with other calls."""
    head = SCONSTRUCT.replace('CPPDEFINES={"VALUE": 1}', 'CPPDEFINES={"VALUE": 3}')
    calls = calls or f"env.OffloadObject({[f'{name}.hip' for name in names]})\n"
    return project.sconstruct(
        "\n".join([*lines, "env.Replace(OFFLOAD_SUMMARY=True)", BUILD + calls]), head
    )


ALSO_SMALL = "from offload_tool.scons import pch\npch.SMALLEST = pch.ALONE = 0\n"
ON = f"{ALSO_SMALL}env.Replace(OFFLOAD_PCH=True)"
ONE = "env.Replace(OFFLOAD_ARCH='gfx906')"


@pytest.fixture
def project(project: Project) -> Project:
    """Return a project with sources that begin alike."""
    write(project)
    return project


def summary(run: Run) -> str:
    """Return what the summary says of precompiled headers."""
    lines = [line for line in run.output.splitlines() if "precompiled headers:" in line]
    return lines[0].removeprefix("offload: precompiled headers: ") if lines else ""


def times(project: Project) -> dict[str, int]:
    """Return when each precompiled header was made."""
    files = (project.folder / PCH_FOLDER).glob("*.pch")
    return {file.name: file.stat().st_mtime_ns for file in files}


def pchs(project: Project) -> list[str]:
    return sorted(times(project))


LOST = "static __device__ int lost;\ninline const void* up() { return &lost; }\n"
WHY_LOST = "a probe compiles to other bytes with it: symbol '_ZL4lost' is there only without"
PLAIN = "env.OffloadStaticLibrary('all', ['a.hip', 'b.hip', 'c.hip'])\n"
RDC = "env.OffloadObject(['ra.hip', 'rb.hip', 'rc.hip'], OFFLOAD_RDC=True)\n"
OF_RDC = "6 compiles with, 6 without (6: relocatable device code (-fgpu-rdc))"
OWN_FLAGS = "".join(
    f"env.OffloadDeviceObject('{n}.hip', CPPDEFINES={{'VALUE': {ord(n)}}})\n" for n in SOURCES
)
FEW = "0 compiles with, 3 without (3: different flags: fewer than 3 compiles have all in common)"
SUMMARIES = {  # a header or source, a line and the calls of the SConstruct, and what is said
    "two sources": (
        {"c.hip": "#include <empty.h>\nint c;\n"},
        *(ON, "", f"0 compiles with, 6 without (6: {UNLIKE})"),
    ),
    "no source that begins with includes": (
        {f"{name}.hip": f"int {name};\n" for name in SOURCES},
        *(
            ON,
            "",
            f"0 compiles with, 6 without (6: {NO_INCLUDES.format('a.hip:1')} (for instance))",
        ),
    ),
    "headers that are read as fast as their PCH": (
        {},
        *("env.Replace(OFFLOAD_PCH=True)", "", f"0 compiles with, 6 without (6: {SMALL})"),
    ),
    "header of which a PCH would lose something": (
        {"second/header.h": HEADER + LOST},
        *(ON, "", f"3 compiles with, 3 without (3: {WHY_LOST})"),
    ),
    "different flags": ({}, ON, OWN_FLAGS, FEW),
    "relocatable sources last": ({}, ON, PLAIN + RDC, OF_RDC),
    "relocatable sources first": ({}, ON, RDC + PLAIN, OF_RDC),
    "named header": (
        {},
        *("env.Replace(OFFLOAD_PCH=['launch.h'])", "", "6 compiles with, 0 without"),
    ),
    "named header that does not come first": (
        {},
        *("env.Replace(OFFLOAD_PCH=['header.h'])", ""),
        f"0 compiles with, 6 without (6: {NOT_NAMED})",
    ),
}


@pytest.mark.parametrize(
    ("files", "line", "calls", "expected"), SUMMARIES.values(), ids=SUMMARIES.keys()
)
def test_summary(
    project: Project, files: dict[str, str], line: str, calls: str, expected: str
) -> None:
    """The summary says how many compiles had a precompiled header, and why others had none."""
    for name in SOURCES:
        project.write(f"r{name}.hip", BEGIN + BODY.replace("NAME", name))
    for name, text in files.items():
        project.write(name, text)
    settings(project, line, ONE, calls=calls)
    assert summary(project.run()) == expected
    usable = [n for n in pchs(project) if not refusal_of(str(project.folder / PCH_FOLDER / n))]
    assert bool(usable) == (expected[0] != "0")
    assert UNLIKE not in expected or pchs(project) == []
    log = (project.folder / "compiles.log").read_text()
    assert "-include-pch" not in log  # so that caches hit


def test_none_for_plain_sources(project: Project) -> None:
    """C and C++ sources that begin alike are compiled by SCons's own commands, without any."""
    project.write("first/header.h", "int shared();\n")
    sources = [project.write(f"{name}.cpp", "#include <header.h>\n").name for name in SOURCES]
    build = f"env.Append(CPPPATH=['first'])\nenv.OffloadStaticLibrary('all', {sources!r})"
    project.sconstruct(f"{ON}\n{build}", SCONSTRUCT).done()
    assert not (project.folder / PCH_FOLDER).exists()


def test_names_are_of_what_decides(project: Project) -> None:
    """Each header is that of any order of reading, and flags of the run decide it.

    A flag that is changed after the builder was called counts for all passes of the environment.
    """
    calls = [
        *(f"env.OffloadDeviceObject('{name}.hip')" for name in SOURCES),
        "other = env.Clone(CPPDEFINES={'VALUE': 4})",
        *(f"other.OffloadDeviceObject('o{name}', '{name}.hip')" for name in SOURCES),
    ]
    found = []
    for order in (calls, [*calls[3:], *calls[:3]]):
        body = "\n".join([*order, "env.Append(OFFLOAD_FLAGS=['-DLATE'])\n"])
        settings(project, ON, ONE, calls=body)
        for output in project.folder.glob("*.co"):
            output.unlink()
        assert summary(project.run()) == "6 compiles with, 0 without"
        found.append(times(project))
    assert len(found[0]) == 2
    assert found[0] == found[1]


def test_old_ones_are_removed(project: Project) -> None:
    """Of the precompiled headers of former flags, those of some sets are kept."""
    for number in range(6):
        flags = f"env.Append(OFFLOAD_FLAGS=['-DNUMBER={number}'])"
        settings(project, ON, ONE, flags)
        assert summary(project.run()).startswith("6 compiles with" if not number else "3 compiles")
    assert len([name for name in pchs(project) if name.startswith("gfx906")]) == 4


def test_there_and_back(project: Project) -> None:
    """An edit that is undone finds its precompiled headers again."""
    settings(project, ON, ONE)
    project.build()
    made = []
    for text in (HEADER + "// edited\n", HEADER):
        project.write("second/header.h", text)
        assert summary(project.run()) == "6 compiles with, 0 without"
        made.append(times(project))
    assert len(made[0]) == 4
    assert made[0] == made[1]


def test_none_for_one_source(project: Project) -> None:
    """An edit of one source makes no precompiled header for it, wherever SCons reads it."""
    settings(project, ON, ONE)
    project.build()
    shutil.rmtree(project.folder / PCH_FOLDER)
    why = "fewer than 3 compiles to share it: it pays in larger builds"
    project.write("a.hip", BEGIN + BODY.replace("NAME", "other"))
    assert summary(project.run()) == f"0 compiles with, 2 without (2: {why})"
    settings(project, ON, ONE, "env.Append(OFFLOAD_FLAGS=['-DNUMBER=1'])")
    assert summary(project.run()) == "3 compiles with, 0 without"


def test_no_folder(project: Project) -> None:
    """Where no precompiled header can be written, all compiles without."""
    settings(project, ON, ONE)
    project.write(PCH_FOLDER, "a file")
    assert summary(project.done()).startswith("0 compiles with, 6 without (6: '.offload-pch'")
    assert project.read(PCH_FOLDER) == b"a file"


def test_one_source_of_small_headers(project: Project) -> None:
    """A source whose headers are small never gets one of its own, and no folder for it."""
    settings(project, "env.Replace(OFFLOAD_PCH=True)", ONE, names=["a"])
    for number in range(5):
        project.write("a.hip", BEGIN + BODY.replace("NAME", f"edited{number}"))
        assert summary(project.done()).startswith("0 compiles with, 2 without")
    assert not (project.folder / PCH_FOLDER).exists()


@pytest.mark.parametrize("is_alone", [False, True])
def test_one_source_again_and_again(is_alone: bool, project: Project) -> None:
    """The fourth edit of one source makes a precompiled header, and further ones use it."""
    settings(project, ON, ONE)
    own = "#include <alone.h>\n"
    if is_alone:
        project.write("first/alone.h", "#pragma once\nint alone();\n#include <header.h>\n")
    project.build()
    if not is_alone:
        shutil.rmtree(project.folder / PCH_FOLDER)

    def edit(number: int) -> str:
        text = (own if is_alone else BEGIN) + BODY.replace("NAME", f"edited{number}")
        project.write("a.hip", text)
        return summary(project.run())

    found = [edit(number).partition(" (")[0] for number in range(5)]
    assert found == ["0 compiles with, 2 without"] * 3 + ["2 compiles with, 0 without"] * 2
    project.edit("first/alone.h" if is_alone else "second/header.h", "", "int more();\n")
    assert summary(project.run()).startswith("0 compiles" if is_alone else "6 compiles")


def test_why_not(project: Project) -> None:
    """The summary counts what compiled without, by reason."""
    settings(project, ON, ONE, "env.Append(OFFLOAD_FLAGS=['-g'])")
    assert summary(project.run()) == "3 compiles with, 3 without (3: debug information (-g))"
    project.write("second/launch.h", LAUNCH + "#warning told\n")
    run = project.run()
    assert "3: messages of the compiler about its headers: mend or disable them" in summary(run)
    assert run.errors.count("warning: told") == 6


def test_in_no_signature(project: Project) -> None:
    """Turned on later, or gone, PCHs are no reason to compile; ``scons -c`` removes them."""
    settings(project)
    project.build()
    settings(project, ON)
    project.assert_up_to_date()
    assert pchs(project) == []
    project.build("-c")
    project.build()
    assert len(pchs(project)) == 3
    shutil.rmtree(project.folder / PCH_FOLDER)
    project.assert_up_to_date()
    (project.folder / PCH_FOLDER).mkdir()
    project.build("-c")
    assert not (project.folder / PCH_FOLDER).exists()


def test_copied_checkout(project: Project, tmp_path: Path) -> None:
    """A copy of a checkout does not use the original's PCHs, nor depend on its files."""
    settings(project, ON, "env.Replace(OFFLOAD_ARCH='gfx906', OFFLOAD_LAUNCHER='')")
    project.build()
    copy = Project(tmp_path / "copy")
    shutil.copytree(project.folder, copy.folder)
    for name in SOURCES:
        text = (copy.folder / f"{name}.hip").read_text()
        copy.write(f"{name}.hip", text.replace("+ OWN", "- OWN"))
    assert summary(copy.run()) == "6 compiles with, 0 without"
    shutil.rmtree(project.folder)
    copy.assert_up_to_date()
    assert str(project.folder) not in (copy.folder / ".a.gfx906.co.manifest").read_text()


def test_check(project: Project) -> None:
    """``OFFLOAD_PCH_CHECK`` compiles again without, each Nth; a difference is an error by name."""
    settings(project, ON, "env.Replace(OFFLOAD_PCH_CHECK=3, OFFLOAD_ARCH='gfx906')")
    assert len(project.build()) == 6 + 2
    project.build("-c")
    # A compiler that goes wrong with a precompiled header.
    clang = program("clang-22")
    wrong = project.script(
        "clang",
        f'#!/bin/sh\ncase "$*" in *-include-pch*) set -- -DOWN=9 -w "$@";; esac\n'
        f'exec {clang} "$@"\n',
    )
    project.write("own.h", "#ifndef OWN\n#define OWN 1\n#endif\n")
    lines = f"env.Replace(OFFLOAD_PCH_CHECK=1, OFFLOAD_CLANG={str(wrong)!r})"
    settings(project, ON, lines, "env.Replace(OFFLOAD_LAUNCHER='')")
    assert "with a precompiled header it has other bytes than without" in project.fails().errors


BEGINS = {
    "a": ("x", "y", "z"),
    "b": ("x", "y", "z"),
    "c": ("x", "y", "z", "w"),
    "d": ("x", "y"),
    "e": ("x",),
    "f": ("x", "v"),
    "g": (),
}


SIZES = {"x": 40, "y": 5, "z": 150, "v": 1, "w": 1}


@pytest.mark.parametrize(
    ("wanted", "sizes", "expected"),
    [
        (True, {}, {"a": 3, "b": 3, "c": 3, "d": 1, "e": 1, "f": 1, "g": 0}),
        (True, {"x": 100}, {"a": 1, "b": 1, "c": 1, "d": 1, "e": 1, "f": 1, "g": 0}),
        (("x", "y"), {}, {"a": 2, "b": 2, "c": 2, "d": 2, "e": 0, "f": 0, "g": 0}),
        (("x", "v"), {}, dict.fromkeys(BEGINS, 0)),
        (("y",), {}, dict.fromkeys(BEGINS, 0)),
    ],
)
def test_shared_headers(
    wanted: tuple[str, ...] | bool, sizes: dict[str, int], expected: dict[str, int]
) -> None:
    """Sources share what saves most: more of their beginnings, or with more others."""
    candidates = {
        name: [Candidate(tuple(f"<{x}>" for x in all_[:at]), at) for at in range(1, len(all_) + 1)]
        for name, all_ in BEGINS.items()
    }
    every = {**SIZES, **sizes}
    found = shared_headers(
        candidates, wanted, lambda headers: sum(every[each[1:-1]] for each in headers)
    )
    assert {name: found[name].end if name in found else 0 for name in BEGINS} == expected


def outputs(project: Project) -> dict[str, str]:
    """Return the digests of code objects and host objects."""
    files = [*project.folder.glob("*.co"), *project.folder.glob("*.o")]
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


@pytest.mark.llvm
def test_behind_caches(project: Project, cache: Cache, tmp_path: Path) -> None:
    """What is removed comes from the cache; after a header's change nothing old does."""
    each_source = 1 if "sccache" in cache.launcher else 2  # it hits for one pass only, as without
    settings(project, ON, ONE, cache.settings())
    plain = checkout(project, tmp_path / "plain")
    settings(plain, ONE)

    def same() -> str:
        run = project.done()
        plain.build()
        assert outputs(project) == outputs(plain)
        return summary(run)

    assert same() == "6 compiles with, 0 without"
    assert cache.hits() == 0
    project.build("-c")
    assert same() == "6 compiles with, 0 without"
    assert cache.hits() == 3 * each_source
    for each in (project, plain):
        each.write("second/header.h", HEADER.replace("return v + v", "return v - v"))
    assert same() == "6 compiles with, 0 without"
    assert cache.hits() == 3 * each_source
    for number in (1, 2, 3):  # with a precompiled header of its own
        for each in (project, plain):
            text = BODY.replace("NAME", "a").replace("+ OWN", f"+ {number}")
            each.write("a.hip", f"{BEGIN}#include <empty.h>\n{text}")
        assert same() == "2 compiles with, 0 without"
    assert cache.hits() == 3 * each_source
    for each in (project, plain):
        text = BODY.replace("NAME", "a").replace("+ OWN", "+ 2")
        each.write("a.hip", f"{BEGIN}#include <empty.h>\n{text}")
    same()
    assert cache.hits() == 4 * each_source
