"""Wrapping images in-process: outputs, rejected inputs, and constant memory."""

from __future__ import annotations

import io
import os
import platform
import random
import subprocess
import sys
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from offload_tool import WrapOptions, wrap_images
from offload_tool.errors import FormatError, UnsupportedError, UsageError
from offload_tool.formats import registration_ir
from offload_tool.formats.bitcode import llvmlite
from offload_tool.formats.offload_binary import plan_offload_binary
from offload_tool.formats.registration_ir import RegisteredKind
from offload_tool.operations import wrap
from offload_tool.operations.wrap import ELF_HOSTS, Compiler, default_triple
from offload_tool.passes.registration import HostCompiler
from tests.conftest import Tool, run_tool
from tests.formats.registration_modules import disassembled
from tests.formats.test_offload_binary import newer

HOST = "x86_64-unknown-linux-gnu"


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "image"
    path.write_bytes(random.Random(1).randbytes(70_001))
    return path


def package(*contents: bytes) -> bytes:
    out = b""
    for content in contents:
        strings = {"arch": "gfx90a", "triple": "amdgcn-amd-amdhsa"}
        plan = plan_offload_binary(content, image_kind=1, offload_kind=1, strings=strings)
        out += b"".join(plan.chunks())
    return out


def sections(data: bytes) -> dict[str, bytes]:
    return {s.name: s.data() for s in ELFFile(io.BytesIO(data)).iter_sections()}


@pytest.mark.parametrize("name", ["x.bc", "x.o"])
def test_same_bytes_again(tmp_path: Path, image: Path, name: str) -> None:
    """Also in another process, and after objects of other hosts: LLVM keeps no state of them."""

    def wrapped() -> bytes:
        wrap_images([image], tmp_path / name, kind="hip", triple=HOST)
        return (tmp_path / name).read_bytes()

    first = wrapped()
    assert wrapped() == first
    for arch in sorted(ELF_HOSTS):
        wrap_images([image], tmp_path / "y.o", kind="hip", triple=f"{arch}-unknown-linux-gnu")
    assert wrapped() == first
    code = "import sys; from offload_tool import wrap_images; wrap_images([sys.argv[2]], "
    code += f"sys.argv[1], kind='hip', triple='{HOST}')"
    run_tool(sys.executable, "-c", code, tmp_path / name, image)
    assert (tmp_path / name).read_bytes() == first


@pytest.mark.parametrize(
    ("name", "as_object", "is_object"),
    [
        *(("a.o", None, True), ("a.obj", None, True), ("a.bc", None, False), ("a", None, False)),
        *(("b.o", False, False), ("b", True, True)),
    ],
)
def test_form_by_name_or_argument(
    tmp_path: Path, image: Path, name: str, as_object: bool | None, is_object: bool
) -> None:
    options = WrapOptions(as_object=as_object)
    wrap_images([image], tmp_path / name, kind="openmp", triple=HOST, options=options)
    magic = b"\x7fELF" if is_object else b"BC\xc0\xde"
    assert (tmp_path / name).read_bytes()[:4] == magic


@pytest.mark.llvm
@pytest.mark.parametrize("kind", ["openmp", "cuda", "hip"])
@pytest.mark.parametrize("by", ["clang", "llvmlite"])
def test_object_like_llvms(
    tmp_path: Path, image: Path, llvm: Tool, kind: RegisteredKind, by: str
) -> None:
    compiler: Compiler = llvmlite
    if by == "clang":
        compiler = HostCompiler([llvm("clang")], os.environ)
    triple = "x86_64-pc-linux-gnu"
    wrap_images([image], tmp_path / "x.o", kind=kind, triple=triple, compiler=compiler)
    run_tool(llvm("llvm-offload-wrapper"), f"--kind={kind}", image, "-o", "y.bc", cwd=tmp_path)
    run_tool(llvm("clang"), "-O0", "-fPIC", "-c", "y.bc", "-o", "y.o", cwd=tmp_path)
    ours, theirs = (sections((tmp_path / name).read_bytes()) for name in ("x.o", "y.o"))
    for tables in (ours, theirs):
        for name in (".strtab", ".symtab", ".llvm_addrsig", ".comment"):
            tables.pop(name, None)
    assert set(ours) == set(theirs)
    differ = {name for name in ours if ours[name] != theirs[name] and ".rel" not in name}
    if by == "llvmlite" and llvmlite._load().llvm_version_info[0] != 22:  # other code, then
        assert differ <= {".text.startup", ".eh_frame", ".rodata"}
        return
    assert not differ
    readelf = llvm("llvm-readelf")
    assert relocations(readelf, tmp_path / "x.o") == relocations(readelf, tmp_path / "y.o")


