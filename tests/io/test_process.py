"""Programs are started, read, and ended with all that they have started."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from offload_tool.io import process
from offload_tool.util.which import which

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


def test_time_limit(tmp_path: Path) -> None:
    late = tmp_path / "late"
    script = f"(sleep 1; touch {late}) & wait"
    with pytest.raises(TimeoutError, match=r"it did not end within 0\.1 seconds"):
        process.capture(["sh", "-c", script], HERE, timeout=0.1)
    time.sleep(1.2)
    assert not late.exists()
    assert process.capture(["true"], HERE, timeout=60).status == 0


def test_interrupted_while_running() -> None:
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        process.run(["sleep", "60"], HERE, while_running=_interrupt)
    assert time.monotonic() - started < 30


def _interrupt() -> None:
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
