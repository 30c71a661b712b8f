"""Split programs and libraries load, and each wrapper finds its own target's code."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from offload_tool import list_images
from offload_tool.containers.find import find_containers
from offload_tool.errors import NoContainerError, OffloadError, UnsupportedError, UsageError
from offload_tool.formats.objects.elf.reader import read_elf_tables
from offload_tool.operations.match import Device, match_images
from offload_tool.operations.split import split_file
from offload_tool.operations.thin import thin_file
from tests.conftest import Tool, missing, run_tool
from tests.operations.fatbins import make_bundle
from tests.operations.split_programs import TARGETS, link, registered

pytestmark = pytest.mark.llvm

LINKS = {
    "library-lld": ["-shared", "-fuse-ld=lld"],
    "library-bfd": ["-shared", "-fuse-ld=bfd"],
    "library-relr": ["-shared", "-fuse-ld=lld", "-Wl,-z,pack-relative-relocs"],
    "library-huge-pages": [
        *("-shared", "-fuse-ld=bfd", "-Wl,-z,max-page-size=0x200000", "-Wl,-z,noseparate-code"),
    ],
    "library-stripped": ["-shared", "-fuse-ld=lld", "-s"],
    "library-relro": ["-shared", "-fuse-ld=bfd", "-Wl,-z,now", "-Wl,-z,relro", "-g"],
    "program-lld": ["-fuse-ld=lld"],
    "program-bfd": ["-fuse-ld=bfd"],
    "program-fixed": ["-fuse-ld=bfd", "-no-pie"],
    "program-static": ["-fuse-ld=bfd", "-static"],
}


def originals(path: Path) -> list[dict[str, bytes]]:
    """Return the code of each bundle of an unsplit file, by target ID."""
    return [
        {i.target_id: bytes(i.content.view()) for i in found.images if i.kind != "host"}
        for found in find_containers(path)
    ]


def check_loads(path: Path, expected: list[dict[str, bytes]]) -> None:
    """Compare the code that the wrappers of a split file find with its original bundles."""
    rows = registered(path)
    assert [row.magic for row in rows] == ["HIPK"] * len(expected)
    for row, code in zip(rows, expected, strict=True):
        for target_id in {target for targets in TARGETS.values() for target in targets}:
            assert row.code(target_id) == code.get(target_id)


@pytest.mark.parametrize("prefix", ["k", "z"])
@pytest.mark.parametrize("name", LINKS)
def test_linked(name: str, prefix: str, hip_objects: Path, llvm: Tool, tmp_path: Path) -> None:
    """Every wrapper finds its own code for each target ID, and none for others."""
    path = link(hip_objects, llvm("clang"), tmp_path / name, LINKS[name], prefix)
    report = split_file(path, tmp_path / "out")
    out = tmp_path / "out" / name
    check_loads(out, originals(path))
    assert report.marked == (name,)
    assert [part.target_id for part in report.parts] == [None, "gfx1100", "gfx90a:xnack+", "gfx942"]
    assert [part.images for part in report.parts] == [0, 2, 1, 2]
    if prefix == "k":  # compressed bundles have less than two pages
        assert out.stat().st_size < path.stat().st_size
    assert out.stat().st_mode == path.stat().st_mode
    shown = subprocess.run(
        [llvm("llvm-readelf"), "-a", "-W", out], check=True, capture_output=True, text=True
    )
    assert "warning" not in shown.stdout + shown.stderr


@pytest.mark.parametrize("name", ["library-lld", "library-bfd", "program-lld", "program-bfd"])
@pytest.mark.parametrize("stripper", ["strip", "llvm-strip", "patchelf"])
def test_other_tools_afterwards(
    name: str, stripper: str, hip_objects: Path, llvm: Tool, tmp_path: Path
) -> None:
    """After GNU's and LLVM's strip, and patchelf, a split file still loads."""
    path = link(hip_objects, llvm("clang"), tmp_path / name, LINKS[name])
    split_file(path, tmp_path / "out")
    out = tmp_path / "out" / name
    command = [llvm(stripper) if stripper.startswith("llvm") else stripper]
    if shutil.which(command[0]) is None:
        missing(stripper)
    if stripper == "patchelf":
        command += ["--set-rpath", "/somewhere/" + "long/" * 40]
    run_tool(*command, out)
    check_loads(out, originals(path))


@pytest.mark.parametrize("scheme", ["none", "zstd-per-kernel"])
def test_schemes(scheme: str, hip_objects: Path, llvm: Tool, tmp_path: Path) -> None:
    """Archives may be compressed or not; two runs produce the same bytes."""
    path = link(hip_objects, llvm("clang"), tmp_path / "library", LINKS["library-lld"])
    for name in ("one", "two"):
        split_file(path, tmp_path / name, scheme=scheme, group="mine")
    check_loads(tmp_path / "one/library", originals(path))
    files = sorted(p for p in (tmp_path / "one").rglob("*") if p.is_file())
    assert [p.name for p in files] == [
        *("mine_gfx1100.kpack", "mine_gfx90a:xnack+.kpack", "mine_gfx942.kpack", "library"),
    ]
    for file in files:
        other = tmp_path / "two" / file.relative_to(tmp_path / "one")
        assert file.read_bytes() == other.read_bytes()


def test_one_marker(hip_objects: Path, llvm: Tool, tmp_path: Path) -> None:
    """Of the device code, only one marker remains, which AMD's tools read."""
    path = link(hip_objects, llvm("clang"), tmp_path / "library", LINKS["library-bfd"])
    split_file(path, tmp_path / "out")
    tables = read_elf_tables(memoryview((tmp_path / "out/library").read_bytes()))
    assert b".hip_fatbin" not in tables.names
    marker = tables.sections[tables.names.index(b".rocm_kpack_ref")]
    assert marker.sh_size < 100
    before = read_elf_tables(memoryview(path.read_bytes()))
    assert marker.sh_addr == before.sections[before.names.index(b".hip_fatbin")].sh_addr


