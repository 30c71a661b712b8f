"""Temporary folders: gone with their block, with a killed process's successor, and not before."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from offload_tool.io import temporary_directory
from offload_tool.io.temporary_directory import FolderOnDemand, system_temp_folder, temporary_folder

HOLDER = """
import sys
from offload_tool.io.temporary_directory import temporary_folder
with temporary_folder(folder=sys.argv[1]) as made:
    print(made, flush=True)
    sys.stdin.read()
"""
MAKER = """
import os, sys
from offload_tool.io.temporary_directory import temporary_folder
for _ in range(int(sys.argv[2])):
    with temporary_folder(folder=sys.argv[1]) as made:
        (made / "x").touch()
        assert os.listdir(made) == ["x"]
"""


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def start(program: str, folder: Path, count: int = 1) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", program, str(folder), str(count)]
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def test_gone_with_the_block(tmp_path: Path) -> None:

    def fail() -> None:
        with temporary_folder(folder=tmp_path) as made:
            (made / "a").mkdir()
            (made / "a" / "b").touch()
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert names(tmp_path) == set()


def test_left_by_a_killed_process(tmp_path: Path) -> None:
    """Who is killed leaves a folder; who makes the next one removes it, and none that is in use."""
    with start(HOLDER, tmp_path) as killed, start(HOLDER, tmp_path) as living:
        assert killed.stdout is not None
        assert living.stdout is not None
        left, used = (Path(out.readline().strip()) for out in (killed.stdout, living.stdout))
        (left / "content").touch()
        killed.kill()
        killed.wait()
        other = tmp_path / f"{left.name[:17]}-link"
        other.symlink_to(used)
        with temporary_folder(folder=tmp_path) as made:
            assert names(tmp_path) == {made.name, used.name, other.name}
        living.communicate("")
    assert names(tmp_path) == {other.name}


def test_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are no locks, or no boot has an ID, folders are made, and nothing is removed."""
    with temporary_folder(folder=tmp_path) as made:
        left = tmp_path / (made.name[:17] + "left")

    def no_lock(*_: int) -> None:
        raise OSError

    left.mkdir()
    for name, value in (("fcntl.flock", no_lock), ("_BOOT_ID", str(tmp_path / "none"))):
        with monkeypatch.context() as patch:
            patch.setattr(f"{temporary_directory.__name__}.{name}", value)
            with temporary_folder(folder=tmp_path) as made:
                assert names(tmp_path) == {left.name, made.name}
    with temporary_folder(folder=tmp_path):
        assert not left.exists()


def test_at_the_same_time(tmp_path: Path) -> None:
    """Processes side by side never take each other's folders, and the killed leave none."""
    makers = [start(MAKER, tmp_path, 200) for _ in range(5)]
    victims = [start(MAKER, tmp_path, 10**6) for _ in range(3)]
    for victim in victims:
        with pytest.raises(subprocess.TimeoutExpired):
            victim.wait(random.uniform(0.05, 0.15))
        victim.send_signal(signal.SIGKILL)
    for maker in makers:
        assert maker.communicate() == ("", "")
        assert maker.returncode == 0
    for victim in victims:
        victim.communicate()
    with temporary_folder(folder=tmp_path) as made:
        assert names(tmp_path) == {made.name}


def test_the_usual_folder_is_that_of_python_and_nothing_is_written_to_find_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is killed meanwhile leaves no file there."""
    monkeypatch.setattr(tempfile, "tempdir", None)
    for name in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.delenv(name, raising=False)
    for given in (None, str(tmp_path / "none"), str(tmp_path)):
        if given is not None:
            monkeypatch.setenv("TMPDIR", given)
        before = tmp_path.stat().st_mtime_ns
        found = system_temp_folder()
        assert tmp_path.stat().st_mtime_ns == before
        monkeypatch.setattr(tempfile, "tempdir", None)
        assert found == tempfile.gettempdir()
        monkeypatch.setattr(tempfile, "tempdir", None)


def test_folder_on_demand(tmp_path: Path) -> None:
    """It has a name at once, exists when it is needed, and is gone after the block."""
    with FolderOnDemand("offload-", tmp_path) as folder:
        assert names(tmp_path) == set()
    with FolderOnDemand("offload-", tmp_path) as folder:
        for _ in range(2):
            folder.make()
            Path(folder.name, "a").touch()
        assert names(tmp_path) == {Path(folder.name).name}
    assert names(tmp_path) == set()
