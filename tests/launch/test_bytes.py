"""All files of a split compile are those of the driver, byte for byte."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from tests.conftest import Tool
from tests.launch.compiles import HIP, LAUNCH, TARGETS, ccache, compare, counting, make_project, run
from tests.scripts import script

pytestmark = pytest.mark.llvm

FLAGS = [
    "",
    "-O3 -fPIC",
    "-O1 -g -std=c++20",
    "-g -gsplit-dwarf",
    "-flto",
    "-save-temps -O1",
    "-ftime-trace",
    "-fgpu-rdc",
    "-fgpu-rdc -fno-gpu-rdc",
    "-fgpu-rdc -O2 -g",
    "--offload-new-driver -O2",
    "--offload-new-driver -fgpu-rdc",
    "--offload-new-driver --offload-compress",
    "--offload-compress",
    "-Xarch_gfx906 -DOTHER -Xarch_host -g -Xarch_device -O1",
    "--offload-arch=gfx1100,gfx942 --no-offload-arch=gfx906",
    "-fsanitize=undefined",
    "-DVALUE_2=1 -I. -Wall -ffast-math",
    "-fopenmp -O2",
    "-ggdb -O1",
    "-g -gz",
]


NOT_ALL = ("save-temps", "new-driver", "lto", "-ftime-trace", "-gsplit-dwarf")
"""Flags with which some pass writes more, or is no command of the driver's."""


@pytest.mark.parametrize("flags", FLAGS)
def test_flags(flags: str, tmp_path: Path, llvm: Tool) -> None:
    """Whatever the flags, all files are the driver's, and the compile is split.

    So they are through a launcher; with usual flags it runs every pass.
    """
    args = [llvm("clang++"), *HIP, *TARGETS, *flags.split(), "-c", "s.hip", "-o", "s.o"]
    messages = compare(tmp_path, args)
    assert "launch: split: " in messages
    if "OFFLOAD_TEST_LLVM" in os.environ:
        return  # other versions cannot do all; passes of the new driver are no commands of its
    assert "passed through" not in messages
    assert (tmp_path / "done1/s.o").exists()
    variable = f"OFFLOAD_LAUNCHER={counting(tmp_path)}"
    messages = compare(tmp_path / "launched", args, ways=[("env", variable, *LAUNCH)])
    if not any(word in flags for word in NOT_ALL):
        targets = 3 if "gfx1100" in flags else 2
        assert len((tmp_path / "log").read_text().splitlines()) == targets + 1
        assert "without the launcher" not in messages


def test_without_cuid(tmp_path: Path, llvm: Tool) -> None:
    """Without -cuid, two objects of one source have different IDs, and one object always one.

    Flags of one target do not change it; those of all do.
    """
    make_project(tmp_path)
    args = [*LAUNCH, llvm("clang++"), *HIP[:-1], *TARGETS, "-c", "s.hip", "-o"]
    for name in ("a.o", "b.o"):
        assert run([*args, name], tmp_path).returncode == 0
    first, second = ((tmp_path / name).read_bytes() for name in ("a.o", "b.o"))
    assert first != second
    assert run([*args, "a.o"], tmp_path).returncode == 0
    assert (tmp_path / "a.o").read_bytes() == first
    flag = ["-Xarch_gfx906", "-DOTHER"]
    messages = run([*args, "a.o", *flag, "--offload-arch=gfx1100"], tmp_path).stderr
    assert re.findall("launch: (.*): current", messages) == ["gfx90a:xnack+", "host"]
    flag[0] = "-Xarch_device"
    assert "current" not in run([*args, "a.o", *flag], tmp_path).stderr


@pytest.mark.parametrize("flags", ["-MD -MF d.d", "-MMD", "-MD -MP -MT x", "-MD -MQ a$b"])
def test_depfile(flags: str, tmp_path: Path, llvm: Tool) -> None:
    """A depfile is the driver's, with the headers that device passes alone have read added."""
    make_project(tmp_path)
    args = [llvm("clang++"), *HIP, *TARGETS, *flags.split(), "-c", "s.hip", "-o", "s.o"]
    name = "d.d" if "-MF" in flags else "s.d"
    assert run(args, tmp_path).returncode == 0
    (tmp_path / name).rename(tmp_path / "expected")
    assert run([*LAUNCH, *args], tmp_path).returncode == 0
    text, expected = ((tmp_path / one).read_text() for one in (name, "expected"))
    assert "only_gfx90a.h" not in expected
    added = [" \\\n  only_gfx90a.h", *(["only_gfx90a.h:\n"] if "-MP" in flags else [])]
    for part in added:
        assert text.count(part) == 1
        text = text.replace(part, "")
    assert text == expected


