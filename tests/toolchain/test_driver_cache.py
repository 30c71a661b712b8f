"""Queries of the driver are repeated when what it has found may have changed."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from offload_tool.clang import environment
from offload_tool.toolchain.disk_cache import cache_folder
from offload_tool.toolchain.driver_cache import cached_args, cached_query
from tests.conftest import Tool, try_tool


@pytest.fixture
def answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, llvm: Tool
) -> Callable[[str], tuple[list[str], list[str]]]:
    """Return a function that returns the cached and the present front-end arguments for flags."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    cache_folder.cache_clear()
    (tmp_path / "build").mkdir()
    monkeypatch.chdir(tmp_path / "build")
    clang = Path(llvm("clang++")).resolve()
    for folder in ("bin", "include"):
        (tmp_path / "llvm" / folder).mkdir(parents=True)
    (tmp_path / "llvm/lib").symlink_to(clang.parents[1] / "lib")
    program = shutil.copy(clang, tmp_path / "llvm/bin/clang++")

    def both(flags: str) -> tuple[list[str], list[str]]:
        command = [str(program), *flags.split(), "-x", "cuda", "-fsyntax-only", os.devnull]

        def find() -> list[str]:
            printed = try_tool(*command, "-###").stderr
            return [arg.strip('"') for line in printed.splitlines() for arg in line.split('" "')]

        time.sleep(0.05)  # the kernel's clock for files has steps
        return cached_args("plan", command, os.environ, find), find()

    return both


def write(name: str, text: str = "") -> None:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(text)


def switch_cuda() -> None:
    Path("cuda").unlink()
    Path("cuda").symlink_to("12.3")


def switch_to_folder() -> None:
    Path("file").unlink()
    Path("file").mkdir()


CHANGES: dict[str, tuple[str, Callable[[], object]]] = {
    "folder in a relative sysroot": (
        "--sysroot=sr -nocudainc -nocudalib",
        lambda: write("sr/usr/include/x86_64-linux-gnu/a.h"),
    ),
    "folder in a sysroot here": (
        "--sysroot=FOLDER/sr/ -nocudainc -nocudalib",
        lambda: write("sr/usr/include/x86_64-linux-gnu/a.h"),
    ),
    "link to another CUDA": ("--cuda-path=cuda -nocudalib", switch_cuda),
    "version of CUDA": (
        "--cuda-path=FOLDER/12.1 -nocudalib",
        lambda: write("12.1/include/cuda.h", "#define CUDA_VERSION 12030\n"),
    ),
    "precompiled header that appears": ("-include pre.h", lambda: write("pre.h.pch")),
    "precompiled header that goes": ("-includeold.h", Path("old.h.pch").unlink),
    "precompiled header in a folder": (
        "-Xarch_host -includegnu.h",
        lambda: write("gnu.h.gch/a", "CPCH"),
    ),
    "profile that becomes a folder": ("-fprofile-use=file", switch_to_folder),
    "list for a sanitizer": (
        "-resource-dir FOLDER/rd -fsanitize=address -nocudainc -nocudalib",
        lambda: write("rd/share/asan_ignorelist.txt"),
    ),
    "libc++ in a sysroot": (
        "--sysroot=FOLDER/sr -stdlib=libc++ -nocudainc -nocudalib",
        lambda: write("sr/usr/include/c++/v1/vector"),
    ),
    "libc++ of the compiler": (
        "-stdlib=libc++ -nocudainc -nocudalib",
        lambda: write("../llvm/include/c++/v1/vector"),
    ),
}


@pytest.mark.llvm
@pytest.mark.parametrize("name", CHANGES)
def test_what_the_driver_finds(
    name: str, answers: Callable[[str], tuple[list[str], list[str]]]
) -> None:
    """A change of what the driver finds by an option changes the answer, as the driver's."""
    for number in (1, 3):
        write(f"12.{number}/include/cuda.h", f"#define CUDA_VERSION 120{number}0\n")
        write(f"12.{number}/bin/ptxas")
    Path("cuda").symlink_to("12.1")
    for file in ("sr/usr/include/a.h", "sr/usr/include/c++/12/vector", "rd/share/other.txt"):
        write(file)
    for file in ("pre.h", "old.h", "old.h.pch", "gnu.h", "gnu.h.gch/a", "file"):
        write(file)
    flags, change = CHANGES[name]
    flags = flags.replace("FOLDER", str(Path.cwd()))
    before = answers(flags)
    assert before[0] == before[1]
    change()
    after = answers(flags)
    assert before[0] != after[0] == after[1]


def test_processor_of_a_response_file(
    answers: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``native`` in a response file makes an answer that is for this processor alone."""
    write("flags", "-march=native")
    processor = tmp_path / "cpuinfo"
    monkeypatch.setattr(environment, "_PROCESSORS", str(processor))
    found = []
    for model in ("1", "1", "2"):
        processor.write_text(f"model : {model}\n")
        time.sleep(0.05)
        args = ("plan", sys.executable, ["@flags"], os.environ, lambda m=model: [m], list)
        found += cached_query(*args)
    assert found == ["1", "1", "2"]
