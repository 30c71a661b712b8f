"""docs/launch.md: each row of its table is run, and its rules build."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.conftest import ROOT, Tool, program
from tests.launch.compiles import CUID, LAUNCH, TARGETS, make_project, run
from tests.scripts import script

PAGE = (ROOT / "docs/launch.md").read_text()
ROWS = re.findall(r"^\| `(.+)` \| (split|passed through) \| ", PAGE, re.MULTILINE)


@pytest.mark.llvm
@pytest.mark.parametrize(("command", "done"), ROWS)
def test_row(command: str, done: str, tmp_path: Path, llvm: Tool) -> None:
    """A command is split or passed through, as its row says, and does what the compiler does."""
    make_project(tmp_path)
    (tmp_path / "other.hip").write_text("")
    (tmp_path / "plain.cpp").write_text("int main() {}\n")
    clang = llvm("clang++")
    run([clang, "-c", "plain.cpp", "-o", "s.o"], tmp_path)
    flags = ["-nogpuinc", "-nogpulib", CUID, *TARGETS] if ".hip" in command else []
    ours = run([*LAUNCH, clang, *flags, *shlex.split(command)], tmp_path)
    assert ours.stderr.startswith(f"offload-tool launch: {done}: ")
    assert ours.returncode == 0, ours.stderr


def test_both_sorts_are_there() -> None:
    """The table has rows of both sorts."""
    assert len(ROWS) == PAGE.count("| split |") + PAGE.count("| passed through |")
    assert {done for _, done in ROWS} == {"split", "passed through"}


@pytest.mark.llvm
@pytest.mark.parametrize(("language", "file"), [("make", "Makefile"), ("ninja", "build.ninja")])
def test_build_file(language: str, file: str, tmp_path: Path, llvm: Tool) -> None:
    """The rules build, build nothing twice, and follow headers, each target by itself."""
    make_project(tmp_path)
    (rules,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / file).write_text(rules)
    (tmp_path / "s.hip").rename(tmp_path / "kernels.hip")
    (tmp_path / "main.hip").write_text("int main() { return 0; }\n")
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "offload-tool").symlink_to(program("offload-tool"))
    device = 'case "$*" in *-c*) exec {0} -x hip -nogpuinc -nogpulib "$@" ;; esac\n'
    link = 'exec {0} -shared -Wl,--unresolved-symbols=ignore-all "$@"'
    clang = llvm("clang++")
    script(tools / "hipcc", f"{device.format(clang)}{link.format(clang)}")
    more = {"PATH": f"{tools}:/usr/bin:/bin"}

    def built() -> list[str]:
        done = run([program(language)], tmp_path, more)
        assert done.returncode == 0, done.stdout + done.stderr
        messages = done.stdout + done.stderr
        return re.findall(
            r"^offload-tool launch: (\w+): (?:compiled|front end)", messages, re.MULTILINE
        )

    passes = ["gfx90a", "gfx942", "host"]
    assert sorted(built()) == sorted([*passes, *passes])
    assert (tmp_path / "program").exists()
    assert built() == []
    (tmp_path / "only_gfx90a.h").write_text("#undef VALUE\n#define VALUE 7\n")
    assert built() == ["gfx90a"]
    assert built() == []