def test_depfile_with_nothing_to_add(tmp_path: Path, llvm: Tool) -> None:
    """Where the host has read all that devices have, the depfile is the driver's."""
    args = [*HIP, "--offload-arch=gfx906,gfx942", "-MD", "-c", "s.hip", "-o", "s.o"]
    compare(tmp_path, [llvm("clang++"), *args])


NEW = "--offload-new-driver"
ONE_JOB = "all targets are linked in one job: "
COMPILE = ("-c", "s.hip", "-o", "s.o")


@pytest.mark.parametrize(
    "flags",
    [
        *("", "-O2 -g", "-O3", "--offload-compress", "-foffload-lto", "-foffload-lto=thin"),
        *("-Xoffload-linker --lto-O1", "-mllvm -amdgpu-early-inline-all", "-Rpass=.* -O1"),
        *("--offload-jobs=2", "-flto", "-fsanitize=undefined", "-mcode-object-version=4"),
        *("--offload-arch=gfx90a:sramecc+:xnack-", "--offload-arch=gfx9-4-generic"),
    ],
)
def test_each_target_is_linked(flags: str, tmp_path: Path, llvm: Tool) -> None:
    """The driver's job that links all targets is one link for each, with the same bytes."""
    args = [*HIP, NEW, "--offload-arch=gfx906,gfx90a:sramecc+:xnack+", *flags.split(), *COMPILE]
    messages = compare(tmp_path, [llvm("clang++"), *args])
    assert "launch: split: " in messages
    assert ONE_JOB not in messages


def test_temporaries(tmp_path: Path, llvm: Tool) -> None:
    """With -save-temps, links write more than their result: that is one job, as is said."""
    messages = compare(tmp_path, [llvm("clang++"), *HIP, NEW, *TARGETS, "-save-temps", *COMPILE])
    assert f"{ONE_JOB}'--save-temps' is not known of it" in messages


def test_blank_in_a_name(tmp_path: Path, llvm: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with a blank in its name cannot be told from two words: that is one job."""
    (tmp_path / "with blank").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "with blank"))
    messages = compare(tmp_path, [llvm("clang++"), *HIP, NEW, *TARGETS, *COMPILE])
    assert f"{ONE_JOB}a blank is in " in messages


@pytest.mark.parametrize("driver", [NEW, "--no-offload-new-driver"])
def test_map(driver: str, tmp_path: Path, llvm: Tool) -> None:
    """A file that the links of all targets write is the last one's: they are not side by side."""
    make_project(tmp_path)
    args = [*HIP, driver, *TARGETS, "-Xoffload-linker", "-Map=map", *COMPILE]
    done = run([*LAUNCH, llvm("clang++"), *args], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "launch: passed through: " in done.stderr
    assert "map'" in done.stderr
    assert (tmp_path / "map").exists()


def test_only_what_has_changed_is_linked(tmp_path: Path, llvm: Tool) -> None:
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
    targets = "--offload-arch=gfx906,gfx90a,gfx1100"
    args = [*LAUNCH, clang, *HIP, NEW, targets, "--offload-jobs=3", *COMPILE]

    def linked() -> list[str]:
        log.write_text("")
        done = run(args, tmp_path, more)
        assert done.returncode == 0, done.stderr
        lines = log.read_text().splitlines()
        wrapper = [line for line in lines if line.startswith("clang-linker-wrapper ")]
        assert all(line.endswith(" --wrapper-jobs=1 --dry-run") for line in wrapper), wrapper
        found = (re.search(r"-plugin-opt=mcpu=(\w+)", line) for line in lines)
        return sorted(match[1] for match in found if match)

    assert linked() == ["gfx1100", "gfx906", "gfx90a"]
    (tmp_path / "only_gfx90a.h").write_text("#undef VALUE\n#define VALUE 7\n")
    assert linked() == ["gfx90a"]
    assert linked() == []
