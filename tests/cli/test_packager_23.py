"""``offload-tool packager --llvm=23`` against llvm-offload-binary 23."""

from __future__ import annotations

import random
import shlex
import struct
from pathlib import Path

import pytest

from tests.cli.test_packager import (
    USUAL_KEYS,
    PackagerBench,
    contents,
    packager_bench,
    random_filter,
    random_image,
)
from tests.conftest import Tool, run_tool

pytestmark = pytest.mark.llvm


@pytest.fixture
def bench(tmp_path: Path, llvm23: Tool, capfdbinary) -> PackagerBench:
    made = packager_bench(tmp_path, llvm23("llvm-offload-binary"), capfdbinary, contents())
    made.ours_alone = ["--llvm=23"]
    return made


def image_of_single_keys(source: random.Random, files: list[str]) -> str:
    """Return an image with the usual keys, each once: LLVM 23 writes freed memory for others."""
    while True:
        image = random_image(source, files)
        parts = image.removeprefix("--image=").split(",")
        keys = [key for part in parts if (key := part.partition("=")[0]) != "file"]
        if len(set(keys)) == len(keys) and {*keys} <= {*USUAL_KEYS}:
            return image


def package(bench: PackagerBench, *images: str) -> bytes:
    assert bench.theirs("-o", "../made", *images).status == 0
    return (bench.folder / "theirs/made").read_bytes()


def test_packages_are_llvms(bench: PackagerBench) -> None:
    """Any images with usual keys are packaged into LLVM's bytes: one binary, none for no image."""
    source = random.Random(23)
    files = sorted(contents())
    for _ in range(150):
        images = [image_of_single_keys(source, files) for _ in range(source.randint(0, 12))]
        made = bench.assert_same_files("-o", "made.bin", *images)
        assert made["made.bin"][:8] == b"\x10\xff\x10\xad" + struct.pack("<I", 2)


def test_extraction_is_llvms(bench: PackagerBench) -> None:
    """Any filters, or none, select LLVM's images, and write files of the same names."""
    source = random.Random(24)
    bitcode = (b"BC", b"\xde\xc0")  # LLVM's messages about broken bitcode differ
    files = sorted(name for name, content in contents().items() if content[:2] not in bitcode)
    count = 0
    for run in range(120):
        if run % 5 == 0:
            images = [image_of_single_keys(source, files) for _ in range(source.randint(1, 9))]
            bench.write("package.x.bin", package(bench, *images))
        filters = [random_filter(source) for _ in range(source.randint(0, 3))]
        archive = ["--archive"] * source.choice([0, 0, 1])
        count += len(bench.assert_same_files("../package.x.bin", *archive, *filters))
    assert count > 150


@pytest.fixture
def packages(bench: PackagerBench, llvm: Tool) -> PackagerBench:
    """Return packages of all kinds: of LLVM 22, consecutive, nested, in archives."""
    rows = [
        "--image=file=../f7,triple=amdgcn-amd-amdhsa,arch=gfx90a,kind=hip",
        "--image=file=../f5.spv,triple=spirv64-intel,kind=sycl",
        "--image=file=../f8.o.,triple=amdgcn-amd-amdhsa,arch=gfx1100,kind=openmp,member=other",
    ]
    data = package(bench, *rows)
    bench.write("package", data)
    bench.write("twice", data * 2)
    older = bench.folder / "older"
    run_tool(llvm("llvm-offload-binary"), "-o", older, *rows, cwd=bench.folder / "theirs/out")
    bench.write("older", older.read_bytes())
    bench.write("mixed", older.read_bytes() + data)
    bench.write("nested", package(bench, rows[0], "--image=file=../mixed,triple=outer"))
    bench.write("cut", data[:-1])
    bench.write("junk", data + b"x" * 100)
    folder = bench.folder
    for name in ("package", "older"):
        (folder / f"{name}.c").write_text(f"int {name};\n")
        embed = ["-Xclang", f"-fembed-offload-object={folder / 'ours' / name}"]
        output = folder / f"{name}.o"
        run_tool(llvm("clang"), "-c", *embed, f"{folder / name}.c", "-o", output)
        bench.write(f"{name}.o", output.read_bytes())
    run_tool(llvm("llvm-ar"), "rc", "lib.a", "package.o", "older.o", cwd=folder)
    bench.write("lib.a", (folder / "lib.a").read_bytes())
    return bench


SAME = """
../package
../twice
../older
../mixed
../nested
../nested --image=triple=outer
../nested --image=triple=outer,file=x
../nested --image=kind=hip --image=
../nested --archive --image=file=x.a
../package --image=kind=sycl
../package --image=member=package
../package --image=member=other
../package --image=member=../package
../package --image=member=package,arch=gfx90a
../package --image=member=package,member=x
../package --image=member=
../package --archive
../lib.a
../lib.a --image=member=older.o
../lib.a --image=member=older.o --image=member=package.o,kind=hip
../lib.a --image=member=package.o,kind=hip,file=x
../lib.a --image=member=lib.a
../lib.a --image=member=package.o,file=x
../lib.a --archive --image=member=package.o,file=x.a
../lib.a --archive --image=file=x.a
../package.o --image=member=package.o
../cut
../junk
../junk --image=
none
none --image=
-o made.bin
-o -
-o made.bin --image=file=../f5.spv,triple=x
-o made.bin --image=triple=x
-o made.bin --image=file=none
-o made.bin ../package
../f7
--help
""".strip()


@pytest.mark.parametrize("line", SAME.splitlines())
def test_uses_are_llvms(line: str, packages: PackagerBench) -> None:
    """All kinds of uses lead to LLVM's files, standard output, messages and exit status."""
    packages.assert_same_files(*shlex.split(line))


@pytest.fixture
def alone(tmp_path: Path, capfdbinary) -> PackagerBench:
    return packager_bench(tmp_path, "packager", capfdbinary, {"a.o": b"image"})


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("llvm-offload-binary", 1),
        ("llvm-offload-binary-22", 1),
        ("llvm-offload-binary-23", 2),
        ("clang-offload-packager-24.exe", 2),
    ],
)
def test_the_name_tells_whose_it_is(alone: PackagerBench, name: str, version: int) -> None:
    """Under a name with a version, as in distributions, it behaves like that LLVM's tool."""
    alone.tool = f"/usr/bin/{name}"
    assert alone.ours("-o", "../made", "--image=file=../a.o,triple=x").status == 0
    made = (alone.folder / "ours/made").read_bytes()
    assert struct.unpack_from("<I", made, 4) == (version,)
    assert alone.ours("../made").status == 0
    assert len(alone.files("ours")) == version - 1  # 22 extracts nothing without a filter
