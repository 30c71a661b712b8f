"""Tables of offload kinds and of the memory layout."""

from __future__ import annotations

import struct

import pytest

from tests.documents.conftest import Beside

pytestmark = pytest.mark.llvm

IDS = (
    "host-x86_64-unknown-linux-gnu-",
    "hip-amdgcn-amd-amdhsa--gfx906",
    "openmp-amdgcn-amd-amdhsa--gfx90a:sramecc+:xnack-",
)


@pytest.mark.parametrize("alignment", [1, 4096])
def test_memory_layout(beside: Beside, alignment: int) -> None:
    """'Magic String', 'Number Of Device Binaries', then offset, size, length and ID of each."""
    beside.scons(
        f"env.OffloadBundle('ours', ['a.in', 'b.in', 'c.in'], OFFLOAD_TARGETS={IDS!r}, "
        f"OFFLOAD_BUNDLE_ALIGN={alignment})\n"
    )
    beside.bundle("abc", IDS, "theirs", "-type=bc", f"-bundle-align={alignment}")
    ours = beside.read("ours.hipfb")
    assert ours == beside.read("theirs")
    assert ours[:24] == b"__CLANG_OFFLOAD_BUNDLE__"
    assert struct.unpack_from("<Q", ours, 24) == (len(IDS),)
    at = 32
    for name, entry_id in zip("abc", IDS, strict=True):
        offset, size, length = struct.unpack_from("<QQQ", ours, at)
        assert ours[at + 24 : at + 24 + length] == entry_id.encode()
        assert ours[offset : offset + size] == beside.read(f"{name}.in")
        assert offset % alignment == 0
        at += 24 + length


def test_host_is_the_first_dummy_entry(beside: Beside) -> None:
    """'The first dummy empty entry': a bundle of device nodes begins with it, as clang's does."""
    beside.write("k.hip", "__attribute__((global)) void k(int *p) { *p = 1; }\n")
    beside.scons(
        "env['OFFLOAD_CLANG'] = '" + beside.llvm("clang") + "'\n"
        "env.OffloadBundle('ours', 'k.hip', OFFLOAD_ARCH='gfx906', "
        "CCFLAGS=['-nogpuinc', '-nogpulib', '-O1'])\n"
    )
    args = ("-type=o", f"-targets={IDS[0]},hipv4{IDS[1][3:]}", "-bundle-align=4096")
    beside.write("empty", b"")
    inputs = ("-input=empty", "-input=ours.gfx906.co", "-output=theirs")
    beside.run("clang-offload-bundler", *args, *inputs)
    assert beside.read("ours.hipfb") == beside.read("theirs")
