"""CUDA's fat binary: its entries, and what contradicts the data."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload_tool.errors import FormatError
from offload_tool.formats.cuda_fatbin import is_cuda_fatbin, read_cuda_fatbin


def cuda_fatbin() -> bytes:
    """Give a CUDA fat binary of PTX, and a cubin that is compressed."""
    rows = [(1, 80, b".version 8.0\0\0\0\0", 0, 0), (2, 90, b"0123456789abcdef", 13, 4000)]
    entries = b""
    for kind, number, payload, packed, unpacked in rows:
        header = struct.pack("<HHIQIIHHI", kind, 0x101, 64, len(payload), packed, 0, 1, 7, number)
        entries += header + bytes(24) + struct.pack("<Q", unpacked) + payload
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entries)) + entries


def test_entries() -> None:
    """Kinds, processors, places and sizes are read; an unknown kind keeps its number."""
    data = memoryview(b"before" + cuda_fatbin() + b"after")
    assert is_cuda_fatbin(data, 6)
    assert not is_cuda_fatbin(data)
    found = read_cuda_fatbin(data, 6)
    assert found.size == len(cuda_fatbin())
    ptx, cubin = found.entries
    assert (ptx.kind, ptx.processor, ptx.stored_size, ptx.size) == ("ptx", "compute_80", 16, 16)
    assert (cubin.kind, cubin.processor, cubin.stored_size, cubin.size) == (
        "elf",
        "sm_90",
        13,
        4000,
    )
    assert (ptx.is_compressed, cubin.is_compressed) == (False, True)
    assert data[ptx.offset : ptx.offset + 8] == b".version"
    other = bytearray(cuda_fatbin())
    other[16] = 77
    assert read_cuda_fatbin(memoryview(other)).entries[0].kind == "kind 77"


@pytest.mark.parametrize(
    ("at", "field"),
    [
        *((0, "magic"), (4, "CUDA fat binary header"), (8, "size")),
        *((16 + 4, "CUDA entry 1"), (16 + 8, "CUDA entry 1"), (16 + 16, "CUDA entry 1")),
    ],
)
def test_broken(at: int, field: str) -> None:
    """A number that contradicts the data is named with its place."""
    data = bytearray(cuda_fatbin())
    data[at : at + 4] = b"\xff\xff\xff\x7f"
    with pytest.raises(FormatError, match=rf"'name', offset 0x[0-9a-f]+, {field}"):
        read_cuda_fatbin(memoryview(data), path="name")


@given(st.integers(0, len(cuda_fatbin()) - 1))
def test_cut_short(size: int) -> None:
    """Every beginning of a fat binary is refused."""
    with pytest.raises(FormatError):
        read_cuda_fatbin(memoryview(cuda_fatbin()[:size]))
