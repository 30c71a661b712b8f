"""examples/cmake_saxpy: CMake with `offload-tool launch` as the compiler's launcher."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from offload_tool import list_images
from tests.conftest import ROOT, Tool, program, run_tool
from tests.launch.compiles import ccache, environment, misses

TARGETS = ["gfx906", "gfx90a:xnack+", "gfx942", "gfx1100"]
LAUNCHER = f"{sys.executable};-m;offload_tool;launch"
OBJECT = "saxpy.hip.o"


def call(name: str, *arguments: str, folder: Path, **more: str) -> str:
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    env = environment({"PATH": path, **more})
    return run_tool(program(name), *arguments, cwd=folder, env=env, stderr=subprocess.STDOUT)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "examples/cmake_saxpy", tmp_path / "cmake_saxpy")
    return tmp_path / "cmake_saxpy"


def configure(project: Path, generator: str, clang: str, launcher: str, *more: str) -> None:
    args = ["-G", generator, "-B", "build", f"-DCMAKE_CXX_COMPILER={clang}", *more]
    args.append(f"-DCMAKE_CXX_COMPILER_LAUNCHER={launcher}")
    call("cmake", *args, folder=project)


@pytest.mark.llvm
@pytest.mark.parametrize("generator", ["Ninja", "Unix Makefiles"])
def test_build(generator: str, project: Path, llvm: Tool) -> None:
    """The object is that of a build without, and only what changed is compiled again.

    A header that one target reads is seen; one more target compiles that target only.
    """
    configure(project, generator, llvm("clang++"), "")
    call("cmake", "--build", "build", folder=project)
    (made,) = (project / "build").rglob(OBJECT)
    expected = made.read_bytes()
    shutil.rmtree(project / "build")

    configure(project, generator, llvm("clang++"), LAUNCHER)
    build = ("--build", "build", "--verbose")
    more = {"PYTHONPATH": str(ROOT), **ccache(project / "cache")}
    output = call("cmake", *build, folder=project, **more)
    assert "split: gfx1100, gfx906, gfx90a:xnack+, gfx942 and the host" in output
    assert made.read_bytes() == expected
    images = [str(image.target_id or "") for image in list_images(project / "build/saxpy")]
    assert {target for target in images if target} == set(TARGETS)
    assert "launch: " not in call("cmake", *build, folder=project, **more)

    source = project / "saxpy.hip"
    source.write_text(f'#ifdef __gfx942__\n#include "only.h"\n#endif\n{source.read_text()}')
    header = source.with_name("only.h")
    header.write_text("\n")
    call("cmake", *build, folder=project, **more)
    misses(more)
    header.write_text("extern int another;\n")
    output = call("cmake", *build, folder=project, **more)
    assert misses(more) == 1

    targets = f"-DTARGETS={';'.join([*TARGETS, 'gfx1201'])}"
    configure(project, generator, llvm("clang++"), LAUNCHER, targets)
    output = call("cmake", *build, folder=project, **more)
    assert misses(more) == 1
