"""examples/make_saxpy: what GNU Make compiles again after a change."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from offload_tool import list_images
from tests.conftest import ROOT, run_tool
from tests.test_meson import Example, compiles_since, counting_environment

TARGETS = ["gfx906", "gfx90a:xnack+", "gfx942"]


class Project(Example):
    """The example."""

    @property
    def source(self) -> Path:
        return self.build_folder / "saxpy.hip"

    def build(self, *arguments: str) -> tuple[list[str], str]:
        """Run make, which must work; return the targets that were compiled, and what was said."""
        done = self.call("make", "-j2", *arguments)
        assert done.returncode == 0, done.stdout
        compiles = [name.removeprefix("saxpy ") for name in compiles_since(self.folder)]
        return compiles, done.stdout

    def assert_up_to_date(self, *arguments: str) -> None:
        compiles, messages = self.build(*arguments)
        assert compiles == []
        assert "offload-tool" not in messages, messages
        assert "standin" not in messages, messages


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Return the example, built once for all tests: each leaves it up to date."""
    folder = tmp_path_factory.mktemp("make")
    shutil.copytree(ROOT / "examples/make_saxpy", folder / "make_saxpy")
    environment = counting_environment(folder)
    environment["TARGETS"] = " ".join(TARGETS)
    for name in ("MAKEFLAGS", "MAKELEVEL"):
        environment.pop(name, None)
    made = Project(folder, environment, folder / "make_saxpy")
    made.source.write_text(
        '#ifdef __gfx90a__\n#include "one.h"\n#endif\n' + made.source.read_text()
    )
    (made.build_folder / "one.h").touch()
    compiles, _ = made.build()
    assert compiles == ["gfx906", "gfx90a:xnack+", "gfx942", "host"]
    made.assert_up_to_date()
    return made


def test_program(built: Project) -> None:
    """The program holds the images of all targets, and registers them."""
    found = list_images(built.build_folder / "saxpy")
    assert [image.target_id for image in found] == ["", *TARGETS]
    ran = run_tool(built.build_folder / "saxpy")
    assert ran.count("fat binary registered") == 1


def test_header_of_one_target(built: Project) -> None:
    """A header that one target reaches compiles that target; equal output ends it there."""
    (built.build_folder / "one.h").write_text("// changed\n")
    compiles, output = built.build()
    assert compiles == ["gfx90a:xnack+"]
    assert "bundler" not in output
    built.assert_up_to_date()
    (built.build_folder / "one.h").write_text("__attribute__((device)) int also_here = 1;\n")
    compiles, output = built.build()
    assert compiles == ["gfx90a:xnack+"]
    assert "bundler" in output
    assert " -o saxpy\n" in output
    built.assert_up_to_date()


def test_flags_and_targets(built: Project) -> None:
    """Another flag compiles its target alone; a removed target nothing, an added one itself."""
    flag = "FLAGS_gfx942=-O2"
    assert built.build(flag)[0] == ["gfx942"]
    built.assert_up_to_date(flag)
    assert built.build(flag, "TARGETS=gfx906 gfx942")[0] == []
    built.assert_up_to_date(flag, "TARGETS=gfx906 gfx942")
    assert built.build(flag, "TARGETS=gfx906 gfx942 gfx1100")[0] == ["gfx1100"]
    assert built.build()[0] == ["gfx942"]
    built.assert_up_to_date()


def test_deleted_files(built: Project) -> None:
    """An output that was deleted is made again, and a header no longer included may be gone."""
    (built.build_folder / "saxpy.gfx906.co").unlink()
    assert built.build()[0] == ["gfx906"]
    built.assert_up_to_date()
    (built.build_folder / "one.h").unlink()
    text = built.source.read_text()
    built.source.write_text(re.sub('#include "one.h"\n', "", text))
    assert len(built.build()[0]) == len(TARGETS) + 1
    built.assert_up_to_date()
    (built.build_folder / "one.h").touch()
    built.source.write_text(text)
    built.build()


def test_error_in_the_source(built: Project) -> None:
    """The compiler's message stops the build; no output, depfile or stamp is left."""
    text = built.source.read_text()
    old = built.source.stat()
    built.source.write_text(text + "this is not C++\n")
    done = built.call("make", "-k")
    assert done.returncode != 0
    assert "error:" in done.stdout
    left = {path.name for path in built.build_folder.iterdir()}
    for name in ("saxpy.host.o", "saxpy.gfx906.co"):
        assert left.isdisjoint([name, f"{name}.d", f"{name}.stamp"])
    compiles_since(built.folder)
    built.source.write_text(text)
    os.utime(built.source, ns=(old.st_atime_ns, old.st_mtime_ns))  # as if it had never changed
    assert len(built.build()[0]) == len(TARGETS) + 1
    built.assert_up_to_date()
