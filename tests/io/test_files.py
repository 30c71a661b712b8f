"""Files: mapped, copied inside the kernel, replaced in one step."""

from __future__ import annotations

import errno
import os
import random
import signal
import stat
import subprocess
import sys
import tracemalloc
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload_tool.errors import FileError
from offload_tool.io import FileRange, InputFile, atomic_write, replace_file
from offload_tool.io.input_file import load
from offload_tool.io.output_folder import new_folder
from offload_tool.io.paths import replace_small_file
from offload_tool.io.spool import Spool
from tests.conftest import identity, run_tool


def leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("size", [6, 3 << 20], ids=["small", "large"])
def test_part_of_a_file(tmp_path: Path, size: int) -> None:
    """A part is read and copied as a file, and a part of it too; it ends with the file."""
    content = os.urandom(size)
    (tmp_path / "in").write_bytes(b"before" + content + b"behind")
    with InputFile(tmp_path / "in") as source, replace_file(tmp_path / "out") as out:
        part = source.part("in(part)", 6, size)
        inner = part.part("in(part)(inner)", 1, size - 2)
        assert (len(part), part.fileno(), str(part.path)) == (size, None, "in(part)")
        assert bytes(part.data) == content == bytes(part.read(0, size))
        assert bytes(inner.range(1, 3).data) == content[2:5] == bytes(inner.read(1, 3))
        assert inner.range(1, 3) == (source, 8, 3)
        out.copy(part)
        out.copy(inner)
        out.append([inner.range(0, 2), b"x"])
    assert (tmp_path / "out").read_bytes() == content + content[1:-1] + content[1:3] + b"x"


def test_spool_grows(tmp_path: Path) -> None:
    """What is written to a spool can be read at once, as a range that stays what it is."""
    with Spool("name", tmp_path) as spool:
        spool.out.write(b"first")
        first = spool.since()
        spool.out.reserve(1 << 20)
        spool.out.write(b"second")
        second = spool.since(5)
        assert (bytes(first.data), bytes(second.data)) == (b"first", b"second")
        with spool.read("label") as content:
            assert (str(content.path), bytes(content.data)) == ("label", b"firstsecond")
    assert leftovers(tmp_path) == []
    with pytest.raises(FileError, match="'name': "):
        Spool("name", tmp_path / "gone")


def test_input_from_a_pipe(tmp_path: Path) -> None:
    """A pipe that is open already (``<(...)``) is read to its end, though it cannot be mapped."""
    reading, writing = os.pipe()
    os.write(writing, b"through a pipe")
    os.close(writing)
    with InputFile(f"/dev/fd/{reading}") as source, replace_file(tmp_path / "out") as out:
        out.copy(source)
    os.close(reading)
    assert (tmp_path / "out").read_bytes() == b"through a pipe"


def test_output_appears_when_complete(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with replace_file(path) as out:
        out.write(b"ab")
        out.pad_to(4)
        out.write(b"c")
        assert not path.exists()
    assert path.read_bytes() == b"ab\0\0c"
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask


def test_long_names(tmp_path: Path) -> None:
    """A name may have as many bytes as the file system allows, however few characters these are."""
    for name in ("a" * 255, "漢" * 85):
        with replace_file(tmp_path / name) as out:
            out.write(b"new")
        assert (tmp_path / name).read_bytes() == b"new"


def test_names_with_nul(tmp_path: Path) -> None:
    """No file has such a name; it is an error of the family by that name."""
    path = tmp_path / "a\0b"
    with pytest.raises(FileError, match=r"a\\x00b': no file has a name with a NUL character"):
        InputFile(path)
    for write in (replace_file, new_folder):
        with pytest.raises(FileError, match="NUL"), write(path):
            pass


@pytest.mark.parametrize("unnamed", [True, False], ids=["unnamed", "named"])
def test_failure_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unnamed: bool
) -> None:
    """Whether or not the file system has files without names, a failed output is gone."""
    if not unnamed:
        monkeypatch.setattr(atomic_write, "_DESCRIPTORS", "/nonexistent")
    with replace_file(tmp_path / "good") as out:
        out.write(b"good")
    for name in ("good", "bad"):
        with pytest.raises(TypeError), replace_file(tmp_path / name) as out:
            out.write("not bytes")  # type: ignore[arg-type]
    assert leftovers(tmp_path) == ["good"]
    assert (tmp_path / "good").read_bytes() == b"good"


