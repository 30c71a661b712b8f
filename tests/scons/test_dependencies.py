"""Dependencies are exact: no change is missed, and a second build does nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conftest import program
from tests.scons.conftest import (
    ALL,
    BODY,
    BOTH,
    KERNEL,
    NODES,
    ONE,
    RUNTIME,
    SCONSTRUCT,
    TWO,
    Project,
    empty_project,
    passes,
)
from tests.scons.test_openmp import HEAD as OPENMP
from tests.scons.test_openmp import REGION

FOLDERS = "env['CPPPATH'] = ['first', 'second']\n"
VALUED = "#include <value.h>\n" + BODY
COPY = "env.Command('{0}', '{1}', Copy('$TARGET', '$SOURCE'))\n".format


class Case(NamedTuple):
    """A project that is built, and what a build compiles after each change of files."""

    files: Mapping[str, str]
    changes: Sequence[tuple[Mapping[str, str], list[str]]]
    """Texts of files, and the compiles."""
    settings: str = ""
    nodes: str = NODES
    first: Sequence[str] = ALL
    asked: tuple[str, ...] = ()
    """What is built; nothing: all."""


CASES = {
    "a header beside a source outside of the top folder": Case(
        {"../outside/k.hip": f'#include "value.h"\n{BODY}', "second/value.h": ONE},
        [({"../outside/value.h": TWO}, passes("../outside/k.hip", "host", *BOTH))],
        FOLDERS,
        NODES.replace("k.hip", "../outside/k.hip"),
        passes("../outside/k.hip", "host", *BOTH),
        ("../outside",),
    ),
    "a generated header earlier on the path": Case(
        {"k.hip": VALUED, "second/value.h": ONE, "value.txt": TWO},
        [({"SConstruct": COPY("first/value.h", "value.txt") + FOLDERS + NODES}, ALL)],
        FOLDERS,
    ),
    "a generated header of a flag": Case(  # which not all passes have, and which is made first
        {"k.hip": KERNEL.replace("VALUE", "FORCED"), "forced.txt": "#define FORCED 1\n"},
        [({"forced.txt": "#define FORCED 2\n"}, passes("k.hip", *BOTH))],
        "env.Append(OFFLOAD_HOST_FLAGS=['-DFORCED=0'])\n"
        "env.Append(OFFLOAD_FLAGS=['-include', 'forced.h'])\n",
        NODES + COPY("forced.h", "forced.txt"),
    ),
    "generated headers of generated headers": Case(  # one that is included later is made then
        {
            "k.hip": f'#include "outer.h"\n{BODY}',
            "inner.txt": ONE,
            "outer.txt": '#include "inner.h"\n',
            "late.txt": "",
        },
        [
            ({"inner.txt": TWO}, passes("k.hip", "gfx906")),
            ({"outer.txt": '#include "inner.h"\n#include "late.h"\n'}, passes("k.hip", "gfx906")),
        ],
        nodes=NODES + "".join(COPY(f"{n}.h", f"{n}.txt") for n in ("outer", "inner", "late")),
        first=passes("k.hip", "gfx906"),
        asked=("k.gfx906.co",),
    ),
    "a generated source": Case(
        {"k.txt": KERNEL},
        [({"k.txt": f"{KERNEL}// a comment\n"}, passes("made.hip", "host", *BOTH))],
        nodes=NODES.replace("k.hip", "made.hip") + COPY("made.hip", "k.txt"),
        first=passes("made.hip", "host", *BOTH),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_after_a_change(project: Project, name: str) -> None:
    """After each change just the passes that it concerns are compiled, and then nothing."""
    case, outside = CASES[name], f"{project.folder.parent}/"

    def compiled() -> list[str]:
        return [line.replace(outside, "../") for line in project.build_once(*case.asked)]

    for file, text in case.files.items():
        project.write(file, text)
    project.sconstruct(case.settings + case.nodes)
    assert compiled() == case.first
    for files, expected in case.changes:
        for file, new in files.items():
            project.write(file, SCONSTRUCT + new if file == "SConstruct" else new)
        assert compiled() == expected


@pytest.mark.parametrize("plain", ["", "env.Program('one/plain', ['one/main.c'])\n"], ids=["", "C"])
@pytest.mark.parametrize("duplicate", [0, 1])
def test_chain_of_variant_folders(project: Project, duplicate: int, plain: str) -> None:
    """A variant folder of a variant folder builds, and builds again what a change reaches."""
    if plain:
        program("gcc")
    project.write("src/value.h", ONE)
    project.write("src/k.hip", VALUED.replace("<value.h>", '"value.h"'))
    project.write("src/main.c", '#include "value.h"\nint main(void) { return HERE - HERE; }\n')
    project.write("src/runtime.c", RUNTIME)
    project.write(
        "src/SConscript", "Import('env')\nenv.OffloadProgram('p', ['k.hip', 'main.c', 'runtime.c'])"
    )
    project.sconstruct(
        f"VariantDir('one', 'src', {duplicate})\nVariantDir('two', 'one', {duplicate})\n"
        f"{plain}SConscript('two/SConscript', exports='env')\n"
    )
    expected = passes("two/k.hip" if duplicate else "src/k.hip", "host", *BOTH)
    assert project.build_once() == expected
    project.write("src/value.h", TWO)
    assert project.build_once("--tree=all") == expected


HEADERS = "env.Append(CPPPATH=['include'])\n"


@pytest.fixture
def repository(project: Project) -> Project:
    """Return a built project whose source includes a header of another folder."""
    text = (project.folder / "k.hip").read_text()
    project.write("k.hip", f'#include "size.h"\n{text}')
    project.write("include/size.h", "#define SIZE 1\n")
    assert project.sconstruct(HEADERS + NODES).build() == ALL
    return project


@pytest.fixture
def elsewhere(repository: Project, tmp_path: Path) -> Project:
    """Return an empty folder with the project's launcher, for builds with `-Y`."""
    return empty_project(tmp_path / "elsewhere")


