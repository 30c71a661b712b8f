"""The formats of files: each format's own test of its magic agrees."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial

import pytest

from offload_tool.containers.file_format import FileFormat, find_strays, recognise
from offload_tool.formats.bitcode.module import is_bitcode
from offload_tool.formats.magic import (
    BUNDLE,
    COMPRESSED_BUNDLE,
    CUDA_FATBIN,
    OFFLOAD_BINARY,
    begins,
)
from offload_tool.formats.objects.ar import is_archive
from offload_tool.formats.objects.coff import is_coff
from offload_tool.formats.objects.elf.reader import is_elf
from tests.formats.object_files import make_coff, make_elf

SAMPLES: list[tuple[bytes, FileFormat, Callable[[memoryview], bool]]] = [
    (b"__CLANG_OFFLOAD_BUNDLE__", FileFormat.BUNDLE, partial(begins, magic=BUNDLE)),
    (b"CCOB\3\0\1\0", FileFormat.BUNDLE, partial(begins, magic=COMPRESSED_BUNDLE)),
    (make_elf(), FileFormat.ELF, is_elf),
    (make_coff(), FileFormat.COFF, is_coff),
    (b"!<arch>\n", FileFormat.ARCHIVE, is_archive),
    (b"!<thin>\n", FileFormat.ARCHIVE, is_archive),
    (b"\x10\xff\x10\xad", FileFormat.OFFLOAD_BINARY, partial(begins, magic=OFFLOAD_BINARY)),
    (b"\x50\xed\x55\xba", FileFormat.CUDA_FATBIN, partial(begins, magic=CUDA_FATBIN)),
    (b"BC\xc0\xde", FileFormat.BITCODE, is_bitcode),
    (b"\xde\xc0\x17\x0b", FileFormat.BITCODE, is_bitcode),
]


@pytest.mark.parametrize(
    ("data", "file_format", "test"), SAMPLES, ids=[str(row[1]) for row in SAMPLES]
)
def test_magics(data: bytes, file_format: FileFormat, test: Callable[[memoryview], bool]) -> None:
    """What is recognised as a format is what the format's own module takes for it."""
    assert recognise(memoryview(data)) is file_format
    assert test(memoryview(data))
    assert recognise(memoryview(b"?" + data)) is None
    assert not test(memoryview(b"?" + data))
    assert not test(memoryview(data[:3]))


BUNDLE = b"__CLANG_OFFLOAD_BUNDLE__"
BINARY, FATBIN = b"\x10\xff\x10\xad", b"\x50\xed\x55\xba"


@pytest.mark.parametrize(
    ("magic", "layout", "numbers", "false"),
    [
        (BUNDLE, "<QQQQ", (1, 60, 4, 4), (0, 60, 4, 4)),
        (BUNDLE, "<QQQQ", (1, 60, 4, 4), (1, 60, 5, 4)),
        (BUNDLE, "<QQQQ", (1, 60, 4, 4), (1, 60, 4, 0)),
        (BINARY, "<IQ", (1, 64), (4, 64)),
        (BINARY, "<IQ", (1, 64), (1, 65)),
        (FATBIN, "<HHQHHI", (1, 16, 48, 2, 0, 40), (1, 16, 65, 2, 0, 40)),
        (FATBIN, "<HHQHHI", (1, 16, 48, 2, 0, 40), (1, 16, 48, 3, 0, 40)),
        (FATBIN, "<HHQHHI", (1, 16, 48, 2, 0, 40), (1, 16, 40, 2, 0, 40)),
    ],
)
def test_a_magic_with_a_header_that_can_be_true(
    magic: bytes, layout: str, numbers: tuple[int, ...], false: tuple[int, ...]
) -> None:
    """What is searched for has numbers behind its magic that fit into what is there."""
    for row, count in ((numbers, 1), (false, 0)):
        data = memoryview(b"x" * 7 + (magic + struct.pack(layout, *row)).ljust(64, b"\0"))
        assert [at for at, _ in find_strays(data, 0, len(data), len(data))] == [7] * count
