"""Variables that are set behind a builder call: SCons runs the command with their last values."""

from __future__ import annotations

import pytest

from tests.scons.conftest import (
    ALL,
    BODY,
    NODES,
    ONE,
    THREE,
    TWO,
    Project,
    contents,
    environment,
)

FILES = {
    "response file": ("OFFLOAD_HOST_FLAGS=['@own.rsp']", "own.rsp", ("-DHERE=1", "-DHERE=2")),
    "header": ("CCFLAGS=['-imacros', 'own.txt']", "own.txt", (ONE, TWO)),
    "of one target": ("OFFLOAD_FLAGS=['--config=./own.cfg']", "own.cfg", ("-DHERE=1", "-DHERE=2")),
}


@pytest.mark.parametrize("name", FILES)
def test_file_in_late_flags(project: Project, name: str) -> None:
    """A file that late flags name is an input, as one of the flags at the call."""
    flags, file, texts = FILES[name]
    project.write(
        "k.hip", "#ifndef HERE\n#define HERE 0\n#endif\nint late() { return HERE; }\n" + BODY
    )
    project.write(file, texts[0])
    project.sconstruct(f"{NODES}env.Append({flags})\n").build_once()
    before = contents(project.folder, ["k.gfx906.co", "k.host.o"])
    project.write(file, texts[1])
    assert project.build_once() != []
    assert contents(project.folder, [*before]) != before


def test_text_is_split(project: Project) -> None:
    """``env.Append`` splits a text in our flags, as in SCons's own."""
    project.write("k.hip", BODY.replace("HERE", "ONE + TWO"))
    more = "env.Append(OFFLOAD_FLAGS='-DONE=1 -DTWO=2', OFFLOAD_HOST_FLAGS='-DONE=1 -DTWO=2')\n"
    head = environment(OFFLOAD_ARCH=["gfx906"], CCFLAGS=["-nogpuinc", "-nogpulib"])
    project.sconstruct(more + NODES, head).build_once()


ENVIRONMENTS = {
    "in place": "env['ENV']['CPATH'] = [FOLDERS]\n",
    "replaced": "env['ENV'] = {**env['ENV'], 'CPATH': [FOLDERS]}\n",
    "generator": (
        "env['SHELL_ENV_GENERATORS'] = [\n"
        "    lambda env, target, source, given: {**given, 'CPATH': ':'.join([FOLDERS])}]\n"
    ),
}


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_environment_of_the_commands(project: Project, name: str) -> None:
    """The variables of commands are those that SCons sets when they run, lists included."""
    project.write("k.hip", "#include <value.h>\n" + BODY)
    project.write("one/value.h", ONE)
    project.write("two/value.h", TWO)
    for folders in ("'one', 'two'", "'two', 'one'"):
        late = ENVIRONMENTS[name].replace("FOLDERS", folders)
        assert project.sconstruct(NODES + late).build_once() == ALL
    project.write("two/value.h", THREE)
    assert project.build_once() == ALL


def test_prefix_of_include_folders(project: Project) -> None:
    """A blank at the end of INCPREFIX makes an argument of it, as for SCons's own objects."""
    project.write("k.hip", "#include <value.h>\n" + BODY)
    project.write("include/value.h", ONE)
    body = "env.Replace(CPPPATH=['include'], INCPREFIX='-isystem ')\n" + NODES
    assert project.sconstruct(body).build_once() == ALL
    project.write("include/value.h", TWO)
    assert project.build_once() == ALL
