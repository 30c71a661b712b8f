"""Programs and folders of this machine: one rule says where each variable is read."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.scons.conftest import KERNEL, Project
from tests.scons.nvidia import PTXAS
from tests.scons.test_cuda import HEAD, OBJECT


@pytest.fixture
def kernels(project: Project) -> Project:
    """Return a project with a CUDA source, and a stand-in for ptxas in the folder ``tools``."""
    project.write("k.cu", KERNEL.replace("hipLaunch", "cudaLaunch"))
    project.script("tools/ptxas", PTXAS)
    return project


PLACES = {  # lines of the SConstruct, and whether the OS environment has the right or a wrong one
    "construction variable": (
        "env['OFFLOAD_PTXAS'] = PTXAS\nenv['ENV']['OFFLOAD_PTXAS'] = '/nothing'\n",
        None,
    ),
    "environment of commands": ("env['ENV']['OFFLOAD_PTXAS'] = PTXAS\n", "/nothing"),
    "OS environment": ("", "tools/ptxas"),
    "PATH of commands": ("env.PrependENVPath('PATH', Dir('tools').abspath)\n", None),
}


@pytest.mark.parametrize(("lines", "of_the_os"), PLACES.values(), ids=PLACES.keys())
def test_where_ptxas_is_named(kernels: Project, lines: str, of_the_os: str | None) -> None:
    """Each place is read, and each before those named after it here."""
    if of_the_os is not None:
        kernels.environment["OFFLOAD_PTXAS"] = str(kernels.folder / of_the_os)
    given = "PTXAS = File('tools/ptxas').abspath\n"
    run = kernels.sconstruct(given + lines + OBJECT, HEAD.replace("'none'", "''")).done()
    assert (kernels.folder / "ptxas.log").exists()
    assert "PTXAS [sm_80] k.sm_80.cubin" in run.output
    kernels.assert_up_to_date()


def test_compilers_on_the_path_of_commands(project: Project, llvm: Callable[[str], str]) -> None:
    """A compiler in a folder that was added to the PATH of commands is found."""
    (project.folder / "tools").mkdir()
    for name in ("clang", "lld"):
        (project.folder / "tools" / name).symlink_to(llvm(name))
    project.environment["PATH"] = str(project.folder)
    project.sconstruct(
        "env.PrependENVPath('PATH', Dir('tools').abspath)\nenv.OffloadObject('k.hip')\n"
    )
    assert f"({project.folder}/tools/clang)" in project.done("-n").output


def test_compiler_as_a_node(project: Project, llvm: Callable[[str], str]) -> None:
    """The file of a node is the compiler, whatever its name has; a text is a command."""
    (project.folder / "ll vm").mkdir()
    for name in ("clang", "lld"):
        (project.folder / "ll vm" / name).symlink_to(llvm(name))
    project.sconstruct("env['OFFLOAD_CLANG'] = File('ll vm/clang')\nenv.OffloadObject('k.hip')\n")
    assert "'ll vm/clang')" in project.done("-n").output


def test_variables_that_nothing_reads(project: Project) -> None:
    """One of the environment without effect gets a warning, once."""
    project.environment |= {"OFFLOAD_ARCH": "gfx942", "OFFLOAD_CLNG": "x", "OFFLOAD_CUTOFF": "0"}
    project.environment["OFFLOAD_TEST_X"] = "1"
    project.sconstruct(
        "env.OffloadObject('k.hip')\nenv.OffloadObject('l', 'k.hip', CFLAGS=['-O'])\n"
    )
    warnings = [line for line in project.done("-n").errors.splitlines() if "environment" in line]
    assert warnings == [
        "offload: warning: OFFLOAD_ARCH of the environment has no effect on a build; set the "
        "construction variable: Environment(OFFLOAD_ARCH=...)",
        "offload: warning: OFFLOAD_CLNG of the environment has no effect on a build; did you mean "
        "OFFLOAD_CLANG?",
        "offload: warning: OFFLOAD_CUTOFF of the environment has no effect on a build; set the "
        "construction variable: Environment(OFFLOAD_CUTOFF=...)",
    ]
