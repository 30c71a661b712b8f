"""Two declarations of one node are the same, or one of them is refused: none is lost in silence."""

from __future__ import annotations

import pytest

from tests.scons.conftest import KERNEL, Project, contents
from tests.scons.judging import compiler_script

BODY = "#include <value.h>\n" + KERNEL.replace("VALUE", "HERE")
TWICE = """\
for name in ("i", "j"):
    local = env.Clone()
    {setting}
    env.OffloadBundle(name + ".hipfb", local.OffloadDeviceObject("k.hip"))
"""


@pytest.fixture(autouse=True)
def _headers(project: Project) -> None:
    project.write("k.hip", BODY)
    project.write("i/value.h", "#define HERE 1\n")
    project.write("j/value.h", "#define HERE 2\n")


SETTINGS = {
    "CPPPATH": 'local["CPPPATH"] = [name]',
    "CCFLAGS": 'local.Append(CCFLAGS=["-I" + name])',
    "CPATH": 'local["ENV"]["CPATH"] = name',
    "compiler": 'local.Replace(CPPPATH=["i"], OFFLOAD_CLANG=os.environ["CLANG_" + name])',
}


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS.keys())
def test_two_environments(project: Project, setting: str) -> None:
    """What differs between two declarations of one node is refused, or both are made."""
    more = {"i": "", "j": '[ $status = 0 ] && printf x >>"$out"'}
    if "CLANG" in setting:
        project.environment |= {
            f"CLANG_{name}": compiler_script(project, name, after=after)
            for name, after in more.items()
        }
    run = project.sconstruct("import os\n" + TWICE.format(setting=setting)).run()
    if run.status == 0:
        bundles = contents(project.folder, ["i.hipfb", "j.hipfb"])
        assert bundles["i.hipfb"] != bundles["j.hipfb"]
    else:
        assert "k.gfx906.co" in run.errors
        assert "Traceback" not in run.errors


def test_equal_declarations(project: Project) -> None:
    """One node that two equal environments declare is one node, compiled once."""
    assert len(project.sconstruct(TWICE.format(setting='local["CPPPATH"] = ["i"]')).build()) == 2
    bundles = contents(project.folder, ["i.hipfb", "j.hipfb"])
    assert bundles["i.hipfb"] == bundles["j.hipfb"]
    project.assert_up_to_date()
