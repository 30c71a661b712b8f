"""ELF: read without trust."""

from __future__ import annotations

import pytest

from offload_tool.errors import FormatError
from offload_tool.formats.objects.elf.reader import read_elf_tables
from tests.formats.object_files import make_elf


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