def manifests(project: Project) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in project.folder.glob(".*.manifest")}


def test_outputs_of_a_repository(repository: Project, elsewhere: Project) -> None:
    """What is current in the Repository is not made again, until a file there changes."""
    option = f"-Y{repository.folder}"
    elsewhere.assert_up_to_date(option)
    assert not list(elsewhere.folder.glob("k.*"))
    repository.write("include/size.h", "#define SIZE 2\n")
    before = manifests(repository)
    elsewhere.done(option)
    assert {path.name for path in elsewhere.folder.glob("k.*")} >= {"k.gfx906.co", "k.host.o"}
    assert manifests(repository) == before  # nobody else's files are touched
    elsewhere.assert_up_to_date(option)


def test_a_file_before_that_of_the_repository(repository: Project, elsewhere: Project) -> None:
    """A header here that hides the Repository's is read, and outputs are made here."""
    elsewhere.write("include/size.h", "#error hidden\n")
    assert "hidden" in elsewhere.fails(f"-Y{repository.folder}").errors


def test_variant_folder_of_a_repository(project: Project, tmp_path: Path) -> None:
    """What is current there is not made again where SCons copies sources to variant folders."""
    project.write("src/k.hip", '#include "size.h"\n' + (project.folder / "k.hip").read_text())
    project.write("src/size.h", "#define SIZE 1\n")
    project.write("src/SConscript", "Import('env')\n" + NODES)
    body = "SConscript('src/SConscript', variant_dir='build', exports='env')\n"
    assert project.sconstruct(body).build() != []
    elsewhere, option = empty_project(tmp_path / "elsewhere"), f"-Y{project.folder}"
    assert elsewhere.build_once(option) == []
    project.write("src/size.h", "#define SIZE 2\n")
    assert elsewhere.build_once(option) == passes("build/k.hip", "host", *BOTH)


def test_openmp_of_a_repository(project: Project, tmp_path: Path) -> None:
    """Outputs whose names contain inodes of sources count as well."""
    project.write("work.c", REGION)
    project.sconstruct("env.OffloadObject('work.c')\n", OPENMP).build()
    empty_project(tmp_path / "elsewhere").assert_up_to_date(f"-Y{project.folder}")
