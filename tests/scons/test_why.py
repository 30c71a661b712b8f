"""`offload-tool why`: real edits, each told in words before and after the build."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.scons.conftest import KERNEL, Project

NODES = "env.Append(CPPPATH=['one', 'two'])\nenv.OffloadDeviceObject('k.hip')\n"
OUTPUT = "k.gfx906.co"
CACHE = "CacheDir('cache')\n"


@pytest.fixture
def built(project: Project) -> Project:
    """Return a project with a header in the second folder of headers, built."""
    project.write("two/h.h", "#define ADD 1\n")
    project.write("one/other.h", "")
    project.write("k.hip", '#include "h.h"\n' + KERNEL)
    project.sconstruct(NODES).build()
    return project


def why(project: Project, *outputs: str) -> tuple[int, list[str]]:
    """Return the exit status and the lines of the command."""
    done = project.tool("why", *(outputs or (OUTPUT,)))
    assert "Traceback" not in done.stderr
    return done.returncode, (done.stdout or done.stderr).splitlines()


def change_flag(project: Project) -> None:
    project.sconstruct("env.Append(CCFLAGS=['-DADDED=2'])\n" + NODES)


EDITS: dict[str, tuple[Callable[[Project], object], str, str]] = {
    "a header that appears earlier": (
        lambda p: p.write("one/h.h", "#define ADD 3\n"),
        ": not sure: 'one/h.h' may be read now; the next build asks the preprocessor",
        "'one/h.h' may be read now",
    ),
    "a flag": (change_flag, ": current", "its command changed (with -DADDED=2)"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_edits(built: Project, edit: str) -> None:
    """Before the build, the state of the files; after it, why it ran."""
    assert why(built)[0] == 0
    change, before, after = EDITS[edit]
    change(built)
    status, lines = why(built)
    assert lines[0] == OUTPUT + before
    assert status == int(before != ": current")
    assert built.build()
    status, lines = why(built)
    assert (status, lines[0]) == (0, f"{OUTPUT}: current")
    assert lines[1] == f"  compiled because: {after}"


def test_what_it_was_made_of(built: Project) -> None:
    """The project's files by name, from any folder; others are counted."""
    status, lines = why(Project(built.folder / "two", built.environment), f"../{OUTPUT}")
    assert status == 0
    assert lines[0] == f"../{OUTPUT}: current"
    assert "  made of: k.hip, two/h.h" in lines
    assert lines[1] == "  compiled because: it has no manifest of an earlier compile"


def test_misses_of_a_cache(built: Project) -> None:
    """A CacheDir's nearest result, and which of its inputs is another one."""
    built.sconstruct(CACHE + NODES)
    (built.folder / OUTPUT).unlink()
    built.build()
    assert why(built)[1][1].endswith("no result of this command is in the CacheDir")
    built.write("two/h.h", "#define ADD 4\n")
    built.build()
    assert why(built)[1][1] == (
        "  compiled because: 'two/h.h' changed; the nearest result in the CacheDir has 1 other "
        "file: 'two/h.h' changed"
    )
    built.write("two/h.h", "#define ADD 1\n")
    assert "k.hip gfx906" not in built.build()
    assert why(built)[1][1].endswith("; a CacheDir had the result")


def test_no_manifest(built: Project) -> None:
    """Files that no compile has made are refused by name."""
    status, lines = why(built, "k.hip")
    assert status == 1
    assert "'k.hip': no manifest (.k.hip.manifest) of this version is there" in lines[0]
