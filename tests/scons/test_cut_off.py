"""The cut-off: where the bitcode is as it was, the backend does not run and the output stays.

Judge of all bytes: a build of the same sources without the cut-off, in a folder of its own.
"""

from __future__ import annotations

import json
import shutil
import sys

import pytest

from tests.conftest import as_ordinary_user, run_tool
from tests.scons.conftest import SCONSTRUCT, Project, checkout

OUTPUT = "k.gfx906.co"
HEAD = SCONSTRUCT.replace('["gfx906", "gfx90a:xnack+"]', '["gfx906"]') + (
    "from offload_tool.manifest import cut_off\n"
    "cut_off._TOO_SHORT = 0\n"
    "env.Replace(OFFLOAD_LAUNCHER='', OFFLOAD_SUMMARY=True)\n"
    "env.Append(CCFLAGS=['-O2', '-Wall'])\n"
)
BODY = "env.OffloadBundle('k.hip')\n"
SOURCE = """\
#include "h.h"
struct dim3 { unsigned x, y, z; };
extern "C" int hipLaunchKernel(const void*, dim3, dim3, void**, unsigned long, struct stream*);
__attribute__((global)) void kernel(float* p, float x) { *p = *p * x + scaled(*p); }
int host_value() { return 1; }
"""
HEADER = """\
#define FACTOR 1
static inline __attribute__((device)) float scaled(float x) {
#pragma clang fp contract(off)
    float y = x * 3.5f;
    return y + FACTOR;
}
"""


@pytest.fixture
def built(project: Project) -> Project:
    """Return a project whose manifest has the digest of its bitcode."""
    project.write("h.h", HEADER)
    project.write("k.hip", SOURCE)
    project.sconstruct(BODY, HEAD)
    assert outcome(project) == "compiled"
    project.edit("k.hip", "", "// the second compile is of two stages\n")
    assert outcome(project) == "compiled"
    return project


def outcome(project: Project, count: int = 1, target: str = "gfx906") -> str:
    """Build; return what became of the pass for a target, or of several, by the summary."""
    run = project.done("-Q")
    header, row = (
        line
        for line in run.output.splitlines()
        if line.split()[:2] in (["offload:", "target"], ["offload:", target])
    )
    columns = [name.strip() for name in header.split("target ID", 1)[1].split("  ") if name.strip()]
    counts = dict(zip(columns, row.split()[2:], strict=True))
    return next(name for name in columns if counts[name] == str(count))


def assert_as_without(project: Project, *names: str) -> None:
    """Check that outputs are those of a clean build without the cut-off."""
    clean = checkout(project, project.folder.parent / "clean")
    clean.edit("SConstruct", BODY, f"env.Replace(OFFLOAD_CUTOFF=False, OFFLOAD_PCH=False)\n{BODY}")
    clean.build()
    for name in names or (OUTPUT, "k.hipfb"):
        assert project.read(name) == clean.read(name), name
    shutil.rmtree(clean.folder)


@pytest.mark.parametrize(
    ("change", "device", "host"),
    [
        (("h.h", "", "// a comment\n"), "front end only", "front end only"),
        (("h.h", "FACTOR 1", "FACTOR 2"), "compiled", "front end only"),
        (("k.hip", "return 1", "return 2"), "front end only", "compiled"),
    ],
)
def test_edits_of_objects(
    project: Project, change: tuple[str, str, str], device: str, host: str
) -> None:
    """The host's pass is cut off, too; its object is linked again if either has changed."""
    project.write("h.h", HEADER)
    project.write("k.hip", SOURCE)
    project.sconstruct(f"env.OffloadObject('k.hip')\n{BODY}", HEAD)
    project.build()
    project.edit("k.hip", "", "// the second compile is of two stages\n")
    project.build()
    project.edit(*change)
    outputs = {OUTPUT: device, "k.host.o": host}
    files = [project.folder / each for each in (*outputs, "k.o")]
    before = [file.stat().st_mtime_ns for file in files]
    assert outcome(project, target="host") == host
    kept = [file.stat().st_mtime_ns == was for file, was in zip(files, before, strict=True)]
    expected = [each == "front end only" for each in outputs.values()]
    assert kept == [*expected, all(expected)]
    assert_as_without(project, OUTPUT, "k.host.o", "k.o")
    project.assert_up_to_date()
    name, _, new = change
    if all(expected):
        project.edit(name, new, "")
        project.assert_up_to_date()


def test_output_that_may_not_be_written(project: Project) -> None:
    """An object that this user may not write is removed first, as SCons does with all outputs."""
    project.write("h.h", HEADER)
    project.write("k.hip", SOURCE)
    project.sconstruct("env.OffloadHostObject('k.hip')\n", HEAD).build()
    project.edit("k.hip", "", "// the second compile is of two stages\n")
    project.build()
    (project.folder / "k.host.o").chmod(0o444)
    before = project.read("k.host.o")
    project.edit("k.hip", "return 1", "return 2")
    command = as_ordinary_user(sys.executable, "-m", "SCons")
    run_tool(*command, cwd=project.folder, env=project.environment)
    assert project.read("k.host.o") != before


