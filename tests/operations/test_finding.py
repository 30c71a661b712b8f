"""Containers in all kinds of files, handwritten or by LLVM 22."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path

import pytest

from offload_tool import list_images
from offload_tool.containers.find import find_containers
from offload_tool.errors import (
    FileError,
    FormatError,
    LimitError,
    NoContainerError,
    OffloadError,
    UnsupportedError,
)
from offload_tool.formats.cuda.object_section import PLACEHOLDER
from offload_tool.operations.list_images import iter_images
from tests.conftest import Tool, run_tool
from tests.formats.compressed import compressed
from tests.formats.object_files import make_coff, make_elf
from tests.operations.archives import archive, thin_archive
from tests.operations.fatbins import HOST, code, make_bundle, make_package, zip_of

IMAGES = {HOST: b"", "gfx906": code("gfx906"), "gfx90a:xnack+": code("gfx90a", 77)}
TARGETS = ["", "gfx906", "gfx90a:xnack+"]


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return make_bundle(tmp_path / "bundle", IMAGES)


def targets(path: Path) -> list[str]:
    return [image.target_id for image in list_images(path)]


def test_nested_thin_archives(tmp_path: Path, bundle: Path) -> None:
    (tmp_path / "sub").mkdir()
    bundle.rename(tmp_path / "sub" / "bundle")
    thin_archive(tmp_path / "sub" / "inner.a", ["bundle"])
    thin = thin_archive(tmp_path / "thin.a", ["sub/inner.a", "sub/bundle"])
    path = archive(tmp_path / "outer.a", thin)
    names = ["thin.a(sub/inner.a)(bundle)"] * 3 + ["thin.a(sub/bundle)"] * 3
    assert [i.member for i in list_images(path)] == names
    assert {(i.offset, i.container_offset) for i in list_images(path)} == {(None, None)}
    assert targets(thin) == targets(path) == TARGETS * 2


def test_thin_archives_without_end(tmp_path: Path) -> None:
    thin_archive(tmp_path / "b.a", ["link.a"])
    (tmp_path / "link.a").symlink_to("a.a")
    path = thin_archive(tmp_path / "a.a", ["b.a"])
    with pytest.raises(FormatError, match=r"\(link.a\)\(b.a\)\)': this archive contains itself"):
        list_images(archive(tmp_path / "outer.a", path))


def test_a_missing_member(tmp_path: Path) -> None:
    path = archive(tmp_path / "outer.a", thin_archive(tmp_path / "thin.a", ["gone.o"]))
    with pytest.raises(FileError, match=r"gone.o': No such file"):
        list_images(path)


def test_folder(tmp_path: Path, bundle: Path) -> None:
    """A folder's files are read in the order of names, without links and files without images."""
    folder = tmp_path / "folder"
    (folder / "sub").mkdir(parents=True)
    (folder / "b").write_bytes(bundle.read_bytes())
    (folder / "sub" / "a").write_bytes(bundle.read_bytes())
    (folder / "a.txt").write_text("text, with \n// __CLANG_OFFLOAD_BUNDLE____START__ in it")
    (folder / "empty").write_bytes(b"")
    (folder / "link").symlink_to(bundle)
    (folder / "loop").symlink_to(folder)
    images = list_images(folder)
    assert list(dict.fromkeys(i.file for i in images)) == [
        *(str(folder / "b"), str(folder / "sub" / "a"))
    ]
    assert {i.index for i in images} == {0}


def test_broken_among_others(tmp_path: Path, bundle: Path) -> None:
    files = {"a": bundle.read_bytes()[:-1], "b": b"\x7fELF" + bytes(30), "c": bundle}
    where = zip_of(tmp_path / "x.zip", files)
    problems: list[OffloadError] = []
    images = list(iter_images(where, skipped=problems.append))
    assert [i.target_id for i in images] == TARGETS
    assert len(problems) == 2
    assert "(a)" in str(problems[0])
    with pytest.raises(FormatError):
        list_images(where)


