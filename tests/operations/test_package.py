"""Offload binaries in files of all kinds: found where LLVM finds them, never written in part."""

from __future__ import annotations

import os
import random
import resource
import struct
import sys
import tracemalloc
from pathlib import Path

import pytest

from offload_tool import list_images
from offload_tool.containers.offload_binaries import find_offload_binaries
from offload_tool.errors import FileError, FormatError, UsageError
from offload_tool.formats.offload_binary import ImageKind, iter_offload_binaries
from offload_tool.io import InputFile
from offload_tool.operations.package import PackagedImage, package_images
from offload_tool.operations.unpackage import ExtractOptions, ImageFilter, extract_images
from tests.conftest import Tool, run_tool
from tests.operations.archives import archive_of, thin_archive
from tests.operations.fatbins import make_package

EVERYTHING = [ImageFilter()]


def package(path: Path, *images: tuple[bytes, str], **options: object) -> Path:
    """Package (content, arch) images into the file at `path`."""
    return make_package(path, [(arch, content) for content, arch in images], **options)


def found_in(path: Path, **options: object) -> list[tuple[str | None, bytes, bool]]:
    """Return, for all images: member, content, and whether it is a range of the file."""
    found = []
    with InputFile(path) as source, find_offload_binaries(source, **options) as binaries:  # type: ignore[arg-type]
        for binary in binaries:
            for image in binary.binary.images:
                content = bytes(image.content(binary.source.data))
                with binary.opened() as again:
                    is_in_file = again is binary.source
                found.append((binary.member, content, is_in_file))
                if is_in_file:
                    data = path.read_bytes()
                    assert data[image.offset : image.offset + image.size] == content
    return found


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory, llvm: Tool) -> Path:
    """Return a folder of files made by LLVM, which embed offload binaries in every way."""
    folder = tmp_path_factory.mktemp("zoo")

    def run(tool: str, *arguments: str) -> None:
        run_tool(llvm(tool), *arguments, cwd=folder)

    (folder / "s.c").write_text("int v = 1; int f(void) { return v; }\n")
    run("clang", "-c", "s.c", "-o", "image.o")
    run("clang", "-c", "-emit-llvm", "s.c", "-o", "image.bc")
    (folder / "image.cubin").write_bytes(random.Random(1).randbytes(70_000))
    images = [
        "--image=file=image.o,triple=amdgcn-amd-amdhsa,arch=gfx90a,kind=openmp",
        "--image=file=image.bc,triple=amdgcn-amd-amdhsa,arch=gfx906,kind=hip",
        "--image=file=image.cubin,triple=nvptx64-nvidia-cuda,arch=sm_70,kind=cuda",
    ]
    run("llvm-offload-binary", "-o", "p.bin", *images)
    run("llvm-offload-binary", "-o", "q.bin", images[1])
    both = ["-Xclang", "-fembed-offload-object=p.bin", "-Xclang", "-fembed-offload-object=q.bin"]
    for name, *flags in (
        ("host.o",),
        ("host32.o", "--target=i686-linux-gnu"),
        ("big.o", "--target=powerpc64-linux-gnu"),
        ("host.obj", "--target=x86_64-pc-windows-msvc"),
        ("host.bc", "-emit-llvm"),
        ("debug.bc", "-emit-llvm", "-g"),
        ("thinlto.bc", "-flto=thin"),
        ("lto.bc", "-flto", "-O2"),
        ("wrapped.bc", "-emit-llvm", "--target=x86_64-apple-macos", "-fno-integrated-as"),
        ("text.ll", "-emit-llvm", "-S"),
    ):
        kind = [] if "-S" in flags else ["-c"]
        run("clang", *kind, "s.c", *flags, *both, "-o", name)
    raw = (folder / "host.bc").read_bytes()
    (folder / "wrapper.bc").write_bytes(
        struct.pack("<5I", 0x0B17C0DE, 0, 20, len(raw), 7) + raw + bytes(-len(raw) % 16)
    )
    run("clang", "-c", "s.c", "-o", "plain.o")
    run("llvm-objcopy", "--add-section", ".llvm.offloading=p.bin", "plain.o", "untyped.o")
    (folder / "t.c").write_text("int g(void) { return 2; }\n")
    run("clang", "-c", "t.c", *both[:2], "-o", "other.o")
    run("ld.lld", "-r", "host.o", "other.o", "-o", "merged.o")
    run("ld.lld", "-shared", "other.o", "-o", "linked.so")
    typed = ["--set-section-type", ".x=0x6fff4c0b"]
    run("llvm-objcopy", "--add-section", ".x=p.bin", *typed, "linked.so", "library.so")
    members = ["host.o", "host.obj", "plain.o", "p.bin", "host.bc", "text.ll", "image.cubin"]
    run("llvm-ar", "rcS", "lib.a", *members)
    (folder / "sub").mkdir()
    (folder / "sub/inner.o").write_bytes((folder / "host.o").read_bytes())
    run("llvm-ar", "rcST", "thin.a", "host.o", "sub/inner.o", "host.bc", "lib.a")
    run("llvm-ar", "rcS", "nested.a", "lib.a", "q.bin")
    run("llvm-ar", "rcS", "empty.a")
    (folder / "empty").write_bytes(b"")
    return folder


