"""A file that is saved while clang compiles is not taken for compiled."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pytest

from tests.scons.conftest import KERNEL, ONE, TWO, Project, contents
from tests.scons.judging import assert_as_clean_build, compiler_script

NODES = "env.OffloadBundle('k.hip')\nenv.OffloadHostObject('k.hip')\n"
OUTPUTS = ["k.gfx906.co", "k.gfx90a_xnack+.co", "k.hipfb", "k.host.o"]


def test_saved_during_a_compile(project: Project) -> None:
    """One run after a file was saved in mid-compile, all outputs are of the saved file."""
    project.write("include/value.h", ONE)
    project.write("k.hip", "#include <value.h>\n" + KERNEL.replace("VALUE", "HERE"))
    save = "[ ! -e new ] || mv new include/value.h"
    project.environment["OFFLOAD_CLANG"] = compiler_script(project, "saving", before=save)
    project.sconstruct("env.Decider('timestamp-match')\nenv['CCFLAGS'] = ['-Iinclude']\n" + NODES)
    project.write("new", TWO)
    project.run("-j1")  # may fail, and say that the file was changed
    assert not (project.folder / "new").exists()
    project.build("-j1")
    assert_as_clean_build(project, OUTPUTS)
    project.assert_up_to_date()


@dataclass(frozen=True)
class Meanwhile:
    """What happens after the compiler has read everything, and before it is done."""

    line: str
    """Of shell; once, when there is a file or folder ``new``."""
    files: Mapping[str, str]
    flags: tuple[str, ...] = ("-Ifirst", "-Isecond")
    head: str = "#include <value.h>\n"


SECOND = {"second/value.h": ONE, "first/no": "", "new": TWO}
MEANWHILE = {
    "header that goes before another": Meanwhile("mv new first/value.h", SECOND),
    "configuration file": Meanwhile(
        "mv new first/f.cfg",
        {"second/f.cfg": "-DHERE=1\n", "first/no": "", "new": "-DHERE=2\n"},
        ("--config-user-dir=first", "--config-system-dir=second", "--config=f.cfg"),
        head="",
    ),
}


def by_scons(project: Project, flags: tuple[str, ...]) -> None:
    project.sconstruct(f"env.Append(CCFLAGS={[*flags]!r})\n" + NODES).done("-j1")


def by_compile(project: Project, flags: tuple[str, ...]) -> None:
    passes = {OUTPUTS[0]: ["--target-id", "gfx906"], OUTPUTS[3]: ["--host"]}
    for output, which in passes.items():
        command = [sys.executable, "-m", "offload_tool", "compile", "k.hip", "-o", output, *which]
        command += ["--", "-nogpuinc", "-nogpulib", "-DVALUE=1", *flags]
        subprocess.run(command, cwd=project.folder, env=project.environment, check=True)


@pytest.mark.parametrize(
    ("before", "build"), [(0, by_compile), (1, by_scons)], ids=["first build", "second build"]
)
@pytest.mark.parametrize("case", MEANWHILE.values(), ids=MEANWHILE.keys())
def test_what_is_found_changes_during_a_compile(
    project: Project,
    case: Meanwhile,
    before: int,
    build: Callable[[Project, tuple[str, ...]], None],
) -> None:
    """What comes, or leads elsewhere, after the compiler has looked is seen by the next build."""
    for name, text in case.files.items():
        if before and name.split("/")[0] == "new":
            continue
        project.write(name, text)
    project.environment["OFFLOAD_CLANG"] = compiler_script(
        project,
        "changing",
        after=f'case "$*" in *k.hip*) [ ! -e new ] || {{ {case.line}; }};; esac',
    )
    project.write("k.hip", case.head + KERNEL.replace("VALUE", "HERE"))
    if before:
        build(project, case.flags)
        for name, text in case.files.items():
            project.write(name, text)
        project.write("k.hip", case.head + KERNEL.replace("VALUE", "HERE + 5"))
    build(project, case.flags)
    assert not (project.folder / "new").exists()
    build(project, case.flags)
    outputs = [OUTPUTS[0], OUTPUTS[3]]
    found = contents(project.folder, outputs)
    for name in outputs:
        (project.folder / name).unlink()
    build(project, case.flags)
    expected = contents(project.folder, outputs)
    assert [name for name in outputs if found[name] != expected[name]] == []