def test_ours_reads_it(hip_objects: Path, llvm: Tool, tmp_path: Path) -> None:
    """A device loads the same images before and after."""
    path = link(hip_objects, llvm("clang"), tmp_path / "library", LINKS["library-lld"])
    split_file(path, tmp_path / "out")
    for device in ("gfx942:sramecc+:xnack-", "gfx90a:xnack+", "gfx1100", "gfx906"):
        before, after = (
            [match.ids for match in match_images(file, Device.parse(device))]
            for file in (path, tmp_path / "out/library")
        )
        assert before == after


def test_thinned_before(hip_objects: Path, llvm: Tool, tmp_path: Path) -> None:
    """A thinned library, whose bundles are in pieces, can be split."""
    path = link(hip_objects, llvm("clang"), tmp_path / "library", LINKS["library-lld"])
    keep = [Device.parse("gfx1100"), Device.parse("gfx90a:xnack+")]
    thin_file(path, path, keep=keep)
    split_file(path, tmp_path / "out")
    check_loads(tmp_path / "out/library", originals(path))


def test_split_twice(hip_objects: Path, llvm: Tool, tmp_path: Path) -> None:
    """A split file has no device code."""
    path = link(hip_objects, llvm("clang"), tmp_path / "library", LINKS["library-lld"])
    split_file(path, tmp_path / "out")
    with pytest.raises(NoContainerError, match="expected device code"):
        split_file(tmp_path / "out/library", tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_name_that_is_no_text(hip_objects: Path, llvm: Tool, tmp_path: Path) -> None:
    """Markers and archives hold names as UTF-8: others are rejected, and nothing is written."""
    (tmp_path / "in").mkdir()
    link(hip_objects, llvm("clang"), tmp_path / "in/lib\udce9.so", LINKS["library-lld"])
    with pytest.raises(UsageError, match=r"'lib\\udce9.so' is not UTF-8"):
        split_file(tmp_path / "in", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_relocatable_device_code(llvm: Tool, tmp_path: Path, hip_objects: Path) -> None:
    """With relocatable device code, all wrappers share one bundle, and one index."""
    clang = llvm("clang")
    flags = ["-x", "hip", "-nogpuinc", "-nogpulib", "-fPIC", "-fgpu-rdc", "--offload-arch=gfx942"]
    command = [clang, *flags, "-c", hip_objects / "k1.hip", hip_objects / "k2.hip"]
    run_tool(*command, "--no-offload-new-driver", cwd=tmp_path)
    flags = ["--hip-link", "-no-hip-rt", "-fgpu-rdc", "--offload-arch=gfx942", "-shared"]
    command = [clang, *flags, "k1.o", "k2.o", hip_objects / "runtime.o", "-o", "library.so"]
    run_tool(*command, "--no-offload-new-driver", cwd=tmp_path)
    path = tmp_path / "library.so"
    split_file(path, tmp_path / "out")
    (code,) = originals(path)
    rows = registered(tmp_path / "out/library.so")
    assert {row.index for row in rows} == {0}
    assert {row.code("gfx942") for row in rows} == {code["gfx942"]}


@pytest.mark.parametrize(
    "triple", ["aarch64-linux-gnu", "powerpc64le-linux-gnu", "riscv64-linux-gnu"]
)
def test_other_machines(triple: str, llvm: Tool, tmp_path: Path) -> None:
    """The wrapper's relocation is supported on the other 64-bit hosts, too."""
    bundle = make_bundle(
        tmp_path / "b", {"host-x86_64-unknown-linux-gnu-": b"", "gfx942": b"1" * 300_000}
    )
    (tmp_path / "x.s").write_text(
        f'.section .hip_fatbin,"a"\n.p2align 12\nfatbin:\n.incbin "{bundle}"\n'
        '.section .hipFatBinSegment,"aw"\n.p2align 3\n'
        ".long 0x48495046, 1\n.quad fatbin, 0\n"
    )
    command = [llvm("clang"), f"--target={triple}", "-shared", "-nostdlib", "-fuse-ld=lld", "x.s"]
    run_tool(*command, "-o", "library", cwd=tmp_path)
    split_file(tmp_path / "library", tmp_path / "out")
    out = tmp_path / "out/library"
    assert out.stat().st_size < 200_000
    shown = run_tool(llvm("llvm-readelf"), "-r", "-S", "-W", out)
    (marker,) = [line.split("]")[1].split() for line in shown.splitlines() if "_kpack_ref" in line]
    (relocation,) = [line.split() for line in shown.splitlines() if "_RELATIVE" in line]
    assert int(relocation[-1], 16) == int(marker[2], 16)
    assert [image.target_id for image in list_images(out)] == ["gfx942"]


# -- what is rejected --------------------------------------------------------------------


def test_pointer_into_the_bundles(llvm: Tool, tmp_path: Path) -> None:
    """A pointer into the bundles outside of wrappers is rejected: its bytes would be removed."""
    bundle = make_bundle(tmp_path / "b", {"gfx942": b"1" * 9000})
    wrapper = ".long 0x48495046, 1\n.quad fatbin, 0\n"
    text = f'.section .hip_fatbin,"a"\nfatbin:\n.incbin "{bundle}"\n'
    text += f'.section .hipFatBinSegment,"aw"\n{wrapper}'
    faults = {
        ".data\n.quad fatbin + 100\n": "which is in no wrapper, leads into",
        f'.section .hip_fatbin\n.p2align 12\n.incbin "{bundle}"\n': "no wrapper leads to this",
        ".quad 0, 0, 0\n": "expected a wrapper",
        ".quad 7\n": "expected wrappers of 24 bytes",
        wrapper.replace("fatbin", "fatbin + 8"): "to which a wrapper leads",
        wrapper.replace("fatbin", "elsewhere"): "a symbol of another file",
        wrapper.replace("0x48495046", "0x4B504948"): "in kpack archives already",
    }
    clang = llvm("clang")
    for more, message in faults.items():
        (tmp_path / "x.s").write_text(text + more)
        run_tool(
            clang, "-shared", "-nostdlib", "-fuse-ld=lld", "x.s", "-o", "library", cwd=tmp_path
        )
        with pytest.raises(OffloadError, match=message):
            split_file(tmp_path / "library", tmp_path / "out")
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (["hip-spirv64-amd-amdhsa--amdgcnspirv"], "no runtime loads hip-spirv64.* from a kpack"),
        (["gfx942", "hip-amdgcn-amd-amdhsa--gfx942"], "two images of one bundle are for gfx942"),
    ],
)
def test_images_for_no_archive(ids: list[str], message: str, llvm: Tool, tmp_path: Path) -> None:
    """SPIR-V, which no runtime loads from an archive, and two images of one key are rejected."""
    bundle = make_bundle(tmp_path / "b", dict.fromkeys(ids, b"1" * 9000))
    (tmp_path / "x.s").write_text(
        f'.section .hip_fatbin,"a"\nfatbin:\n.incbin "{bundle}"\n'
        '.section .hipFatBinSegment,"aw"\n.long 0x48495046, 1\n.quad fatbin, 0\n'
    )
    run_tool(
        llvm("clang"), "-shared", "-nostdlib", "-fuse-ld=lld", "x.s", "-o", "library", cwd=tmp_path
    )
    with pytest.raises(UnsupportedError, match=message):
        split_file(tmp_path / "library", tmp_path / "out")


