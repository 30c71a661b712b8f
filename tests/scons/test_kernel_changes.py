"""``OFFLOAD_SUMMARY="kernels"`` in real builds."""

from __future__ import annotations

import re

import pytest

from tests.scons.conftest import KERNEL, Project

BOTH = ("gfx906", "gfx90a:xnack+")
LARGER = KERNEL.replace("*p = VALUE;", "for (int i = 0; i < *p; i++) p[i] += p[i + 1] / p[i + 2];")
ANOTHER = "__attribute__((global)) void another() {}\n"
SUMMARY = "env['OFFLOAD_SUMMARY'] = 'kernels'\n"
BODIES = {
    "compiled": "env.OffloadDeviceObject('k.hip')\n",
    "linked": "env.OffloadProgram('p', ['k.hip', 'runtime.c'], OFFLOAD_RDC=True)\n",
}


def told(project: Project, *arguments: str) -> dict[str, list[str]]:
    """Build; give what is told of the kernels of each target ID."""
    run = project.run(*arguments)
    assert run.status == 0, run.output + run.errors
    lines = re.findall(r"^offload: (gfx\S*): (.*)$", run.output, re.MULTILINE)
    return {name: [line for other, line in lines if other == name] for name, _ in lines}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_changes(body: str, project: Project) -> None:
    """Kernels are named that are new, larger, or gone since the last build, for each target ID."""
    project.write("k.hip", KERNEL)
    project.sconstruct(SUMMARY + body)
    first = told(project)
    assert tuple(first) == BOTH
    for head, line in first.values():
        assert re.fullmatch(r"1 kernel changed in size or resources, \+\d+ bytes of code", head)
        assert line == "  added _Z6kernelPi"
    assert told(project) == {}
    project.write("k.hip", LARGER + ANOTHER)
    for head, *lines in told(project).values():
        assert head.startswith("2 kernels changed in size or resources, +")
        assert any(re.match("  changed _Z6kernelPi: code_size .* to ", line) for line in lines)
        assert "  added _Z7anotherv" in lines
    project.write("k.hip", LARGER)
    assert [lines[1:] for lines in told(project).values()] == [["  removed _Z7anotherv"]] * 2
    assert told(project, "-c") == {}


def test_same_resources(project: Project) -> None:
    """Other instructions of the same size are no change of size or resources."""
    project.write("k.hip", KERNEL)
    project.sconstruct(SUMMARY + BODIES["compiled"])
    told(project)
    project.write("k.hip", KERNEL.replace("VALUE", "VALUE + 1"))
    run = project.run()
    assert len(run.compiles) == 2
    assert "changed in size" not in run.output
