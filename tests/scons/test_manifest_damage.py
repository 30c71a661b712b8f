"""Only what a compile of the present sources has made is bundled, embedded and linked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.scons.conftest import BOTH, Project, contents, passes
from tests.scons.judging import compiler_script

PROGRAM = "env.OffloadProgram('prog', ['k.hip', 'runtime.c'])\n"


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


REGION = "int f(void) {\n  int v = 0;\n#pragma omp target map(v)\n  v = 1;\n  return v;\n}\n"
OPENMP = "env.OffloadDeviceObject('o.c')\nenv.OffloadHostObject('o.c')\n"
# The outputs, and what is compiled if one is damaged; tests/driver damages those of HIP.
MADE = {
    "relocatable": (
        "env['OFFLOAD_RDC'] = True\n" + PROGRAM,
        {"k.gfx906.bc": ["k.hip gfx906"], "prog.gfx906.co": [], "prog.hipfb": []},
    ),
    "OpenMP": (
        "env.Replace(OFFLOAD_KIND='openmp', OFFLOAD_ARCH=['gfx906'])\n" + OPENMP,
        {
            "o.host.bc": ["o.c host-ir"],
            "o.gfx906.bc": ["o.c gfx906"],
            "o.host.o": ["o.host.bc host"],
        },
    ),
}


@pytest.mark.parametrize(("body", "made"), MADE.values(), ids=MADE.keys())
def test_damaged_output(project: Project, body: str, made: dict[str, list[str]]) -> None:
    """A damaged output is made again, by no more compiles than that one; the next run is quiet."""
    project.write("o.c", REGION)
    project.sconstruct(body).build()
    before = contents(project.folder, [*made])
    for name, compiled in made.items():
        _cut(project.folder / name)
        assert project.build_once() == compiled, name
        assert contents(project.folder, [*made]) == before, name


@dataclass(frozen=True)
class Beside:
    """Flags with which a compile writes a file beside its output, and what that is called."""

    flags: list[str]
    file: str
    compiled: str = "host"
    is_own: bool = True
    """It is named after the output."""


BESIDE = {
    "split DWARF": Beside(["-g", "-gsplit-dwarf"], "k.host.dwo"),
    "report": Beside(["-fsave-optimization-record"], "k.gfx906.opt.yaml", compiled="gfx906"),
    "temporary of lld": Beside(
        ["--save-temps"], "k.gfx906.co.resolution.txt", compiled="gfx906", is_own=False
    ),
    "in a file of flags": Beside(["@flags"], "k.host.dwo"),
}


@pytest.mark.parametrize("case", BESIDE.values(), ids=BESIDE.keys())
def test_file_beside_the_output(project: Project, case: Beside) -> None:
    """What a compile writes beside its output is made again where it is gone or damaged."""
    project.write("flags", "-g -gsplit-dwarf\n")
    assert project.sconstruct(
        f"env.Append(CCFLAGS={case.flags!r})\n"
        "env.OffloadDeviceObject('k.hip')\nenv.OffloadHostObject('k.hip')\n"
    ).build_once() == passes("k.hip", "host", *BOTH)
    file = project.folder / case.file
    file.unlink()
    assert project.build() == passes("k.hip", case.compiled)
    assert file.exists()
    project.assert_up_to_date()
    _cut(file)
    assert project.build_once() == (passes("k.hip", case.compiled) if case.is_own else [])
    file.unlink()
    assert project.build() == passes("k.hip", case.compiled)


def test_kept_temporaries_are_of_one_compile(project: Project) -> None:
    """Compiles that keep temporaries of one name take turns: each job reads what was written."""
    project.write("o.c", REGION)
    before = "mkdir ../turn 2>/dev/null || touch ../together\nsleep 0.3"
    project.environment["OFFLOAD_CLANG"] = compiler_script(
        project, "slow", before=before, after="rmdir ../turn"
    )
    project.sconstruct(
        "env.Replace(OFFLOAD_KIND='openmp', OFFLOAD_ARCH=['gfx906', 'gfx90a'])\n"
        "env.Replace(CCFLAGS=['--save-temps'])\n" + OPENMP
    )
    assert len(project.build("-j4")) == 4
    assert not (project.folder / "../together").exists()
    project.assert_up_to_date()
    project.build("-c")
    assert len(project.build("-j4")) == 4
