"""`scons -Y`: outputs in a Repository count as those of the build."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scons.conftest import ALL, NODES, Project, empty_project
from tests.scons.test_openmp import HEAD as OPENMP
from tests.scons.test_openmp import REGION

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


def test_openmp_of_a_repository(project: Project, tmp_path: Path) -> None:
    """Outputs whose names contain inodes of sources count as well."""
    project.write("work.c", REGION)
    project.sconstruct("env.OffloadObject('work.c')\n", OPENMP).build()
    empty_project(tmp_path / "elsewhere").assert_up_to_date(f"-Y{project.folder}")
