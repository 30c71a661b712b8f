"""``offload-tool compile`` with OFFLOAD_DIST, on a real cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from offload_tool.sccache_dist.cluster import Counters, Engine
from offload_tool.sccache_dist.config import Distribution

pytestmark = pytest.mark.cluster

CALLS = 6


def test_several_at_once(distribution: Distribution, tmp_path: Path) -> None:
    """Calls at once use one local server; what servers compile is what is compiled here."""
    here = os.environ | {"OFFLOAD_CLANG": distribution.compilers[0]}
    here.pop("OFFLOAD_DIST", None)
    away = here | {"OFFLOAD_DIST": str(distribution.folder)}
    (tmp_path / "h.h").touch()
    for number in range(CALLS):
        text = f'#include "h.h"\n__attribute__((global)) void k{number}(int* p) {{ *p = 1; }}\n'
        (tmp_path / f"k{number}.hip").write_text(text)

    def begin(number: int, name: str, environment: dict[str, str]) -> subprocess.Popen[bytes]:
        output = f"{name}{number}"
        words = ["compile", f"k{number}.hip", "-o", f"{output}.co", "--depfile", f"{output}.d"]
        words += ["--target-id", "gfx90a:xnack+", "--", "-nogpuinc", "-nogpulib"]
        command = [sys.executable, "-m", "offload_tool", *words]
        return subprocess.Popen(command, cwd=tmp_path, env=environment)

    engine = Engine(distribution)
    before = engine.counters() if engine.is_running() else Counters(0, 0, 0, 0)
    running = [begin(number, "away", away) for number in range(CALLS)]
    assert [process.wait(timeout=120) for process in running] == [0] * CALLS
    counted = engine.counters().since(before)
    assert counted.requests == CALLS
    assert counted.distributed + counted.dist_errors + counted.cache_hits == CALLS
    assert counted.distributed > 0
    for number in range(CALLS):
        assert begin(number, "here", here).wait(timeout=120) == 0
        one, other = (tmp_path / f"{name}{number}.co" for name in ("away", "here"))
        assert one.read_bytes() == other.read_bytes()
        rules = [path.with_suffix(".d").read_text().split(":", 1)[1] for path in (one, other)]
        assert rules[0] == rules[1]
