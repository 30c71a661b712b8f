"""What a CacheDir gives, and what is bundled and linked, is what a compile of these files made."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.scons.conftest import (
    ALL,
    BODY,
    BOTH,
    KERNEL,
    ONE,
    TWO,
    Project,
    checkout,
    contents,
    passes,
)
from tests.scons.judging import assert_as_clean_build, compiler_script
from tests.zygote import killed_scons

BUNDLE = "env.OffloadBundle('k.hipfb', 'k.hip')\nenv.OffloadHostObject('k.hip')\n"
OUTPUTS = ["k.gfx906.co", "k.gfx90a_xnack+.co", "k.hipfb", "k.host.o"]

VALUE = "#include <value.h>\n"
I_FOLDER = "env['CCFLAGS'] = ['-Ii']\n"
FOUND = {  # a source, a setting, and a file by which the code differs
    "CCFLAGS=-I": (VALUE, I_FOLDER, "i/value.h", "#define HERE {}\n"),
    "CPATH": (VALUE, "env['ENV']['CPATH'] = 'i'\n", "i/value.h", "#define HERE {}\n"),
    "configuration file": (
        *("", "env['CCFLAGS'] = ['--config', './f.cfg']\n"),
        *("included/g.cfg", "-DHERE={}\n"),
    ),
}
"""`test_unseen_inputs` has more ways in which a source finds a file."""


def prepare(project: Project, head: str, setting: str) -> None:
    project.write("h/no.h", "")
    project.write("i/value.h", ONE)
    project.write("k.hip", head + BODY)
    cache = str(project.folder.parent / "cache")
    project.sconstruct(f"env.CacheDir({cache!r})\n" + setting + BUNDLE)


@pytest.mark.parametrize(("head", "setting", "file", "text"), FOUND.values(), ids=FOUND.keys())
def test_other_checkout(
    project: Project, tmp_path: Path, head: str, setting: str, file: str, text: str
) -> None:
    """Another checkout takes all if its files are the same, and nothing if they are not."""
    prepare(project, head, setting)
    project.write("f.cfg", "@included/g.cfg\n")
    project.write(file, text.format(1))
    assert project.build() == ALL
    same = checkout(project, tmp_path / "deep/other")
    assert same.build() == []
    assert contents(same.folder, OUTPUTS) == contents(project.folder, OUTPUTS)
    same.assert_up_to_date()
    same.write(file, text.format(2))
    assert same.build_once() == ALL
    assert contents(same.folder, ["k.hipfb"]) != contents(project.folder, ["k.hipfb"])
    different = checkout(project, tmp_path / "deep/different")
    different.write(file, text.format(3))
    assert different.build() == ALL
    assert_as_clean_build(different, OUTPUTS)


def test_nothing_old_is_fetched(project: Project) -> None:
    """Where a compile fails, the cache's result of what was there before is not fetched."""
    prepare(project, VALUE, I_FOLDER)
    project.build()
    project.write("i/value.h", "#error no value\n")
    assert "Retrieved" not in project.fails("-k").output
    assert not [*project.folder.glob("k.*o")]


def test_links_and_copies_have_entries_of_their_own(project: Project, tmp_path: Path) -> None:
    """A header that is a link in one checkout and a copy in another does not share its entry."""
    prepare(project, '#include "i/a.h"\n#include "i/b.h"\n' + ONE, "")
    project.write("i/a.h", "/* no guard */\n")
    (project.folder / "i/b.h").symlink_to("a.h")
    assert project.build() == ALL
    for name, built in (("first", ALL), ("second", [])):
        copy = checkout(project, tmp_path / "deep" / name)
        (copy.folder / "i/b.h").unlink()
        copy.write("i/b.h", "/* no guard */\n")
        assert copy.build() == built, name


def test_header_that_appears(project: Project, tmp_path: Path) -> None:
    """A header that goes before the found one makes other code, in the cache as well."""
    prepare(project, "#include <value.h>\n", "env['CCFLAGS'] = ['-Ih', '-Ii']\n")
    assert project.build() == ALL
    other = checkout(project, tmp_path / "deep/other")
    other.write("h/value.h", TWO)
    assert other.build() == ALL
    assert_as_clean_build(other, OUTPUTS)
    (other.folder / "h/value.h").unlink()
    assert other.build() == []
    assert contents(other.folder, OUTPUTS) == contents(project.folder, OUTPUTS)


