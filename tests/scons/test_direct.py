"""``OFFLOAD_DIRECT``: device passes without the driver, and a build that shows no difference."""

from __future__ import annotations

from pathlib import Path

import pytest

from offload_tool.toolchain.select import find_toolchain
from tests.conftest import missing
from tests.scons.conftest import KERNEL, SCONSTRUCT, Project, contents

HEAD = SCONSTRUCT.replace('    OFFLOAD_LAUNCHER=File("#count").abspath,\n', "")
BODY = "for name in 'abcd': env.OffloadBundle(f'{name}.hip')\nenv.OffloadCompilationDatabase()\n"
COUNTED = """\
from types import SimpleNamespace
from offload_tool.io import process
from offload_tool.run import driverless
run = lambda *given: print("direct job") or process.run(*given)
driverless.process = SimpleNamespace(run=run)
"""
OUTPUTS = [f"{name}.{target}.co" for name in "abcd" for target in ("gfx906", "gfx90a_xnack+")]


@pytest.fixture
def sources(project: Project, tmp_path: Path) -> Project:
    """Return a project of four sources with a header, and a compiler that is a program."""
    clang = find_toolchain().clang
    if len(clang) != 1:
        missing("a clang of its own")
    for name in "abcd":
        project.write(f"{name}.hip", f'#include "common.h"\n{KERNEL.replace("kernel", name)}')
    project.write("common.h", "")
    return project


def _declare(project: Project, *, direct: bool) -> None:
    project.sconstruct(f"env['OFFLOAD_DIRECT'] = {direct}\n{BODY}", HEAD)


@pytest.mark.llvm
def test_same_build(sources: Project) -> None:
    """Outputs and compile commands are the same; neither way rebuilds what the other has built."""
    _declare(sources, direct=False)
    sources.build()
    names = [*OUTPUTS, "compile_commands.json"]
    by_driver = contents(sources.folder, names)
    _declare(sources, direct=True)
    sources.assert_up_to_date()
    sources.build("-c")
    sources.build("-j2")
    assert contents(sources.folder, names) == by_driver
    sources.assert_up_to_date()
    _declare(sources, direct=False)
    sources.assert_up_to_date()


@pytest.mark.llvm
def test_precompiled_headers(sources: Project) -> None:
    """Passes with a precompiled header run without the driver, too, with the same bytes.

    The number of jobs says that nothing else ran: a front end and a linker for each pass.
    """
    for number, name in enumerate("abcd"):
        before = "\n".join(["#include <regex>", "#include <map>", *["// different"] * number])
        sources.write(f"{name}.hip", f"{before}\n{KERNEL.replace('kernel', name)}")
    optimized = f"env.Append(OFFLOAD_FLAGS=['-O2'])\n{BODY}"
    sources.sconstruct(f"env['OFFLOAD_DIRECT'] = False\n{optimized}", HEAD).build()
    by_driver = contents(sources.folder, OUTPUTS)
    sources.build("-c")
    asked = "env.Replace(OFFLOAD_PCH=True, OFFLOAD_SUMMARY=True)\n"
    run = sources.sconstruct(COUNTED + asked + optimized, HEAD).done()
    assert f"precompiled headers: {len(OUTPUTS)} compiles with, 0 without" in run.output
    assert run.output.count("direct job\n") == 2 * len(OUTPUTS)
    assert contents(sources.folder, OUTPUTS) == by_driver
