"""A build with nothing to do: what SCons does for many command lines takes most of its time."""

from __future__ import annotations

import re

from tests.scons.conftest import Project

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
