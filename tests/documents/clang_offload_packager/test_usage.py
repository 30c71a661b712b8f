"""Sections Usage and Example."""

from __future__ import annotations

import pytest

from offload_tool import list_images
from tests.documents.conftest import Beside

pytestmark = pytest.mark.llvm

PACKAGER = "llvm-offload-binary"
AMD = "triple=amdgcn-amd-amdhsa"


def test_example(beside: Beside) -> None:
    """'clang-offload-packager -o out.bin --image=file=input.o,triple=nvptx64,arch=sm_70'."""
    beside.write("input.o", "any image")
    beside.scons(
        "env.OffloadPackage('out.bin', 'input.o', OFFLOAD_TARGETS='none-nvptx64----sm_70')"
    )
    image = "--image=file=input.o,triple=nvptx64,arch=sm_70"
    beside.run(PACKAGER, "-o", "theirs", image)
    assert beside.read("out.bin") == beside.read("theirs")


def test_inverse_example(beside: Beside) -> None:
    """'The matching images will be placed in the output': of no kind, by triple and arch."""
    beside.write("input.o", "any image")
    beside.run(PACKAGER, "-o", "in.bin", "--image=file=input.o,triple=nvptx64,arch=sm_70")
    listed = list_images(beside.folder / "in.bin")[0].id
    beside.scons(
        "env.OffloadExtract('typed', 'in.bin', OFFLOAD_TARGETS='none-nvptx64----sm_70')\n"
        f"env.OffloadExtract('listed', 'in.bin', OFFLOAD_TARGETS={listed!r})\n"
    )
    beside.run(PACKAGER, "in.bin", "--image=file=theirs.o,triple=nvptx64,arch=sm_70")
    for name in ("typed", "listed"):
        ours = beside.read(f"{name}.sm_70.co").rstrip(b"\0")
        assert ours == beside.read("theirs.o").rstrip(b"\0")


@pytest.mark.parametrize("kind", ["cuda", "openmp"])
def test_nvidia(beside: Beside, kind: str) -> None:
    """'The offloading kind': images for NVIDIA GPUs of the kinds cuda and openmp, there and back.

    By OFFLOAD_KIND and OFFLOAD_ARCH, and by the ID that `list` prints.
    """
    entry = f"{kind}-nvptx64-nvidia-cuda-unknown-sm_80"
    beside.scons(
        f"p = env.OffloadPackage('ours', 'a.in', OFFLOAD_TARGETS='{entry}')\n"
        f"env.OffloadExtract('named', p, OFFLOAD_KIND='{kind}', OFFLOAD_ARCH='sm_80')\n"
        f"env.OffloadExtract('listed', p, OFFLOAD_TARGETS='{entry}')\n"
    )
    described = f"triple=nvptx64-nvidia-cuda,arch=sm_80,kind={kind}"
    beside.run(PACKAGER, "-o", "theirs", f"--image=file=a.in,{described}")
    assert beside.read("ours.offload") == beside.read("theirs")
    for name in ("named.sm_80.co", "listed.sm_80.co"):
        beside.run(PACKAGER, "ours.offload", f"--image=file=t.{name},{described}")
        assert beside.read(name).rstrip(b"\0") == beside.read(f"t.{name}").rstrip(b"\0")


def test_ptx(beside: Beside) -> None:
    """'The arch argument is suggested': PTX has a name of its own, which is checked, too."""
    entry = "cuda-nvptx64-nvidia-cuda-unknown-compute_80"
    beside.scons(f"env.OffloadPackage('ours', 'a.in', OFFLOAD_TARGETS='{entry}')\n")
    described = "triple=nvptx64-nvidia-cuda,arch=compute_80,kind=cuda"
    beside.run(PACKAGER, "-o", "theirs", f"--image=file=a.in,{described}")
    assert beside.read("ours.offload") == beside.read("theirs")
    beside.refused(
        f"env.OffloadPackage('ours', 'a.in', OFFLOAD_TARGETS='{entry}1')\n",
        "unknown processor 'sm_801', did you mean 'sm_80'",
    )


@pytest.mark.parametrize("kind", ["hip", "cuda"])
def test_three_fields(beside: Beside, kind: str) -> None:
    """'The file and triple arguments are mandatory': an ID of three fields gets a warning."""
    old, triple, arch = {
        "hip": ("hip-amdgcn-amd-amdhsa-gfx906", "amdgcn-amd-amdhsa", "gfx906"),
        "cuda": ("cuda-nvptx64-nvidia-cuda-sm_80", "nvptx64-nvidia-cuda", "sm_80"),
    }[kind]
    run = beside.scons(f"env.OffloadPackage('ours', 'a.in', OFFLOAD_TARGETS='{old}')\n")
    assert f"'{old}' has a triple of three fields" in run.errors
    beside.run(
        PACKAGER, "-o", "theirs", f"--image=file=a.in,triple={triple},arch={arch},kind={kind}"
    )
    assert beside.read("ours.offload") == beside.read("theirs")


def test_unknown_kind(beside: Beside) -> None:
    """'The producer of the image (e.g. openmp, cuda)': another one is refused by name."""
    beside.refused(
        "env.OffloadPackage('p', 'a.in', OFFLOAD_TARGETS='foo-nvptx64-nvidia-cuda--sm_70')\n",
        "unknown offload kind 'foo', expected openmp, cuda, hip, sycl or none",
    )


@pytest.mark.parametrize(
    "call",
    [
        "env.OffloadExtract('parts.a', 'all.bin', OFFLOAD_ARCH='gfx906')\n",
        "env['OFFLOAD_EXTRACT_ARCHIVE'] = True\n"
        "env.OffloadExtract('parts', 'all.bin', OFFLOAD_ARCH='gfx906')\n",
    ],
    ids=["suffix", "variable"],
)
def test_archive(beside: Beside, call: str) -> None:
    """'--archive: write extracted files to a static archive', with all images of one target ID."""
    images = [f"--image=file={name}.in,{AMD},arch=gfx906,kind=hip" for name in "abc"]
    beside.run(PACKAGER, "-o", "all.bin", *images)
    beside.scons(call)
    wanted = f"--image=file=theirs.a,{AMD},arch=gfx906,kind=hip"
    beside.run(PACKAGER, "all.bin", "--archive", wanted)
    assert beside.read("parts.gfx906.a") == beside.read("theirs.a")