def test_damaged_entry(project: Project) -> None:
    """An entry of the cache that was cut off is not taken for an output, nor for a program."""
    prepare(project, "#include <value.h>\n", "env['CPPPATH'] = ['i']\n")
    with (project.folder / "SConstruct").open("a") as sconstruct:
        sconstruct.write("env.OffloadSharedLibrary('s', ['k.hip', 'runtime.c'])\n")
    assert project.build() != []
    before = contents(project.folder, [*OUTPUTS, "libs.so", "runtime.pic.o"])
    for file in sorted((project.folder.parent / "cache").rglob("*")):
        if file.is_file() and file.read_bytes() in before.values():
            _cut(file)
    project.build("-c")
    project.build()
    assert contents(project.folder, [*before]) == before


def test_cache_that_is_filled_afterwards(project: Project) -> None:
    """A CacheDir that ``--cache-force`` fills from current outputs serves all classes of them."""
    body = "env.OffloadProgram('prog', 'runtime.c')\nenv.OffloadDeviceObject('k.hip')\n"
    project.sconstruct("CacheDir('cache')\n" + body)
    project.build("--cache-disable")
    project.build("--cache-force")
    project.build("-c")
    assert not [action for action in project.done().actions if "Retrieved" not in action]


PROGRAM = "env.OffloadProgram('prog', ['k.hip', 'runtime.c'])\n"


def _cut(file: Path) -> None:
    file.chmod(0o644)
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


REGION = "int f(void) {\n  int v = 0;\n#pragma omp target map(v)\n  v = 1;\n  return v;\n}\n"
OPENMP = "env.OffloadDeviceObject('o.c')\nenv.OffloadHostObject('o.c')\n"
MADE = {  # the outputs, and what is compiled if one is damaged
    "HIP": (
        PROGRAM,
        {
            "k.gfx906.co": ["k.hip gfx906"],
            "k.host.o": ["k.hip host"],
            **{name: [] for name in ("k.hipfb", "prog", "runtime.o")},
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
    project.write("o.c", REGION)
    project.sconstruct(body).build()
    before = contents(project.folder, [*made])
    for name, compiled in made.items():
        _cut(project.folder / name)
        assert project.build_once() == compiled, name
        assert contents(project.folder, [*made]) == before, name


KILLED = {
    "scons": ("before", "z", "touch ../here; sleep 300"),
    "clang": ("after", "k", 'truncate -s 100 "$out"; kill -9 $$'),
}


@pytest.mark.parametrize("killed", KILLED)
def test_killed_build_of_an_edit_that_is_undone(project: Project, killed: str) -> None:
    """After kill -9, what had been made of edits is made again, if they are undone."""
    when, source, what = KILLED[killed]
    case = f'case "$out" in {source}.gfx906.*) [ ! -e ../now ] || {{ {what}; }};; esac'
    project.environment["OFFLOAD_CLANG"] = compiler_script(project, "script", **{when: case})
    project.write("z.hip", KERNEL.replace("kernel", "last").replace("host_value", "other"))
    project.sconstruct(PROGRAM + "env.OffloadDeviceObject('z.hip')\n").build("-j1")
    outputs = ["k.gfx906.co", "k.host.o", "prog", "runtime.o"]
    before = contents(project.folder, outputs)
    texts = {name: project.read(name).decode() for name in ("k.hip", "runtime.c", "z.hip")}
    for name, text in texts.items():
        project.write(name, text.replace("VALUE", "2 * VALUE") + f"int more_{name[0]} = 1;\n")
    now, here = (project.folder.parent / name for name in ("now", "here"))
    now.touch()
    killed_scons(["-k", "-j1"], here, cwd=project.folder, env=project.environment)
    now.unlink()
    made = [*project.folder.glob("k.gfx906.*")]
    assert (here.exists(), bool(made)) == ((killed == "scons"),) * 2
    if made:
        assert not contents(project.folder, outputs).items() & before.items()
    for name, text in texts.items():
        project.write(name, text)
    project.build_once("-j1")
    assert contents(project.folder, outputs) == before


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
