"""A compiler cache in direct mode gives nothing that a compile would not make of these files."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.scons.conftest import KERNEL, Project, checkout, contents
from tests.scons.judging import own_clang
from tests.scons.test_launchers import Cache, cache, program, run  # noqa: F401 - a fixture
from tests.toolchain.clang_in_parts import clang_in_parts, write_library

BODY = KERNEL.replace("VALUE", "HERE").replace("return 1", "return HERE")
OUTPUTS = ["k.gfx906.co", "k.host.o"]
TWO = "env.Append(CCFLAGS=['-Ia', '-Ib', '--embed-dir=b'])\n"
ONE_VALUE, OTHER_VALUE = "#define HERE 1\n", "#define HERE 2\n"


def earlier(project: Project) -> None:
    project.write("a/value.h", OTHER_VALUE)


def extra(project: Project) -> None:
    project.write("a/extra.h", "#undef HERE\n" + OTHER_VALUE)


def copied(project: Project) -> None:
    link = project.folder / "b" / "again.h"
    data = link.read_bytes()
    link.unlink()
    link.write_bytes(data)


def embedded(project: Project) -> None:
    project.write("b/value.bin", "2")


ASKING = '#if __has_include("extra.h")\n#include "extra.h"\n#endif\n'
ONCE = "#pragma once\n#ifdef HERE\n#undef HERE\n#define HERE 2\n#else\n#define HERE 1\n#endif\n"
CASES: dict[str, tuple[str, Callable[[Project], None]]] = {
    "a header earlier on the path": ("#include <value.h>\n", earlier),
    "__has_include": ("#include <value.h>\n" + ASKING, extra),
    "#embed": ("enum { HERE =\n#embed <value.bin>\n};\n", embedded),
    "a link that becomes a copy": ('#include "b/once.h"\n#include "b/again.h"\n', copied),
}


def prepare(project: Project, cache: Cache, case: str) -> None:  # noqa: F811
    head, _ = CASES[case]
    (project.folder / "a").mkdir()
    project.write("b/value.h", ONE_VALUE)
    project.write("b/value.bin", "1")
    project.write("b/once.h", ONCE)
    (project.folder / "b" / "again.h").symlink_to("once.h")
    project.write("k.hip", head + BODY)
    shared = str(project.folder.parent / "shared")
    project.sconstruct(
        f"if 'alone' not in ARGUMENTS:\n    env['OFFLOAD_LAUNCHER'] = {cache.launcher!r}\n"
        f"    env['ENV'].update({cache.variables!r})\nelse:\n    env['OFFLOAD_LAUNCHER'] = ''\n"
        f"env.CacheDir({shared!r})\nenv['OFFLOAD_ARCH'] = ['gfx906']\n{TWO}"
        "env.OffloadDeviceObject('k.hip')\nenv.OffloadHostObject('k.hip')\n"
    )


@pytest.mark.parametrize("case", CASES)
def test_what_appears(project: Project, cache: Cache, case: str) -> None:  # noqa: F811
    """What appears is compiled, and a checkout without the launcher gets no old result."""
    prepare(project, cache, case)
    project.build()
    before = contents(project.folder, OUTPUTS)
    CASES[case][1](project)
    project.build()
    changed = contents(project.folder, OUTPUTS)
    project.assert_up_to_date()
    assert not changed.items() & before.items()
    alone = checkout(project, project.folder.parent / "alone")
    alone.build("alone=1")
    clean = checkout(project, project.folder.parent / "clean")
    clean.build("alone=1", "--cache-disable")
    assert contents(alone.folder, OUTPUTS) == contents(clean.folder, OUTPUTS) == changed


def test_library_of_the_compiler(project: Project, cache: Cache) -> None:  # noqa: F811
    """A compiler whose library is another one compiles: no launcher sees that by itself."""
    real, folder = str(own_clang().resolve()), project.folder.parent / "llvm"
    variables = {**cache.variables, "OFFLOAD_CLANG": str(clang_in_parts(folder, real, 1))}
    project.write("k.hip", BODY)
    project.sconstruct(
        f"env['ENV'].update({variables!r}, LD_LIBRARY_PATH=ARGUMENTS.get('lib', ''))\n"
        f"env.Replace(OFFLOAD_ARCH=['gfx906'], OFFLOAD_CLANG={variables['OFFLOAD_CLANG']!r},\n"
        f"    OFFLOAD_LAUNCHER='' if 'alone' in ARGUMENTS else {cache.launcher!r})\n"
        "env.OffloadDeviceObject('k.hip')\nenv.OffloadHostObject('k.hip')\n"
    )
    command = ["compile", "k.hip", "-o", "k.co", "--target-id=gfx906"]
    command += ["--", "-nogpuinc", "-nogpulib"]
    variables["OFFLOAD_LAUNCHER"] = cache.launcher
    found = []
    for number in (1, 2):
        write_library(folder / "lib", real, number)
        project.build()
        assert project.tool(*command, **variables).returncode == 0
        found.append(contents(project.folder, [*OUTPUTS, "k.co"]))
    assert not found[0].items() & found[1].items()
    write_library(folder / "other", real, 3)
    project.build(f"lib={folder / 'other'}")
    assert not contents(project.folder, OUTPUTS).items() & found[1].items()
    project.run("-c")
    project.build("alone=1")
    assert contents(project.folder, OUTPUTS).items() <= found[1].items()


def test_second_checkout_hits_directly(project: Project, tmp_path: Path) -> None:
    """The first build of another checkout takes all from ccache without preprocessing by that."""
    command = program("ccache")
    variables = {"CCACHE_DIR": str(tmp_path / "c"), "HOME": str(tmp_path), "CCACHE_NOHASHDIR": "1"}
    known = Cache(command, variables, lambda: 0)
    prepare(project, known, "__has_include")
    past = 1_600_000_000  # ccache trusts no file that is as new as the compile
    for file in project.folder.rglob("*.h*"):
        os.utime(file, (past, past))
    project.build("--cache-disable")
    other = checkout(project, project.folder.parent / "other")
    other.build("--cache-disable")
    output = run(command, "--print-stats", **variables)
    found = dict(re.findall(r"^(\w+_cache_(?:hit|miss))\t(\d+)$", output, re.MULTILINE))
    assert found["direct_cache_hit"] == "2"
    assert found["preprocessed_cache_hit"] == "0"
    assert contents(other.folder, OUTPUTS) == contents(project.folder, OUTPUTS)
