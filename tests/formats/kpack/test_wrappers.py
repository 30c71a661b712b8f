"""The wrappers of host programs and objects, followed to their markers."""

from __future__ import annotations

import struct

import pytest

from offload_tool.errors import FormatError
from offload_tool.formats.hip_fatbin import EMBEDDED, KPACKED
from offload_tool.formats.kpack.marker import KpackMarker, MarkedWrapper, is_marked, marked_wrappers
from offload_tool.formats.objects.elf.reader import read_elf_tables
from tests.formats.marked_programs import marked_object, marked_program

ONE = KpackMarker("lib/a.so", ("../.kpack/demo_@GFXARCH@.kpack",))
TWO = KpackMarker("lib/b.so", ("../.kpack/demo_@GFXARCH@.kpack",))


def found(data: bytes) -> list[MarkedWrapper]:
    """Return the wrappers with markers."""
    return list(marked_wrappers(read_elf_tables(memoryview(data))))


@pytest.mark.parametrize("relocated", [False, True])
def test_linked_file(relocated: bool) -> None:
    data = marked_program((ONE, 0), (TWO, 3), relocated=relocated)
    assert found(data) == [MarkedWrapper(0, "lib/a.so#0", ONE), MarkedWrapper(1, "lib/b.so#3", TWO)]
    tables = read_elf_tables(memoryview(data))
    assert is_marked(tables, 1)


@pytest.mark.parametrize("magic", [KPACKED, EMBEDDED])
def test_object(magic: bytes) -> None:
    """An object's wrapper is followed by its relocation, and known by what it leads to."""
    assert found(marked_object(ONE, 2, magic=magic)) == [MarkedWrapper(0, "lib/a.so#2", ONE)]


def test_wrapper_of_a_bundle() -> None:
    """What has its bundle, or a marker in another object, has none to be read."""
    assert found(marked_object(ONE, 0, magic=EMBEDDED, addend=0)) == []
    assert found(marked_object(ONE, 0, symbol=2)) == []
    assert found(marked_object(ONE, 0, home=0xFFF1)) == []
    data = marked_object(ONE, 0)
    assert found(data.replace(struct.pack("<QQ", 8, 1 << 32 | 1), struct.pack("<QQ", 0, 1))) == []


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (marked_object(ONE, 0, symbol=3), "expected a symbol below 3"),
        (marked_object(ONE, 0, table=5), "expected a table of symbols"),
        (marked_object(ONE, 0, addend=-1), "expected a symbol within its section"),
        (marked_object(ONE, 0, addend=9999), "expected a symbol within its section"),
        (marked_object(ONE, 0, home=77), "expected a symbol within its section"),
        (marked_object(ONE, 0, addend=0), "expected a map at byte 0"),
        (
            marked_program((ONE, 0)).replace(
                struct.pack("<Q", 0x400000 + 144), struct.pack("<Q", 0x900000)
            ),
            "expected address 0x900000 in a loaded segment",
        ),
    ],
)
def test_pointers_that_lead_nowhere(data: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        found(data)
