"""ELF: read without trust."""

from __future__ import annotations

import pytest

from offload_tool.errors import FormatError
from offload_tool.formats.hip_fatbin import plan_embedding
from offload_tool.formats.objects.elf.reader import ET_REL, ElfTables, NamedSymbol, read_elf_tables
from tests.formats.object_files import make_elf

PLAN = plan_embedding(["1"], 5, "x86_64-unknown-linux-gnu")
OBJECT = b"".join(PLAN.bound(b"", [b"hello"]).chunks())


def read(data: bytes, path: str | None = None) -> tuple[ElfTables, list[NamedSymbol]]:
    tables = read_elf_tables(memoryview(data), path=path)
    return tables, list(tables.named_symbols())


def test_header_sections_and_symbols() -> None:
    tables, symbols = read(OBJECT)
    header = tables.header
    assert (header.e_type, header.e_machine, header.e_flags) == (ET_REL, 62, 0)
    number = tables.names.index(b".hip_fatbin")
    assert tables.sections[number].sh_offset == 4096
    assert tables.content(number) == b"hello"
    assert [symbol.defined for symbol in symbols] == [True, True]


@pytest.mark.parametrize("length", [0, 4, 20, 63, 64, 4096, len(OBJECT) - 1])
def test_cut_short(length: int) -> None:
    with pytest.raises(FormatError, match=r"^'cut\.o'"):
        read(OBJECT[:length], "cut.o")


@pytest.mark.parametrize("copies", [3, 9])
def test_sections_that_share_bytes(copies: int) -> None:
    data = make_elf(extra={b".big": bytes(10_000)})
    tables = read_elf_tables(memoryview(data))
    rows = [*tables.sections, *[tables.sections[5]] * copies]
    header = tables.header._replace(e_shoff=len(data), e_shnum=len(rows))
    made = tables.elf_class.header.pack(*header) + data[tables.header.e_ehsize :]
    made += b"".join(tables.elf_class.section.pack(*row) for row in rows)
    if copies == 3:
        assert len(read_elf_tables(memoryview(made)).sections) == len(rows)
        return
    with pytest.raises(FormatError, match="taken together, is far longer than the file"):
        read_elf_tables(memoryview(made))