def test_refused(hip_objects: Path, tmp_path: Path) -> None:
    """Objects, wrong options and files without device code are rejected by name."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "text").write_text("hello")
    with pytest.raises(UnsupportedError, match="is an object: split what is linked of it"):
        split_file(hip_objects / "k1.o", tmp_path / "out")
    with pytest.raises(NoContainerError):
        split_file(tmp_path / "text", tmp_path / "out")
    with pytest.raises(NoContainerError):
        split_file(tmp_path / "folder", tmp_path / "out")
    for options, message in (
        ({"group": "a/b"}, "to be a part of file names"),
        ({"scheme": "lz4"}, "expected the scheme none or zstd-per-kernel"),
        ({"in_parts": True}, "is no folder"),
    ):
        with pytest.raises(UsageError, match=message):
            split_file(tmp_path / "text", tmp_path / "out", **options)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="is in the folder to be split"):
        split_file(tmp_path / "folder", tmp_path / "folder/out")
    assert not (tmp_path / "out").exists()


def test_cut_files(hip_objects: Path, llvm: Tool, tmp_path: Path) -> None:
    """A library truncated anywhere, or with a changed byte, is split whole or rejected."""
    path = link(hip_objects, llvm("clang"), tmp_path / "library", LINKS["library-lld"])
    data = path.read_bytes()
    broken = tmp_path / "broken"
    tables = read_elf_tables(memoryview(data))
    places = [*range(0, 64, 3), *range(tables.header.e_shoff, len(data), 61)]
    for at in (*range(0, len(data), len(data) // 60), *places):
        broken.write_bytes(data[:at])
        try_to_split(broken, tmp_path / "out")
        changed = bytearray(data)
        changed[at] ^= 0xFF
        broken.write_bytes(changed)
        try_to_split(broken, tmp_path / "out")


def try_to_split(path: Path, out: Path) -> None:
    try:
        split_file(path, out)
    except OffloadError:
        assert not out.exists()
    else:
        shutil.rmtree(out)