IMAGES_IN = {
    **dict.fromkeys(("text.ll", "plain.o", "untyped.o", "linked.so", "empty.a", "empty"), 0),
    "p.bin": 3,
    "library.so": 3,
    "merged.o": 7,
    "lib.a": 15,
    "nested.a": 16,
    "thin.a": 27,
    **dict.fromkeys(("host.o", "host32.o", "big.o", "host.obj", "host.bc", "debug.bc"), 4),
    **dict.fromkeys(("thinlto.bc", "lto.bc", "wrapped.bc", "wrapper.bc"), 4),
}


@pytest.mark.llvm
@pytest.mark.parametrize("name", IMAGES_IN)
def test_found_where_llvm_finds_them(name: str, zoo: Path, llvm: Tool, tmp_path: Path) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    theirs.mkdir()
    tool = llvm("llvm-offload-binary")
    wanted = [["--image="], ["--archive", f"--image=file={theirs}/x.a,arch=gfx906"]]
    for arguments in wanted:
        run_tool(tool, str(zoo / name), *arguments, cwd=theirs)
    ours.mkdir()
    extract_images(zoo / name, EVERYTHING, options=ExtractOptions(folder=ours, padding=False))
    by_arch = [ImageFilter({"arch": "gfx906"}, output=ours / "x.a")]
    extract_images(zoo / name, by_arch, options=ExtractOptions(archive=True, padding=False))
    expected = {path.name: path.read_bytes() for path in theirs.iterdir()}
    assert {path.name: path.read_bytes() for path in ours.iterdir()} == expected
    assert len(expected) - ("x.a" in expected) == IMAGES_IN[name] == len(found_in(zoo / name))


@pytest.mark.llvm
@pytest.mark.parametrize("version", [15, 19])
def test_embedded_in_bitcode_of_other_versions(version: int, zoo: Path, tmp_path: Path) -> None:
    clang = Path(f"/usr/lib/llvm-{version}/bin/clang")
    if not clang.exists():
        pytest.skip("this clang is not installed")
    embed = f"-fembed-offload-object={zoo / 'p.bin'}"
    run_tool(clang, "-cc1", "-emit-llvm-bc", embed, zoo / "s.c", "-o", tmp_path / "x.bc")
    expected = [content for _, content, _ in found_in(zoo / "p.bin")]
    assert [content for _, content, _ in found_in(tmp_path / "x.bc")] == expected


def test_kinds(tmp_path: Path) -> None:
    """An image's kind is given, or derived from its file; unknown kinds are rejected."""
    (tmp_path / "a.o").write_bytes(b"image")
    images = [
        PackagedImage(tmp_path / "a.o"),
        PackagedImage(tmp_path / "a.o", image_kind=ImageKind.SPIRV, kind="hip"),
    ]
    package_images(images, tmp_path / "p")
    package_images(images, tmp_path / "old", dialect="documented")
    assert kinds_in(tmp_path / "p") == [(1, 0), (6, 4)]
    assert kinds_in(tmp_path / "old") == [(1, 0), (6, 3)]
    with pytest.raises(UsageError, match="unknown offload kind 'hipv4', expected openmp, cuda,"):
        package_images([PackagedImage(tmp_path / "a.o", kind="hipv4")], tmp_path / "p")
    assert kinds_in(tmp_path / "p") == [(1, 0), (6, 4)]


