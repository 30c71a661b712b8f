"""Builds of one target each, in folders of their own, and the join of their caches."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from offload_tool import merge_files
from offload_tool.errors import OffloadError
from tests.conftest import ROOT, Tool, run_tool
from tests.scons import nvidia, test_cuda, test_kpack, test_rdc
from tests.scons import test_openmp as openmp
from tests.scons.conftest import SCONSTRUCT, Project, checkout
from tests.scons.relocatable import RELOCATABLE, one

CACHE = "CacheDir('cache')\n"
HIP = ("gfx906", "gfx90a:xnack+")
MAPPED = """\
env.Append(CCFLAGS=["-g", f"-ffile-prefix-map={Dir('#').abspath}=."])
"""


def hip(project: Project) -> str:
    return "env.OffloadProgram('prog', ['k.hip', 'runtime.c'])\n"


def hip_with_debug_information(project: Project) -> str:
    return MAPPED + hip(project)


def rdc(project: Project) -> str:
    project.write("one.hip", one("hip"))
    project.write("two.hip", test_rdc.TWO)
    return MAPPED + RELOCATABLE + test_rdc.PROGRAM


def kpack(project: Project) -> str:
    return test_kpack.HEAD + hip(project)


def cuda(project: Project) -> str:
    project.write("k.cu", test_cuda.KERNEL)
    project.write("runtime.c", nvidia.RUNTIME)
    project.write("main.c", test_cuda.MAIN)
    return test_cuda.PTX_ONLY + test_cuda.PROGRAM


def outputs(folder: Path) -> dict[str, bytes]:
    """Return what a build has made, but for the cache and records."""
    names = [*folder.glob("prog*"), *folder.glob("*.co"), *folder.glob(".kpack/*")]
    return {str(name.relative_to(folder)): name.read_bytes() for name in names}


@pytest.mark.parametrize("layout", [hip_with_debug_information, rdc, kpack, cuda])
def test_join_compiles_no_device_code(
    project: Project, tmp_path: Path, layout: Callable[[Project], str]
) -> None:
    """Caches that were copied into one give the join all device code, to the byte."""
    head, targets = (nvidia.HEAD, nvidia.BOTH) if layout is cuda else (SCONSTRUCT, HIP)
    project.sconstruct(layout(project) + CACHE, head)
    joined = checkout(project, tmp_path / "joined")
    for number, target in enumerate(targets):
        shard = checkout(project, tmp_path / f"shard{number}")
        compiled = shard.build(f"offload:{target}")
        assert compiled, "a shard compiles its target"
        assert {name.split()[1] for name in compiled} == {target}
        shutil.copytree(shard.folder / "cache", joined.folder / "cache", dirs_exist_ok=True)
    compiled = joined.build()
    assert {name.split()[1] for name in compiled} == {"host"}
    project.build()
    expected = outputs(project.folder)
    assert "prog" in expected
    assert outputs(joined.folder) == expected
    joined.assert_up_to_date()


@pytest.mark.parametrize("copy", [os.link, shutil.copy], ids=["hard links", "copies"])
def test_shards_of_openmp(project: Project, tmp_path: Path, copy: Callable[..., object]) -> None:
    """Target regions are named after inode numbers, so that shards need the same files."""
    project.write("work.c", openmp.REGION)
    project.sconstruct(openmp.OBJECT + CACHE, openmp.HEAD)
    joined = checkout(project, tmp_path / "joined", copy)
    for number, target in enumerate(openmp.TARGETS):
        shard = checkout(project, tmp_path / f"shard{number}", copy)
        shard.build(f"offload:{target}")
        shutil.copytree(shard.folder / "cache", joined.folder / "cache", dirs_exist_ok=True)
    on_devices = [name for name in joined.build() if name.split()[1] in openmp.TARGETS]
    assert len(on_devices) == (0 if copy is os.link else len(openmp.TARGETS))


def test_workflow_of_the_documentation(project: Project, tmp_path: Path) -> None:
    """The SConstruct and the commands of docs/howto/sharding.md do what it says, as printed."""
    text = (ROOT / "docs/howto/sharding.md").read_text()
    sconstruct = re.findall(r"```python\n# SConstruct\n(.*?)```", text, re.DOTALL)[0]
    workflow = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)[0]
    targets = re.findall(r"target: \[(.*)\]", workflow)[0].split(", ")
    shard_command, join_command = re.findall(r"- run: scons ?(.*)", workflow)
    flags = 'CCFLAGS=["-nogpuinc", "-nogpulib", '  # no HIP is installed here
    counted = 'OFFLOAD_LAUNCHER=File("#count").abspath,\n    CCFLAGS'
    sconstruct = sconstruct.replace("CCFLAGS=[", flags).replace("CCFLAGS", counted, 1)
    for name in ("k.hip", "runtime.c"):
        (project.folder / name).unlink()
    shutil.copy(ROOT / "examples/saxpy/saxpy.hip", project.folder)
    shutil.copy(ROOT / "examples/saxpy/hip_declarations.h", project.folder)
    shutil.copy(ROOT / "examples/saxpy/standin_hip_runtime.cpp", project.folder / "main.cpp")
    project.sconstruct(sconstruct, head="")
    joined = checkout(project, tmp_path / "joined")
    for target in targets:
        shard = checkout(project, tmp_path / target)
        assert shard.build(shard_command.replace("${{ matrix.target }}", target)) == [
            f"saxpy.hip {target}"
        ]
        shutil.copytree(shard.folder / "cache", joined.folder / "cache", dirs_exist_ok=True)
    assert joined.build(*join_command.split()) == ["saxpy.hip host"]
    project.build()
    assert joined.read("saxpy") == project.read("saxpy")


def test_finished_archives_become_those_of_all(project: Project, tmp_path: Path) -> None:
    """Archives of builds of one target each, in one folder, are those of the build of all.

    tests/test_examples.py::test_two_checkouts merges other files.
    """
    body = kpack(project)
    project.sconstruct(body).build()
    for number, target in enumerate(HIP):
        made = checkout(project, tmp_path / f"build{number}")
        made.sconstruct(f"env.Replace(OFFLOAD_ARCH=['{target}'])\n{body}").build()
        assert made.read("prog") == project.read("prog")
        shutil.copytree(made.folder / ".kpack", tmp_path / "all", dirs_exist_ok=True)
    folders = (tmp_path / "all", project.folder / ".kpack")
    found, expected = ({p.name: p.read_bytes() for p in each.iterdir()} for each in folders)
    assert found == expected


@pytest.mark.parametrize(("flag", "is_equal"), [("-cuid=k", True), ("-fuse-cuid=hash", False)])
def test_objects_of_the_driver(project: Project, llvm: Tool, flag: str, is_equal: bool) -> None:
    """Objects of clang's driver need an ID that does not depend on the targets."""
    args = [llvm("clang++"), "-nogpuinc", "-nogpulib", "-fgpu-rdc", "--no-offload-new-driver"]
    command = [*args, flag, "-DVALUE=1", "-c", "k.hip", "-o"]
    targets = ("gfx906", "gfx942")
    for name, built in ((targets[0], targets[:1]), (targets[1], targets[1:]), ("all", targets)):
        flags = [f"--offload-arch={target}" for target in built]
        run_tool(*command, f"{name}.o", *flags, cwd=project.folder)
    objects = [project.folder / f"{target}.o" for target in targets]
    if not is_equal:
        with pytest.raises(OffloadError, match="the first has one host object"):
            merge_files(objects, project.folder / "merged.o")
        return
    merge_files(objects, project.folder / "merged.o")
    assert project.read("merged.o") == project.read("all.o")
