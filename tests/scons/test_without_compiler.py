"""`scons -c` and `scons -h` need no compiler, and not the one that the build used."""

from __future__ import annotations

import pytest

from tests.scons.conftest import SCONSTRUCT, Project
from tests.scons.nvidia import HEAD as CUDA
from tests.scons.nvidia import write_tools
from tests.scons.test_cuda import KERNEL
from tests.scons.test_openmp import HEAD as OPENMP
from tests.scons.test_openmp import REGION

LOGS = ("compiles.log", "ptxas.log", "nvlink.log", ".sconsign.dblite")
BODIES = {
    "program": (SCONSTRUCT, "env.OffloadProgram('p', ['k.hip', 'runtime.c'])\n"),
    "library": (SCONSTRUCT, "env.OffloadSharedLibrary('p', ['k.hip', 'runtime.c'])\n"),
    "relocatable": (SCONSTRUCT, "env.OffloadObject('k.hip', OFFLOAD_RDC=True)\n"),
    "archive": (SCONSTRUCT, "env.OffloadStaticLibrary('p', 'k.hip', OFFLOAD_RDC=True)\n"),
    "kpack": (SCONSTRUCT, "env.OffloadObject('k.hip', OFFLOAD_KPACK=True)\n"),
    "headers": (SCONSTRUCT, "env.OffloadObject('k.hip', OFFLOAD_PCH=['a.h'])\n"),
    "CUDA, declared twice": (
        *(CUDA, "env.OffloadObject('k.cu')\nenv.OffloadStaticLibrary('l', 'k.cu')\n"),
    ),
    "relocatable CUDA": (CUDA, "env.OffloadProgram('p', ['k.cu', 'main.c'], OFFLOAD_RDC=True)\n"),
    "CUDA of the old driver": (
        CUDA,
        "env.OffloadObject('k.cu', OFFLOAD_RDC=True, OFFLOAD_ARCHIVE_FORMAT='fat-binary')\n",
    ),
    "OpenMP": (OPENMP, "env.OffloadObject('work.c')\n"),
}


def files(project: Project) -> set[str]:
    paths = [path for path in project.folder.rglob("*") if path.is_file()]
    names = {str(path.relative_to(project.folder)) for path in paths if path.parent.name != "bin"}
    return names.difference(LOGS)


@pytest.mark.parametrize("name", BODIES)
def test_clean_and_help(project: Project, name: str) -> None:
    """Without any compiler, what one has made is removed, and the help is printed."""
    for file, text in (("k.cu", KERNEL), ("main.c", "int main(void) { return 0; }\n")):
        project.write(file, text)
    project.write("work.c", REGION)
    project.write("a.h", "")
    write_tools(project)
    head, body = BODIES[name]
    project.sconstruct(body + "Help('the help')\n", head)
    given = files(project)
    with_compiler = dict(project.environment)
    if name == "relocatable CUDA":
        project.run()  # the link lacks NVIDIA's runtime
    else:
        project.build()
    assert len(files(project)) > len(given)
    project.environment |= {"PATH": "/nowhere", "OFFLOAD_CLANG": "/no/clang"}
    assert "which is not an executable file" in project.fails().errors
    assert "the help" in project.done("-h").output
    run = project.done("-c")
    assert files(project) == given
    assert run.errors == ""
    project.environment = with_compiler
    assert project.done("-c").output.count("Removed") == 0


LACKING = {
    "runtime": ("'none', OFFLOAD_LINK_FLAGS=[]", "OpenMP code for sm_80 cannot be linked"),
    "ptxas": ("'/no/ptxas', OFFLOAD_DEVICE_RUNTIME=[]", "OFFLOAD_PTXAS='/no/ptxas' cannot be run"),
}


@pytest.mark.parametrize(("ptxas", "message"), LACKING.values(), ids=LACKING.keys())
def test_clean_of_what_cannot_be_built(project: Project, ptxas: str, message: str) -> None:
    """A program that lacks a program or library of this machine is no error until it is built."""
    project.write("work.c", REGION)
    variables = f"OFFLOAD_ARCH='sm_80', OFFLOAD_PTXAS={ptxas}"
    project.sconstruct(f"env.OffloadProgram('p', 'work.c', {variables})\n", OPENMP)
    assert message in project.fails().errors
    assert project.done("-c").errors == ""
