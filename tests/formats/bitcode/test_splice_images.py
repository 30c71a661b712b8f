"""Images in bitcode: LLVM reads back the bytes, wherever they begin and however many."""

from __future__ import annotations

import random
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from offload_tool.errors import FormatError, UnsupportedError
from offload_tool.formats.bitcode.bitstream import Bits, Reader, Record, top_blocks
from offload_tool.formats.bitcode.llvmlite import assemble
from offload_tool.formats.bitcode.splice_images import MAX_IMAGE_SIZE, plan_bitcode_with_images
from offload_tool.formats.registration_ir import (
    PLACEHOLDER_SIZE,
    RegisteredImage,
    Registration,
    bitcode_text,
)
from offload_tool.io.write_plan import Range
from tests.conftest import Tool, run_tool
from tests.formats.registration_modules import disassembled, planned

LINUX, MACOS = "x86_64-unknown-linux-gnu", "x86_64-apple-macosx11"
WRAPPER = struct.Struct("<IIIII")


def module(sizes: Sequence[int], triple: str = LINUX) -> bytes:
    """Return a module of images with these sizes, with placeholders."""
    images = [RegisteredImage(size, ((0, size),)) for size in sizes]
    return assemble(bitcode_text(Registration("openmp", triple, images)))


def spelled(data: bytes) -> str:
    """Return bytes as LLVM writes them in text."""
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
def test_llvm_reads_the_images(tmp_path: Path, llvm: Tool, images: list[bytes]) -> None:
    """Each image is the value of its global: equal ones, empty ones, any bytes."""
    sizes = [len(image) for image in images]
    plan = plan_bitcode_with_images(module(sizes), sizes)
    (tmp_path / "x.bc").write_bytes(planned(plan, images))
    text = disassembled(llvm("llvm-dis"), tmp_path / "x.bc")
    for number, image in enumerate(images):
        name = f"@.omp_offloading.device_image{f'.{number}' if number else ''} "
        (line,) = (line for line in text.splitlines() if line.startswith(name))
        assert f"[{len(image)} x i8] {spelled(image)}," in line
    run_tool(llvm("opt"), "-passes=verify", "-disable-output", "x.bc", cwd=tmp_path)


@pytest.mark.llvm
def test_functions_are_found(tmp_path: Path, llvm: Tool) -> None:
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


def test_images_of_16_gib() -> None:
    """An image may have 4 GiB less a byte; a module of more words than its size allows not."""
    assert MAX_IMAGE_SIZE == 0xFFFF_FFFF
    assert plan_bitcode_with_images(module([5] * 3), [MAX_IMAGE_SIZE] * 3).size > 3 << 32 - 1
    with pytest.raises(UnsupportedError, match=r"a block of 2147.* bytes is too large for bitcode"):
        plan_bitcode_with_images(module([5] * 5), [MAX_IMAGE_SIZE] * 5)


@pytest.mark.llvm
@pytest.mark.parametrize("size", [1, *range(70_000, 70_016, 4)])
def test_wrapper(tmp_path: Path, llvm: Tool, size: int) -> None:
    """For Apple's systems the bitcode is in a wrapper, whose fields LLVM and we agree on."""
    image = random.Random(size).randbytes(size)
    plan = plan_bitcode_with_images(module([size], MACOS), [size])
    data = planned(plan, [image])
    magic, version, offset, length, processor = WRAPPER.unpack_from(data)
    assert (magic, version, offset, processor) == (0x0B17C0DE, 0, 20, 0x01000007)
    assert data[offset : offset + 4] == b"BC\xc0\xde"
    assert len(data) % 16 == 0
    assert 0 <= len(data) - offset - length < 16
    assert not any(data[offset + length :])
    (tmp_path / "x.bc").write_bytes(data)
    text = disassembled(llvm("llvm-dis"), tmp_path / "x.bc")
    assert f"[{size} x i8] {spelled(image)}," in text
    # What the wrapper says is all that there is: the module stands alone, too.
    (tmp_path / "y.bc").write_bytes(data[offset : offset + length])
    assert disassembled(llvm("llvm-dis"), tmp_path / "y.bc") == text


def test_too_large_for_a_wrapper() -> None:
    """A module of 4 GiB does not fit into the wrapper's 32 bits, and is refused."""
    small = plan_bitcode_with_images(module([5], MACOS), [5]).size
    with pytest.raises(UnsupportedError, match=r"42949.* do not fit into a wrapper"):
        plan_bitcode_with_images(module([5], MACOS), [MAX_IMAGE_SIZE])
    plan_bitcode_with_images(module([5], MACOS), [MAX_IMAGE_SIZE - small - 64])


def test_a_wrapper_of_others() -> None:
    """A wrapper with more in front of the bitcode than its five fields is refused."""
    data = module([5], MACOS)
    magic, version, offset, size, processor = WRAPPER.unpack_from(data)
    moved = WRAPPER.pack(magic, version, offset + 4, size, processor)
    with pytest.raises(UnsupportedError, match=r"bytes of bitcode do not fit into a wrapper"):
        plan_bitcode_with_images(moved + bytes(4) + data[offset:], [5])
    # Bytes behind the bitcode are none of it.
    assert plan_bitcode_with_images(data + b"more", [5]) == plan_bitcode_with_images(data, [5])


def test_a_module_of_others() -> None:
    with pytest.raises(FormatError, match="expected 2 images"):
        plan_bitcode_with_images(module([5]), [5, 6])
    with pytest.raises(FormatError, match="expected 1 images in LLVM's bitcode, found 0"):
        plan_bitcode_with_images(assemble("@x = global i32 0"), [5])


@pytest.mark.parametrize("size", [0, 3, 4, 19, 20])
def test_no_module(size: int) -> None:
    with pytest.raises(FormatError, match=r"expected (bitcode|one block 8 .* found 0)"):
        plan_bitcode_with_images(module([5])[: min(size, 4)], [5])
    with pytest.raises(FormatError, match="expected bitcode"):
        plan_bitcode_with_images(module([5], MACOS)[:size], [5])


def test_two_modules() -> None:
    """A file of two modules is refused: it is not known whose the images are."""
    data = module([5])
    with pytest.raises(FormatError, match="expected one block 8 in LLVM's bitcode, found 2"):
        plan_bitcode_with_images(data + data[4:], [5])


def test_an_array_without_zeros() -> None:
    """A module that has an image's type, but no array of zeros to put the image in, is refused."""
    text = f"@x = external global [{PLACEHOLDER_SIZE} x i8]"
    with pytest.raises(FormatError, match=r"expected the arrays of images \[0\] once each"):
        plan_bitcode_with_images(assemble(text), [5])


def test_places_of_others() -> None:
    """A module whose table of symbols is not where it says is refused."""
    data = module([5])
    reader = Reader(memoryview(data))
    bits = Bits(memoryview(data), 32, 8 * len(data))
    (body,) = (block for block in top_blocks(bits) if block.number == 8)
    records = (item for item in reader.items(body) if isinstance(item, Record))
    (place,) = (record for record in records if record.code == 13)
    word = place.operands[0]
    changed = int.from_bytes(data, "little") ^ ((word ^ (word + 1)) << (place.end - 32))
    with pytest.raises(FormatError, match=f"expected a block at word {word + 1} of"):
        plan_bitcode_with_images(changed.to_bytes(len(data), "little"), [5])
