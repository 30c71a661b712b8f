"""Split programs and libraries load, and each wrapper finds its own target's code."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from offload_tool import list_images
from offload_tool.errors import NoContainerError, OffloadError, UnsupportedError, UsageError
from offload_tool.formats.objects.elf.reader import read_elf_tables
from offload_tool.operations.join import join_file
from offload_tool.operations.split import split_file
from tests.conftest import Tool, missing, run_tool, try_tool
from tests.operations.fatbins import HOST, entry_id, make_bundle
from tests.operations.split_programs import LINKS, TARGETS, bundles_of, link, registered

pytestmark = pytest.mark.llvm


def check_loads(path: Path, expected: list[dict[str, bytes]]) -> None:
    """Compare the code that the wrappers of a split file find with its original bundles."""
    rows = registered(path)
    assert [row.magic for row in rows] == ["HIPK"] * len(expected)
    for row, code in zip(rows, expected, strict=True):
        for target_id in {target for targets in TARGETS.values() for target in targets}:
            assert row.code(target_id) == code.get(entry_id(target_id))


@pytest.mark.parametrize("prefix", ["k", "z"])
@pytest.mark.parametrize("name", LINKS)
def test_there_and_back(
    name: str, prefix: str, hip_objects: Path, llvm: Tool, tmp_path: Path
) -> None:
    """Every wrapper finds its own code; joined, a file loads its old images, stripped or not.

    A joined library can be split again; a program is rejected, because its header table was moved.
    """
    path = link(hip_objects, llvm("clang"), tmp_path / name, name, prefix)
    report = split_file(path, tmp_path / "apart")
    apart = tmp_path / "apart" / name
    check_loads(apart, bundles_of(path))
    assert report.marked == (name,)
    assert [part.target_id for part in report.parts] == [None, "gfx1100", "gfx90a:xnack+", "gfx942"]
    assert [part.images for part in report.parts] == [0, 2, 1, 2]
    if prefix == "k":  # compressed bundles have less than two pages
        assert apart.stat().st_size < path.stat().st_size
    before, after = (read_elf_tables(memoryview(file.read_bytes())) for file in (path, apart))
    marker = after.sections[after.names.index(b".rocm_kpack_ref")]
    assert b".hip_fatbin" not in after.names  # of the device code, only the marker remains
    assert marker.sh_size < 100
    assert marker.sh_addr == before.sections[before.names.index(b".hip_fatbin")].sh_addr
    shown = try_tool(llvm("llvm-readelf"), "-a", "-W", apart)
    assert shown.returncode == 0
    assert "warning" not in shown.stdout + shown.stderr

    out = tmp_path / "joined" / name
    out.parent.mkdir()
    joined = join_file(apart, [], out)
    assert (joined.files, joined.images) == (1, 5)
    assert bundles_of(out) == bundles_of(path)
    assert out.stat().st_mode == apart.stat().st_mode == path.stat().st_mode
    for command in (["true"], ["strip"], ["objcopy"], [llvm("llvm-strip"), "--strip-debug"]):
        run_tool(*command, out)
        rows = registered(out)
        assert {(row.magic, row.payload[:24]) for row in rows} == {
            ("FPIH", b"__CLANG_OFFLOAD_BUNDLE__")
        }
        assert len({row.payload for row in rows}) == 3
    if "program" in name:
        with pytest.raises(UnsupportedError, match="its program header table cannot move"):
            split_file(out, tmp_path / "again")
        return
    split_file(out, tmp_path / "again")
    for archive in (tmp_path / "apart/.kpack").iterdir():
        assert archive.read_bytes() == (tmp_path / "again/.kpack" / archive.name).read_bytes()


@pytest.mark.parametrize("name", ["library-lld", "library-bfd", "program-lld", "program-bfd"])
@pytest.mark.parametrize("stripper", ["strip", "llvm-strip", "patchelf"])
def test_other_tools_afterwards(
    name: str, stripper: str, hip_objects: Path, llvm: Tool, tmp_path: Path
) -> None:
    path = link(hip_objects, llvm("clang"), tmp_path / name, name)
    split_file(path, tmp_path / "out")
    out = tmp_path / "out" / name
    command = [llvm(stripper) if stripper.startswith("llvm") else stripper]
    if shutil.which(command[0]) is None:
        missing(stripper)
    if stripper == "patchelf":
        command += ["--set-rpath", "/somewhere/" + "long/" * 40]
    run_tool(*command, out)
    check_loads(out, bundles_of(path))


@pytest.mark.parametrize("scheme", ["none", "zstd-per-kernel"])
def test_schemes(scheme: str, library: Path, tmp_path: Path) -> None:
    """Archives may be compressed or not; two runs produce the same bytes."""
    for name in ("one", "two"):
        split_file(library, tmp_path / name, scheme=scheme, group="mine")
    check_loads(tmp_path / "one/library", bundles_of(library))
    files = sorted(p for p in (tmp_path / "one").rglob("*") if p.is_file())
    assert [p.name for p in files] == [
        *("mine_gfx1100.kpack", "mine_gfx90a:xnack+.kpack", "mine_gfx942.kpack", "library")
    ]
    for file in files:
        other = tmp_path / "two" / file.relative_to(tmp_path / "one")
        assert file.read_bytes() == other.read_bytes()


def test_name_that_is_no_text(library: Path, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    library.rename(tmp_path / "in/lib\udce9.so")
    with pytest.raises(UsageError, match=r"'lib\\udce9.so' is not UTF-8"):
        split_file(tmp_path / "in", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_relocatable_device_code(llvm: Tool, tmp_path: Path, hip_objects: Path) -> None:
    clang = llvm("clang")
    flags = ["-x", "hip", "-nogpuinc", "-nogpulib", "-fPIC", "-fgpu-rdc", "--offload-arch=gfx942"]
    command = [clang, *flags, "-c", hip_objects / "k1.hip", hip_objects / "k2.hip"]
    run_tool(*command, "--no-offload-new-driver", cwd=tmp_path)
    flags = ["--hip-link", "-no-hip-rt", "-fgpu-rdc", "--offload-arch=gfx942", "-shared"]
    command = [clang, *flags, "k1.o", "k2.o", hip_objects / "runtime.o", "-o", "library.so"]
    run_tool(*command, "--no-offload-new-driver", cwd=tmp_path)
    path = tmp_path / "library.so"
    split_file(path, tmp_path / "out")
    (code,) = bundles_of(path)
    rows = registered(tmp_path / "out/library.so")
    assert {row.index for row in rows} == {0}
    assert {row.code("gfx942") for row in rows} == {code[entry_id("gfx942")]}


WRAPPER = ".long 0x48495046, 1\n.quad fatbin, 0"


def assembled(folder: Path, clang: str, bundle: Path, *more: str, target: str = "") -> Path:
    """Write a library of a bundle, a wrapper that points to it, and more lines."""
    lines = ['.section .hip_fatbin,"a"', ".p2align 12", "fatbin:", f'.incbin "{bundle}"']
    lines += ['.section .hipFatBinSegment,"aw"', ".p2align 3", WRAPPER, *more, ""]
    (folder / "x.s").write_text("\n".join(lines))
    flags = [f"--target={target}"] if target else []
    flags += ["-shared", "-nostdlib", "-fuse-ld=lld", "x.s", "-o", "assembled"]
    run_tool(clang, *flags, cwd=folder)
    return folder / "assembled"


@pytest.mark.parametrize(
    "triple", ["aarch64-linux-gnu", "powerpc64le-linux-gnu", "riscv64-linux-gnu"]
)
def test_other_machines(triple: str, llvm: Tool, tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "b", {HOST: b"", "gfx942": b"1" * 300_000})
    path = assembled(tmp_path, llvm("clang"), bundle, target=triple)
    split_file(path, tmp_path / "out")
    out = tmp_path / "out/assembled"
    assert out.stat().st_size < 200_000
    shown = run_tool(llvm("llvm-readelf"), "-r", "-S", "-W", out).splitlines()
    (marker,) = [line.split("]")[1].split() for line in shown if "_kpack_ref" in line]
    (relocation,) = [line.split() for line in shown if "_RELATIVE" in line]
    assert int(relocation[-1], 16) == int(marker[2], 16)
    assert [image.target_id for image in list_images(out)] == ["gfx942"]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (".data\n.quad fatbin + 100", "which is in no wrapper, leads into"),
        ('.section .hip_fatbin\n.p2align 12\n.incbin "{}"', "no wrapper leads to this"),
        (".quad 0, 0, 0", "expected a wrapper"),
        (".quad 7", "expected wrappers of 24 bytes"),
        (WRAPPER.replace("fatbin", "fatbin + 8"), "to which a wrapper leads"),
        (WRAPPER.replace("fatbin", "elsewhere"), "a symbol of another file"),
        (WRAPPER.replace("0x48495046", "0x4B504948"), "in kpack archives already"),
    ],
)
def test_pointer_into_the_bundles(more: str, message: str, llvm: Tool, tmp_path: Path) -> None:
    """A pointer into the bundles outside of wrappers is rejected: its bytes would be removed."""
    bundle = make_bundle(tmp_path / "b", {"gfx942": b"1" * 9000})
    path = assembled(tmp_path, llvm("clang"), bundle, more.format(bundle))
    with pytest.raises(OffloadError, match=message):
        split_file(path, tmp_path / "out")
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
    path = assembled(tmp_path, llvm("clang"), bundle)
    with pytest.raises(UnsupportedError, match=message):
        split_file(path, tmp_path / "out")


def test_refused(hip_objects: Path, library: Path, tmp_path: Path) -> None:
    split_file(library, tmp_path / "once")
    folder, text = tmp_path / "folder", tmp_path / "text"
    folder.mkdir()
    text.write_text("hello")
    for path, options, error, message in (
        (hip_objects / "k1.o", {}, UnsupportedError, "is an object: split what is linked of it"),
        (tmp_path / "once/library", {}, NoContainerError, "expected device code"),
        (text, {}, NoContainerError, "expected device code"),
        (folder, {}, NoContainerError, "expected device code"),
        (text, {"group": "a/b"}, UsageError, "to be a part of file names"),
        (text, {"scheme": "lz4"}, UsageError, "expected the scheme none or zstd-per-kernel"),
        (text, {"in_parts": True}, UsageError, "is no folder"),
    ):
        with pytest.raises(error, match=message):
            split_file(path, tmp_path / "out", **options)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="is in the folder to be split"):
        split_file(folder, folder / "out")
    assert not (tmp_path / "out").exists()
