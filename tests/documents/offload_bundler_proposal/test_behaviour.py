"""'Bundler/Unbundler behavior' and 'Bundled file format'."""

from __future__ import annotations

import pytest

from tests.documents.conftest import Beside

pytestmark = pytest.mark.llvm

HOST = "host-x86_64-unknown-linux-gnu-"
GPUS = ("openmp-amdgcn-amd-amdhsa--gfx906", "openmp-nvptx64-nvidia-cuda-unknown-sm_70")
TEXT = ("i", "ii", "cui", "hipi", "d", "ll", "s")
BINARY = ("bc", "gch", "ast", "o")


@pytest.mark.parametrize("file_type", [*TEXT, *BINARY])
def test_bundling(beside: Beside, file_type: str) -> None:
    """'Takes as input multiple files and produce a single one', as text or binary by the type."""
    ids = ", ".join(map(repr, (HOST, *GPUS)))
    beside.scons(
        f"env.OffloadBundle('ours.bundle', ['a.in', 'b.in', 'c.in'], OFFLOAD_TARGETS=[{ids}], "
        f"OFFLOAD_BUNDLE_TYPE='{file_type}', OFFLOAD_BUNDLE_ALIGN=1)\n"
    )
    beside.bundle("abc", (HOST, *GPUS), "theirs", f"-type={file_type}")
    assert beside.read("ours.bundle") == beside.read("theirs")


@pytest.mark.parametrize("file_type", ["ii", "bc"])
def test_unbundling(beside: Beside, file_type: str) -> None:
    """'The device IDs are used to retrieve the right content', in the order that is asked for."""
    beside.bundle("abc", (HOST, *GPUS), "made.bundle", f"-type={file_type}")
    wanted = ", ".join(map(repr, reversed(GPUS)))
    beside.scons(
        "nodes = env.OffloadUnbundle('out', 'made.bundle', "
        f"OFFLOAD_TARGETS=[{wanted}], OFFLOAD_BUNDLE_TYPE='{file_type}')\n"
        "print('order:', *(node.name for node in nodes))\n"
        "for name, node in zip('cb', nodes):\n"
        "    env.Command(f'copy.{name}', node, Copy('$TARGET', '$SOURCE'))\n"
    )
    for name in "bc":
        assert beside.read(f"copy.{name}") == beside.read(f"{name}.in")


def test_edited_text(beside: Beside) -> None:
    """'The user can conveniently read/edit' a text bundle: what was edited is what comes out."""
    beside.bundle("ab", [HOST, GPUS[0]], "made.s", "-type=s")
    edited = beside.read("made.s").replace(b"content of b", b"edited text")
    beside.write("made.s", edited)
    beside.scons(
        f"(node,) = env.OffloadUnbundle('out', 'made.s', OFFLOAD_TARGETS='{GPUS[0]}', "
        "OFFLOAD_BUNDLE_TYPE='s')\nenv.Command('copy', node, Copy('$TARGET', '$SOURCE'))\n"
    )
    assert beside.read("copy") == b"edited text\n"
