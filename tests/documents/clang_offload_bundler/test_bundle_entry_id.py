"""Section Bundle Entry ID, and Bundled Code Object Composition."""

from __future__ import annotations

import pytest

from tests.documents.conftest import Beside

pytestmark = pytest.mark.llvm

HIP = "hip-amdgcn-amd-amdhsa--"


def test_four_fields(beside: Beside) -> None:
    """'The bundler only accepts target triples in the 4-field format': three get a warning.

    The bundle is what LLVM makes of the four fields that the warning names.
    """
    old, new = "hip-amdgcn-amd-amdhsa-gfx906", f"{HIP}gfx906"
    run = beside.scons(
        f"env.OffloadBundle('ours', 'a.in', OFFLOAD_TARGETS={old!r}, OFFLOAD_BUNDLE_ALIGN=1)\n"
    )
    assert f"'{old}' has a triple of three fields" in run.errors
    assert f"it is taken as '{new}', write that" in run.errors
    beside.bundle("a", [new], "theirs")
    assert beside.read("ours.hipfb") == beside.read("theirs")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (
            "cuda-nvptx64-nvidia-cuda--sm_70",
            "invalid target 'cuda-nvptx64-nvidia-cuda--sm_70', unknown offloading kind 'cuda'",
        ),
        ("openmp-amdgcn-amd-amdhsa--gfx906", "expecting exactly one host target but got 0"),
    ],
    ids=["kind", "host"],
)
def test_refused_as_in_llvm(beside: Beside, entry: str, message: str) -> None:
    """'Offload-kind: the runtime responsible for managing the entry': others are refused.

    'Host: clang-offload-bundler always includes this entry': of HIP alone no host is wanted.
    """
    beside.refused(f"env.OffloadBundle('x', 'a.in', OFFLOAD_TARGETS={entry!r})\n", message)
    done = beside.tried(
        "clang-offload-bundler", "-type=bc", f"-targets={entry}", "-input=a.in", "-output=theirs"
    )
    assert done.returncode == 1
    assert message in done.stderr


def test_several_bundles(beside: Beside) -> None:
    """'Each entry must have a different bundle entry ID': two bundles in one file lose none.

    LLVM gives the first of them, without a word.
    """
    for name in "ab":
        beside.bundle(name, [f"{HIP}gfx906"], f"{name}.hipfb")
    beside.write("ab.hipfb", beside.read("a.hipfb") + beside.read("b.hipfb"))
    call = f"env.OffloadUnbundle('u', 'ab.hipfb', OFFLOAD_TARGETS='{HIP}gfx906')\n"
    beside.refused(call, f"'ab.hipfb': 2 entries '{HIP}gfx906', at 0x")
    assert not list(beside.folder.glob("u.*"))
    unbundle = ["-type=bc", "-unbundle", f"-targets={HIP}gfx906", "-input=ab.hipfb"]
    beside.run("clang-offload-bundler", *unbundle, "-output=theirs")
    assert beside.read("theirs") == beside.read("a.in")


@pytest.mark.parametrize("builder", ["OffloadUnbundle", "OffloadDeviceArchive"])
@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ([f"{HIP}gfx906"] * 2, "Duplicate targets are not allowed"),
        ([f"{HIP}gfx906", f"{HIP}gfx906:xnack+"], "inputs with conflicting targets"),
    ],
    ids=["different-IDs", "any"],
)
def test_composition(beside: Beside, builder: str, targets: list[str], message: str) -> None:
    """'Each entry must have a different bundle entry ID', and Any stands beside Any alone."""
    beside.refused(f"env.{builder}('x', 'a.in', OFFLOAD_TARGETS={targets})\n", message)
    file_type = "o" if builder == "OffloadUnbundle" else "a"
    outputs = ["-output=t0", "-output=t1"]
    options = [f"-type={file_type}", "-unbundle", f"-targets={','.join(targets)}", "-input=a.in"]
    done = beside.tried("clang-offload-bundler", *options, *outputs)
    assert done.returncode == 1
    assert message in done.stderr
