"""All files of a split compile are those of the driver, byte for byte."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.launch.compiles import HIP, LAUNCH, TARGETS, compare, counting, make_project, run

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
]


NOT_ALL = ("save-temps", "new-driver", "lto", "-ftime-trace", "-gsplit-dwarf")
"""Flags with which some pass writes more, or is no command of the driver's."""


@pytest.mark.llvm
@pytest.mark.parametrize("flags", FLAGS)
def test_flags(flags: str, tmp_path: Path, llvm: Callable[[str], str]) -> None:
    """Whatever the flags, all files are the driver's, and the compile is split.

    So they are through a launcher; with usual flags it runs every pass.
    """
    words = [llvm("clang++"), *HIP, *TARGETS, *flags.split(), "-c", "s.hip", "-o", "s.o"]
    said = compare(tmp_path, words)
    assert "launch: split: " in said
    if "OFFLOAD_TEST_LLVM" in os.environ:
        return  # other versions cannot do all; passes of the new driver are no commands of its
    assert (tmp_path / "done1/s.o").exists()
    variable = f"OFFLOAD_LAUNCHER={counting(tmp_path)}"
    said = compare(tmp_path / "launched", words, ways=[("env", variable, *LAUNCH)])
    if not any(word in flags for word in NOT_ALL):
        targets = 3 if "gfx1100" in flags else 2
        assert len((tmp_path / "log").read_text().splitlines()) == targets + 1
        assert "without the launcher" not in said


@pytest.mark.llvm
def test_without_cuid(tmp_path: Path, llvm: Callable[[str], str]) -> None:
    """Without -cuid, two objects of one source have different IDs, and one object always one."""
    make_project(tmp_path)
    words = [*LAUNCH, llvm("clang++"), *HIP[:-1], *TARGETS, "-c", "s.hip", "-o"]
    for name in ("a.o", "b.o"):
        assert run([*words, name], tmp_path).returncode == 0
    first, second = ((tmp_path / name).read_bytes() for name in ("a.o", "b.o"))
    assert first != second
    assert run([*words, "a.o"], tmp_path).returncode == 0
    assert (tmp_path / "a.o").read_bytes() == first


@pytest.mark.llvm
@pytest.mark.parametrize("flags", ["-MD -MF d.d", "-MMD", "-MD -MP -MT x", "-MD -MQ a$b"])
def test_depfile(flags: str, tmp_path: Path, llvm: Callable[[str], str]) -> None:
    """A depfile is the driver's, with the headers that device passes alone have read added."""
    make_project(tmp_path)
    words = [llvm("clang++"), *HIP, *TARGETS, *flags.split(), "-c", "s.hip", "-o", "s.o"]
    name = "d.d" if "-MF" in flags else "s.d"
    assert run(words, tmp_path).returncode == 0
    (tmp_path / name).rename(tmp_path / "expected")
    assert run([*LAUNCH, *words], tmp_path).returncode == 0
    text, expected = ((tmp_path / one).read_text() for one in (name, "expected"))
    assert "only_gfx90a.h" not in expected
    added = [" \\\n  only_gfx90a.h", *(["only_gfx90a.h:\n"] if "-MP" in flags else [])]
    for part in added:
        assert text.count(part) == 1
        text = text.replace(part, "")
    assert text == expected


@pytest.mark.llvm
def test_depfile_with_nothing_to_add(tmp_path: Path, llvm: Callable[[str], str]) -> None:
    """Where the host has read all that devices have, the depfile is the driver's."""
    words = [*HIP, "--offload-arch=gfx906,gfx942", "-MD", "-c", "s.hip", "-o", "s.o"]
    compare(tmp_path, [llvm("clang++"), *words])
