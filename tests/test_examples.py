"""The examples build, link and run, with every compiler that a user may have."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from offload_tool import list_images
from tests.conftest import ROOT, missing

TARGETS = ["", "gfx1100", "gfx906", "gfx90a:xnack+", "gfx942"]


def named_compiler(name: str) -> str:
    if name == "embedded":
        pytest.importorskip("ziglang")
        return name
    found = shutil.which(name)
    if found is None or shutil.which(name.replace("clang", "lld")) is None:
        missing(f"{name} with its lld")
    return str(found)


@pytest.mark.parametrize("compiler", ["embedded", "clang-22", "clang-19"])
def test_saxpy(tmp_path: Path, compiler: str) -> None:
    """examples/saxpy builds for its targets, registers its images, and builds once only."""
    for name in ("SConstruct", "site_scons", "examples", "offload_tool"):
        (tmp_path / name).symlink_to(ROOT / name)
    environment = os.environ | {"OFFLOAD_CLANG": named_compiler(compiler)}
    environment.pop("ROCM_PATH", None)
    command = [sys.executable, "-m", "SCons"]
    first = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert first.returncode == 0, first.stdout + first.stderr
    assert first.stdout.count("offload: using clang") == 1
    lines = first.stdout.splitlines()
    assert [line for line in lines if line.startswith("HIP [") and "/saxpy/" in line] == [
        f"HIP [{target or 'host'}] examples/saxpy/saxpy.hip" for target in TARGETS
    ]
    second = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert "`.' is up to date" in second.stdout

    program = tmp_path / "build" / "saxpy" / "saxpy"
    assert [image.target_id for image in list_images(program)] == TARGETS
    ran = subprocess.run([program], capture_output=True, text=True, check=True)
    assert ran.stdout.count("stand-in HIP runtime: fat binary registered") == 1
    assert "kernel registered: _Z5saxpyifPKfPf" in ran.stdout
