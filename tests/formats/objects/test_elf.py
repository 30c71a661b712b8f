"""ELF: read without trust."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload_tool.errors import FormatError
from offload_tool.formats.hip_fatbin import plan_embedding
from offload_tool.formats.objects.elf import ElfSection, read_elf

PLAN = plan_embedding(["1"], 5, "x86_64-unknown-linux-gnu")
OBJECT = b"".join(PLAN.bound(b"", [b"hello"]).chunks())


def test_header_sections_and_symbols() -> None:
    """Machine, type, sections and symbols are what the file says."""
    facts = read_elf(memoryview(OBJECT), symbols=True)
    assert (facts.type, facts.machine, facts.flags) == ("ET_REL", 62, 0)
    assert ElfSection(".hip_fatbin", 4096, 5, has_content=True) in facts.sections
    assert [symbol.defined for symbol in facts.symbols] == [True, True]


@pytest.mark.parametrize("length", [0, 4, 20, 63, 64, 4096, len(OBJECT) - 1])
def test_cut_short(length: int) -> None:
    """A file that was cut anywhere is a format error that names the file."""
    with pytest.raises(FormatError, match=r"^'cut\.o'"):
        read_elf(memoryview(OBJECT[:length]), symbols=True, path="cut.o")


@given(at=st.integers(0, len(OBJECT) - 1), value=st.integers(0, 255))
def test_one_changed_byte(at: int, value: int) -> None:
    """Any one changed byte gives an answer or a format error, nothing else."""
    data = bytearray(OBJECT)
    data[at] = value
    try:
        facts = read_elf(memoryview(bytes(data)), symbols=True)
    except FormatError:
        return
    assert all(not s.has_content or s.offset + s.size <= len(data) for s in facts.sections)
