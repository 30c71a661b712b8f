"""A file that is saved while clang compiles is not taken for compiled."""

from __future__ import annotations

import pytest

from tests.scons.conftest import KERNEL, Project
from tests.scons.judging import assert_as_clean_build, compiler_script

NODES = "env.OffloadBundle('k.hip')\nenv.OffloadHostObject('k.hip')\n"
OUTPUTS = ["k.gfx906.co", "k.gfx90a_xnack+.co", "k.hipfb", "k.host.o"]
BODY = "#include <value.h>\n" + KERNEL.replace("VALUE", "HERE + OWN")

DECIDERS = ["content", "content-timestamp", "timestamp-match"]


@pytest.mark.parametrize("decider", DECIDERS)
@pytest.mark.parametrize("file", ["include/value.h", "k.hip"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_saved_during_a_compile(project: Project, when: str, file: str, decider: str) -> None:
    """One run after a file was saved in mid-compile, all outputs are of the saved file."""
    texts = {
        "include/value.h": ["#define HERE 1\n", "#define HERE 2\n"],
        "k.hip": [f"#define OWN {number}\n" + BODY for number in (1, 2)],
    }
    for name in texts:
        project.write(name, texts[name][0])
    save = f"[ ! -e new ] || mv new {file}"
    project.environment = {
        **project.environment,
        "OFFLOAD_CLANG": compiler_script(project, "saving", **{when: save}),
    }
    project.sconstruct(f"env.Decider({decider!r})\nenv['CCFLAGS'] = ['-Iinclude']\n" + NODES)
    project.write("new", texts[file][1])
    project.run("-j1")  # may fail, and say that the file was changed
    assert not (project.folder / "new").exists()
    project.build("-j1")
    assert_as_clean_build(project, OUTPUTS)
    project.assert_up_to_date()
