"""Plans of files: pieces and gaps, small and large, from files and from memory."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from offload_tool.errors import FileError
from offload_tool.io import InputFile, replace_file
from offload_tool.io.write_plan import HOST, FilePlan, Literal, Range, file_plan, join

LARGE = 200_000


@pytest.mark.parametrize("in_memory", [False, True], ids=["files", "memory"])
@pytest.mark.parametrize("size", [0, 5, 65530, LARGE], ids=["empty", "small", "medium", "large"])
@pytest.mark.parametrize("gap", [0, 7, LARGE], ids=["no-gap", "gap", "hole"])
def test_every_piece_at_its_position(tmp_path: Path, in_memory: bool, size: int, gap: int) -> None:
    host, inserted = bytes(range(256)) * 1000, b"c" * size
    (tmp_path / "host").write_bytes(b"archive" + host)
    (tmp_path / "content").write_bytes(inserted)
    expected = b"beforehead" + bytes(gap) + host[3 : 3 + LARGE] + bytes(gap) + inserted + b"tail"
    expected += bytes(gap)
    with (
        InputFile(tmp_path / "host") as a,
        InputFile(tmp_path / "content") as b,
        replace_file(tmp_path / "out") as out,
    ):
        out.write(b"before")
        part = a.part("host", 7, len(a) - 7)
        sources = (part.data, bytes(b.data)) if in_memory else (part, b)
        middle = FilePlan((Range(0, HOST, 3, LARGE),), LARGE)
        plan = FilePlan.of([b"head", gap, middle, gap, sources[1], b"tail", gap]).bound(sources[0])
        plan.write_to(out)
        assert b"".join(plan.chunks()) == expected[len(b"before") :]
    assert (tmp_path / "out").read_bytes() == expected


@pytest.mark.parametrize("size", [5, LARGE], ids=["small", "large"])
def test_files_opened_one_at_a_time(tmp_path: Path, size: int) -> None:
    paths = [tmp_path / str(number) for number in range(100)]
    for number, path in enumerate(paths):
        path.write_bytes(bytes([number]) * size)
    plan = FilePlan.of([b"head", *(file_plan(path, size) for path in paths)])
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with replace_file(tmp_path / "out") as out:
        few = len(list(Path("/proc/self/fd").iterdir())) + 9
        resource.setrlimit(resource.RLIMIT_NOFILE, (few, limits[1]))
        try:
            plan.write_to(out)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    expected = b"head" + b"".join(path.read_bytes() for path in paths)
    assert (tmp_path / "out").read_bytes() == expected


def test_sizes_that_changed(tmp_path: Path) -> None:
    """A plan that is for a file of another size is not written."""
    (tmp_path / "in").write_bytes(b"longer")
    with pytest.raises(FileError, match="in': changed its size"):
        file_plan(tmp_path / "in", 4).write(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_neighbours_are_joined() -> None:
    """Ranges that follow each other in both files become one; empty pieces vanish."""
    pieces = [Range(0, 0, 5, 3), Literal(3, b""), Range(3, 0, 8, 2), Range(5, 0, 99, 1)]
    assert join(pieces) == (Range(0, 0, 5, 5), Range(5, 0, 99, 1))
    assert join([Range(0, 0, 5, 3), Range(3, 1, 8, 2)])[1] == Range(3, 1, 8, 2)


def test_parts_one_behind_the_other() -> None:
    """Bytes, zeros, ranges and plans follow each other; a plan's pieces move with it."""
    source = InputFile.from_data("f", memoryview(b"0123456789"))
    inner = FilePlan((Literal(1, b"x"),), 3)
    plan = FilePlan.of([b"ab", 2, source.range(3, 4), inner, source.range(0, 1), 1])
    assert plan.size == 13
    assert b"".join(plan.chunks()) == b"ab\0\x003456\0x\x000\0"


def test_plans_that_are_bound_to_nothing() -> None:
    with pytest.raises(TypeError, match="the host of this plan is not bound"):
        list(FilePlan((Range(0, HOST, 0, 4),), 4).chunks())
