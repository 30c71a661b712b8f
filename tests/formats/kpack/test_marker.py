"""The marker in a host program, what it makes the loader look for, and the wrapper before it."""

from __future__ import annotations

import struct

import pytest

from offload_tool.errors import FormatError, UsageError
from offload_tool.formats.hip_fatbin import EMBEDDED, KPACKED, HipWrapper, wrappers_of
from offload_tool.formats.kpack.marker import (
    MAX_SIZE,
    KpackMarker,
    MarkedWrapper,
    is_marked,
    marked_wrappers,
    pack_marker,
    read_marker,
)
from offload_tool.formats.objects.elf.reader import read_elf_tables
from tests.formats.marked_programs import marked_object, marked_program
from tests.formats.object_files import make_elf

MARKER = KpackMarker("lib/a.so", ("../.kpack/demo_@GFXARCH@.kpack",))
BYTES = (
    b"\x82\xb2kpack_search_paths\x91\xbe../.kpack/demo_@GFXARCH@.kpack\xabkernel_name\xa8lib/a.so"
)


def test_bytes_of_amds_splitter() -> None:
    """A marker is written as AMD's splitter writes it, and read back with its size."""
    assert pack_marker(MARKER) == BYTES
    assert read_marker(memoryview(b"??" + BYTES + b"behind"), offset=2) == (MARKER, len(BYTES))


def test_unusual_markers_are_read() -> None:
    data = b"\x83\xabkernel_name\xa1k\xa1x\x93\x01\xc0\xc3\xb2kpack_search_paths\x92\xa1a\xa1b"
    assert read_marker(memoryview(data))[0] == KpackMarker("k", ("a", "b"))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "it ends too early"),
        (BYTES[:-1], "it ends too early"),
        (b"\x81\xabkernel_name\xa1k", "there is no kpack_search_paths"),
        (b"\x81\xb2kpack_search_paths\x91\xa1a", "there is no kernel_name"),
        (b"\x82\xb2kpack_search_paths\x90\xabkernel_name\xa1k", "no kpack_search_paths"),
        (b"\x82\xb2kpack_search_paths\xa1a\xabkernel_name\xa1k", "expected an array"),
        (b"\x82\xb2kpack_search_paths\x91\x01\xabkernel_name\xa1k", "expected a path"),
        (b"\x81\xabkernel_name\x07", "expected a string for kernel_name"),
        (b"__CLANG_OFFLOAD_BUNDLE__", "expected a map at byte 0"),
        (
            BYTES[:1] + b"\xa1x\xdb" + struct.pack(">I", MAX_SIZE) + bytes(MAX_SIZE),
            "too early|exceeds",
        ),
    ],
)
def test_broken_markers_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=f"expected a kpack marker: .*{message}"):
        read_marker(memoryview(data), path="a.so")


def test_what_is_not_written() -> None:
    for marker in (KpackMarker("", ("a",)), KpackMarker("k", ())):
        with pytest.raises(UsageError, match="needs a kernel name and at least one search path"):
            pack_marker(marker)
    with pytest.raises(UsageError, match="at most 65536 bytes"):
        pack_marker(KpackMarker("k", ("a" * MAX_SIZE,)))


def wrappers_in(content: bytes) -> list[HipWrapper]:
    """Return the wrappers of an object whose section has this content."""
    tables = read_elf_tables(memoryview(make_elf(extra={b".hipFatBinSegment": content})))
    return list(wrappers_of(tables))


def test_wrappers() -> None:
    data = struct.pack("<IIQQ", 0x48495046, 1, 64, 0) + struct.pack("<IIQQ", 0x4B504948, 1, 0, 3)
    first, second = wrappers_in(data)
    assert (first.magic, first.number, second.magic, second.number) == (EMBEDDED, 0, KPACKED, 3)
    assert (second.section, second.offset) == (first.section, first.offset + 24)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (bytes(25), "expected wrappers of 24 bytes, found 25"),
        (bytes(24), r"expected a wrapper .* found b'\\x00"),
        (struct.pack("<4sIQQ", KPACKED, 2, 0, 0), "of version 1, found b'HIPK' of version 2"),
    ],
)
def test_broken_wrappers_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        wrappers_in(data)


# -- marked wrappers ------------------------------------------------------------------------------

OTHER = MARKER._replace(kernel_name="lib/b.so")


def found(data: bytes) -> list[MarkedWrapper]:
    """Return the wrappers with markers."""
    return list(marked_wrappers(read_elf_tables(memoryview(data))))


@pytest.mark.parametrize("relocated", [False, True])
def test_linked_file(relocated: bool) -> None:
    data = marked_program((MARKER, 0), (OTHER, 3), relocated=relocated)
    assert found(data) == [
        MarkedWrapper(0, "lib/a.so#0", MARKER),
        MarkedWrapper(1, "lib/b.so#3", OTHER),
    ]
    tables = read_elf_tables(memoryview(data))
    assert is_marked(tables, 1)


@pytest.mark.parametrize("magic", [KPACKED, EMBEDDED])
def test_object(magic: bytes) -> None:
    """An object's wrapper is followed by its relocation, and known by what it leads to."""
    assert found(marked_object(MARKER, 2, magic=magic)) == [MarkedWrapper(0, "lib/a.so#2", MARKER)]


def test_wrapper_of_a_bundle() -> None:
    """What has its bundle, or a marker in another object, has none to be read."""
    assert found(marked_object(MARKER, 0, magic=EMBEDDED, addend=0)) == []
    assert found(marked_object(MARKER, 0, symbol=2)) == []
    assert found(marked_object(MARKER, 0, home=0xFFF1)) == []
    data = marked_object(MARKER, 0)
    assert found(data.replace(struct.pack("<QQ", 8, 1 << 32 | 1), struct.pack("<QQ", 0, 1))) == []


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (marked_object(MARKER, 0, symbol=3), "expected a symbol below 3"),
        (marked_object(MARKER, 0, table=5), "expected a table of symbols"),
        (marked_object(MARKER, 0, addend=-1), "expected a symbol within its section"),
        (marked_object(MARKER, 0, addend=9999), "expected a symbol within its section"),
        (marked_object(MARKER, 0, home=77), "expected a symbol within its section"),
        (marked_object(MARKER, 0, addend=0), "expected a map at byte 0"),
        (
            marked_program((MARKER, 0)).replace(
                struct.pack("<Q", 0x400000 + 144), struct.pack("<Q", 0x900000)
            ),
            "expected address 0x900000 in a loaded segment",
        ),
    ],
)
def test_pointers_that_lead_nowhere(data: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        found(data)
