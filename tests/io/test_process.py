"""Programs are started, read, and ended with all that they have started; files without a name."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

from offload_tool.io import process
from offload_tool.io.process import file_in_memory, file_without_name, written_bytes
from offload_tool.io.signals import Stopped, check_stopped, end_processes, shielded, stopping
from offload_tool.util.which import which
from tests.conftest import run_tool

HERE = dict(os.environ)


def test_output_and_errors() -> None:
    """Both are returned, with the status; the input is what was given, or empty."""
    script = "cat; echo error >&2; exit 3"
    assert process.capture(["sh", "-c", script], HERE) == (3, b"", b"error\n")
    found = process.capture(["sh", "-c", script], HERE, given=b"text")
    assert found == (3, b"text", b"error\n")
    assert process.capture(["sh", "-c", "kill -9 $$"], HERE).status == -9
    assert process.capture_merged(["sh", "-c", "echo 1; echo 2 >&2; echo 3"], HERE) == (
        0,
        b"1\n2\n3\n",
    )


def test_open_files_with_each_others_numbers() -> None:
    """A program gets each file under its number, whichever numbers the files have here.

    Threads that open and close files meanwhile make any order possible.
    """
    script = """if True:
        import os, tempfile
        from offload_tool.io import process
        files = [tempfile.TemporaryFile() for _ in range(3)]
        assert [file.fileno() for file in files] == [3, 4, 5]
        given = [None, 5, 3, 4, 3]
        process.run(["sh", "-c", "echo 1; echo 2 >&2; echo 3 >&3; echo 4 >&4"], os.environ, given)
        print([process.written_bytes(file) for file in files])
        os.dup2(3, 0)
        process.run(["sh", "-c", "cat"], os.environ, [os.devnull, 0])
        process.run(["sh", "-c", "echo 5 >&3"], os.environ, [None, None, None, 3])
        print(process.written_bytes(files[0]))
    """
    lines = run_tool(sys.executable, "-c", script).splitlines()
    assert lines == [r"[b'2\n4\n', b'3\n', b'1\n']", r"b'2\n4\n5\n'"]


def test_time_limit(tmp_path: Path) -> None:
    late = tmp_path / "late"
    script = f"(sleep 1; touch {late}) & wait"
    with pytest.raises(TimeoutError, match=r"it did not end within 0\.1 seconds"):
        process.capture(["sh", "-c", script], HERE, timeout=0.1)
    time.sleep(1.2)
    assert not late.exists()
    assert process.capture(["true"], HERE, timeout=60).status == 0


def test_interrupted_while_running(monkeypatch: pytest.MonkeyPatch) -> None:
    started = time.monotonic()
    monkeypatch.setattr(process, "_wait", _interrupt)
    with pytest.raises(KeyboardInterrupt):
        process.run(["sleep", "60"], HERE, timeout=60)
    assert time.monotonic() - started < 30


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_programs_are_found_in_the_given_path(tmp_path: Path) -> None:
    """PATH of the given environment decides; a folder or a file that cannot run is skipped."""
    for folder, mode in (("a", 0o644), ("b", 0o755), ("c", 0o755)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "tool").write_text(f"#!/bin/sh\necho {folder}\n")
        (tmp_path / folder / "tool").chmod(mode)
    (tmp_path / "d/tool").mkdir(parents=True)
    path = os.pathsep.join(["", *(str(tmp_path / name) for name in "dabc")])
    assert which("tool", path) == str(tmp_path / "b/tool")
    assert which("tool", str(tmp_path / "a")) is None
    assert which("sh") == which("sh", os.environ["PATH"])
    assert process.capture(["tool"], {"PATH": path}).output == b"b\n"
    with pytest.raises(FileNotFoundError, match="'tool'"):
        process.start(["tool"], {"PATH": str(tmp_path / "d")})


def test_descendants_end(tmp_path: Path) -> None:
    """All descendants of a process end with it, one that ignores its parent's end too."""
    script = "(sleep 300 & echo $! >grandchild; wait) & wait"
    started = subprocess.Popen(["sh", "-c", script], cwd=tmp_path)
    grandchild = tmp_path / "grandchild"
    while not (grandchild.exists() and grandchild.read_text().endswith("\n")):
        time.sleep(0.01)
    end_processes([started.pid])
    started.returncode = -signal.SIGTERM  # it has been waited for
    status = Path(f"/proc/{int(grandchild.read_text())}/stat")
    assert not status.exists() or status.read_text().rpartition(")")[2].split()[0] in "ZX"


def test_signal_in_a_shielded_block() -> None:
    steps: list[str] = []

    def stop_in_a_block() -> None:
        with stopping():
            with shielded():
                os.kill(os.getpid(), signal.SIGTERM)
                steps.append("shielded")
            steps.append("not reached")

    with pytest.raises(Stopped, match="SIGTERM"):
        stop_in_a_block()
    assert steps == ["shielded"]
    check_stopped()  # the run is over


# -- files without a name -------------------------------------------------------------------------


@pytest.mark.parametrize("new_file", [file_in_memory, file_without_name])
def test_a_file_has_no_name(tmp_path: Path, new_file: Callable[[str], IO[bytes]]) -> None:
    with new_file(str(tmp_path)) as file:
        file.write(b"first ")
        os.write(file.fileno(), b"second")
        file.seek(3)
        assert written_bytes(file) == b"first second"
        assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("error", [AttributeError, PermissionError], ids=["old", "sandbox"])
def test_no_file_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """Python has no `memfd_create` with an older C library; a sandbox refuses the call."""

    def refuse(_: str) -> int:
        raise error

    monkeypatch.setattr(os, "memfd_create", refuse)
    with file_in_memory(str(tmp_path)) as file:
        file.write(b"messages")
        assert os.fstat(file.fileno()).st_dev == tmp_path.stat().st_dev
        assert written_bytes(file) == b"messages"
        assert not list(tmp_path.iterdir())


def test_file_system_without_unnamed_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = os.open

    def without_tmpfile(path: str, flags: int, mode: int = 0o777, **options: int) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(95, "Operation not supported")
        return opened(path, flags, mode, **options)

    monkeypatch.setattr(os, "open", without_tmpfile)
    with file_without_name(str(tmp_path)) as file:
        file.write(b"messages")
        assert written_bytes(file) == b"messages"
        assert not list(tmp_path.iterdir())
