"""Host code for another machine: what the driver says of its flags, in every builder."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from offload_tool import list_entry_ids
from tests.conftest import ROOT, Tool, missing, run_tool
from tests.scons.conftest import Project, environment

AARCH64 = "aarch64-unknown-linux-gnu"
EM_AARCH64 = 183
FLAGS = ["--target=aarch64-linux-gnu", "-nogpuinc", "-nogpulib"]
PARTS = """\
env.OffloadBundle("with_host", "saxpy.hip", OFFLOAD_BUNDLE_HOST=True)
env.OffloadObject("one", "saxpy.hip")
env.OffloadWrapper("w.o", "data", OFFLOAD_KIND="openmp")
env.OffloadProgram("prog", ["saxpy.hip", "standin_hip_runtime.cpp"])
"""


@pytest.fixture
def cross(project: Project) -> Project:
    """Return a project of HIP sources for AArch64, for which programs can be linked here."""
    if not Path("/usr/aarch64-linux-gnu/lib/crt1.o").exists():
        missing("a C library for AArch64 (Debian: libstdc++-12-dev-arm64-cross)")
    for name in ("saxpy.hip", "hip_declarations.h", "standin_hip_runtime.cpp"):
        shutil.copy(ROOT / "examples/saxpy" / name, project.folder)
    project.write("data", "any image")
    return project


def machine(path: Path) -> int:
    """Return the number of the machine for which an ELF file is."""
    return int.from_bytes(path.read_bytes()[18:20], "little")


def test_every_builder(cross: Project, llvm: Tool) -> None:
    """Host entries, embedded bundles and registration are for the machine of the host objects.

    A program links with lld, and embeds what clang's own driver embeds.
    """
    found = {"OFFLOAD_CLANG": llvm("clang++"), "OFFLOAD_ARCH": "gfx906"}
    head = environment(**found, CCFLAGS=FLAGS, LINKFLAGS=["-fuse-ld=lld"])
    cross.sconstruct(PARTS, head).build_once("-Q")
    ids = list_entry_ids(cross.folder / "with_host.hipfb")
    assert ids == [f"host-{AARCH64}-", "hipv4-amdgcn-amd-amdhsa--gfx906"]
    made = {machine(cross.folder / name) for name in ("one.o", "w.o", "prog")}
    assert made == {EM_AARCH64}
    args = [*FLAGS, "--offload-arch=gfx906"]
    section = "--dump-section=.hip_fatbin=driver.hipfb"
    for command in (
        [llvm("clang++"), *args, "-c", "-x", "hip", "saxpy.hip", "-o", "driver.o"],
        [llvm("llvm-objcopy"), section, "driver.o", "/dev/null"],
    ):
        run_tool(*command, cwd=cross.folder)
    ours, theirs = (cross.folder / f"{name}.hipfb" for name in ("saxpy", "driver"))
    assert list_entry_ids(ours) == list_entry_ids(theirs)
