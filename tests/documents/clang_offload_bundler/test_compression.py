"""Section Compression and Decompression."""

from __future__ import annotations

import pytest

from tests.documents.conftest import Beside

HIP = "hip-amdgcn-amd-amdhsa--gfx906"
HOST = "host-x86_64-unknown-linux-gnu-"


@pytest.mark.llvm
def test_object_bundles(beside: Beside, host_object: str) -> None:
    """'Features to compress the full bundle': no object bundle, as in LLVM, but with a warning."""
    targets = [HIP, HOST]
    run = beside.scons(
        f"env.OffloadBundle('ours.o', ['a.in', {host_object!r}], OFFLOAD_TARGETS={targets},\n"
        "                  OFFLOAD_BUNDLE_TYPE='o', OFFLOAD_COMPRESS='zstd')\n"
    )
    assert "offload: warning: [ours.o] no compression" in run.errors
    inputs = ["-input=a.in", f"-input={host_object}", "-output=theirs.o"]
    options = ["-type=o", f"-targets={','.join(targets)}", "-compress"]
    beside.run("clang-offload-bundler", *options, *inputs)
    assert beside.read("ours.o") == beside.read("theirs.o")


@pytest.mark.llvm
def test_bundles_of_type_o_without_a_host(beside: Beside) -> None:
    """'Compress the full bundle': one of the type o without a host object is, without a word."""
    run = beside.scons(
        f"env.OffloadBundle('ours.o', 'a.in', OFFLOAD_TARGETS='{HIP}', OFFLOAD_BUNDLE_ALIGN=1,\n"
        "                  OFFLOAD_BUNDLE_TYPE='o', OFFLOAD_COMPRESS='zstd')\n"
    )
    assert "warning" not in run.errors
    assert beside.read("ours.o")[:4] == b"CCOB"
    read = ["-type=o", "-unbundle", f"-targets={HIP}", "-input=ours.o", "-output=u"]
    beside.run("clang-offload-bundler", *read)
    assert beside.read("u") == beside.read("a.in")


@pytest.mark.parametrize(("method", "version"), [("zstd", 3), ("zstd", 2), ("zlib", 3)])
def test_repacked(beside: Beside, method: str, version: int) -> None:
    """'Compress the full bundle', afterwards and whatever is in it: LLVM unbundles the same."""
    beside.bundle("ab", [HOST, HIP], "plain")
    beside.scons(
        f"env.OffloadRepack('small', 'plain', OFFLOAD_COMPRESS='{method}', "
        f"OFFLOAD_COMPRESS_VERSION={version})\n"
        "env.OffloadRepack('again', 'small.hipfb', OFFLOAD_BUNDLE_ALIGN=1)\n"
    )
    made = beside.read("small.hipfb")
    assert (made[:4], made[4]) == (b"CCOB", version)
    assert beside.read("again.hipfb") == beside.read("plain")
    args = ("-type=bc", "-unbundle", f"-targets={HOST},{HIP}", "-input=small.hipfb")
    beside.run("clang-offload-bundler", *args, "-output=u0", "-output=u1")
    assert beside.read("u1") == beside.read("b.in")