def test_messages_of_the_backend_are_printed_each_time(built: Project) -> None:
    """A backend that prints something runs in each build of the pass; a front end is heard."""
    built.edit("SConstruct", "'-Wall'", "'-Wall', '-Rpass=inline'")
    for texts in (("", "// one\n"), ("", "// two\n"), ("// two\n", "")):
        built.edit("k.hip", *texts)
        run = built.run("-Q")
        assert run.status == 0
        assert ":72: remark: '_ZL6scaledf' inlined into" in run.errors
        assert "front end only" in run.output
        assert run.output.count("offload: gfx906            1 ") == 1
    built.edit("SConstruct", ", '-Rpass=inline'", "")
    built.edit("k.hip", "return 1", "int unused; return 1")
    assert outcome(built) == "compiled"
    built.edit("k.hip", "", "// three\n")
    assert built.run("-Q").errors.count("unused variable 'unused'") == 1


def test_seconds_of_the_stages(built: Project) -> None:
    """The summary for CI has the seconds of the front end beside those of the pass."""
    built.edit("SConstruct", "OFFLOAD_SUMMARY=True", "OFFLOAD_SUMMARY='#summary.json'")
    built.edit("k.hip", "", "// a comment\n")
    assert outcome(built) == "front end only"
    value = json.loads((built.folder / "summary.json").read_text())
    (found,) = value["passes"]
    assert 0 < found["front_end_seconds"] <= found["seconds"]


def test_variable(built: Project) -> None:
    """OFFLOAD_CUTOFF=False compiles each change to the end."""
    built.edit("SConstruct", "OFFLOAD_SUMMARY=True", "OFFLOAD_SUMMARY=True, OFFLOAD_CUTOFF=False")
    built.edit("k.hip", "", "// a comment\n")
    assert outcome(built) == "compiled"


def test_check(built: Project) -> None:
    """OFFLOAD_CUTOFF_CHECK=True runs the backend, too; another output is an error by name."""
    built.edit(
        "SConstruct", "OFFLOAD_SUMMARY=True", "OFFLOAD_SUMMARY=True, OFFLOAD_CUTOFF_CHECK=True"
    )
    built.edit("k.hip", "", "// a comment\n")
    assert outcome(built) == "compiled"
    wrong = "cut_off._TOO_SHORT = 0\ncut_off.digest_of = lambda data: 'equal'\n"
    built.edit("SConstruct", "cut_off._TOO_SHORT = 0\n", wrong)
    built.edit("k.hip", "", "// another\n")
    assert outcome(built) == "compiled"
    built.edit("k.hip", "*p * x", "*p + x")
    assert (
        f"'{OUTPUT}': without the backend the output before stays, which has"
        in built.fails().errors
    )
    built.edit("SConstruct", "OFFLOAD_CUTOFF_CHECK=True", "OFFLOAD_CUTOFF=False")
    assert outcome(built) == "compiled"


def test_precompiled_header(built: Project) -> None:
    """Bitcode is compared with that of a precompiled header, too; the header may be a new one."""
    source = SOURCE.replace('"h.h"', "<h.h>")
    for name in ("k", "l", "m"):
        built.write(f"{name}.hip", source.replace("kernel(", f"kernel_{name}("))
    pch = "env.Replace(OFFLOAD_PCH=['h.h'], CPPPATH=['#'])\n"
    more = "env.OffloadBundle('l.hip')\nenv.OffloadBundle('m.hip')\n"
    built.edit("SConstruct", BODY, f"{pch}{BODY}{more}")
    assert outcome(built, 3) == "compiled"
    built.edit("h.h", "", "// the second compile is of two stages\n")
    assert built.run("-Q").status == 0
    assert (
        len([*(built.folder / ".offload-pch").glob("gfx906*.pch")]) == 2
    )  # of the last two states
    for name, change, count, expected in (
        ("k.hip", ("", "// a comment\n"), 1, "front end only"),
        ("h.h", ("", "// a comment\n"), 3, "front end only"),
        ("h.h", ("FACTOR 1", "FACTOR 2"), 3, "compiled"),
        ("k.hip", ("* x +", "* x -"), 1, "compiled"),
    ):
        built.edit(name, *change)
        assert outcome(built, count) == expected
        assert_as_without(built)
    built.assert_up_to_date()
    built.edit("k.hip", "", "// a comment\n")
    run = built.run("-Q")
    assert "precompiled headers: 1 compiles with, 0 without" in run.output
    assert " 0               1 " in run.output
