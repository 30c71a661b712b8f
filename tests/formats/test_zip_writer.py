"""Zip files: what is written is what Python's reader reads."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from pathlib import Path

import pytest

from offload_tool.errors import FormatError
from offload_tool.formats.zip_writer import (
    PackedMember,
    copied_member,
    new_row,
    packed_member,
    plan_zip,
)
from offload_tool.io import InputFile
from offload_tool.io.write_plan import FilePlan, Literal

CONTENT = b"content"


def stored(name: str) -> PackedMember:
    """Return a member that holds `CONTENT`, as it is."""
    row = new_row(name, 0o644)
    row.CRC = zlib.crc32(CONTENT)
    row.file_size = row.compress_size = len(CONTENT)
    content = InputFile.from_data("x", memoryview(CONTENT)).range(0, len(CONTENT))
    return packed_member(row, content)


def copied(data: bytes, tmp_path: Path) -> zipfile.ZipFile:
    """Copy all members of a zip file into a new one, and open that."""
    with (
        InputFile.from_data("old", memoryview(data)) as source,
        zipfile.ZipFile(io.BytesIO(data)) as old,
    ):
        rows = [copied_member(row, source, label="old") for row in old.infolist()]
        plan_zip(rows).write(tmp_path / "new.zip")
    return zipfile.ZipFile(tmp_path / "new.zip")


@pytest.mark.parametrize("name", ["plain", "größe", "日本"])
def test_names(name: str, tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as old:
        row = new_row(name, 0o755)
        row.date_time = (2001, 2, 3, 4, 5, 6)
        row.comment = b"a comment"
        old.writestr(row, CONTENT, zipfile.ZIP_DEFLATED)
    with copied(buffer.getvalue(), tmp_path) as made:
        (found,) = made.infolist()
        assert (found.filename, found.date_time) == (name, row.date_time)
        assert (found.external_attr, found.comment) == (row.external_attr, row.comment)
        assert made.read(name) == CONTENT
        assert made.testzip() is None


@pytest.mark.parametrize(("raw", "name"), [(b"gr\x94\xe1e", "größe"), (b"gr\0ss", "gr")])
def test_name_that_is_read_as_another(raw: bytes, name: str, tmp_path: Path) -> None:
    """A name of the old code page, or with NUL, is written as read, with sizes before or behind."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as old:
        old.writestr("first", b"")
        old.writestr("grXXe", CONTENT)
    data = buffer.getvalue().replace(b"grXXe", raw)
    flagged = bytearray(data)
    for magic, at in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        place = flagged.rindex(magic) + at
        flagged[place] |= 8
    for old_data in (data, bytes(flagged)):
        with copied(old_data, tmp_path) as made:
            assert [row.filename for row in made.infolist()] == ["first", name]
            assert made.read(name) == CONTENT


def test_large_numbers(tmp_path: Path) -> None:
    """Sizes and places beyond 32 bits stand in fields of their own."""
    row = new_row("large", 0o644)
    row.CRC, row.compress_type = 1, zipfile.ZIP_DEFLATED
    row.file_size, row.compress_size = 5 << 32, 6 << 32
    row.extra = struct.pack("<2HQ", 1, 8, 99) + struct.pack("<2H2s", 0x7875, 2, b"ab")
    content = InputFile.from_data("x", memoryview(CONTENT)).range(0, len(CONTENT))
    large = packed_member(row, content)
    head = b"".join(large.plan.chunks()).removesuffix(CONTENT)
    assert head.endswith(struct.pack("<2H2Q", 1, 16, 5 << 32, 6 << 32))
    # As if the member before it had so many bytes.
    behind = stored("behind")
    before = PackedMember(large.row, FilePlan((), 7 << 32))
    *_, tail = plan_zip([before, behind]).pieces
    assert isinstance(tail, Literal)
    data = tail.data
    central = data.index(b"PK\1\2")
    extra = struct.pack("<2H2Q", 1, 16, 5 << 32, 6 << 32) + struct.pack("<2H2s", 0x7875, 2, b"ab")
    assert extra in data[central:]
    assert struct.pack("<2HQ", 1, 8, 7 << 32) in data[central:]
    place = (7 << 32) + behind.plan.size
    end = struct.unpack("<4sQ2H2I4Q", data[data.index(b"PK\6\6") :][:56])
    assert end[6:] == (2, 2, data.index(b"PK\6\6") - central, place)
    assert struct.unpack("<4sIQI", data[data.index(b"PK\6\7") :][:20])[2] == place + end[8]


def test_many_members(tmp_path: Path) -> None:
    count = 1 << 16
    plan_zip([stored(str(number)) for number in range(count)]).write(tmp_path / "many.zip")
    with zipfile.ZipFile(tmp_path / "many.zip") as made:
        assert len(made.namelist()) == count
        assert made.read(str(count - 1)) == CONTENT


@pytest.mark.parametrize("kept", [20, 32, 36])
def test_cut_member(kept: int) -> None:
    """A file that lacks its end, its magic or its first bytes, before which the member begins."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as old:
        old.writestr("a", CONTENT)
        (row,) = old.infolist()
    whole = buffer.getvalue()
    for data, at in ((whole[:kept], 0), (b"X" + whole[1:], 0), (whole[kept:], -kept)):
        row.header_offset = at
        message = f"expected a header and 7 bytes at offset {at}; the zip file may be cut short"
        with (
            InputFile.from_data("old", memoryview(data)) as source,
            pytest.raises(FormatError, match=message),
        ):
            copied_member(row, source, label="old")
