"""Replacing bundles in ELF files: what is refused, and an object put together by hand.

Programs and libraries: see tests/operations/test_thin.py, which runs them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from offload_tool.errors import FormatError, UnsupportedError
from offload_tool.formats.objects.elf.reader import ElfTables, read_elf_tables
from offload_tool.formats.objects.elf.segments import Replacement, plan_shrunk_elf
from offload_tool.io.write_plan import FilePlan
from tests.formats.object_files import CLASSES, assemble, make_elf

NUMBER = 5
"""Of the section `make_elf` adds."""


def host(name: str = "64le", content: bytes = b"a" * 100 + b"b" * 100) -> bytes:
    return make_elf(name, {b".hip_fatbin": content})


def section_start(data: bytes) -> int:
    return read_elf_tables(memoryview(data)).sections[NUMBER].sh_offset


def replacement(start: int, size: int, content: bytes) -> Replacement:
    return Replacement(start, size, FilePlan.of([content]))


def contents(tables: ElfTables) -> list[bytes]:
    return [bytes(tables.content(number)) for number in range(len(tables.sections))]


@pytest.mark.parametrize("name", CLASSES)
def test_object(name: str, tmp_path: Path) -> None:
    """In an object of any class, the section becomes shorter and all others stay."""
    data = host(name)
    start = section_start(data)
    rows = [(NUMBER, replacement(start, 200, b"new"))]
    made = assemble(plan_shrunk_elf(memoryview(data), rows), data, [], tmp_path)
    old, new = (read_elf_tables(memoryview(file)) for file in (data, made))
    assert new.names == old.names
    expected = contents(old)
    expected[NUMBER] = b"new"
    assert contents(new) == expected
    assert len(data) - 208 <= len(made) <= len(data) - 176
    for row in new.sections[1:]:
        assert row.sh_offset % max(row.sh_addralign, 1) == 0


def test_two_in_a_section(tmp_path: Path) -> None:
    """The second of two moves up by what became free, to a multiple of the alignment."""
    data = host()
    start = section_start(data)
    rows = [
        (NUMBER, replacement(start + 100, 100, b"SECOND")),
        (NUMBER, replacement(start, 100, b"FIRST")),
    ]
    made = assemble(plan_shrunk_elf(memoryview(data), rows), data, [], tmp_path)
    content = contents(read_elf_tables(memoryview(made)))[NUMBER]
    assert content.startswith(b"FIRST\0")
    assert content.endswith(b"\0SECOND")
    assert len(content) <= 20


def test_no_room() -> None:
    """New content that is larger than what there is room for is refused."""
    data = host()
    start = section_start(data)
    rows = [
        (NUMBER, replacement(start, 100, b"x" * 101)),
        (NUMBER, replacement(start + 100, 100, b"")),
    ]
    with pytest.raises(FormatError, match="has 101 bytes, there is room for 100"):
        plan_shrunk_elf(memoryview(data), rows)


def test_outside_of_the_section() -> None:
    """A range that begins before its section is refused."""
    data = host()
    rows = [(NUMBER, replacement(section_start(data) - 1, 10, b""))]
    with pytest.raises(FormatError, match=r"\.hip_fatbin"):
        plan_shrunk_elf(memoryview(data), rows)


def test_relocated_bundles() -> None:
    """A section that the linker is to change is refused."""
    data = make_elf()
    text = read_elf_tables(memoryview(data)).sections[1]
    rows = [(1, replacement(text.sh_offset, 16, b""))]
    with pytest.raises(UnsupportedError, match=r"\.rel\.text'\) changes the bundles when linking"):
        plan_shrunk_elf(memoryview(data), rows)


def test_shared_bytes() -> None:
    """Two sections that share the bundle's bytes are refused."""
    data = bytearray(host())
    tables = read_elf_tables(memoryview(bytes(data)))
    row = tables.sections[1]._replace(sh_offset=tables.sections[NUMBER].sh_offset)
    at = tables.header.e_shoff + tables.elf_class.section.size
    data[at : at + tables.elf_class.section.size] = tables.elf_class.section.pack(*row)
    rows = [(NUMBER, replacement(tables.sections[NUMBER].sh_offset, 200, b""))]
    with pytest.raises(UnsupportedError, match="shares bytes with section 5"):
        plan_shrunk_elf(memoryview(bytes(data)), rows)
