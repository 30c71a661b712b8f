"""The types of the construction variables, and the one reader of all."""

from __future__ import annotations

from typing import Any

import pytest
import SCons.Environment
import SCons.Node.FS
import SCons.Util

from offload_tool.errors import UsageError
from offload_tool.scons.variables import VARIABLES, read_variables, set_defaults
from tests.conftest import Tool
from tests.scons.conftest import KERNEL, Project, passes
from tests.scons.nvidia import HEAD, PTXAS
from tests.scons.test_cuda import OBJECT

NODE = SCons.Node.FS.get_default_fs().File("a.file")
TRUE = (True, 1, "1", "y", "Yes", "TRUE", "t", "on", "all")
FALSE = (False, None, 0, "0", "n", "No", "false", "F", "off", "none")
ODD = (3.5, object(), {1, 2}, True)
RIGHT: dict[str, dict[Any, Any]] = {
    "True or False": {**dict.fromkeys(TRUE, True), **dict.fromkeys(FALSE, False), "$NO": False},
    "a positive integer": {3: 3, "3": 3, "$THREE": 3},
    "a number of compiles": {0: 0, "3": 3},
    "an integer": {None: None, "": None, "3": 3, -1: -1, "-1": -1},
    "2 or 3": {None: None, "": None, 2: 2, "3": 3},
    "15, 22 or 23": {None: None, 15: 15, "23": 23},
    "None, 'zstd' or 'zlib'": {None: None, "": None, "zstd": "zstd", "$ZLIB": "zlib"},
    "True, False or the name of a group": {"0": False, "yes": True, None: False, "demo": "demo"},
    "True, False or the name of a .json file": {"0": False, "yes": True, "a.json": "a.json"},
    "True, False or a list of headers": {"0": False, 1: True, None: False, "a.h": "a.h"},
    "a dictionary {target ID: flags}": {None: None},
    "a dictionary {key: text}, or {file: {key: text}}": {None: None},
    "a text": {None: None, "a": "a", "": ""},
    "a path: a text or a node": {None: None, "a": "a", NODE: NODE},
    "a command: a text, a node, or a list of them": {"a b": "a b", NODE: NODE, None: None},
    "a text, a node, or a list of them": {
        None: None,
        "a": "a",
        NODE: NODE,
        ("a", NODE): ("a", NODE),
    },
    "flags: a text or a list": {None: None, "-a -b": "-a -b", ("-O", 2, NODE): ("-O", 2, NODE)},
}
WRONG: dict[str, tuple[Any, ...]] = {
    "True or False": ("", "maybe", "2", 2, -1, [], ["yes"], {}, NODE, object(), "$MISSING"),
    "a positive integer": (0, "0", -1, "", "x", None, True, [4], 4.5),
    "a number of compiles": (-1, "", "each", None, True, [4]),
    "an integer": ("best", True, 3.5, [3]),
    "2 or 3": (4, "1", True, [2], 2.5),
    "15, 22 or 23": (16, "x", True, [22]),
    "None, 'zstd' or 'zlib'": ("gzip", True, 1, ["zstd"]),
    "True, False or the name of a group": ("", " ", 2, ["a"], {}, NODE),
    "True, False or the name of a .json file": ("", "a.txt", 2, ["a.json"], {}),
    "True, False or a list of headers": ("", 2, {}, [True], [3]),
    "a dictionary {target ID: flags}": (["-O1"], "-O1", True, 0),
    "a dictionary {key: text}, or {file: {key: text}}": (["feature"], "feature=x", True, 0),
    "a text": (*ODD, 3, ["a"], {}),
    "a path: a text or a node": (*ODD, 3, ["a"], {}),
    "a command: a text, a node, or a list of them": (True, 3, {}, [True]),
    "a text, a node, or a list of them": (*ODD, 3, {}, [3], [None], ["a", True]),
    "flags: a text or a list": (True, 3, {}, ["-O1", False], [{}]),
}


def environment(**variables: Any) -> Any:
    """Return an environment with the defaults, and these variables."""
    made = SCons.Environment.Environment(tools=[], NO="no", THREE="3", ZLIB="zlib")
    set_defaults(made, variables)
    return made


def test_defaults() -> None:
    """Each default is of its variable's type, and read as it is."""
    assert read_variables(environment()) == {}


@pytest.mark.parametrize("name", VARIABLES)
def test_right_values(name: str) -> None:
    """A value of a variable's type is read, whatever text it is given as."""
    for given, expected in RIGHT[VARIABLES[name].expected.partition(" (")[0]].items():
        env = environment(**{name: given})
        found = read_variables(env).get(name, given)
        assert (found, type(found)) == (expected, type(expected)), given


@pytest.mark.parametrize("name", VARIABLES)
def test_wrong_values(name: str) -> None:
    """A value of another type is refused, by the name of the variable and its type."""
    for given in WRONG[VARIABLES[name].expected.partition(" (")[0]]:
        with pytest.raises(UsageError) as error:
            read_variables(environment(**{name: given}))
        assert str(error.value).startswith(f"{name}: expected {VARIABLES[name].expected}, found ")


def test_environments_share_no_default() -> None:
    """A list that is changed in place is another one in the next environment, and variable."""
    environment()["OFFLOAD_FLAGS"].append("-x")
    assert environment()["OFFLOAD_FLAGS"] == environment()["OFFLOAD_LINK_FLAGS"] == []


def test_builders_read_texts(project: Project) -> None:
    """Builders, and the archives of ``OFFLOAD_KPACK``, take "0" and "no" for False."""
    assert project.sconstruct(
        "env.Replace(OFFLOAD_KPACK=ARGUMENTS['kpack'], OFFLOAD_RDC=ARGUMENTS['rdc'])\n"
        "env.OffloadProgram('prog', ['k.hip', 'runtime.c'], OFFLOAD_ARCH='gfx906')\n"
    ).build("kpack=0", "rdc=no") == passes("k.hip", "gfx906", "host")
    assert not (project.folder / ".kpack").exists()
    assert (project.folder / "k.gfx906.co").exists()


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


def test_compilers_on_the_path_of_commands(project: Project, llvm: Tool) -> None:
    """A compiler in a folder that was added to the PATH of commands is found."""
    (project.folder / "tools").mkdir()
    for name in ("clang", "lld"):
        (project.folder / "tools" / name).symlink_to(llvm(name))
    project.environment["PATH"] = str(project.folder)
    project.sconstruct(
        "env.PrependENVPath('PATH', Dir('tools').abspath)\nenv.OffloadObject('k.hip')\n"
    )
    assert f"({project.folder}/tools/clang)" in project.done("-n").output


def test_compiler_as_a_node(project: Project, llvm: Tool) -> None:
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
