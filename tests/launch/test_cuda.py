"""CUDA's passes with NVIDIA's ptxas and fatbinary: bytes, depfiles and status are the driver's.

With ``-g`` for device code two compiles of the driver differ: its temporary files' names are in it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import NvidiaFile, Tool
from tests.launch.compiles import CUID, LAUNCH, ccache, compare, misses, run

if TYPE_CHECKING:
    from collections.abc import Callable

    Both = Callable[[list[str]], str]

SOURCE = """#include "value.h"
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
#include "only_sm_90.h"
#endif
struct dim3 { unsigned x, y, z; };
extern "C" int cudaLaunchKernel(const void *, dim3, dim3, void **, unsigned long, struct stream *);
extern "C" int __cudaPushCallConfiguration(dim3, dim3, unsigned long = 0, void * = 0);
extern "C" int cudaConfigureCall(dim3, dim3, unsigned long = 0, void * = 0);
__attribute__((device)) static int state;
__attribute__((global)) void kernel(int *x) { *x = VALUE + state; }
int run(int *x) { kernel<<<dim3{1, 1, 1}, dim3{1, 1, 1}>>>(x); return VALUE; }
"""
OWN = ("-nocudainc", "-nocudalib", "-Wno-unknown-cuda-version")
TARGETS = ("--offload-arch=sm_80", "--cuda-gpu-arch=sm_90")
FLAGS = [
    "",
    "-O3 -fPIC",
    "-fgpu-rdc",
    "--offload-new-driver",
    "--offload-new-driver -fgpu-rdc",
    "--no-offload-new-driver -O2",
    "-Xarch_sm_80 -DOTHER -Xarch_host -g -Xarch_device -O1",
    "--cuda-include-ptx=sm_80",
    "--no-cuda-include-ptx=all",
    "-Xcuda-ptxas --warn-on-spills",
    "-Xcuda-ptxas -O1 -Xcuda-fatbinary --compress-all",
    "-save-temps",
    "-flto",
    "-ftime-trace",
]
SPELLINGS = [
    *("-arch=sm_80", "-gencode=arch=compute_80,code=sm_80", "--gpu-architecture=sm_80", "-dc"),
    *("-rdc=true", "-Xcompiler=-fPIC", "--expt-relaxed-constexpr", "--generate-code", "-lineinfo"),
    *("-ptx", "--keep", "--cubin", "-t2"),
]
"""Of nvcc."""

pytestmark = pytest.mark.llvm


@pytest.fixture
def clang(llvm: Tool, nvidia: NvidiaFile) -> list[str]:
    """Return clang's command with the toolkit of NVIDIA's wheels."""
    nvidia("fatbinary")
    return [llvm("clang++"), f"--cuda-path={nvidia('ptxas').parent.parent}", *OWN]


@pytest.fixture
def both(tmp_path: Path, clang: list[str]) -> Both:
    """Return a function that compiles both ways, compares, and gives what ours says."""
    return lambda args: compare(tmp_path, [*clang, *args], write_project)


def write_project(place: Path) -> None:
    place.mkdir()
    (place / "value.h").write_text("#pragma once\n#define VALUE 3\n")
    (place / "only_sm_90.h").write_text("#pragma once\n")
    (place / "s.cu").write_text(SOURCE)


@pytest.mark.parametrize("flags", FLAGS)
def test_flags(flags: str, tmp_path: Path, both: Both) -> None:
    """Whatever the flags, object and other files are the driver's, and the compile is split."""
    messages = both([*TARGETS, CUID, *flags.split(), "-c", "s.cu", "-o", "s.o"])
    assert "launch: split: " in messages
    assert (tmp_path / "done1/s.o").exists()


@pytest.mark.parametrize("word", SPELLINGS)
def test_words_of_nvcc(word: str, both: Both) -> None:
    """A word of nvcc's means to clang what it means without us."""
    both([*TARGETS, CUID, word, "-c", "s.cu", "-o", "s.o"])


def test_nvcc(tmp_path: Path, nvidia: NvidiaFile) -> None:
    """Nvcc is no clang: it takes our place."""
    write_project(tmp_path / "build")
    done = run([*LAUNCH, nvidia("nvcc"), "-c", "s.cu", "--dryrun"], tmp_path / "build")
    assert "passed through: " in done.stderr
    assert "nvcc' is no clang" in done.stderr


@pytest.mark.parametrize("driver", ["--no-offload-new-driver", "--offload-new-driver"])
def test_cache(driver: str, tmp_path: Path, clang: list[str]) -> None:
    """A header of one target compiles that target alone again, with the driver's bytes."""
    place = tmp_path / "build"
    write_project(place)
    args = [*clang, *TARGETS, CUID, driver, "-MD", "-c", "s.cu", "-o", "s.o"]

    more = ccache(tmp_path / "kept")

    def made() -> int:
        old = (place / "only_sm_90.h").stat()
        os.utime(place / "only_sm_90.h", ns=(old.st_atime_ns, 1))
        results = []
        for launch in ((), LAUNCH):
            done = run([*launch, *args], place, more)
            assert done.returncode == 0, done.stderr
            results.append((place / "s.o").read_bytes())
        assert len(set(results)) == 1
        return misses(more)

    assert [made(), made()] == [3, 0]
    (place / "only_sm_90.h").write_text("#undef VALUE\n#define VALUE 5\n")
    assert [made(), made()] == [1, 0]
