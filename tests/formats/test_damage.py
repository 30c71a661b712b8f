"""Damage to any format: a result that lies within the file, or one of our errors."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload_tool.errors import ContentError, UnsupportedError
from offload_tool.formats.bitcode.bitstream import Bits, Block, Reader, top_blocks
from offload_tool.formats.bitcode.llvmlite import assemble
from offload_tool.formats.bundle.binary import read_bundle
from offload_tool.formats.bundle.compressed import decompress, read_compressed_header
from offload_tool.formats.bundle.object_file import read_object_bundle
from offload_tool.formats.kernel import Kernel
from offload_tool.formats.kernel_info.amdgpu_metadata import read_amdgpu_kernels
from offload_tool.formats.kernel_info.nv_info import read_cubin_kernels
from offload_tool.formats.objects.ar import ArchiveReader, member_symbols
from offload_tool.formats.objects.elf.edit_sections import plan_elf
from offload_tool.formats.objects.elf.reader import read_elf_tables
from offload_tool.formats.offload_binary import iter_offload_binaries
from offload_tool.io.write_plan import HOST, FilePlan, Range
from tests.formats.bitcode.test_module import embedding, objects
from tests.formats.bundle.test_binary import bundle_of
from tests.formats.compressed import ZLIB, ZSTD, compressed
from tests.formats.cuda.test_fatbin import cuda_fatbin
from tests.formats.cuda_images import content_of, images_of
from tests.formats.kernel_info.code_objects import KERNEL, code_object, metadata
from tests.formats.kernel_info.test_nv_info import SEED as CUBIN
from tests.formats.kpack.test_archive import PACKED, PLAIN
from tests.formats.kpack.test_archive import read as kpack_archive
from tests.formats.object_files import ADDED, CLASSES, is_bundle_section, make_coff, make_elf
from tests.formats.objects.test_ar import SMALL
from tests.formats.objects.test_ar import archive_of as archive
from tests.formats.objects.test_ar_symbols import elf, module
from tests.formats.test_offload_binary import binary, newer

BITCODE = assemble('@x = constant [4 x i8] c"abcd"\ndeclare void @f(ptr)\n')
EMBEDDING = assemble(embedding(b"\x10\xff\x10\xad\0content", b"seven bits\0", b"\xff\xff\0"))
ELF = [make_elf(name, dict(ADDED)) for name in CLASSES]
COFF = [make_coff({b"section_with_long_name": b"x", b"small": b"yy"}), make_coff(dict(ADDED))]
CODE = code_object(metadata([KERNEL, KERNEL]))
OFFLOAD = binary() + newer(2, [(0, {"arch": "x"}, b"a"), (1, {"k": "v"}, b"")]) + binary()


def bitstream(data: bytes) -> None:
    reader = Reader(memoryview(data))
    blocks = list(top_blocks(Bits(memoryview(data), 32, 8 * len(data))))
    while blocks:
        blocks += [item for item in reader.items(blocks.pop()) if isinstance(item, Block)]


def embedded(data: bytes) -> None:
    assert all(len(content) <= 8 * len(EMBEDDING) for content in objects(data))


def bundle(data: bytes) -> None:
    found = read_bundle(memoryview(data))
    assert all(len(found.image(memoryview(data), row)) == row.size for row in found.entries)


def compressed_bundle(data: bytes) -> None:
    assert decompress(memoryview(data), read_compressed_header(memoryview(data)))[0] == b"ab" * 99


def object_bundle(data: bytes) -> None:
    for row in read_object_bundle(memoryview(data)):
        assert len(data[row.offset : row.offset + row.size]) == row.size


def offload_binaries(data: bytes) -> None:
    for padding in (False, True):
        with suppress(ContentError):
            for found in iter_offload_binaries(memoryview(data), padding=padding):
                assert found.offset + found.size <= len(data)
                for image in found.images:
                    assert found.offset <= image.offset
                    assert image.offset + image.size <= found.offset + found.size


def fat_binary(data: bytes) -> None:
    for image in images_of(data):
        with suppress(UnsupportedError):
            assert len(content_of(data, image)) == image.size or image.image_kind == "ptx"


def elf_tables(data: bytes) -> None:
    tables = read_elf_tables(memoryview(data))
    list(tables.named_symbols())
    assert all(
        row.sh_offset + row.sh_size <= len(data) for row in tables.sections if row.has_content
    )


def archive_members(data: bytes) -> None:
    for member in ArchiveReader(memoryview(data)):
        assert member.path or member.size == len(member.content(memoryview(data)))


def symbols(data: bytes) -> None:
    found = member_symbols(memoryview(data))
    assert not found or found.endswith(b"\0")


def edited(query_plan: Callable[..., FilePlan]) -> Callable[[bytes], None]:
    """Return a check that plans to add and to remove sections copy nothing but the host's bytes."""

    def check(data: bytes) -> None:
        for options in ({"added": ADDED}, {"removed": is_bundle_section}):
            plan, position = query_plan(memoryview(data), **options), 0
            for piece in plan.pieces:
                assert piece.position >= position
                position = piece.position + piece.size
                if isinstance(piece, Range) and piece.source == HOST:
                    assert 0 <= piece.offset <= piece.offset + piece.size <= len(data)
            assert position <= plan.size

    return check


