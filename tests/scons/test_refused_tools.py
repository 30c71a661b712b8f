"""SCons's own tool ``ninja``, which would silently use stale outputs, is refused."""

from __future__ import annotations

import pytest

from tests.scons.conftest import Project, passes

NINJA = "SetOption('experimental', 'ninja')\nDefaultEnvironment(tools=[])\n"
DEVICE = "env.OffloadDeviceObject('k.hip')\n"
ORDERS = {
    "before": NINJA + "env.Tool('ninja')\n" + DEVICE,
    "between": DEVICE + NINJA + "env.Tool('ninja')\nenv.OffloadDeviceObject('other', 'k.hip')\n",
    "elsewhere-before": NINJA + "Environment(tools=['default', 'ninja'])\n" + DEVICE,
    "elsewhere-after": DEVICE + NINJA + "Environment(tools=['default', 'ninja'])\n",
    "clone-after": "env.OffloadProgram(['k.hip', 'runtime.c'])\n"
    + NINJA
    + "env.Clone(tools=['ninja'])\n",
}


@pytest.mark.parametrize("body", ORDERS.values(), ids=ORDERS.keys())
def test_ninja_tool(project: Project, body: str) -> None:
    """In whatever order the tools are loaded, a message says why, where, and what to do instead."""
    run = project.sconstruct(body).fails()
    assert "cannot be built through SCons's experimental tool 'ninja'" in run.errors
    assert "offload-tool compile" in run.errors
    assert "project/SConstruct" in run.errors.splitlines()[-1]
    assert not (project.folder / "build.ninja").exists()


def test_ninja_tool_that_is_not_in_use(project: Project) -> None:
    """Without ``--experimental=ninja`` SCons's tool does nothing, and ours builds."""
    project.sconstruct("env.Tool('ninja')\n" + DEVICE)
    assert project.build() == passes("k.hip", "gfx906", "gfx90a:xnack+")


def test_ninja_tool_without_nodes(project: Project) -> None:
    """Where there are no nodes of ours, SCons's tool may do what it does."""
    project.sconstruct(
        NINJA + "env.Tool('ninja')\nenv['NINJA_DISABLE_AUTO_RUN'] = 1\nenv.Object('runtime.c')\n"
    ).done()
    assert (project.folder / "build.ninja").exists()
