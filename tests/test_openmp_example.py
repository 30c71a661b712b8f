"""examples/openmp_dot on LLVM's real OpenMP offload runtime."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from offload_tool.operations.list_images import list_images
from tests.conftest import ROOT, missing, run_tool, try_tool

RUNTIME = Path("/usr/lib/llvm-22/lib/libomptarget.so")


def test_openmp_dot_runs_on_a_device(tmp_path: Path) -> None:
    """The example builds for two GPUs and the CPU, once, and runs its regions on a device."""
    if not RUNTIME.exists():
        missing("LLVM 22's offload runtime (liboffload-22-dev, libomp-22-dev)")
    folder = tmp_path / "openmp_dot"
    shutil.copytree(ROOT / "examples/openmp_dot", folder)
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "OFFLOAD_CLANG": "/usr/lib/llvm-22/bin/clang",
        "OMP_TARGET_OFFLOAD": "MANDATORY",
    }

    def scons() -> str:
        done = try_tool(sys.executable, "-m", "SCons", "-Q", "-j2", cwd=folder, env=environment)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    first = scons()
    for name in ("host", "gfx906", "gfx90a", "x86_64-pc-linux-gnu"):
        assert f"OPENMP [{name}] dot.c" in first
    assert "is up to date" in scons()
    assert [i.target_id for i in list_images(folder / "dot.gfx90a.co.offload")] == ["gfx90a"]
    ran = run_tool(folder / "dot", env=environment)
    assert "computed on a device" in ran

    # An editor's atomic save: equal content, another inode, other names of target regions.
    shutil.copy(folder / "dot.c", folder / "new.c")
    (folder / "new.c").replace(folder / "dot.c")
    saved = scons()
    for name in ("host", "gfx906", "gfx90a", "x86_64-pc-linux-gnu"):
        assert f"OPENMP [{name}] dot.c" in saved
        assert f"OPENMP [{name}] device.c" not in saved
    again = run_tool(folder / "dot", env=environment)
    assert again == ran
