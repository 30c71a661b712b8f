"""Signals that end a run, and the processes that it has started."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from offload_tool.io.signals import Stopped, check_stopped, end_processes, shielded, stopping


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
    with pytest.raises(Stopped, match="SIGTERM"):
        _stop_in_a_block(steps)
    assert steps == ["shielded"]
    check_stopped()  # the run is over


def _stop_in_a_block(steps: list[str]) -> None:
    with stopping():
        with shielded():
            os.kill(os.getpid(), signal.SIGTERM)
            steps.append("shielded")
        steps.append("not reached")
