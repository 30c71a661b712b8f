"""Only what a compile of the present sources has made is bundled, embedded and linked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.scons.conftest import BOTH, KERNEL, ONE, TWO, Project, contents, passes
from tests.scons.judging import assert_as_clean_build, compiler_script
from tests.zygote import killed_scons

PROGRAM = "env.OffloadProgram('prog', ['k.hip', 'runtime.c'])\n"
BODY = '#include "value.h"\n' + KERNEL.replace("VALUE", "HERE")
BODY = BODY.replace("return 1", "return HERE")
OUTPUTS = ["k.gfx906.co", "k.gfx90a_xnack+.co", "k.host.o", "k.hipfb", "k.fatbin.o", "prog"]


@pytest.fixture
def built(project: Project) -> Project:
    project.write("value.h", ONE)
    project.write("k.hip", BODY)
    project.sconstruct(PROGRAM).build()
    return project


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


REGION = "int f(void) {\n  int v = 0;\n#pragma omp target map(v)\n  v = 1;\n  return v;\n}\n"
OPENMP = "env.OffloadDeviceObject('o.c')\nenv.OffloadHostObject('o.c')\n"
MADE = {  # what is built, and the outputs, with what is compiled if one is damaged
    "HIP": (
        PROGRAM,
        {
            "k.gfx906.co": ["k.hip gfx906"],
            "k.host.o": ["k.hip host"],
            "k.hipfb": [],
            "prog": [],
            "runtime.o": [],
        },
    ),
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
    project.write("value.h", ONE)
    project.write("k.hip", BODY)
    project.write("o.c", REGION)
    project.sconstruct(body).build()
    before = contents(project.folder, [*made])
    for name, compiled in made.items():
        _cut(project.folder / name)
        assert project.build_once() == compiled, name
        assert contents(project.folder, [*made]) == before, name


@pytest.mark.parametrize("target", ["host", "gfx906"])
def test_compiler_killed_while_it_writes(built: Project, target: str) -> None:
    """Half of an output, of a compiler that was killed, goes; the edit undone, all is as before."""
    before = contents(built.folder, OUTPUTS)
    die = (
        f'case "$out" in *k.{target}.*) [ ! -e ../die ] || '
        '{ truncate -s 100 "$out"; kill -9 $$; };; esac'
    )
    built.environment["OFFLOAD_CLANG"] = compiler_script(built, "dying", after=die)
    built.build()
    (built.folder / "../die").touch()
    built.sconstruct(PROGRAM.replace("env.", "env['OFFLOAD_LAUNCHER'] = ''\nenv.", 1))
    built.write("value.h", TWO)
    assert built.run("-k").status != 0
    assert not list(built.folder.glob(f"k.{target}.*"))
    (built.folder / "../die").unlink()
    built.write("value.h", ONE)
    built.build()
    assert contents(built.folder, OUTPUTS) == before
    built.assert_up_to_date()


def _killed_build(project: Project, name: str, edit: Callable[[], object]) -> None:
    """Edit, let scons build until it compiles for the output `name`, and kill all of it."""
    here = project.folder.parent / "here"
    wait = f'case "$out" in *{name}*) [ ! -e ../wait ] || {{ touch {here}; sleep 300; }};; esac'
    project.environment["OFFLOAD_CLANG"] = compiler_script(project, "waiting", before=wait)
    project.build()
    (project.folder / "../wait").touch()
    edit()
    killed_scons(["-j1"], here, cwd=project.folder, env=project.environment)
    assert here.exists()
    (project.folder / "../wait").unlink()


@pytest.mark.parametrize("undone", [False, True])
def test_killed_scons(built: Project, undone: bool) -> None:
    """After kill -9, the next run goes on where that one was; edits that are undone count, too."""
    built.write("z.hip", KERNEL.replace("kernel", "last").replace("host_value", "other"))
    built.sconstruct(PROGRAM + "env.OffloadDeviceObject('z.hip')\n").build("-j1")
    outputs = [*OUTPUTS, "runtime.o"]
    before = contents(built.folder, outputs)
    texts = {name: (built.folder / name).read_text() for name in ("value.h", "runtime.c", "z.hip")}

    def edit() -> None:
        built.write("value.h", TWO)
        built.write("runtime.c", texts["runtime.c"] + "int more = 1;\n")
        built.write("z.hip", texts["z.hip"] + "int more = 2;\n")

    _killed_build(built, "z.gfx906", edit)
    after = contents(built.folder, outputs)
    assert after["prog"] != before["prog"]
    assert after["runtime.o"] != before["runtime.o"]
    for name, text in texts.items() if undone else ():
        built.write(name, text)
    built.build("-j1")
    assert (contents(built.folder, outputs) == before) == undone
    assert_as_clean_build(built, outputs)
    built.assert_up_to_date()


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
