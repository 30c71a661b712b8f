"""``OFFLOAD_RESIDENT``: front end and linker are loaded once, and no build shows a difference."""

from __future__ import annotations

import pytest

from offload_tool.compiler.toolchain import find_toolchain
from tests.conftest import missing
from tests.scons.conftest import KERNEL, SCONSTRUCT, Project, contents

HEAD = SCONSTRUCT.replace('    OFFLOAD_LAUNCHER=File("#count").abspath,\n', "")
BODY = "for name in 'abc': env.OffloadBundle(f'{name}.hip')\n"
OUTPUTS = [f"{name}.{target}.co" for name in "abc" for target in ("gfx906", "gfx90a_xnack+")]
USED = "offload: 12 jobs of 2 resident programs\n"


@pytest.fixture
def sources(project: Project) -> Project:
    """Give a project of three sources, and a compiler that is a program."""
    if len(find_toolchain().clang) != 1:
        missing("a clang of its own")
    for name in "abc":
        project.write(f"{name}.hip", KERNEL.replace("kernel", name))
    return project


def _declare(project: Project, settings: str) -> None:
    project.sconstruct(f"env.Replace({settings})\n{BODY}", HEAD)


@pytest.mark.llvm
def test_same_build(sources: Project) -> None:
    """Outputs are the same, with one job and with many; neither rebuilds what the other built."""
    _declare(sources, "OFFLOAD_DIRECT=False")
    sources.build()
    by_driver = contents(sources.folder, OUTPUTS)
    _declare(sources, "OFFLOAD_RESIDENT=True, OFFLOAD_SUMMARY=True")
    sources.assert_up_to_date()
    for jobs in ("-j1", "-j16"):
        sources.build("-c")
        assert USED in sources.run(jobs).output
        assert contents(sources.folder, OUTPUTS) == by_driver
    _declare(sources, "OFFLOAD_DIRECT=False")
    sources.assert_up_to_date()


@pytest.mark.llvm
def test_mistakes(sources: Project) -> None:
    """A mistake gives the compiler's message, and the other sources are compiled."""
    _declare(sources, "OFFLOAD_RESIDENT=True")
    sources.write("b.hip", KERNEL.replace("VALUE", "nothing"))
    run = sources.run("-k")
    assert run.status == 2
    assert "use of undeclared identifier 'nothing'" in run.errors
    made = [name for name in OUTPUTS if (sources.folder / name).exists()]
    assert made == [name for name in OUTPUTS if not name.startswith("b.")]


@pytest.mark.llvm
def test_reason_is_told(sources: Project) -> None:
    """Where programs cannot be resident, they are started as usual, and why is said once."""
    _declare(sources, "OFFLOAD_RESIDENT=True")
    sources.build()
    before = contents(sources.folder, OUTPUTS)
    sources.build("-c")
    _declare(sources, "OFFLOAD_RESIDENT=True, ENV={**env['ENV'], 'LD_BIND_NOW': '1'}")
    run = sources.run()
    assert run.output.count("offload: no resident compiler: ") == 1
    assert "the variable LD_BIND_NOW is for the dynamic linker" in run.output
    assert contents(sources.folder, OUTPUTS) == before
