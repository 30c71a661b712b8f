"""CUDA's fat binary: its entries, and what contradicts the data."""

from __future__ import annotations

import struct
import sys

import lz4.block
import pytest
import zstandard

from offload_tool.errors import FormatError, UnsupportedError, UsageError
from offload_tool.formats.cuda.fatbin import (
    NewCudaEntry,
    find_cuda_fatbin,
    plan_cuda_fatbin,
    read_cuda_fatbin,
)
from offload_tool.formats.cuda.ptx import ptx_version
from tests.formats.cuda_images import content_of, images_of
from tests.formats.object_files import make_elf

CUBIN = b"\x7fELF" + b"cubin" * 1000
PACKED = lz4.block.compress(CUBIN, store_size=False)


def cuda_fatbin() -> bytes:
    """Return a CUDA fat binary of PTX, and `CUBIN`, which is compressed."""
    padded = PACKED + bytes(-len(PACKED) % 8)
    rows = [(1, 80, b".version 8.0\0\0\0\0", 0, 0), (2, 90, padded, len(PACKED), len(CUBIN))]
    entries = b""
    for kind, number, payload, packed, unpacked in rows:
        header = struct.pack("<HHIQIIHHI", kind, 0x101, 64, len(payload), packed, 0, 1, 7, number)
        flags = 0x2011 if packed else 0x11
        entries += header + struct.pack("<QQQQ", 0, flags, 0, unpacked) + payload
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entries)) + entries


def test_entries() -> None:
    """Kinds, processors, places and sizes are read; an unknown kind keeps its number."""
    data = memoryview(b"before" + cuda_fatbin() + b"after")
    found = read_cuda_fatbin(data, 6)
    assert found.size == len(cuda_fatbin())
    ptx, cubin = images = [image for entry in found.entries for image in entry.images]
    assert [(i.image_kind, i.processor, i.stored_size, i.size) for i in images] == [
        ("ptx", "compute_80", 16, 16),
        ("elf", "sm_90", len(PACKED), len(CUBIN)),
    ]
    assert (ptx.is_compressed, cubin.is_compressed) == (False, True)
    assert data[ptx.offset : ptx.offset + 8] == b".version"
    other = bytearray(cuda_fatbin())
    other[16] = 77
    assert images_of(other)[0].image_kind == "kind 77"


def test_without_lz4(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of the package in a project may lack lz4, which is an error."""
    monkeypatch.setitem(sys.modules, "lz4", None)
    monkeypatch.setitem(sys.modules, "lz4.block", None)
    with pytest.raises(UsageError, match="with the package 'lz4'; install it"):
        content_of(cuda_fatbin(), images_of(cuda_fatbin())[1])


LARGE = b"\xff\xff\xff\x7f"


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        (0, LARGE, "magic"),
        (4, b"\2", "version: expected version 1"),  # not broken, but nothing that could be read
        (6, b"\3\0", "header size: expected 16 bytes or more, found 3"),
        (8, LARGE, "size"),
        *((16 + field, LARGE, "CUDA entry 1") for field in (4, 8, 16)),
    ],
)
def test_broken(at: int, value: bytes, message: str) -> None:
    data = bytearray(cuda_fatbin())
    data[at : at + len(value)] = value
    error = UnsupportedError if message.startswith("version") else FormatError
    with pytest.raises(error, match=rf"'name', offset 0x[0-9a-f]+, {message}"):
        read_cuda_fatbin(memoryview(data), path="name")


FLAGS, UNPACKED = 40, 56
CUBIN_AT = 16 + 64 + 16


def patched(offset: int, value: int, size: int = 8) -> memoryview:
    """Return the fat binary with another number in the header of its second entry."""
    data = bytearray(cuda_fatbin())
    data[CUBIN_AT + offset : CUBIN_AT + offset + size] = value.to_bytes(size, "little")
    return memoryview(data)


def unpack(data: memoryview) -> bytes:
    return content_of(data, images_of(data)[1], "name")


def test_unpacked() -> None:
    """A compressed payload gives what the header says; PTX ends before its NUL."""
    data = memoryview(cuda_fatbin())
    assert unpack(data) == CUBIN
    assert content_of(data, images_of(data)[0]) == b".version 8.0"
    assert unpack(patched(FLAGS, 0x100011 | 0x2000)) == CUBIN
    frame = zstandard.compress(CUBIN)
    entry = bytearray(cuda_fatbin()[CUBIN_AT : CUBIN_AT + 64])
    entry[8:20] = struct.pack("<QI", len(frame), len(frame))
    entry[FLAGS : FLAGS + 8] = struct.pack("<Q", 0x8011)
    whole = cuda_fatbin()[16:CUBIN_AT] + entry + frame
    assert unpack(memoryview(cuda_fatbin()[:8] + struct.pack("<Q", len(whole)) + whole)) == CUBIN


@pytest.mark.parametrize(
    ("offset", "value", "message"),
    [
        (UNPACKED, len(CUBIN) + 1, "damaged|when unpacked"),
        (UNPACKED, len(CUBIN) - 1, "damaged"),
        (UNPACKED, 1 << 40, "expected at most"),
        (UNPACKED, 1 << 31, "what the LZ4 block can hold"),
        (UNPACKED, 0, "damaged"),
        (FLAGS, 0x8011, "payload"),
        (FLAGS, 0x1011, r"not publicly known \(flag 0x1000\)"),
        (FLAGS, 0x4011, r"not publicly known \(flag 0x4000\)"),
        (FLAGS, 0x12011, r"not publicly known \(flag 0x10000: scrambled\)"),
        (FLAGS, 0xA011, "found lz4 and zstd"),
        (FLAGS, 0x11, "expected a flag for how"),
        (16, len(PACKED) + 100, "and a payload within"),
        (36, 1 << 20, "expected an identifier within"),
    ],
)
def test_broken_payload(offset: int, value: int, message: str) -> None:
    with pytest.raises((FormatError, UnsupportedError), match=message):
        unpack(patched(offset, value, 4 if offset in (16, 36) else 8))


def test_found_between() -> None:
    """A fat binary is found in other data, and its magic alone is none."""
    whole = cuda_fatbin()
    data = memoryview(b"x" * 5 + whole[:16] + b"y" * 200 + whole)
    assert find_cuda_fatbin(data, 0, len(data), len(data)) == 221
    assert find_cuda_fatbin(data, 0, 221, len(data)) is None
    assert find_cuda_fatbin(data, 0, 222, len(data)) == 221
    assert find_cuda_fatbin(data, 222, len(data), len(data)) is None


def test_ptx_version() -> None:
    assert ptx_version(b"// .version 1.0\n\n  .version 8.10\n") == (8, 10)
    with pytest.raises(FormatError, match=r"'\.version', found b'hello'"):
        ptx_version(b"hello")


@pytest.mark.parametrize("processor", ["gfx906", "sm_90x"])
def test_refused_processors(processor: str) -> None:
    with pytest.raises(UsageError, match=f"'{processor}' cannot be in a CUDA fat binary; expected"):
        plan_cuda_fatbin([NewCudaEntry(processor, b".version 8.0\n")])


def test_foreign_elf() -> None:
    with pytest.raises(FormatError, match="found a 64-bit file for 62"):
        plan_cuda_fatbin([NewCudaEntry("sm_90", make_elf())])
