"""Images in objects: the section holds the bytes, the symbol has the size, for every host."""

from __future__ import annotations

import io
import random

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from offload_tool.errors import FormatError, UnsupportedError
from offload_tool.formats.bitcode.llvmlite import compile_object
from offload_tool.formats.objects.splice_images import plan_object_with_images
from offload_tool.formats.registration_ir import (
    Generation,
    RegisteredImage,
    RegisteredKind,
    Registration,
    image_section,
    object_text,
)
from offload_tool.io.write_plan import FilePlan
from offload_tool.operations.wrap import ELF_HOSTS

IMAGES = [b"first image", b"", random.Random(3).randbytes(9001)]


def build(
    kind: RegisteredKind, triple: str, images: list[bytes], generation: Generation = 22
) -> tuple[bytes, Registration]:
    made = [RegisteredImage(((0, len(image)),)) for image in images]
    registration = Registration(kind, triple, made, generation)
    module = compile_object(object_text(registration), triple)
    return b"".join(plan_object_with_images(module, images).chunks()), registration


@pytest.mark.parametrize("arch", sorted(ELF_HOSTS))
@pytest.mark.parametrize("kind", ["openmp", "hip"])
def test_every_elf_host(arch: str, kind: RegisteredKind) -> None:
    """For each host, of both classes and byte orders, the images are sections and symbols."""
    images = IMAGES if kind == "openmp" else IMAGES[2:]
    data, registration = build(kind, f"{arch}-unknown-linux-gnu", images)
    elf = ELFFile(io.BytesIO(data))
    sections = {
        index: section
        for index, section in enumerate(elf.iter_sections())
        if section.name == image_section(registration)
    }
    assert [section.data() for section in sections.values()] == images
    assert all(section["sh_flags"] == 2 for section in sections.values())  # ALLOC
    if kind == "openmp":  # the type that LLVM's own code generator gives it
        types = {section["sh_type"] for section in sections.values()}
        assert types <= {0x6FFF4C0B, "SHT_LLVM_OFFLOADING"}
    alignment = 4096 if kind == "hip" else 8
    assert all(section["sh_addralign"] == alignment for section in sections.values())
    assert all(section["sh_offset"] % alignment == 0 for section in sections.values())
    (symbols,) = (s for s in elf.iter_sections() if isinstance(s, SymbolTableSection))
    named = [symbol for symbol in symbols.iter_symbols() if "image" in symbol.name]
    found = {s.name: s["st_size"] for s in named if s["st_shndx"] in sections}
    names = [".omp_offloading.device_image" + end for end in ("", ".1", ".2")]
    expected = [".fatbin_image"] if kind == "hip" else names
    assert found == {name: len(image) for name, image in zip(expected, images, strict=True)}


def test_images_of_the_older_generation() -> None:
    """Images that have no section of their own are read-only data."""
    data, _ = build("openmp", "x86_64-unknown-linux-gnu", IMAGES, 15)
    elf = ELFFile(io.BytesIO(data))
    assert [s.data() for s in elf.iter_sections() if s.name == ".rodata"] == IMAGES


def test_too_large_for_32_bits() -> None:
    size = 1 << 32
    images = [RegisteredImage(((0, size),))]

    def planned_size(triple: str) -> int:
        module = compile_object(object_text(Registration("hip", triple, images)), triple)
        return plan_object_with_images(module, [FilePlan((), size)]).size

    with pytest.raises(UnsupportedError, match="too large for a 32-bit object"):
        planned_size("i386-unknown-linux-gnu")
    assert planned_size("x86_64-unknown-linux-gnu") > size


@pytest.mark.parametrize("data", [b"", b"short", bytes(64), b"\x64\x86" + b"\xff" * 60])
def test_no_object(data: bytes) -> None:
    with pytest.raises(FormatError):
        plan_object_with_images(data, [b"x"])
