"""Device libraries of OpenMP sources: archives of object bundles, taken apart and linked."""

# ruff: noqa: F401, F811 - fixtures are taken from test_openmp

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from offload_tool.formats.objects.ar import ArchiveReader
from offload_tool.passes.choose_compiler import find_toolchain
from tests.scons.conftest import Project
from tests.scons.test_openmp import CPU, HEAD, answer, kernels, regions, runnable

IDS = ("openmp-amdgcn-amd-amdhsa--gfx906", f"openmp-{CPU}-")
LIBRARY = "library = env.OffloadArchive('parts', ['work.c', 'other.c'])\n"
DSAS = ("libparts.gfx906.a", f"libparts.{CPU}.a")
OTHER = """\
int other(void) {
    int value = 0;
#pragma omp target map(from : value)
    value = 40;
    return value;
}
"""
MAIN = """\
#include <stdio.h>
int region(void), other(void);
int main(void) {
    printf("answer %d\\n", region() + other());
    return 0;
}
"""


@pytest.mark.parametrize("way", ["source", "OFFLOAD_LIBS", "archives", "bundles"])
def test_program_of_an_archive(runnable: Project, way: str) -> None:
    """A program runs the regions of an archive on the device, however it is given to it."""
    runnable.write("other.c", OTHER)
    runnable.write("main.c", MAIN)
    body = {
        "source": LIBRARY + "env.OffloadProgram('prog', ['main.c', library])\n",
        "OFFLOAD_LIBS": LIBRARY + "env.OffloadProgram('prog', ['main.c'], OFFLOAD_LIBS=library)\n",
        "archives": (
            LIBRARY + "archives = env.OffloadDeviceArchive(library)\n"
            "host = [env.OffloadHostObject(name) for name in ('work.c', 'other.c')]\n"
            "env.OffloadProgram('prog', ['main.c', host, archives])\n"
        ),
        "bundles": (
            "one = {'OFFLOAD_BUNDLE_TYPE': 'o', 'OFFLOAD_BUNDLE_HOST': True}\n"
            "bundles = [env.OffloadBundle(name, **one) for name in ('work.c', 'other.c')]\n"
            "library = env.OffloadArchive('parts', bundles)\n"
            "env.OffloadProgram('prog', ['main.c', library])\n"
        ),
    }[way]
    runnable.sconstruct(body, HEAD).done()
    assert answer(runnable) == "answer 41"
    image = kernels(runnable.folder / "prog.gfx906.co")
    assert len(image) == 2
    assert image == kernels(runnable.folder / f"prog.{CPU}.so")
    runnable.assert_up_to_date()


@pytest.mark.llvm
def test_foreign_archive(runnable: Project, llvm: Callable[[str], str]) -> None:
    """An archive that LLVM's tools made of OpenMP bundles is linked through OFFLOAD_LIBS."""
    if not find_toolchain().version.startswith("22."):
        pytest.skip("the library's bitcode is of clang 22")
    runnable.sconstruct(
        "env.OffloadDeviceObject('work.c')\nenv.OffloadHostObject('work.c')\n", HEAD
    ).done()
    inputs = ["work.gfx906.bc", f"work.{CPU}.o", "work.host.o"]
    targets = ",".join([*IDS, "host-x86_64-unknown-linux-gnu-"])
    command = [llvm("clang-offload-bundler"), "-type=o", f"-targets={targets}", "-output=theirs.o"]
    subprocess.run(
        [*command, *(f"-input={name}" for name in inputs)], check=True, cwd=runnable.folder
    )
    command = [llvm("llvm-ar"), "rcsD", "libforeign.a", "theirs.o"]
    subprocess.run(command, check=True, cwd=runnable.folder)
    runnable.sconstruct(
        "env.OffloadProgram('prog', ['main.c'], OFFLOAD_LIBS=['libforeign.a'])\n", HEAD
    ).done()
    assert answer(runnable) == "answer 1"
