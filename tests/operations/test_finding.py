"""Containers in all kinds of files, handwritten or by LLVM 22."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path

import pytest

from offload_tool import Compression, embed_bundle, list_images
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
from tests.formats.cuda.test_fatbin import CUBIN, PACKED, cuda_fatbin
from tests.formats.object_files import make_coff, make_elf
from tests.operations.archives import archive, thin_archive
from tests.operations.fatbins import HOST, code, make_bundle

IMAGES = {HOST: b"", "gfx906": code("gfx906"), "gfx90a:xnack+": code("gfx90a", 77)}
TARGETS = ["", "gfx906", "gfx90a:xnack+"]


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return make_bundle(tmp_path / "bundle", IMAGES)


def targets(path: Path) -> list[str]:
    return [image.target_id for image in list_images(path)]


IDS = [
    "host-x86_64-unknown-linux-gnu-",
    "hipv4-amdgcn-amd-amdhsa--gfx90a:sramecc+:xnack-",
    "openmp-nvptx64-nvidia-cuda-unknown-sm_80",
    "hip-spirv64-amd-amdhsa--amdgcnspirv",
]


def test_bundle(tmp_path: Path) -> None:
    contents = {entry: bytes([at]) * at * 10 for at, entry in enumerate(IDS)}
    bundle = make_bundle(tmp_path / "b", contents, alignment=64)
    images = list_images(bundle)
    assert [image.id for image in images] == IDS
    assert [image.size for image in images] == [0, 10, 20, 30]
    assert [image.kind for image in images] == ["host", "hipv4", "openmp", "hip"]
    assert [image.target_id for image in images] == [
        *("", "gfx90a:sramecc+:xnack-", "sm_80", "amdgcnspirv")
    ]
    assert {(i.file, i.member, i.container, i.index) for i in images} == {
        (str(bundle), None, "bundle", 0)
    }
    data = bundle.read_bytes()
    for index, image in enumerate(images):
        assert image.offset is not None
        assert data[image.offset : image.offset + image.size] == bytes([index]) * image.size


@pytest.mark.parametrize("file_type", ["ii", "s", "ll"])
def test_text(tmp_path: Path, file_type: str) -> None:
    """A text bundle is recognised by its markers, with any comment, and with text before it."""
    path = make_bundle(tmp_path / "b", {HOST: b"h\n", "gfx906": b"d\n"}, file_type=file_type)
    path.write_bytes(b"some text\n" + path.read_bytes())
    images = list_images(path)
    assert [(i.container, i.target_id, i.size) for i in images] == [
        *(("bundle", "", 2), ("bundle", "gfx906", 2))
    ]
    data = path.read_bytes()
    assert [data[i.offset or 0 :][: i.size] for i in images] == [b"h\n", b"d\n"]


def test_compressed(tmp_path: Path) -> None:
    """Images of a compressed bundle have no offset; their stored sizes add up to its size."""
    path = make_bundle(tmp_path / "b", IMAGES, compression=Compression())
    images = list_images(path)
    assert [i.target_id for i in images] == TARGETS
    assert {(i.container, i.offset, i.container_offset) for i in images} == {
        ("compressed-bundle", None, 0)
    }
    assert [i.size for i in images] == [0, 5000, 77]
    assert sum(i.stored_size for i in images) == path.stat().st_size == images[0].container_size


def test_compressed_text(tmp_path: Path) -> None:
    images = {HOST: b"h", "gfx906": b"dd"}
    path = make_bundle(tmp_path / "b", images, file_type="s", compression=Compression())
    assert [(i.target_id, i.size) for i in list_images(path)] == [("", 1), ("gfx906", 2)]


@pytest.mark.parametrize("file_format", ["elf", "coff"])
def test_object_bundle(tmp_path: Path, file_format: str) -> None:
    path = tmp_path / "b.o"
    mark = b"__CLANG_OFFLOAD_BUNDLE__"
    rows = {mark + HOST.encode(): b"\0", mark + b"hip-amdgcn-amd-amdhsa--gfx906": b"code"}
    path.write_bytes(make_elf(extra=rows) if file_format == "elf" else make_coff(rows))
    first, second = list_images(path)
    assert (first.kind, first.offset, first.size) == ("host", None, 0)
    assert second.offset is not None
    assert path.read_bytes()[second.offset :][:4] == b"code"
    assert second.section == "__CLANG_OFFLOAD_BUNDLE__*"


def test_archive(tmp_path: Path, bundle: Path) -> None:
    """Members are named, offsets are those in the archive, and other members are skipped."""
    text = tmp_path / "readme"
    text.write_bytes(b"hello")
    path = archive(tmp_path / "lib.a", bundle, text)
    images = list_images(path)
    assert {i.member for i in images} == {"bundle"}
    assert images[1].offset is not None
    assert path.read_bytes()[images[1].offset :][:8] == b"<gfx906>"


def test_thin_archive(tmp_path: Path, bundle: Path) -> None:
    """A thin archive's members are read from their files; their images are not in it."""
    images = list_images(thin_archive(tmp_path / "thin.a", [bundle.name]))
    assert [(i.member, i.offset) for i in images] == [("bundle", None)] * 3


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


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_wheel(tmp_path: Path, bundle: Path, method: int) -> None:
    """Files in a zip file are read, stored (with their offset) or compressed (without)."""
    path = tmp_path / "x.whl"
    with zipfile.ZipFile(path, "w", method) as wheel:
        wheel.writestr("pkg/__init__.py", "x = 1\n" * 1000)
        wheel.write(bundle, "pkg/lib")
        wheel.write(archive(tmp_path / "lib.a", bundle), "pkg/lib.a")
    images = list_images(path)
    assert [i.member for i in images] == ["pkg/lib"] * 3 + ["pkg/lib.a(bundle)"] * 3
    assert [i.index for i in images] == [0] * 3 + [1] * 3
    for image in images[1::3]:
        if method == zipfile.ZIP_STORED:
            assert image.offset is not None
            assert path.read_bytes()[image.offset :][:8] == b"<gfx906>"
        else:
            assert image.offset is None