def kinds_in(path: Path) -> list[tuple[int, int]]:
    binaries = iter_offload_binaries(memoryview(path.read_bytes()))
    return [(image.image_kind, image.offload_kind) for part in binaries for image in part.images]


def test_several_matches_for_one_file(tmp_path: Path) -> None:
    """The last match is written, in any spelling of the file's name, with a warning."""
    path = package(tmp_path / "p", (b"one", "a"), (b"two", "b"))
    (tmp_path / "sub").mkdir()
    warnings: list[str] = []
    filters = [
        ImageFilter(output=tmp_path / "x"),
        ImageFilter({"arch": "a"}, output=tmp_path / "sub" / ".." / "x"),
    ]
    extract_images(path, filters[:1], warn=warnings.append)
    assert (tmp_path / "x").read_bytes() == b"two"
    assert warnings == [f"Multiple inputs match to a single file, '{tmp_path / 'x'}'"]
    extract_images(path, filters)
    assert (tmp_path / "x").read_bytes() == b"one"


def test_unpackaging_over_the_package(tmp_path: Path) -> None:
    path = package(tmp_path / "p", (b"one", "a"))
    extract_images(path, [ImageFilter(output=path)])
    assert path.read_bytes() == b"one"
    package_images([PackagedImage(path, {"arch": "a"})], path)
    extract_images(path, [ImageFilter(output=path)])
    assert path.read_bytes() == b"one"


def test_equal_files_are_left_untouched(tmp_path: Path) -> None:
    path = package(tmp_path / "p", (b"one", "a"), (b"two", "b"))
    outputs = [ImageFilter({"arch": arch}, output=tmp_path / arch) for arch in "ab"]
    extract_images(path, outputs)
    (tmp_path / "b").write_bytes(b"changed")
    for name in ("p", "a", "b"):
        os.utime(tmp_path / name, (1, 1))
    package(path, (b"one", "a"), (b"two", "b"), keep_equal=True)
    extract_images(path, outputs, keep_equal=True)
    kept = [name for name in ("p", "a", "b") if (tmp_path / name).stat().st_mtime == 1]
    assert kept == ["p", "a"]
    assert (tmp_path / "b").read_bytes() == b"two"