def kernels(read: Callable[[memoryview], list[Kernel]]) -> Callable[[bytes], None]:
    """Return a check that kernels have names, and numbers in their range."""

    def check(data: bytes) -> None:
        for kernel in read(memoryview(data)):
            assert kernel.name
            assert all(0 <= number < 1 << 33 for number in kernel[1:] if number is not None)

    return check


READERS: dict[str, tuple[list[bytes], list[bytes], Callable[[bytes], object]]] = {
    # name: samples, beginnings before any bytes, reader
    "bitstream": ([BITCODE], [b"BC\xc0\xde"], bitstream),
    "embedded objects": ([EMBEDDING], [], embedded),
    "bundle": (
        [bundle_of({"host-a": b"ab", "hip-b": b"c"})],
        [b"__CLANG_OFFLOAD_BUNDLE__"],
        bundle,
    ),
    "compressed bundle": (
        [compressed(b"ab" * 99, *row) for row in product((1, 2, 3), (ZLIB, ZSTD))],
        [b"", *(b"CCOB" + bytes([version, 0, 1, 0]) for version in (1, 2, 3))],
        compressed_bundle,
    ),
    "object bundle": ([*ELF, *COFF], [], object_bundle),
    "offload binaries": ([OFFLOAD], [], offload_binaries),
    "CUDA fat binary": ([cuda_fatbin()], [], fat_binary),
    "ELF": (ELF, [b"\x7fELF\2\1\1"], elf_tables),
    "ELF to edit": (ELF, [], edited(plan_elf)),
    "archive": ([archive(SMALL)], [b"", b"!<arch>\n", b"!<thin>\n"], archive_members),
    "symbols": ([elf(), module()], [b"", b"\x7fELF\2\1\1", b"\x64\x86"], symbols),
    "kpack archive": ([PLAIN, PACKED], [], kpack_archive),
    "kernels of AMD": ([CODE], [], kernels(read_amdgpu_kernels)),
    "kernels of NVIDIA": ([CUBIN], [], kernels(read_cubin_kernels)),
}


@pytest.mark.parametrize("name", READERS)
@given(data=st.data())
def test_any_damage(name: str, data: st.DataObject) -> None:
    """Changed bytes, cuts, and any bytes behind a magic give a result, or one of our errors."""
    samples, beginnings, read = READERS[name]
    choices = [st.just(sample) for sample in samples]
    choices += [st.binary(max_size=300).map(lambda rest, b=b: b + rest) for b in beginnings]
    whole = bytearray(data.draw(st.one_of(choices)))
    for _ in range(data.draw(st.integers(0, 4)) if whole else 0):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    for damaged in (whole, whole[: data.draw(st.integers(0, len(whole)))]):
        with suppress(ContentError):
            read(bytes(damaged))