def relocations(readelf: str, path: Path) -> list[list[str]]:
    done = run_tool(readelf, "-rW", path)
    rows = [line.split() for line in done.splitlines() if " R_X86_64_" in line]
    assert rows
    return [[row[0], row[2], *row[4:]] for row in rows]


@pytest.mark.llvm
def test_every_image_of_a_package(tmp_path: Path, llvm: Tool) -> None:
    (tmp_path / "images").write_bytes(package(b"first", b"the second"))
    wrap_images([tmp_path / "images"], tmp_path / "x.bc", kind="openmp", triple=HOST)
    text = disassembled(llvm("llvm-dis"), tmp_path / "x.bc")
    data = (tmp_path / "images").read_bytes()
    name = f"ptr getelementptr ([{len(data)} x i8], ptr @.omp_offloading.device_image, i64 0, i64"
    (row,) = (
        line
        for line in text.splitlines()
        if line.startswith("@.omp_offloading.device_im") and "[2 x %__tgt_device_image]" in line
    )
    for content in (b"first", b"the second"):
        start = data.index(content)
        assert f"{name} {start}), {name} {start + len(content)}), " in row
    assert "%__tgt_bin_desc { i32 2," in text


@pytest.mark.llvm
@pytest.mark.parametrize("triple", [HOST, "x86_64-apple-macosx11"])
@pytest.mark.parametrize(
    "images",
    [
        [bytes(5), b"ab\0", b"abc"],
        [b"same", b"same", b"", b'"\\\n'],
        [bytes(range(256)) * 3, b"BC\xc0\xde", random.Random(5).randbytes(70001)],
    ],
    ids=["zeros", "equal", "all bytes"],
)
def test_bitcode_has_the_images(
    tmp_path: Path,
    llvm: Tool,
    triple: str,
    images: list[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each image is the value of its global: equal ones, empty ones, any bytes, on any system."""
    for number, content in enumerate(images):
        (tmp_path / str(number)).write_bytes(content)
    paths = [tmp_path / str(number) for number in range(len(images))]
    monkeypatch.setattr(registration_ir, "_CHUNK", 256)
    wrap_images(paths, tmp_path / "x.bc", kind="openmp", triple=triple)
    text = disassembled(llvm("llvm-dis"), tmp_path / "x.bc")
    for number, content in enumerate(images):
        name = f"@.omp_offloading.device_image{f'.{number}' if number else ''} "
        (line,) = (line for line in text.splitlines() if line.startswith(name))
        assert f"[{len(content)} x i8] {spelled(content)}," in line


def spelled(data: bytes) -> str:
    """Return bytes as LLVM writes them in text."""
    if not any(data):
        return "zeroinitializer"
    plain = {byte: chr(byte) for byte in range(0x20, 0x7F)} | {0x22: "\\22", 0x5C: "\\\\"}
    return 'c"' + "".join(plain.get(byte, f"\\{byte:02X}") for byte in data) + '"'


@pytest.mark.parametrize(
    ("name", "largest", "growth"), [("x.o", 300 << 20, 16 << 20), ("x.bc", 20 << 20, 260 << 20)]
)
def test_memory(tmp_path: Path, name: str, largest: int, growth: int) -> None:
    """Memory of objects does not grow with the images; that of bitcode grows as LLVM's does."""
    peaks = []
    for size in (5, largest):
        with (tmp_path / "image").open("wb") as file:
            file.write(b"x")  # LLVM writes nothing but zeros in another way
            file.truncate(size)
        code = (
            "import resource, sys; from offload_tool import wrap_images\n"
            f"wrap_images([sys.argv[2]], sys.argv[1], kind='openmp', triple='{HOST}')\n"
            "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
        )
        command = [sys.executable, "-c", code, tmp_path / name, tmp_path / "image"]
        peaks.append(int(subprocess.run(command, check=True, capture_output=True).stdout))
        assert (tmp_path / name).stat().st_size > size
    assert (peaks[1] - peaks[0]) << 10 < growth


def test_default_triple(tmp_path: Path, image: Path) -> None:
    assert default_triple().startswith(platform.machine())
    wrap_images([image], tmp_path / "x.bc", kind="hip")
    assert default_triple().encode() in (tmp_path / "x.bc").read_bytes()


REFUSED = [
    ({"kind": "sycl"}, "unknown offload kind 'sycl': expected one of openmp, cuda, hip"),
    ({"kind": "hip", "images": 2}, "uses a single fatbinary"),
    ({"images": 0}, "at least one device image"),
    ({"kind": "hip", "target_ids": ["gfx906"]}, "target IDs are registered for openmp, not for"),
    ({"target_ids": ["a", "b"]}, "one target ID for each of 1 images, found 2"),
    ({"target_ids": ["a", "b"], "generation": 15}, "one target ID for each of 1 images, found 2"),
    ({"kind": "cuda", "generation": 15}, "interface of LLVM 15 is for openmp, not for cuda"),
    *(
        ({"as_object": True, "triple": triple}, message)
        for triple, message in (
            ("x86_64-apple-darwin", r"x86_64-apple-darwin' \(macho, "),
            ("amdgcn-amd-amdhsa", r"\(elf, amdgcn, amdhsa\): expected a host such as"),
            ("x86_64-unknown-linux-macho", r"\(macho, x86_64, linux\)"),
            ("x86_64-unknown-solaris", r"\(elf, x86_64, solaris\)"),
            ("x86_64-unknown-linux-coff", r"\(coff, x86_64, linux\)"),
            ("x86_64-pc-windows-msvc", r"\(coff, x86_64, windows\)"),
            ("garbage", "cannot make an object for 'garbage'"),
            ("", "cannot make an object for ''"),
        )
    ),
]


@pytest.mark.parametrize(("given", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_refused(tmp_path: Path, image: Path, given: dict[str, object], message: str) -> None:
    count = given.pop("images", 1)
    named = {name: given.pop(name) for name in ("kind", "triple") if name in given}
    arguments = {"kind": "openmp", "triple": HOST, **named, "options": WrapOptions(**given)}  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=message):
        wrap_images([image] * count, tmp_path / "x", **arguments)  # type: ignore[arg-type, operator]
    assert not (tmp_path / "x").exists()


def test_broken_package(tmp_path: Path) -> None:
    data = bytearray(package(b"image"))
    data[56:64] = (1 << 40).to_bytes(8, "little")
    (tmp_path / "image").write_bytes(data)
    with pytest.raises(FormatError, match=r"image', offset 0x38, image offset"):
        wrap_images([tmp_path / "image"], tmp_path / "x", kind="openmp")
    wrap_images([tmp_path / "image"], tmp_path / "x", kind="hip")  # HIP does not parse the bytes


def test_empty_package(tmp_path: Path) -> None:
    """An offload binary without an image, or as the image of another, is rejected."""
    empty = newer(2, [])
    for data in (empty, newer(2, [(0, {"arch": "gfx90a"}, empty)])):
        (tmp_path / "image").write_bytes(data)
        with pytest.raises(FormatError, match=r"image': expected a device image in this offload"):
            wrap_images([tmp_path / "image"], tmp_path / "x", kind="openmp", triple=HOST)
        assert not (tmp_path / "x").exists()


def test_output_over_an_image(tmp_path: Path, image: Path) -> None:
    before = image.read_bytes()
    wrap_images([image], image, kind="hip", triple=HOST, options=WrapOptions(as_object=True))
    assert sections(image.read_bytes())[".hip_fatbin"] == before


def test_without_llvmlite(tmp_path: Path, image: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llvmlite.binding", None)
    llvmlite._load.cache_clear()
    with pytest.raises(UsageError, match=r"needs llvmlite .*; pip install llvmlite"):
        wrap_images([image], tmp_path / "x", kind="hip")
    assert not (tmp_path / "x").exists()


def test_largest_image_in_bitcode(
    tmp_path: Path, image: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = image.stat().st_size
    monkeypatch.setattr(wrap, "MAX_IMAGE_SIZE", size)
    wrap_images([image], tmp_path / "x.bc", kind="hip", triple=HOST)
    assert (tmp_path / "x.bc").stat().st_size > size
    monkeypatch.setattr(wrap, "MAX_IMAGE_SIZE", size - 1)
    message = f"image': expected less than 4 GiB for an image in bitcode, found {size} .* an object"
    with pytest.raises(UnsupportedError, match=message):
        wrap_images([image], tmp_path / "y.bc", kind="hip", triple=HOST)
    wrap_images([image], tmp_path / "y.o", kind="hip", triple=HOST)
    monkeypatch.undo()
    monkeypatch.setattr(wrap, "_MEMORY", 1 << 60)
    message = r"image': these images in bitcode need .* memory, found \d+; write an object"
    with pytest.raises(UnsupportedError, match=message):
        wrap_images([image], tmp_path / "y.bc", kind="hip", triple=HOST)


@pytest.mark.parametrize(
    ("machine", "vendor"), [("x86_64", "pc"), ("aarch64", "unknown"), ("ppc64le", "unknown")]
)
def test_default_triple_of_machines(
    machine: str, vendor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: machine)
    assert default_triple() == f"{machine}-{vendor}-linux-gnu"
