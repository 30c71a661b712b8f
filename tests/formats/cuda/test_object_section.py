"""The place for a CUDA fat binary in a host object: found, or refused with what is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from offload_tool.errors import CodeObjectError, FormatError, UnsupportedError
from offload_tool.formats.cuda.object_section import (
    ALIGNMENT,
    PLACEHOLDER,
    find_placeholder,
    plan_embedding,
)
from offload_tool.formats.objects.elf.reader import read_elf_tables
from tests.formats.object_files import CLASSES, assemble, make_elf


@pytest.mark.parametrize("size", [0, 1, 1000])
def test_placeholder_is_replaced(size: int, tmp_path: Path) -> None:
    """The section holds the fat binary, aligned, and all other sections what they had."""
    data = make_elf("64le", {b".nv_fatbin": PLACEHOLDER, b".other": b"stays"})
    assert find_placeholder(memoryview(data)) == 5
    image = bytes(range(256)) * 4
    plan = plan_embedding(memoryview(data), image[:size])
    made = assemble(plan, data, tmp_path)
    old, new = (read_elf_tables(memoryview(file)) for file in (data, made))
    assert new.names == old.names
    assert bytes(new.content(5)) == image[:size]
    assert new.sections[5].sh_offset % ALIGNMENT == 0
    for number in range(1, len(old.sections)):
        if number != 5:
            assert bytes(new.content(number)) == bytes(old.content(number))


NO_PLACEHOLDERS = (b"", PLACEHOLDER[:-1], PLACEHOLDER + b"\0", b"a fat binary")


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        *(
            (make_elf(extra={b".nv_fatbin": found}), CodeObjectError, f"found {found[:8]!r}")
            for found in NO_PLACEHOLDERS
        ),
        *(
            (make_elf(name, {b".nv_fatbin": PLACEHOLDER}), UnsupportedError, "64-bit little-endian")
            for name in sorted({*CLASSES} - {"64le"})
        ),
        *((data, FormatError, "64-bit little-endian") for data in (b"", b"\x7fEL", b"MZ" * 100)),
    ],
)
def test_something_else(data: bytes, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=r"'x.o'.*: expected (the placeholder|a 64-bit)") as caught:
        find_placeholder(memoryview(data), path="x.o")
    assert message in str(caught.value)
