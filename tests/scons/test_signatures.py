"""Signatures of commands whose words are substituted once for many nodes.

The judge is SCons's own substitution of the whole command.
"""

from __future__ import annotations

import itertools
from collections import deque
from typing import Any

import pytest
import SCons.Environment
import SCons.Errors
import SCons.Node.FS
from hypothesis import given
from hypothesis import strategies as st
from SCons.Subst import SUBST_SIG
from SCons.Util import CLVar

from offload_tool.scons.signature import VARIABLE, SharedTexts, signed_text
from offload_tool.scons.values import reads
from tests.scons.conftest import ALL, BODY, NODES, Project, environment

NAMES = ("A", "B", "C", "D")
_PIECES = st.sampled_from(
    ["-O2", "-Da=1", " ", "  ", "$A", "${B}", "$C.x", "$TARGET", "${SOURCES[0]}", "$$", "$(", "$)"]
    + ["{", "}", "\n", "x y", "$", "$NONE", "'q'", "$_CPPDEFFLAGS", "$CPPDEFINES", "é"]
)
_TEXTS = st.lists(_PIECES, max_size=3).map("".join)


def _of_target(target: Any, source: Any, env: Any, for_signature: bool) -> str:
    return f"-Dof={target[0]}" if target else "-Dnone"


@reads("C")
def _of_variable(target: Any, source: Any, env: Any, for_signature: bool) -> list[str]:
    return ["-Dc", "$C"] if for_signature else ["-Dother"]


_ITEMS = _TEXTS | st.sampled_from([None, 7, 1.5, _of_target, _of_variable])
_VALUES = (
    _ITEMS
    | st.lists(_ITEMS, max_size=3)
    | st.lists(_TEXTS, max_size=3).map(CLVar)
    | st.lists(_TEXTS, max_size=2).map(tuple)
    | st.lists(_TEXTS, max_size=2).map(deque)
)
_DEFINES = st.lists(st.sampled_from(["A", "B=$A", ("C", 1), ("D", "$B")]), max_size=2)
_WORDS = st.sampled_from([*(f"${name}" for name in NAMES), "$_CPPDEFFLAGS", "$TARGET", "$SOURCE"])
_COMMANDS = st.lists(_WORDS | st.sampled_from(["-c", "-o", "${A}", ""]), max_size=6).map(" ".join)


def _without_blanks(arg: Any) -> str:
    return str(arg).replace(" ", "\0 ").replace("\n", "\0\0\0 ")


def _signed(env: Any, node: Any, source: Any) -> tuple[Any, Any]:
    """Return our text and SCons's arguments, or the errors of both."""

    def of_scons() -> str:
        lines = env.subst_list("$COMMAND", SUBST_SIG, [node], [source])
        return "\n".join(" ".join(map(_without_blanks, line)) for line in lines)

    found: list[Any] = []
    for sign in (lambda: signed_text(env, "COMMAND", [node], [source]), of_scons):
        try:
            found.append(sign())
        except (SCons.Errors.UserError, SCons.Errors.BuildError, RecursionError) as error:
            found.append(type(error))
    return found[0], found[1]


