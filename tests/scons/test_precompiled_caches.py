"""Precompiled headers behind ccache and sccache: they hit as without, and give the same bytes."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.cli.test_compile_pch import HEADER
from tests.scons.conftest import Project, checkout
from tests.scons.test_launchers import Cache
from tests.scons.test_launchers import cache as cache
from tests.scons.test_precompiled import BEGIN, BODY, ON, said, settings, write

TARGET = "env.Replace(OFFLOAD_ARCH='gfx906', OFFLOAD_LAUNCHER='')"


def outputs(project: Project) -> dict[str, str]:
    """Return the digests of code objects and host objects."""
    files = [*project.folder.glob("*.co"), *project.folder.glob("*.o")]
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


@pytest.mark.llvm
def test_behind_caches(project: Project, cache: Cache, tmp_path: Path) -> None:
    """What is removed comes from the cache; after a header's change nothing old does."""
    each_source = 1 if "sccache" in cache.launcher else 2  # it hits for one pass only, as without
    write(project)
    settings(project, ON, TARGET, cache.settings())
    plain = checkout(project, tmp_path / "plain")
    settings(plain, TARGET)

    def same() -> str:
        run = project.done()
        plain.build()
        assert outputs(project) == outputs(plain)
        return said(run)

    assert same() == "6 compiles with, 0 without"
    assert cache.hits() == 0
    project.build("-c")
    assert same() == "6 compiles with, 0 without"
    assert cache.hits() == 3 * each_source
    for each in (project, plain):
        each.write("second/header.h", HEADER.replace("return v + v", "return v - v"))
    assert same() == "6 compiles with, 0 without"
    assert cache.hits() == 3 * each_source
    for number in (1, 2, 3):  # with a precompiled header of its own
        for each in (project, plain):
            text = BODY.replace("NAME", "a").replace("+ OWN", f"+ {number}")
            each.write("a.hip", f"{BEGIN}#include <empty.h>\n{text}")
        assert same() == "2 compiles with, 0 without"
    assert cache.hits() == 3 * each_source
    for each in (project, plain):
        text = BODY.replace("NAME", "a").replace("+ OWN", "+ 2")
        each.write("a.hip", f"{BEGIN}#include <empty.h>\n{text}")
    same()
    assert cache.hits() == 4 * each_source
