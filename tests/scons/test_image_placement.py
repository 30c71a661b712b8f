"""Programs with large device images: no relocation of the host code reaches over them."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from offload_tool import BundleEntryID, bundle_files
from offload_tool.formats.objects.elf.reader import read_elf_tables
from offload_tool.operations.embed import embed_bundle
from tests.conftest import Tool, try_tool
from tests.scons import nvidia, test_openmp, test_shards
from tests.scons.conftest import BUNDLE, KERNEL, RUNTIME, SCONSTRUCT, Project

HIP = "env.OffloadProgram('prog', ['k.hip', 'runtime.c'])\n"
ALWAYS = """\
from offload_tool.scons.builders import programs
programs.LARGE = 1
env.Append(LINKFLAGS=Split(ARGUMENTS.get("linker", "")))
"""
LINKERS = {"GNU ld": "linker=-fuse-ld=bfd", "lld": "linker=-fuse-ld=lld"}
SECTIONS = {"hip": ".hip_fatbin", "cuda": ".nv_fatbin", "openmp": ".llvm.offloading"}
GIB = 1 << 30
HOST = "x86_64-unknown-linux-gnu"


@pytest.fixture
def kernels(project: Project, llvm: Tool) -> Project:
    project.write("k.hip", KERNEL)
    project.write("runtime.c", RUNTIME)
    clang = f"env.Replace(OFFLOAD_CLANG={llvm('clang++')!r})\n"
    project.sconstruct(clang + ALWAYS + HIP)
    return project


def places(path: Path) -> dict[str, int]:
    """Return the address of each section of an ELF file."""
    tables = read_elf_tables(memoryview(path.read_bytes()), path=path)
    rows = zip(tables.names, tables.sections, strict=True)
    return {name.decode(): row.sh_addr for name, row in rows}


def sources_of(kind: str, project: Project) -> str:
    """Write sources of an offload kind, and return the SConstruct of a program of them."""
    if kind == "hip":
        return SCONSTRUCT + ALWAYS + HIP
    if kind == "cuda":
        return nvidia.HEAD + ALWAYS + test_shards.cuda(project)
    project.write("work.c", test_openmp.REGION)
    project.write("main.c", test_openmp.MAIN)
    return test_openmp.HEAD + ALWAYS + test_openmp.PROGRAM


@pytest.mark.parametrize("kind", SECTIONS)
@pytest.mark.parametrize("linker", LINKERS)
def test_images_lie_behind_bss(kernels: Project, linker: str, kind: str) -> None:
    """Each linker keeps its own layout for everything but the images."""
    kernels.sconstruct(sources_of(kind, kernels), head="").build(LINKERS[linker])
    at = places(kernels.folder / "prog")
    assert at[SECTIONS[kind]] > at[".bss"] > at[".data"] > at[".text"]
    kernels.assert_up_to_date(LINKERS[linker])


def test_small_images_stay(kernels: Project) -> None:
    """Programs below the limit are linked as ever."""
    kernels.sconstruct(HIP)
    assert "images_behind_bss" not in kernels.run("-Q").output
    at = places(kernels.folder / "prog")
    assert at[".hip_fatbin"] < at[".bss"]


@pytest.mark.parametrize("linker", ["gold", "mold"])
def test_linkers_without_the_script_are_refused(kernels: Project, linker: str) -> None:
    run = kernels.fails("-Q", f"linker=-fuse-ld={linker}")
    assert f"-fuse-ld={linker} cannot put device images behind .bss" in run.errors
    assert "OFFLOAD_KPACK" in run.errors
    assert not (kernels.folder / "prog").exists()


def test_script_of_the_user_stays_alone(kernels: Project) -> None:
    kernels.write("own.ld", "SECTIONS { .own : { *(.own) } } INSERT AFTER .data;\n")
    assert "images_behind_bss" not in kernels.done("-Q", "linker=-Wl,-T,own.ld").output


def test_more_than_two_gigabytes(kernels: Project) -> None:
    """The driver's own link of the same objects fails; ours registers both bundles.

    With one linker, since each writes 2.2 GB; a test above has the layouts of both.
    """
    folder = kernels.folder
    if shutil.disk_usage(folder).free < 10 * GIB:
        pytest.skip("needs 10 GiB of disk")
    with (folder / "image").open("wb") as image:
        image.truncate(2 * GIB + (200 << 20))
    ids = (f"host-{HOST}-", "hipv4-amdgcn-amd-amdhsa--gfx906")
    files = (None, folder / "image")
    bundle_files(
        [(BundleEntryID.parse(text), file) for text, file in zip(ids, files, strict=True)],
        folder / "big.hipfb",
    )
    embed_bundle(folder / "big.hipfb", folder / "big.o", host_triple=HOST, cuid="big")
    body = ALWAYS.replace("programs.LARGE = 1\n", "")
    body += "SetOption('max_drift', 0)  # what has been hashed is not hashed again\n"
    kernels.sconstruct(body + HIP.replace("'runtime.c'", "'runtime.c', 'big.o'"))
    run = kernels.done("-Q", LINKERS["GNU ld"])
    assert "OFFLOAD_COMPRESS makes device images smaller" in run.errors
    assert kernels.start()[0] == f"{BUNDLE} 1"
    command = next(line for line in run.output.splitlines() if re.search("-T,'?/", line))
    args = [word for word in command.split() if "images_behind_bss" not in word]
    driver = try_tool(*args, cwd=folder)
    assert driver.returncode
    assert "relocation" in driver.stderr