@given(
    st.dictionaries(st.sampled_from(NAMES), _VALUES),
    st.dictionaries(st.sampled_from(NAMES), _VALUES, max_size=2),
    st.dictionaries(st.sampled_from(NAMES), _VALUES, max_size=2),
    _DEFINES,
    _COMMANDS,
)
def test_any_variables(
    below: dict[str, Any], own: dict[str, Any], later: dict[str, Any], defines: Any, command: str
) -> None:
    """The text is SCons's or none, for nodes with variables of their own, and after a change."""
    fs = SCons.Node.FS.FS()
    nodes, source = (fs.File("out/a  b.co"), fs.File("c.co")), fs.File("k.hip")
    base = SCons.Environment.Environment(tools=[], CPPDEFINES=defines, COMMAND=command, **below)
    common = base.Override({VARIABLE: SharedTexts()})
    other = dict(zip(own, [*own.values()][::-1], strict=True)) | dict.fromkeys([*own][:1], "-g")
    for _ in range(2):
        for node, variables in zip(nodes, (own, other), strict=True):
            ours, plain = _signed(common.Override(variables), node, source)
            assert ours == plain
        base.Replace(**later)


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        ({"A": ["-O2", "$B"], "B": "-Db"}, "-O2 -Db -o a.co k.hip"),
        (
            {"A": "$_CPPDEFFLAGS", "CPPDEFINES": {"X": "$B", "Y": None}, "B": 3},
            "-DX=3 -DY -o a.co k.hip",
        ),
        ({"A": _of_variable, "C": "-Dx"}, "-Dc -Dx -o a.co k.hip"),
        ({"A": "$( -I/home/x $) -O2"}, "-O2 -o a.co k.hip"),
    ],
)
def test_common_variables(variables: dict[str, Any], text: str) -> None:
    """What projects write needs no substitution by SCons."""
    fs = SCons.Node.FS.FS()
    base = SCons.Environment.Environment(tools=[], CPPDEFPREFIX="-D", CPPDEFSUFFIX="", **variables)
    env = base.Override({VARIABLE: SharedTexts(), "COMMAND": "$A -o $TARGET $SOURCE"})
    assert _signed(env.Override({"OWN": []}), fs.File("a.co"), fs.File("k.hip")) == (text, text)


def test_ends_of_arguments() -> None:
    """One argument with a blank is another than two, and two blanks are others than one."""
    fs, texts = SCons.Node.FS.FS(), set()
    for own, shared in itertools.product([["-a", "-b"], ["-a -b"], ["-a  -b"]], repeat=2):
        base = SCons.Environment.Environment(tools=[], SHARED=shared, COMMAND="$SHARED $OWN")
        env = base.Override({VARIABLE: SharedTexts()}).Override({"OWN": own})
        ours, plain = _signed(env, fs.File("a.co"), fs.File("k.hip"))
        assert ours == plain
        texts.add(ours)
    assert len(texts) == 9


def test_change_in_place() -> None:
    """A text that was substituted before does not outlive a change of a list in place."""
    fs = SCons.Node.FS.FS()
    base = SCons.Environment.Environment(tools=[], A=["$B"], B=[["-O2"]])
    env = base.Override({VARIABLE: SharedTexts(), "COMMAND": "$A"}).Override({"OWN": []})
    node = fs.File("a.co")
    assert _signed(env, node, node) == ("-O2", "-O2")
    base["B"][0].append("-g")
    assert _signed(env, node, node) == ("-O2 -g", "-O2 -g")


def test_change_by_an_action(project: Project) -> None:
    """A pass is compiled with flags that an action has added to the environment in this build."""
    head = environment(OFFLOAD_FLAGS=["-nogpuinc", "-nogpulib"], OFFLOAD_ARCH=["gfx906"])
    project.write("first.hip", "")
    project.write("second.hip", "#ifndef LATE\n#error early\n#endif\n")
    project.sconstruct(
        "def add(target, source, env):\n"
        "    flags.append('-DLATE')\n"
        "    open(str(target[0]), 'w').close()\n"
        "flags = env['OFFLOAD_FLAGS']\n"
        "first, second = env.OffloadDeviceObject(['first.hip', 'second.hip'])\n"
        "env.Depends(second, env.Command('late', first, add))\n",
        head,
    )
    project.done()


def test_other_arguments_with_the_same_text(project: Project) -> None:
    """A pass runs again if an argument becomes two."""
    project.write("k.hip", "#ifndef HERE\n#define HERE 0\n#endif\n" + BODY)
    for flags in (["-DTHERE=1 -DHERE=1"], ["-DTHERE=1", "-DHERE=1"]):
        assert project.sconstruct(f"env['CCFLAGS'] = {flags}\n{NODES}").build_once() == ALL
