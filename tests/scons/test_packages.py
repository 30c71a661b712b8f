"""OffloadPackage, OffloadExtract and OffloadWrapper: offload binaries and registration."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from offload_tool.formats.offload_binary import iter_offload_binaries
from offload_tool.operations.list_images import list_images
from tests.formats.registration_modules import disassembled
from tests.scons.conftest import BOTH, Project

FILES = ("k.gfx906.co", "k.gfx90a_xnack+.co")
PACKAGE = "package = env.OffloadPackage('k.hip')\n"
EXTRACT = PACKAGE + "env.OffloadExtract('part', package)\n"
WRAPPER = "bundle = env.OffloadBundle('k.hip')\n"


def images(path: Path) -> list[tuple[str, str]]:
    return [(image.kind, image.target_id) for image in list_images(path)]


def image_bytes(path: Path) -> list[bytes]:
    """Return the images of a package, as they are in it."""
    data = memoryview(path.read_bytes())
    found = [image for binary in iter_offload_binaries(data, path=path) for image in binary.images]
    return [bytes(data[image.offset : image.offset + image.size]) for image in found]


def test_package_of_nodes_and_files(project: Project) -> None:
    """Nodes know their device; files are given theirs, which another package may tell anew."""
    project.write("x.co", "any image")
    project.sconstruct(
        "nodes = env.OffloadDeviceObject('k.hip', OFFLOAD_ARCH='gfx906')\n"
        "env.OffloadPackage('mixed', [nodes, 'x.co'],\n"
        "                   OFFLOAD_TARGETS=['hipv4-amdgcn-amd-amdhsa--gfx1030'])\n"
        "env.OffloadPackage('other.bin', 'x.co',\n"
        "                   OFFLOAD_TARGETS=['openmp-x86_64-pc-linux-gnu-'])\n"
    ).build()
    assert images(project.folder / "mixed.offload") == [("hip", "gfx906"), ("hip", "gfx1030")]
    assert image_bytes(project.folder / "mixed.offload")[1] == b"any image"
    assert images(project.folder / "other.bin") == [("openmp", "")]
    project.assert_up_to_date()


def test_extract_by_listed_ids(project: Project) -> None:
    """OffloadExtract takes the IDs that `list` prints, of kinds too that no bundle has."""
    ids = [
        *("cuda-nvptx64-nvidia-cuda-unknown-sm_80", "openmp-nvptx64-nvidia-cuda-unknown-sm_90"),
        *("sycl-spir64-unknown-unknown-unknown-", "openmp-x86_64-pc-linux-gnu-"),
    ]
    files = [f"{number}.co" for number in range(len(ids))]
    for name in files:
        project.write(name, f"image {name}")
    project.sconstruct(
        f"p = env.OffloadPackage('p', {files}, OFFLOAD_TARGETS={ids})\n"
        f"env.OffloadExtract('part', p, OFFLOAD_TARGETS={ids})\n"
    ).build()
    assert [image.id for image in list_images(project.folder / "p.offload")] == ids
    assert {path.read_text() for path in project.folder.glob("part.*")} == {
        f"image {name}" for name in files
    }


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("package, OFFLOAD_ARCH='gfx942'", "[part.gfx942.co] 'k.offload': no image of hip with"),
        ("'cut.bin'", "cut.bin"),
    ],
    ids=["image that is not there", "file that is cut short"],
)
def test_extract_fails(project: Project, call: str, message: str) -> None:
    """What a package does not have, or cannot have, fails the build by name, with no file left."""
    project.sconstruct(PACKAGE).build()
    whole = project.read("k.offload")
    (project.folder / "cut.bin").write_bytes(whole[: len(whole) // 2])
    project.sconstruct(PACKAGE + f"env.OffloadExtract('part', {call})\n")
    assert message in project.fails("-Q").errors
    assert not list(project.folder.glob("part.*"))


@pytest.mark.llvm
def test_wrapper_is_what_llvm_makes(project: Project, llvm: Callable[[str], str]) -> None:
    """OffloadWrapper's bitcode reads as the module of llvm-offload-wrapper for the same bundle."""
    project.environment["OFFLOAD_CLANG"] = llvm("clang")
    project.sconstruct(WRAPPER + "env.OffloadWrapper('w.bc', bundle)\n").build()
    ours = disassembled(llvm("llvm-dis"), project.folder / "w.bc")
    ours = re.sub("^target datalayout = .*\n", "", ours, flags=re.M)  # clang adds it
    triple = next(
        line.split('"')[1] for line in ours.splitlines() if line.startswith("target triple")
    )
    tool = llvm("llvm-offload-wrapper")
    command = [tool, "--kind=hip", f"--triple={triple}", "k.hipfb", "-o", "theirs.bc"]
    subprocess.run(command, cwd=project.folder, check=True)
    assert ours == disassembled(llvm("llvm-dis"), project.folder / "theirs.bc")
    project.assert_up_to_date()


def test_wrapped_bundle_registers(project: Project) -> None:
    """A program with OffloadWrapper's object registers the bundle when it starts."""
    project.sconstruct(
        WRAPPER + "env.OffloadProgram('prog', [env.OffloadWrapper('w', bundle), 'runtime.c'])\n"
    ).build()
    assert project.start() == ["registered __CLANG_OFFLOAD_BUNDLE__"]
    assert images(project.folder / "prog")[1:] == [("hipv4", target) for target in BOTH]
    project.assert_up_to_date()


def test_without_llvmlite(project: Project) -> None:
    """The build's clang makes objects and bitcode; llvmlite is not needed."""
    project.write("hidden/llvmlite/__init__.py", "raise ModuleNotFoundError('hidden')\n")
    root = project.environment["PYTHONPATH"]
    project.environment["PYTHONPATH"] = f"{project.folder / 'hidden'}:{root}"
    wrappers = "env.OffloadWrapper('w.o', bundle)\nenv.OffloadWrapper('w.bc', bundle)\n"
    project.sconstruct(WRAPPER + wrappers).build()
    assert images(project.folder / "w.o")[1:] == [("hipv4", target) for target in BOTH]
    assert (project.folder / "w.bc").read_bytes().startswith(b"BC")
    project.assert_up_to_date()
