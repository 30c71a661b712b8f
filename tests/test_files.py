"""Files: mapped, copied inside the kernel, replaced in one step."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from offload_tool import files
from offload_tool.errors import FileError
from offload_tool.files import InputFile, replace_all, replace_file


def leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_input_is_mapped(tmp_path: Path) -> None:
    """An input's data is its content, and a slice outlives the file object."""
    path = tmp_path / "in"
    path.write_bytes(b"0123456789")
    with InputFile(path) as source:
        piece = source.data[2:4]
    assert bytes(piece) == b"23"


def test_empty_input(tmp_path: Path) -> None:
    """An empty file, which cannot be mapped, is empty data."""
    path = tmp_path / "in"
    path.touch()
    with InputFile(path) as source:
        assert len(source) == 0


def test_input_from_a_pipe(tmp_path: Path) -> None:
    """A pipe, which cannot be mapped either, is read to its end."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(b"through a pipe",))
    writer.start()
    with InputFile(path) as source, replace_file(tmp_path / "out") as out:
        out.copy(source)
    writer.join()
    assert (tmp_path / "out").read_bytes() == b"through a pipe"


@pytest.mark.parametrize("name", ["missing", "."], ids=["missing", "folder"])
def test_unreadable_input(tmp_path: Path, name: str) -> None:
    """An input that cannot be read is named in the error."""
    with pytest.raises(FileError, match=str(tmp_path)):
        InputFile(tmp_path / name)


def test_output_appears_when_complete(tmp_path: Path) -> None:
    """An output has its name only after the block, with the usual permissions."""
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


def test_failed_output_leaves_the_old_file(tmp_path: Path) -> None:
    """An exception leaves the old content and no temporary."""
    path = tmp_path / "out"
    path.write_bytes(b"old")
    with pytest.raises(TypeError), replace_file(path) as out:
        out.write("not bytes")  # type: ignore[arg-type]
    assert path.read_bytes() == b"old"
    assert leftovers(tmp_path) == ["out"]


@pytest.mark.parametrize("unnamed", [True, False], ids=["unnamed", "named"])
def test_failure_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unnamed: bool
) -> None:
    """Whether or not the file system has files without names, a failed output is gone."""
    if not unnamed:
        monkeypatch.setattr(files, "_DESCRIPTORS", "/nonexistent")
    with replace_file(tmp_path / "good") as out:
        out.write(b"good")
    with pytest.raises(TypeError), replace_file(tmp_path / "bad") as out:
        out.write("not bytes")  # type: ignore[arg-type]
    assert leftovers(tmp_path) == ["good"]


def test_killed_process_leaves_nothing(tmp_path: Path) -> None:
    """A process that is killed in the middle of an output leaves neither it nor a part."""
    script = (
        "import os, signal\n"
        "from offload_tool.files import replace_file\n"
        "with replace_file('out') as out:\n"
        "    out.write(b'x' * 100000)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=False)
    assert done.returncode == -signal.SIGKILL
    assert leftovers(tmp_path) == []


def test_full_disk(tmp_path: Path) -> None:
    """When no more can be written, the error names the file, which is left as it was."""
    (tmp_path / "out").write_bytes(b"old")
    script = (
        "import resource\n"
        "from offload_tool.errors import FileError\n"
        "from offload_tool.files import replace_file\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (50000, 50000))\n"
        "try:\n"
        "    with replace_file('out') as out:\n"
        "        out.write(b'x' * 100000)\n"
        "except FileError as error:\n"
        "    print(error)\n"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert done.stdout == "'out': File too large\n"
    assert leftovers(tmp_path) == ["out"]
    assert (tmp_path / "out").read_bytes() == b"old"


def test_failure_among_several_outputs(tmp_path: Path) -> None:
    """When one of several outputs cannot be made, none is."""
    names = [tmp_path / "one", tmp_path / "no-folder" / "two"]
    with pytest.raises(FileError, match="no-folder"), replace_all(names):
        pass
    assert leftovers(tmp_path) == []


def test_replacing_keeps_permissions_and_follows_links(tmp_path: Path) -> None:
    """Replacing through a symbolic link writes the file it names, and keeps its mode."""
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
    """What is no regular file is written directly, never replaced."""
    with replace_file(os.devnull) as out:
        out.write(b"x")
        out.pad_to(5000)
    assert stat.S_ISCHR(Path(os.devnull).stat().st_mode)
    assert out.position == 5000


def test_copy_ranges(tmp_path: Path) -> None:
    """A range of an input is copied at the output's position."""
    path = tmp_path / "in"
    path.write_bytes(bytes(range(256)) * 5000)
    with InputFile(path) as source, replace_file(tmp_path / "out") as out:
        out.write(b"head")
        out.copy(source, 256, 512)
        out.copy(source, len(source) - 1)
    assert (tmp_path / "out").read_bytes() == b"head" + bytes(range(256)) * 2 + b"\xff"


def test_copy_without_kernel_support(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the kernel cannot copy between the two files, the bytes are the same."""

    def refuse(*_: object) -> int:
        raise OSError(18, "cross-device link")

    monkeypatch.setattr(os, "copy_file_range", refuse)
    content = os.urandom(3 << 20)
    path = tmp_path / "in"
    path.write_bytes(content)
    with InputFile(path) as source, replace_file(tmp_path / "out") as out:
        out.copy(source)
    assert (tmp_path / "out").read_bytes() == content
