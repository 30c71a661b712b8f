"""String tables: sorted by their ends, tails shared."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from offload_tool.formats.llvm_tables import build_string_table

NAMES = st.lists(st.binary(max_size=6).filter(lambda name: b"\0" not in name), max_size=30)


def test_layout() -> None:
    table, offsets = build_string_table([b"text", b".text", b".rela.text", b".data", b""])
    assert table == b"\0.rela.text\0.data\0"
    assert offsets == {b"": 0, b".rela.text": 1, b".text": 6, b"text": 7, b".data": 12}


@given(names=NAMES)
def test_each_string_is_at_its_offset(names: list[bytes]) -> None:
    table, offsets = build_string_table(names)
    assert set(offsets) == {b"", *names}
    for name, offset in offsets.items():
        assert table[offset : table.index(b"\0", offset)] == name
