"""String tables: each string is at its offset. That they are LLVM's: tests/cli/test_packager.py."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from offload_tool.formats.llvm_tables import build_string_table

NAMES = st.lists(st.binary(max_size=6).filter(lambda name: b"\0" not in name), max_size=30)


@given(names=NAMES)
def test_each_string_is_at_its_offset(names: list[bytes]) -> None:
    table, offsets = build_string_table(names)
    assert set(offsets) == {b"", *names}
    for name, offset in offsets.items():
        assert table[offset : table.index(b"\0", offset)] == name
