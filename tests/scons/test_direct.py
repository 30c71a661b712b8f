"""``OFFLOAD_DIRECT``: device passes without the driver, and a build that shows no difference."""

from __future__ import annotations

from pathlib import Path

import pytest

from offload_tool.toolchain.select import find_toolchain
from tests.conftest import missing
from tests.scons.conftest import KERNEL, SCONSTRUCT, Project, contents

HEAD = SCONSTRUCT.replace('    OFFLOAD_LAUNCHER=File("#count").abspath,\n', "")
BODY = "for name in 'abcd': env.OffloadBundle(f'{name}.hip')\nenv.OffloadCompilationDatabase()\n"


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
