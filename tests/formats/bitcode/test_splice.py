"""Images in bitcode: LLVM reads back the bytes, wherever they begin and however many."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from offload_tool.errors import FormatError
from offload_tool.files.plan import Range
from offload_tool.formats.bitcode.llvm_library import assemble
from offload_tool.formats.bitcode.splice import plan_bitcode_with_images
from offload_tool.formats.registration import (
    RegisteredImage,
    Registration,
    bitcode_text,
)
from tests.formats.registration_modules import disassembled, planned


def module(sizes: Sequence[int]) -> bytes:
    """Give a module of images with these sizes, with placeholders."""
    images = [RegisteredImage(size, ((0, size),)) for size in sizes]
    return assemble(bitcode_text(Registration("openmp", "x86_64-unknown-linux-gnu", images)))


def spelled(data: bytes) -> str:
    """Give bytes as LLVM writes them in text."""
    if not any(data):
        return "zeroinitializer"
    plain = {byte: chr(byte) for byte in range(0x20, 0x7F)} | {0x22: "\\22", 0x5C: "\\\\"}
    return 'c"' + "".join(plain.get(byte, f"\\{byte:02X}") for byte in data) + '"'


@pytest.mark.llvm
@pytest.mark.parametrize(
    "images",
    [
        [b"x"],
        [bytes(5), b"ab\0", b"abc"],
        [b"same", b"same", b"same"],
        [b"", b"a", b"", b"bc"],
        [bytes(range(256)) * 3, b"BC\xc0\xde", random.Random(5).randbytes(70001)],
        [random.Random(n).randbytes(n) for n in range(1, 80)],
    ],
    ids=["one", "zeros", "equal", "empty", "all bytes", "many"],
)
def test_llvm_reads_the_images(
    tmp_path: Path, llvm: Callable[[str], str], images: list[bytes]
) -> None:
    """Each image is the value of its global: equal ones, empty ones, any bytes."""
    sizes = [len(image) for image in images]
    plan = plan_bitcode_with_images(module(sizes), sizes)
    (tmp_path / "x.bc").write_bytes(planned(plan, images))
    text = disassembled(llvm("llvm-dis"), tmp_path / "x.bc")
    for number, image in enumerate(images):
        name = f"@.omp_offloading.device_image{f'.{number}' if number else ''} "
        (line,) = (line for line in text.splitlines() if line.startswith(name))
        assert f"[{len(image)} x i8] {spelled(image)}," in line
    subprocess.run(
        [llvm("opt"), "-passes=verify", "-disable-output", "x.bc"], cwd=tmp_path, check=True
    )


@pytest.mark.llvm
def test_functions_are_found(tmp_path: Path, llvm: Callable[[str], str]) -> None:
    """A reader that goes to one function directly, by the symbol table, finds it."""
    image = bytes(100_003)
    plan = plan_bitcode_with_images(module([len(image)]), [len(image)])
    (tmp_path / "x.bc").write_bytes(planned(plan, [image]))
    command = [llvm("llvm-extract"), "--func=.omp_offloading.descriptor_unreg", "x.bc", "-S"]
    done = subprocess.run([*command, "-o", "-"], cwd=tmp_path, capture_output=True, check=True)
    assert b"call void @__tgt_unregister_lib" in done.stdout


def test_images_begin_at_whole_bytes_of_the_file() -> None:
    """An image is one piece of the plan, its size exact; nothing is shifted."""
    for size in range(1, 40):
        plan = plan_bitcode_with_images(module([size, size]), [size, size])
        contents = [piece for piece in plan.pieces if isinstance(piece, Range)]
        assert [(piece.source, piece.size) for piece in contents] == [(0, size), (1, size)]
        assert plan.size % 4 == 0


def test_too_large_for_bitcode() -> None:
    """An image of 4 GiB is refused: the format counts a constant's bytes in 32 bits."""
    with pytest.raises(FormatError, match="4294967296 bytes are too many for one constant"):
        plan_bitcode_with_images(module([1 << 32]), [1 << 32])


def test_a_module_of_others() -> None:
    """A module that was not made for these images is refused."""
    with pytest.raises(FormatError, match="expected 2 images"):
        plan_bitcode_with_images(module([5]), [5, 6])
