"""The new offload driver, clang 23's default: each target is linked by itself."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.launch.compiles import HIP, LAUNCH, TARGETS, ccache, compare, make_project, run
from tests.scripts import script

NEW = "--offload-new-driver"
ONE_JOB = "all targets are linked in one job: "
COMPILE = ("-c", "s.hip", "-o", "s.o")

pytestmark = pytest.mark.llvm


@pytest.mark.parametrize(
    "flags",
    [
        *("", "-O2 -g", "-O3", "--offload-compress", "-foffload-lto", "-foffload-lto=thin"),
        *("-Xoffload-linker --lto-O1", "-mllvm -amdgpu-early-inline-all", "-Rpass=.* -O1"),
        *("--offload-jobs=2", "-flto", "-fsanitize=undefined", "-mcode-object-version=4"),
        *("--offload-arch=gfx90a:sramecc+:xnack-", "--offload-arch=gfx9-4-generic"),
    ],
)
def test_each_target_is_linked(flags: str, tmp_path: Path, llvm: Callable[[str], str]) -> None:
    """The driver's job that links all targets is one link for each, with the same bytes."""
    words = [*HIP, NEW, "--offload-arch=gfx906,gfx90a:sramecc+:xnack+", *flags.split(), *COMPILE]
    said = compare(tmp_path, [llvm("clang++"), *words])
    assert "launch: split: " in said
    assert ONE_JOB not in said


def test_temporaries(tmp_path: Path, llvm: Callable[[str], str]) -> None:
    """With -save-temps, links write more than their result: that is one job, as is said."""
    said = compare(tmp_path, [llvm("clang++"), *HIP, NEW, *TARGETS, "-save-temps", *COMPILE])
    assert f"{ONE_JOB}'--save-temps' is not known of it" in said


def test_blank_in_a_name(
    tmp_path: Path, llvm: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder with a blank in its name cannot be told from two words: that is one job."""
    (tmp_path / "with blank").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "with blank"))
    said = compare(tmp_path, [llvm("clang++"), *HIP, NEW, *TARGETS, *COMPILE])
    assert f"{ONE_JOB}a blank is in " in said


@pytest.mark.parametrize("driver", [NEW, "--no-offload-new-driver"])
def test_map(driver: str, tmp_path: Path, llvm: Callable[[str], str]) -> None:
    """A file that the links of all targets write is the last one's: they are not side by side."""
    make_project(tmp_path)
    words = [*HIP, driver, *TARGETS, "-Xoffload-linker", "-Map=map", *COMPILE]
    done = run([*LAUNCH, llvm("clang++"), *words], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "launch: passed through: " in done.stderr
    assert "map'" in done.stderr
    assert (tmp_path / "map").exists()


def test_only_what_has_changed_is_linked(tmp_path: Path, llvm: Callable[[str], str]) -> None:
    """The driver's job for all targets is asked, not run; the linker runs for what is compiled."""
    make_project(tmp_path)
    clang = llvm("clang++")
    log = tmp_path / "log"
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("ld.lld", "clang-linker-wrapper"):
        program = Path(shutil.which(clang) or "").resolve().with_name(name)
        script(tools / name, f'echo {name} "$*" >>{log}\nexec {program} "$@"')
    more = {**ccache(tmp_path / "kept"), "COMPILER_PATH": str(tools)}
    words = [*LAUNCH, clang, *HIP, NEW, "--offload-arch=gfx906,gfx90a,gfx1100", *COMPILE]

    def linked() -> list[str]:
        log.write_text("")
        done = run(words, tmp_path, more)
        assert done.returncode == 0, done.stderr
        lines = log.read_text().splitlines()
        wrapper = [line for line in lines if line.startswith("clang-linker-wrapper ")]
        assert {line.split(" ")[-1] for line in wrapper} <= {"--dry-run"}
        found = (re.search(r"-plugin-opt=mcpu=(\w+)", line) for line in lines)
        return sorted(match[1] for match in found if match)

    assert linked() == ["gfx1100", "gfx906", "gfx90a"]
    (tmp_path / "only_gfx90a.h").write_text("#undef VALUE\n#define VALUE 7\n")
    assert linked() == ["gfx90a"]
    assert linked() == []
