"""Files of a build whose images later files have, as clang's own steps make them."""

from __future__ import annotations

import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from offload_tool.cli import main
from offload_tool.operations.size_report import Intermediates, collect_images

TARGETS = ("gfx90a", "gfx1100")
SOURCE = """\
struct dim3 { unsigned x, y, z; };
extern "C" int hipLaunchKernel(const void*, dim3, dim3, void**, unsigned long, struct stream*);
__attribute__((global)) void k(int* p) { *p = 1; }
"""


def intermediates(folder: Path) -> list[str]:
    found = Intermediates()
    collect_images([folder], each=found.add)
    return sorted(Path(name).name for name in found.files())


@pytest.fixture
def build(tmp_path: Path, llvm: Callable[[str], str]) -> Path:
    """Return a folder of code objects, bundle, object and library of one source."""
    (tmp_path / "k.hip").write_text(SOURCE)
    clang = [llvm("clang++"), "-O2", "-fPIC"]
    hip = ["-x", "hip", "k.hip", "-nogpuinc", "-nogpulib", "-cuid=1"]
    device = [*hip, "--cuda-device-only", "--no-gpu-bundle-output"]
    folder = tmp_path / "build"
    folder.mkdir()
    every = [f"--offload-arch={target}" for target in TARGETS]
    commands = [
        *([*device, arch, "-o", f"build/k.{arch.partition('=')[2]}.co"] for arch in every),
        [*hip, "--cuda-device-only", *every, "-o", "build/k.hipfb"],
        [*hip, *every, "-c", "-o", "build/k.o"],
        ["-shared", "build/k.o", "-o", "build/libk.so"],
    ]
    for command in commands:
        subprocess.run([*clang, *command], cwd=tmp_path, check=True)
    return folder


def test_each_step_is_a_part_of_the_next(build: Path) -> None:
    """Code objects are parts of the bundle, it of the object, and that of the library."""
    co = sorted(path.name for path in build.glob("*.co"))
    assert len(co) == len(TARGETS)
    assert intermediates(build) == [*co, "k.hipfb", "k.o"]
    (build / "libk.so").unlink()
    assert intermediates(build) == [*co, "k.hipfb"]
    (build / "k.o").unlink()
    assert intermediates(build) == co


def test_other_code_counts(build: Path) -> None:
    """A code object that no other file has counts, and so do a wheel and the library in it."""
    (build / "other.co").write_bytes((build / "k.gfx90a.co").read_bytes() + b"\0")
    with zipfile.ZipFile(build / "k.whl", "w") as wheel:
        wheel.write(build / "libk.so", "libk.so")
    before = intermediates(build)
    assert "other.co" not in before
    assert "libk.so" not in before
    (build / "libk.so").unlink()
    assert "k.o" not in intermediates(build)


def test_report(build: Path, tmp_path: Path) -> None:
    """The page counts the library's images, names what it left out, and counts what is named."""
    page = tmp_path / "page.html"
    assert main(["report", str(build), "-o", str(page)]) == 0
    assert "2 kernels in 2 device images" in page.read_text()
    assert "4 files" in page.read_text()
    assert main(["report", str(build / "k.hipfb"), str(build / "libk.so"), "-o", str(page)]) == 0
    assert "4 kernels in 4 device images" in page.read_text()