def test_packed_zip_in_zip(tmp_path: Path, bundle: Path) -> None:
    with zipfile.ZipFile(tmp_path / "inner.zip", "w", zipfile.ZIP_DEFLATED) as inner:
        inner.write(bundle, "b")
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        with zipfile.ZipFile(tmp_path / "outer.zip", "w", method) as outer:
            outer.write(tmp_path / "inner.zip", "inner.zip")
        assert {i.member for i in list_images(tmp_path / "outer.zip")} == {"inner.zip(b)"}


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


@pytest.mark.parametrize("packed", [False, True], ids=["folder", "zip"])
def test_broken_among_others(tmp_path: Path, bundle: Path, packed: bool) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a").write_bytes(bundle.read_bytes()[:-1])
    (folder / "b").write_bytes(b"\x7fELF" + bytes(30))
    (folder / "c").write_bytes(bundle.read_bytes())
    where = folder
    if packed:
        where = tmp_path / "x.zip"
        with zipfile.ZipFile(where, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(folder.iterdir()):
                archive.write(path, path.name)
    problems: list[OffloadError] = []
    images = list(iter_images(where, skipped=problems.append))
    assert [i.target_id for i in images] == TARGETS
    assert len(problems) == 2
    assert "(a)" in str(problems[0]) if packed else "folder/a" in str(problems[0])
    with pytest.raises(FormatError):
        list_images(where)


@pytest.mark.parametrize("damage", ["content", "directory", "header", "size"])
def test_broken_zip(tmp_path: Path, bundle: Path, damage: str) -> None:
    path = tmp_path / "x.zip"
    method = zipfile.ZIP_STORED if damage == "header" else zipfile.ZIP_DEFLATED
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.write(bundle, "b")
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
    outer = archive(tmp_path / "outer.a", thin)
    for path in (thin, outer):
        with zipfile.ZipFile(tmp_path / "x.zip", "w") as zip_file:
            zip_file.write(path, path.name)
        with pytest.raises(UnsupportedError, match="found a thin one"):
            list_images(tmp_path / "x.zip")


def test_several_bundles_in_a_section(tmp_path: Path, bundle: Path) -> None:
    """Compressed and other bundles, alone or in a section, are all found, with zeros between."""
    both = tmp_path / "both"
    packed = make_bundle(tmp_path / "p", IMAGES, compression=Compression())
    both.write_bytes(packed.read_bytes() + bytes(333) + bundle.read_bytes() + bytes(5))
    embed_bundle(both, tmp_path / "x.o", cuid="x", host_triple="x86_64-linux-gnu")
    for path, section in ((both, None), (tmp_path / "x.o", ".hip_fatbin")):
        images = list_images(path)
        assert [i.target_id for i in images] == TARGETS * 2
        assert [(i.container, i.index) for i in images] == [
            *[("compressed-bundle", 0)] * 3,
            *[("bundle", 1)] * 3,
        ]
        assert {i.section for i in images} == {section}
        assert images[4].offset is not None
        assert path.read_bytes()[images[4].offset :][:5000] == IMAGES["gfx906"]


def test_weak_coff_magic(tmp_path: Path) -> None:
    """In a folder, a file that merely begins like a COFF object is skipped."""
    (tmp_path / "icon.ico").write_bytes(bytes([0, 0, 1, 0, 1, 0]) + bytes(12) + b"\xff" * 300)
    assert list_images(tmp_path) == []


@pytest.mark.llvm
def test_offload_binaries(tmp_path: Path, llvm: Tool) -> None:
    """LLVM's offload binaries are listed, in a file and in an object's section."""
    (tmp_path / "a.bc").write_bytes(b"BC\xc0\xde" + bytes(100))
    (tmp_path / "b.o").write_bytes(code("b", 55))
    package = tmp_path / "package"
    run_tool(
        *(llvm("llvm-offload-binary"), "-o", package),
        f"--image=file={tmp_path}/a.bc,kind=openmp,triple=amdgcn-amd-amdhsa,arch=gfx90a:xnack+",
        f"--image=file={tmp_path}/b.o,kind=cuda,triple=nvptx64-nvidia-cuda,arch=sm_80",
    )
    (tmp_path / "host.c").write_text("int host;\n")
    embed = ["-Xclang", f"-fembed-offload-object={package}"]
    command = [llvm("clang"), *embed, "-c", tmp_path / "host.c"]
    run_tool(*map(str, command), "-o", str(tmp_path / "host.o"))
    run_tool(*map(str, command), "-emit-llvm", "-o", str(tmp_path / "h.bc"))
    ids = ["openmp-amdgcn-amd-amdhsa--gfx90a:xnack+", "cuda-nvptx64-nvidia-cuda-unknown-sm_80"]
    assert [(i.id, i.offset) for i in list_images(tmp_path / "h.bc")] == [(i, None) for i in ids]
    for path, section in ((package, None), (tmp_path / "host.o", ".llvm.offloading")):
        images = list_images(path)
        assert [(i.container, i.section, i.index) for i in images] == [
            *(("offload-binary", section, 0), ("offload-binary", section, 1))
        ]
        assert [i.id for i in images] == ids
        assert [(i.image_kind, i.size) for i in images] == [("bitcode", 104), ("object", 55)]
        data = path.read_bytes()
        assert images[1].offset is not None
        assert data[images[1].offset :][:55] == code("b", 55)


def test_cuda_fat_binary(tmp_path: Path) -> None:
    """Entries of CUDA fat binaries are named, also of several with zeros between."""
    path = tmp_path / "x.fatbin"
    path.write_bytes(cuda_fatbin() + bytes(40) + cuda_fatbin())
    images = list_images(path)
    assert [(i.index, i.target_id, i.image_kind, i.size, i.stored_size) for i in images] == [
        (0, "compute_80", "ptx", 16, 16),
        (0, "sm_90", "elf", len(CUBIN), len(PACKED)),
        (1, "compute_80", "ptx", 16, 16),
        (1, "sm_90", "elf", len(CUBIN), len(PACKED)),
    ]
    assert {(i.container, i.kind) for i in images} == {("cuda-fatbin", "cuda")}
    assert images[0].offset is not None
    assert path.read_bytes()[images[0].offset :][:8] == b".version"


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