def test_nothing_is_written_when_something_fails(tmp_path: Path) -> None:
    path = package(tmp_path / "p", (b"one", "a"), (b"two", "b"))
    (tmp_path / "x").write_bytes(b"old")
    before = sorted(tmp_path.iterdir())
    filters = [ImageFilter(output=tmp_path / "x"), ImageFilter(output=tmp_path / "none" / "y")]
    with pytest.raises(FileError, match="none/y"):
        extract_images(path, filters)
    images = [PackagedImage(tmp_path / name) for name in ("p.0.o", "none.o")]
    with pytest.raises(FileError, match=r"none\.o"):
        package_images(images, tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == b"old"
    assert sorted(tmp_path.iterdir()) == before


def test_member_names_and_offsets(tmp_path: Path) -> None:
    one = package(tmp_path / "one", (b"first", "a")).read_bytes()
    two = package(tmp_path / "two", (b"second", "b")).read_bytes()
    inner = archive_of(tmp_path / "inner.a", {"deep": b"x" + bytes(4), "two": two}).read_bytes()
    path = archive_of(tmp_path / "outer.a", {"text": b"hello", "one": one, "inner.a": inner})
    assert found_in(path) == [("one", b"first", True), ("two", b"second", True)]


def test_broken_archive_in_an_archive(tmp_path: Path) -> None:
    """The error has the member, and the offset in the file."""
    path = archive_of(tmp_path / "outer.a", {"inner.a": b"!<arch>\nbroken"})
    with pytest.raises(FormatError, match=r"a\(inner\.a\)', offset 0x4c, header of member 1"):
        found_in(path)


def test_thin_archives(tmp_path: Path) -> None:
    """A thin archive's members are found relative to it, and marked as other files."""
    (tmp_path / "sub").mkdir()
    package(tmp_path / "sub" / "one", (b"first", "a"))
    thin_archive(tmp_path / "sub" / "inner.a", ["one"])
    path = thin_archive(tmp_path / "thin.a", ["sub/one", "sub/inner.a"])
    assert found_in(path) == [("sub/one", b"first", False), ("one", b"first", False)]
    written = extract_images(path, EVERYTHING, options=ExtractOptions(folder=tmp_path))
    assert [Path(name).read_bytes() for name in written] == [b"first", b"first"]
    archive_of(tmp_path / "around.a", {"thin.a": path.read_bytes()})
    assert found_in(tmp_path / "around.a") == found_in(path)  # LLVM uses the working directory
    assert [image.size for image in list_images(tmp_path / "around.a")] == [len(b"first")] * 2
    (tmp_path / "sub" / "one").unlink()
    with pytest.raises(FileError, match="sub/one"):
        found_in(path)


def test_more_files_than_descriptors(tmp_path: Path) -> None:
    names = [f"m{index}" for index in range(300)]
    for index, name in enumerate(names):
        package(tmp_path / name, (b"%d" % index, name))
    path = thin_archive(tmp_path / "thin.a", names)
    (tmp_path / "out").mkdir()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = max(int(path.name) for path in Path("/proc/self/fd").iterdir()) + 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 250, limits[1]))
    try:
        written = extract_images(path, EVERYTHING, options=ExtractOptions(folder=tmp_path / "out"))
        extract_images(
            path, [ImageFilter(output=tmp_path / "all.a")], options=ExtractOptions(archive=True)
        )
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert [Path(name).read_bytes() for name in written] == [b"%d" % i for i in range(300)]
    assert (tmp_path / "all.a").stat().st_size > 300 * 60


def test_memory_does_not_grow_with_images(tmp_path: Path) -> None:
    size = 100 << 20
    with (tmp_path / "a.o").open("wb") as file:
        file.truncate(size)
    tracemalloc.start()
    try:
        package_images([PackagedImage(tmp_path / "a.o", {"arch": "a"})] * 2, tmp_path / "p")
        extract_images(tmp_path / "p", [ImageFilter(output=tmp_path / "x")])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (tmp_path / "x").stat().st_size == size
    assert peak < 4 << 20


def test_import_is_light() -> None:
    """Readers of archives, object files and bitcode are loaded only for such files."""
    code = (
        "import sys, offload_tool.operations.unpackage; "
        "print([m for m in sys.modules if m.startswith('offload_tool.formats.') and "
        "m.rpartition('.')[2] in ('ar', 'reader', 'bitstream')])"
    )
    assert run_tool(sys.executable, "-c", code) == "[]\n"


def test_images_are_added_and_replaced(tmp_path: Path) -> None:
    base = package(tmp_path / "base.out", (b"one", "gfx906"), (b"two", "gfx90a"))
    out = package(
        tmp_path / "out.out", (b"new", "gfx90a"), (b"three", "gfx942"), base=base, keep_equal=True
    )
    assert [content for _, content, _ in found_in(out)] == [b"one", b"new", b"three"]
    clean = (b"one", "gfx906"), (b"new", "gfx90a"), (b"three", "gfx942")
    assert out.read_bytes() == package(tmp_path / "clean.out", *clean).read_bytes()


def test_wrong_bases(tmp_path: Path) -> None:
    empty, out = tmp_path / "empty.out", tmp_path / "a.out"
    empty.write_bytes(b"no images")
    twice = package(tmp_path / "twice.out", (b"one", "gfx906"), (b"two", "gfx906"))
    for base, message in (
        (empty, r"empty.out': expected offload binaries.*found none"),
        (twice, r"twice.out': 2 images of hip with .* arch gfx906"),
    ):
        with pytest.raises(UsageError, match=message):
            package(out, (b"new", "gfx906"), base=base)
        assert not out.exists()
