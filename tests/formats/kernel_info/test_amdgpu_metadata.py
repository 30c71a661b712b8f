"""The metadata of AMD GPUs' code objects, compared with llvm-readelf's, and broken."""

from __future__ import annotations

import sys
from pathlib import Path

import msgpack
import msgpack.fallback
import pytest

from offload_tool.errors import FormatError, UnsupportedError, UsageError
from offload_tool.formats.kernel import Kernel
from offload_tool.formats.kernel_info.amdgpu_metadata import read_amdgpu_kernels
from tests.conftest import Tool, run_tool
from tests.formats.kernel_info.code_objects import KERNEL, code_object, compiled, metadata
from tests.formats.kernel_info.readelf import kernels_by_readelf

VERSIONS = {"gfx803": "4", "gfx90a:xnack+": "5", "gfx1100": "6", "gfx9-4-generic": "6"}
FOUND = Kernel("k", None, 12, None, 20, 64, 16, None, None, 64, 256)


def read(description: bytes, **note: object) -> list[Kernel]:
    return read_amdgpu_kernels(memoryview(code_object(description, **note)), path="x.co")  # type: ignore[arg-type]


@pytest.mark.llvm
@pytest.mark.parametrize("target", VERSIONS)
@pytest.mark.parametrize("flags", [(), ("-fgpu-rdc", "-emit-llvm")], ids=["linked", "relocatable"])
def test_as_readelf(target: str, flags: tuple[str, ...], llvm: Tool, tmp_path: Path) -> None:
    """Every number of every kernel is llvm-readelf's, of code objects 4 to 6, linked or not."""
    version = f"-mcode-object-version={VERSIONS[target]}"
    code = compiled(llvm("clang"), tmp_path, target, version, *flags)
    if flags:  # the bitcode becomes an object that no linker has seen
        bitcode = code.rename(tmp_path / "code.bc")

        llc = [llvm("llc"), "-mtriple=amdgcn-amd-amdhsa", "-filetype=obj", str(bitcode), "-o"]
        processor = target.partition(":")[0]
        run_tool(*llc, str(code), f"-mcpu={processor}")
    ours = read_amdgpu_kernels(memoryview(code.read_bytes()))
    assert ours == kernels_by_readelf(llvm("llvm-readelf"), code)
    assert {kernel.name for kernel in ours} == {"simple", "shared", "spilling", "stacked"}
    by_name = {kernel.name: kernel for kernel in ours}
    assert by_name["shared"].lds == 4000
    assert by_name["simple"].max_workgroup_size == 128
    assert by_name["stacked"].scratch
    assert all(kernel.code_size for kernel in ours)
    if not flags:  # with notes in sections, program headers do not matter
        data = bytearray(code.read_bytes())
        data[64 + 39] = 1  # the size of the first
        assert read_amdgpu_kernels(memoryview(data)) == ours


def test_what_is_read() -> None:
    """Numbers that may be missing are None; other keys, at any depth, are ignored."""
    more = {"amdhsa.printf": ["1:1:4:%d\\n"], "amdhsa.target": "amdgcn-amd-amdhsa--gfx90a"}
    counted = KERNEL | {".agpr_count": 4, ".vgpr_spill_count": 2, ".sgpr_spill_count": 3}
    assert read(metadata([KERNEL, counted], **more)) == [
        FOUND,
        FOUND._replace(agprs=4, vgpr_spills=2, sgpr_spills=3),
    ]
    assert read(metadata([])) == []
    assert read(metadata([KERNEL | {".name": b"\xff"}]))[0].name == "\udcff"


def test_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A note that is read in pieces of any size, by msgpack's own Python too, reads the same."""
    kernels = [KERNEL | {".name": f"k{number}" * 40} for number in range(50)]
    whole = read(metadata(kernels))
    assert [kernel.name for kernel in whole] == [f"k{number}" * 40 for number in range(50)]
    module = "offload_tool.formats.msgpack_stream"
    for size in (16, 17, 100, 1000):
        monkeypatch.setattr(f"{module}._READ_SIZE", size)
        assert read(metadata(kernels)) == whole
    monkeypatch.setattr(msgpack, "Unpacker", msgpack.fallback.Unpacker)
    assert read(metadata(kernels)) == whole


def test_without_msgpack(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of the package in a project may lack msgpack, which is an error."""
    monkeypatch.setitem(sys.modules, "msgpack", None)
    with pytest.raises(UsageError, match="with the package 'msgpack'; install it"):
        read(metadata([]))


BROKEN = {
    "not a map": msgpack.packb([1, 2]),
    "empty": b"",
    "text": b"---\nVersion: [1, 0]\n",
    "no version": msgpack.packb({"amdhsa.kernels": []}),
    "kernels no list": msgpack.packb({"amdhsa.version": [1, 1], "amdhsa.kernels": {"a": 1}}),
    "kernel no map": metadata([[1]]),
    "no name": metadata([{key: value for key, value in KERNEL.items() if key != ".name"}]),
    "empty name": metadata([KERNEL | {".name": ""}]),
    "no registers": metadata([{key: value for key, value in KERNEL.items() if "vgpr" not in key}]),
    "name no string": metadata([KERNEL | {".name": 5}]),
    "number no number": metadata([KERNEL | {".vgpr_count": "12"}]),
    "number true": metadata([KERNEL | {".vgpr_count": True}]),
    "number nested": metadata([KERNEL | {".vgpr_count": [[[]]]}]),
    "number below 0": metadata([KERNEL | {".vgpr_count": -1}]),
    "number too large": metadata([KERNEL | {".sgpr_count": 1 << 32}]),
    "key no string": metadata([KERNEL | {5: 1}]),
    "many kernels": b"\x81\xaeamdhsa.kernels\xdd\xff\xff\xff\xff",
    "many keys": b"\xdf\xff\xff\xff\xff\xa1a\x01",
    "deep": b"\x81\xa1a" + b"\x91" * 5000,
    "cut short": metadata([KERNEL, KERNEL])[:-1],
    "long name": b"\x81\xdb\xff\xff\xff\xffa",
}


@pytest.mark.parametrize("description", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("slow", [False, True], ids=["C", "Python"])
def test_broken(description: bytes, slow: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if slow:
        monkeypatch.setattr(msgpack, "Unpacker", msgpack.fallback.Unpacker)
    with pytest.raises(FormatError, match=r"^'x.co', NT_AMDGPU_METADATA: expected AMDGPU's"):
        read(description)


def test_other_versions() -> None:
    """Code object 2, whose note is YAML, and metadata that is newer are refused by name."""
    with pytest.raises(UnsupportedError, match=r"code object version 2 .YAML. is not read"):
        read(b"Version: [ 1, 0 ]\n", name=b"AMD\0", number=10)
    for version in ((2, 0), (1,), (0, 9), (1, 1, 1)):
        with pytest.raises(UnsupportedError, match="expected version 1 of the metadata, found"):
            read(metadata([], version))
    assert read(b"", name=b"GNU\0", number=3) == []


@pytest.mark.llvm
def test_no_note(llvm: Tool, tmp_path: Path) -> None:
    """Code with kernel descriptors and without metadata is an error that counts them."""
    code = compiled(llvm("clang"), tmp_path, "gfx90a")
    run_tool(llvm("llvm-objcopy"), "--remove-section=.note", str(code), str(tmp_path / "bare"))
    with pytest.raises(FormatError, match="a metadata note for 4 kernels, found none"):
        read_amdgpu_kernels(memoryview((tmp_path / "bare").read_bytes()))
