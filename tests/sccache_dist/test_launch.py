"""``offload-tool launch`` with OFFLOAD_DIST, on a real cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from offload_tool.sccache_dist.cluster import Counters, Engine
from offload_tool.sccache_dist.config import Distribution
from tests.launch.compiles import CUID, HIP, LAUNCH, TARGETS, make_project, run
from tests.sccache_dist.conftest import Rocm

pytestmark = pytest.mark.cluster


def compare(folder: Path, distribution: Distribution, words: list[str]) -> None:
    """Compile for two targets, both by servers; compare with the driver's object.

    The depfile, which the driver then replaces, names what a server has read.
    """
    engine = Engine(distribution)
    before = engine.counters() if engine.is_running() else Counters(0, 0, 0, 0)
    more = {"OFFLOAD_DIST": str(distribution.folder)}
    done = run([*LAUNCH, *words], folder, more)
    assert done.returncode == 0, done.stderr
    assert "without the cluster" not in done.stderr
    counted = engine.counters().since(before)
    assert (counted.requests, counted.distributed, counted.dist_errors) == (2, 2, 0)
    made = (folder / "s.o").read_bytes()
    assert "-MD" not in words or "only_gfx90a.h" in (folder / "s.d").read_text()
    assert run(words, folder).returncode == 0
    is_equal = (folder / "s.o").read_bytes() == made
    assert is_equal


def test_passes_on_servers(distribution: Distribution, tmp_path: Path) -> None:
    """Both device passes of one compile are servers' work; the object is the driver's."""
    make_project(tmp_path)
    clang = distribution.compilers[0]
    compare(tmp_path, distribution, [clang, *HIP, *TARGETS, "-MD", "-c", "s.hip", "-o", "s.o"])


def test_with_rocm(distribution: Distribution, rocm: Rocm, tmp_path: Path) -> None:
    """So they are with the HIP runtime's headers and device libraries, which the driver finds."""
    (tmp_path / "s.hip").write_text(
        "#include <hip/hip_runtime.h>\n"
        'extern "C" __attribute__((device)) int lib_answer();\n'
        "__attribute__((device, used)) int f() { return lib_answer() + SEEN_RUNTIME; }\n"
    )
    words = [distribution.compilers[0], "-x", "hip", CUID, f"--rocm-path={rocm.folder}", "-O2"]
    words += ["--offload-arch=gfx906", "--offload-arch=gfx1100", "-c", "s.hip", "-o", "s.o"]
    compare(tmp_path, distribution, words)