@pytest.mark.parametrize("damage", ["content", "directory", "header", "size"])
def test_broken_zip(tmp_path: Path, bundle: Path, damage: str) -> None:
    method = zipfile.ZIP_STORED if damage == "header" else zipfile.ZIP_DEFLATED
    path = zip_of(tmp_path / "x.zip", {"b": bundle}, method)
    data = bytearray(path.read_bytes())
    if damage == "content":
        data[60:64] = b"\xff\xff\xff\xff"
    elif damage == "directory":
        del data[-30:]
    elif damage == "header":
        data[26:28] = b"\xff\xff"  # a name length beyond the file
    else:
        at = data.index(b"PK\x01\x02") + 24
        data[at : at + 4] = struct.pack("<I", 0xFFFFFFF0)
    path.write_bytes(data)
    error = LimitError if damage == "size" else FormatError
    with pytest.raises(error, match=r"x\.zip"):
        list_images(path)


def test_thin_archive_in_a_zip(tmp_path: Path) -> None:
    thin = thin_archive(tmp_path / "thin.a", ["/etc/hostname"])
    for path in (thin, archive(tmp_path / "outer.a", thin)):
        with pytest.raises(UnsupportedError, match="found a thin one"):
            list_images(zip_of(tmp_path / "x.zip", {path.name: path}))


def test_weak_coff_magic(tmp_path: Path) -> None:
    """In a folder, a file that merely begins like a COFF object is skipped."""
    (tmp_path / "icon.ico").write_bytes(bytes([0, 0, 1, 0, 1, 0]) + bytes(12) + b"\xff" * 300)
    assert list_images(tmp_path) == []


@pytest.mark.llvm
def test_offload_binaries(tmp_path: Path, llvm: Tool) -> None:
    """Offload binaries that clang embeds are listed, in an object's section and in bitcode."""
    images = [("gfx906", b"BC\xc0\xde" + bytes(100)), ("gfx90a:xnack+", code("b", 55))]
    package = make_package(tmp_path / "package", images, "openmp")
    (tmp_path / "host.c").write_text("int host;\n")
    embed = ["-Xclang", f"-fembed-offload-object={package}", "-c", tmp_path / "host.c", "-o"]
    for name, *flags in (("host.o",), ("h.bc", "-emit-llvm")):
        run_tool(llvm("clang"), *flags, *embed, tmp_path / name)
        found = list_images(tmp_path / name)
        assert [(i.container, i.index, i.target_id, i.image_kind, i.size) for i in found] == [
            ("offload-binary", 0, "gfx906", "bitcode", 104),
            ("offload-binary", 1, "gfx90a:xnack+", "object", 55),
        ]
        data = (tmp_path / name).read_bytes()
        places = [i.offset and data[i.offset :][: i.size] for i in found]
        assert places == ([None, None] if flags else [content for _, content in images])


def test_host_object_without_its_fat_binary(tmp_path: Path) -> None:
    """A CUDA host object with an empty placeholder has no images, and is not broken."""
    (tmp_path / "a.host.o").write_bytes(make_elf(extra={b".nv_fatbin": PLACEHOLDER}))
    assert list_images(tmp_path) == []
    with pytest.raises(NoContainerError):
        list_images(tmp_path / "a.host.o")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "expected a bundle"),
        (b"#!/bin/sh", "found b'#!/bin/s'"),
        (b"\x7fELF" + bytes(5), "expected an ELF file, found"),
        (make_coff()[:-30], "cut short"),
        (b"!<arch>\n", "found an archive without any"),
        (b"__CLANG_OFFLOAD_BUNDLE__", "number of bundle entries"),
    ],
    ids=["empty", "script", "cut-elf", "cut-coff", "archive", "cut-bundle"],
)
def test_no_images(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    broken = content.startswith((b"\x7fELF", b"\x64\x86", b"__CLANG"))
    with pytest.raises(FormatError if broken else NoContainerError, match=message) as caught:
        list_images(path)
    assert str(path) in str(caught.value)


def test_what_stands_behind_a_bundle(tmp_path: Path) -> None:
    """Anything behind an uncompressed bundle is passed over, as by LLVM; not behind another."""
    bundle = make_bundle(tmp_path / "b", {HOST: b"", "gfx906": b"image"})
    plain = bundle.read_bytes()
    path = tmp_path / "x"
    for data, count in ((plain + bytes(9) + plain + b"more", 2), (compressed(plain) + plain, 2)):
        path.write_bytes(data)
        assert len(list(find_containers(path))) == count
    path.write_bytes(compressed(plain) + b"more")
    with pytest.raises(FormatError, match="expected zeros or another bundle after a compressed"):
        list(find_containers(path))