def test_killed_process_leaves_nothing(tmp_path: Path) -> None:
    script = (
        "import os, signal\n"
        "from offload_tool.io import replace_file\n"
        "with replace_file('out') as out:\n"
        "    out.write(b'x' * 100000)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=False)
    assert done.returncode == -signal.SIGKILL
    assert leftovers(tmp_path) == []


def test_replacing_keeps_permissions_and_follows_links(tmp_path: Path) -> None:
    path = tmp_path / "real"
    path.write_bytes(b"old")
    path.chmod(0o640)
    link = tmp_path / "link"
    link.symlink_to("real")
    with replace_file(link) as out:
        out.write(b"new")
    assert link.is_symlink()
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_device_as_output() -> None:
    """What is not a regular file is written directly, never replaced."""
    with replace_file(os.devnull) as out:
        out.write(b"x")
        out.pad_to(5000)
    assert stat.S_ISCHR(Path(os.devnull).stat().st_mode)
    assert out.position == 5000


@pytest.mark.parametrize("call", ["copy_file_range", "link", "fchmod", "posix_fallocate"])
@pytest.mark.parametrize("error", [errno.EXDEV, errno.EPERM, errno.EIO])
def test_copy_without_kernel_support(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, error: int
) -> None:
    """Without calls that only make it faster, or that change nothing, an output is the same."""

    def refuse(*_: object, **__: object) -> int:
        raise OSError(error, os.strerror(error))

    content = os.urandom(3 << 20)
    path, output = tmp_path / "in", tmp_path / "out"
    path.write_bytes(content)
    output.touch()
    mode = output.stat().st_mode
    monkeypatch.setattr(os, call, refuse)
    with InputFile(path) as source, replace_file(output) as out:
        out.copy(source)
    assert (output.read_bytes(), output.stat().st_mode) == (content, mode)
    assert leftovers(tmp_path) == ["in", "out"]


def test_more_permissions_than_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is no output if the system refuses to take permissions from it."""

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "fchmod", refuse)
    with pytest.raises(FileError, match="out': Operation not"), replace_file(tmp_path / "out") as o:
        o.set_mode(0o200)
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("unnamed", [True, False], ids=["unnamed", "named"])
@pytest.mark.parametrize("size", [0, 5, (1 << 20) - 1, 1 << 20, (2 << 20) + 5])
def test_equal_content_keeps_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unnamed: bool, size: int
) -> None:
    if not unnamed:
        monkeypatch.setattr(atomic_write, "_DESCRIPTORS", "/nonexistent")
    path, content = tmp_path / "out", os.urandom(size // 2) + bytes(size - size // 2)
    path.write_bytes(content)
    path.chmod(0o440)
    before = identity(path)
    with replace_file(path, keep_equal=True) as out:
        out.write(content.rstrip(b"\0"))
        out.pad_to(size)  # a hole at the end is as equal to zeros as zeros that were written
        assert not out.unchanged
    assert out.unchanged
    assert identity(path) == before
    path.chmod(0o640)
    with replace_file(path) as out:
        out.write(content)
    assert not out.unchanged
    assert path.stat().st_ino != before[0]
    assert leftovers(tmp_path) == ["out"]


LONG = bytes((2 << 20) + 5)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        *(
            (LONG, LONG[:position] + b"x" + LONG[position + 1 :])
            for position in (0, (1 << 20) - 1, 1 << 20, (2 << 20) + 4)
        ),
        (b"ab", b"abc"),
        (b"abcd", b"abc"),
        (None, b"abc"),
    ],
    ids=["first", "end-of-chunk", "next-chunk", "last", "longer", "shorter", "none"],
)
def test_other_content_replaces_the_old_file(tmp_path: Path, old: bytes | None, new: bytes) -> None:
    path = tmp_path / "out"
    if old is not None:
        path.write_bytes(old)
    with replace_file(path, keep_equal=True) as out:
        out.write(new)
    assert not out.unchanged
    assert path.read_bytes() == new
    assert leftovers(tmp_path) == ["out"]


def test_comparing_takes_no_memory_for_the_content(tmp_path: Path) -> None:
    script = (
        "import resource\n"
        "from offload_tool.io import replace_file\n"
        "resource.setrlimit(resource.RLIMIT_AS, (200 << 20, 200 << 20))\n"
        "with replace_file('out', keep_equal=True) as out:\n"
        "    out.pad_to(1 << 30)\n"
        "print(out.unchanged)\n"
    )
    with (tmp_path / "out").open("wb") as file:
        file.truncate(1 << 30)
    done = run_tool(sys.executable, "-c", script, cwd=tmp_path)
    assert done == "True\n"


def test_no_room_for_one_of_several(tmp_path: Path) -> None:
    """When one of several outputs fails at its very end, none is replaced."""
    for name in ("one", "two"):
        (tmp_path / name).write_bytes(b"old")
    script = (
        "import resource\n"
        "from offload_tool.errors import FileError\n"
        "from offload_tool.io import replace_all\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (50000, 50000))\n"
        "try:\n"
        "    with replace_all(['one', 'two']) as (one, two):\n"
        "        one.pad_to(100000)\n"
        "        two.write(b'new')\n"
        "except FileError as error:\n"
        "    print(error)\n"
    )
    done = run_tool(sys.executable, "-B", "-c", script, cwd=tmp_path)
    assert done == "'one': File too large\n"
    assert leftovers(tmp_path) == ["one", "two"]
    assert [(tmp_path / name).read_bytes() for name in ("one", "two")] == [b"old"] * 2


def test_other_errors_among_outputs(tmp_path: Path) -> None:
    """An error of the system about another file inside the block names that file."""
    with pytest.raises(FileError, match="'/nonexistent/x'"), replace_file(tmp_path / "out"):
        Path("/nonexistent/x").stat()
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("size", [10, 100_000], ids=["gathered", "copied"])
def test_input_that_became_shorter(tmp_path: Path, size: int) -> None:
    path = tmp_path / "in"
    path.write_bytes(bytes(size))

    def copy() -> None:
        with InputFile(path) as source:
            os.truncate(path, size - 1)
            with replace_file(tmp_path / "out") as out:
                out.append([FileRange(source, 0, size)])

    with pytest.raises(FileError, match="in': became shorter"):
        copy()
    assert leftovers(tmp_path) == ["in"]


SIZES = st.integers(0, 9_000) | st.sampled_from([65_535, 65_536, 65_537, 262_144, 300_000])


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 70_000), SIZES)))
def test_pieces_in_any_order(pieces: list[tuple[int, int, int]]) -> None:
    """Ranges of files and of memory, and bytes, of sizes that are gathered, read and copied."""
    contents = [random.Random(seed).randbytes(370_000) for seed in range(4)]
    with TemporaryDirectory() as folder, ExitStack() as stack:
        sources = []
        for name, content in zip("ab", contents[:2], strict=True):
            Path(folder, name).write_bytes(content)
            sources.append(stack.enter_context(InputFile(Path(folder, name))))
        sources.append(InputFile.from_data("c", memoryview(contents[2])))
        with replace_file(Path(folder, "out")) as out:
            out.append(
                FileRange(sources[i], offset, size) if i < 3 else contents[3][offset:][:size]
                for i, offset, size in pieces
            )
            assert out.position == sum(size for *_, size in pieces)
        wanted = b"".join(contents[i][offset : offset + size] for i, offset, size in pieces)
        assert Path(folder, "out").read_bytes() == wanted


def test_small_ranges_are_read_many_at_a_time(tmp_path: Path, monkeypatch: Any) -> None:
    content = random.Random(3).randbytes(400_000)
    (tmp_path / "in").write_bytes(content)
    calls: list[int] = []
    real = os.pread

    def counted(descriptor: int, size: int, offset: int) -> bytes:
        calls.append(offset)
        return real(descriptor, size, offset)

    monkeypatch.setattr("os.pread", counted)
    with InputFile(tmp_path / "in") as source, replace_file(tmp_path / "out") as out:
        out.append(FileRange(source, at, 100) for at in range(0, 400_000, 200))
    wanted = b"".join(content[at : at + 100] for at in range(0, 400_000, 200))
    assert (tmp_path / "out").read_bytes() == wanted
    assert len(calls) <= 4


@pytest.mark.parametrize("size", [100, 400_000])
def test_a_file_that_is_shorter_than_it_was(tmp_path: Path, size: int) -> None:
    """It is refused when it is opened, read or mapped; so is what cannot be mapped."""
    path = tmp_path / "short"
    path.write_bytes(bytes(50))
    with path.open("rb") as file, pytest.raises(FileError, match="became shorter"):
        load(path, file.fileno(), size)
    descriptor = os.open(tmp_path, os.O_RDONLY)
    with pytest.raises(FileError, match=str(tmp_path)):
        load(tmp_path, descriptor, size)
    os.close(descriptor)


def test_many_pieces_take_little_memory(tmp_path: Path) -> None:
    tracemalloc.start()
    with replace_file(tmp_path / "out") as out:
        out.append(memoryview(b"") for _ in range(200_000))
        out.append(memoryview(b"x") for _ in range(200_000))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (tmp_path / "out").stat().st_size == 200_000
    assert most < 8 << 20


# -- small files ----------------------------------------------------------------------------------


def test_replaced(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for text in (b"one", b"", b"other" * 100_000):
        replace_small_file(str(path), text)
        assert path.read_bytes() == text
        assert list(tmp_path.iterdir()) == [path]


def test_not_replaced(tmp_path: Path) -> None:
    """A name that cannot be replaced is an error, and nothing is left of the new file."""
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        replace_small_file(str(tmp_path / "folder"), b"text")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
