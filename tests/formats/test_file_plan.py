"""Plans of files: pieces and gaps, small and large, from files and from memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from offload_tool.errors import FileError
from offload_tool.files import InputFile, replace_file
from offload_tool.formats.file_plan import (
    Content,
    FilePlan,
    HostRange,
    Literal,
    join,
    write_plan,
)

LARGE = 200_000


@pytest.mark.parametrize("in_memory", [False, True], ids=["files", "memory"])
@pytest.mark.parametrize("size", [0, 5, 65530, LARGE], ids=["empty", "small", "medium", "large"])
@pytest.mark.parametrize("gap", [0, 7, LARGE], ids=["no-gap", "gap", "hole"])
def test_every_piece_at_its_position(tmp_path: Path, in_memory: bool, size: int, gap: int) -> None:
    """Literals, host ranges, contents and gaps arrive in place, whatever their size."""
    host, content = bytes(range(256)) * 1000, b"c" * size
    (tmp_path / "host").write_bytes(b"archive" + host)
    (tmp_path / "content").write_bytes(content)
    start = 4 + gap
    pieces = (
        Literal(0, b"head"),
        HostRange(start, 3, LARGE),
        Content(start + LARGE + gap, 0, size),
        Literal(start + LARGE + gap + size, b"tail"),
    )
    end = start + LARGE + gap + size + 4
    with (
        InputFile(tmp_path / "host") as a,
        InputFile(tmp_path / "content") as b,
        replace_file(tmp_path / "out") as out,
    ):
        out.write(b"before")
        sources = (a.data, bytes(b.data)) if in_memory else (a, b)
        write_plan(out, FilePlan(pieces, end + gap), sources[0], [sources[1]], host_offset=7)
    expected = b"beforehead" + bytes(gap) + host[3 : 3 + LARGE] + bytes(gap) + content + b"tail"
    assert (tmp_path / "out").read_bytes() == expected + bytes(gap)


def test_a_content_that_changed(tmp_path: Path) -> None:
    """A content whose size is not the planned one is refused, and nothing is written."""
    (tmp_path / "content").write_bytes(b"12345")
    plan = FilePlan((Content(0, 0, 4),), 4)
    with (
        pytest.raises(FileError, match="content': changed its size"),
        InputFile(tmp_path / "content") as content,
        replace_file(tmp_path / "out") as out,
    ):
        write_plan(out, plan, b"", [content])
    assert not (tmp_path / "out").exists()


def test_neighbours_are_joined() -> None:
    """Ranges that follow each other in both files become one; empty pieces vanish."""
    pieces = [HostRange(0, 5, 3), Literal(3, b""), HostRange(3, 8, 2), HostRange(5, 99, 1)]
    assert join(pieces) == (HostRange(0, 5, 5), HostRange(5, 99, 1))
