"""OFFLOAD_LAUNCHER: passes through compiler caches, with the driver's bytes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from offload_tool.sccache_dist.cluster import find_sccache
from tests.launch.compiles import HIP, LAUNCH, TARGETS, make_project, run
from tests.scripts import script


@pytest.mark.llvm
def test_sccache(tmp_path: Path, llvm: Callable[[str], str]) -> None:
    """With sccache, device passes come from its cache; the host's it refuses."""
    make_project(tmp_path)
    sccache = find_sccache()
    more = {"OFFLOAD_LAUNCHER": sccache, "SCCACHE_DIR": str(tmp_path / "kept")}
    more |= {"SCCACHE_SERVER_UDS": str(tmp_path / "socket"), "OFFLOAD_LAUNCH_MEMORY": "0"}

    def counted(*words: str) -> tuple[int, int, int]:
        run([sccache, "--zero-stats"], tmp_path, more)
        command = [*LAUNCH, llvm("clang++"), *HIP, *words, "-MD", "-c", "s.hip", "-o", "s.o"]
        done = run(command, tmp_path, more)
        assert done.returncode == 0, done.stderr
        made = (tmp_path / "s.o").read_bytes()
        assert ("only_gfx90a.h" in (tmp_path / "s.d").read_text()) == ("gfx90a" in str(words))
        run(command[len(LAUNCH) :], tmp_path)
        is_equal = (tmp_path / "s.o").read_bytes() == made
        assert is_equal
        said = run([sccache, "--show-stats", "--stats-format", "json"], tmp_path, more).stdout
        stats = json.loads(said)["stats"]
        kinds = [sum(stats[name]["counts"].values()) for name in ("cache_hits", "cache_misses")]
        return kinds[0], kinds[1], stats["requests_not_cacheable"]

    try:
        assert counted("--offload-arch=gfx906") == (0, 1, 1)
        assert counted("--offload-arch=gfx906,gfx90a") == (1, 1, 1)
        assert counted("--offload-arch=gfx906,gfx90a", "-Xarch_gfx90a", "-O1") == (1, 1, 1)
        assert counted("--offload-arch=gfx90a,gfx906") == (2, 0, 1)
    finally:
        run([sccache, "--stop-server"], tmp_path, more)


@pytest.mark.llvm
def test_other_result(tmp_path: Path, llvm: Callable[[str], str]) -> None:
    """A launcher that gives another target's result is found out."""
    make_project(tmp_path)
    other = script(
        tmp_path / "launcher", 'exec $(echo "$@" | sed s/arch=gfx90a:xnack+/arch=gfx942/)'
    )
    words = [*LAUNCH, llvm("clang++"), *HIP, *TARGETS, "-c", "s.hip", "-o", "s.o"]
    done = run(words, tmp_path, {"OFFLOAD_LAUNCHER": other})
    assert done.returncode == 1
    assert "expected processor gfx90a" in done.stderr
    assert not (tmp_path / "s.o").exists()


@pytest.mark.llvm
def test_header_that_vanishes_meanwhile(tmp_path: Path, llvm: Callable[[str], str]) -> None:
    """Where passes succeed and what they read cannot be listed any more, the compiler says why."""
    make_project(tmp_path)
    (tmp_path / "gone.h").write_text("")
    remove = '[ "$(wc -l <ran)" != 3 ] || rm -f gone.h'
    launcher = script(tmp_path / "launcher", f'"$@" && echo >>ran && {{ {remove}; }}')
    words = [llvm("clang++"), *HIP, *TARGETS, "-include", "gone.h", "-MD", "-c", "s.hip"]
    more = {"OFFLOAD_LAUNCHER": launcher, "OFFLOAD_LAUNCH_JOBS": "1"}
    done = run([*LAUNCH, *words, "-o", "s.o"], tmp_path, more)
    assert len((tmp_path / "ran").read_text()) == 3
    assert (done.returncode, (tmp_path / "s.o").exists()) == (1, False)
    assert "'gone.h' file not found" in done.stderr
