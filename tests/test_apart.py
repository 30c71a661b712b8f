"""Targets built on different machines, then merged: the example of the documentation."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.llvm


def test_two_checkouts(tmp_path: Path, llvm: Callable[[str], str]) -> None:
    """Two checkouts' bundles, archives and offload binaries merge to one machine's, bit by bit."""
    environment = os.environ | {
        "OFFLOAD_CLANG": llvm("clang"),
        "OFFLOAD_TOOL": f"{sys.executable} -m offload_tool",
        "SCONS": f"{sys.executable} -m SCons",
    }
    script = ROOT / "examples" / "apart" / "build_apart.sh"
    ran = subprocess.run(
        ["/bin/sh", script, tmp_path], env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    for name in ("scale.hipfb", "libkernels.a", "shift.offload"):
        merged, one = tmp_path / "merged" / name, tmp_path / "one" / "apart" / name
        assert merged.read_bytes() == one.read_bytes()
        assert merged.stat().st_size > (tmp_path / "here" / "apart" / name).stat().st_size
