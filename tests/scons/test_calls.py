"""Calls of builders one after the other: what one has worked out serves the next if it is equal.

The judge is SCons: what a node's command has is what its variables were when it was declared.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.scons.conftest import Project, environment

FLAGS = ["-nogpuinc", "-nogpulib"]
HEAD = environment(OFFLOAD_FLAGS=FLAGS, OFFLOAD_ARCH=["gfx906"], OFFLOADDEVICECOMSTR="")
A = "env.OffloadDeviceObject('a.hip')\n"
B = "env.OffloadDeviceObject('b.hip')\n"
CHANGES = {
    "list-in-place": ("env['OFFLOAD_ARCH'] += ['gfx90a']\n", "b.gfx90a.co"),
    "flags-in-place": ("env['OFFLOAD_FLAGS'].append('-DSECOND')\n", "-DSECOND"),
    "dictionary-in-place": ("env['OFFLOAD_ARCH_FLAGS']['gfx906'] = ['-DSECOND']\n", "-DSECOND"),
    "nested-in-place": ("env['OFFLOAD_ARCH_FLAGS']['gfx90a'][0] = '-DSECOND'\n", None),
    "variable-of-a-flag": ("env['WORD'] = 'SECOND'\n", "-DSECOND"),
    "suffix": ("env['OFFLOADDEVICESUFFIX'] = '.second'\n", "b.gfx906.second"),
    "override": (
        "env = env.Override({'OFFLOAD_FLAGS': ['-DSECOND', '-nogpuinc', '-nogpulib']})\n",
        "-DSECOND",
    ),
    "clone": ("env = env.Clone()\nenv.Append(OFFLOAD_FLAGS='-DSECOND')\n", "-DSECOND"),
    "replace": ("env.Replace(OFFLOAD_RDC=True)\n", "b.gfx906.bc"),
    "equal-number": ("env['OFFLOAD_ARCH_FLAGS']['gfx906'][2] = 1.0\n", "-D 1.0"),
}


def _commands(project: Project) -> dict[str, str]:
    run = project.done("-n", "-Q")
    lines = [line for line in run.output.splitlines() if ".hip" in line]
    return {Path(line.split()[-1]).name: line for line in lines}


@pytest.mark.parametrize(("change", "word"), CHANGES.values(), ids=CHANGES.keys())
def test_change_between_calls(project: Project, change: str, word: str | None) -> None:
    """A call has the variables that there are then, however the last call's were changed."""
    project.write("a.hip", "")
    project.write("b.hip", "")
    processor = "gfx906" if word else "gfx90a"
    own = (
        f"env['OFFLOAD_ARCH'] = ['{processor}']\n"
        f"env['OFFLOAD_ARCH_FLAGS'] = {{'{processor}': ['-DFIRST', '-D', 1]}}\n"
        "env.Append(OFFLOAD_FLAGS=['-D$WORD'], WORD='GIVEN')\n"
    )
    word = word or "-DSECOND"
    apart = own + change + B
    project.sconstruct(own + A + change + B, HEAD)
    together = _commands(project)
    project.sconstruct(apart, HEAD)
    assert together["b.hip"] == _commands(project)["b.hip"]
    assert word in together["b.hip"]


def test_flags_that_name_the_source(project: Project) -> None:
    """Flags that depend on the source, by a variable or a function, are each source's own."""
    project.write("a.hip", "")
    project.write("b.hip", "")
    project.sconstruct(
        "def named(target, source, env, for_signature): return f'-DBY_{source[0].name[0]}'\n"
        "env.Append(OFFLOAD_FLAGS=['-DIS_$NAME', '$BY'], NAME='${SOURCE.filebase}', BY=named)\n"
        "env.OffloadDeviceObject(['a.hip', 'b.hip'])\n",
        HEAD,
    )
    found = _commands(project)
    assert "-DIS_a -DBY_a" in found["a.hip"]
    assert "-DIS_b -DBY_b" in found["b.hip"]


COUNTED = """\
import atexit, sys
from SCons.Environment import SubstitutionEnvironment
counts = {"subst_list": 0}
def counted(*words, plain=SubstitutionEnvironment.subst_list, **options):
    counts["subst_list"] += "offload_tool" in sys._getframe(1).f_code.co_filename
    return plain(*words, **options)
SubstitutionEnvironment.subst_list = counted
atexit.register(lambda: print("expanded lists:", counts["subst_list"]))
"""


def test_expands_no_command_line_of_each_node(project: Project) -> None:
    """More sources have no more command lines expanded into words, which are signed as texts."""
    counts = []
    for number in (1, 5):
        names = [f"k{index}.hip" for index in range(number)]
        for name in names:
            project.write(name, "__attribute__((global)) void k(int* p) { *p = 1; }\n")
        project.sconstruct(
            f"{COUNTED}env.OffloadDeviceObject({names!r}, OFFLOAD_ARCH=['gfx906', 'gfx90a'])\n"
        ).build_once()
        found = re.search(r"^expanded lists: (\d+)$", project.run().output, re.MULTILINE)
        assert found is not None
        counts.append(int(found[1]))
    assert counts[0] == counts[1]
