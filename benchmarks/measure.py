"""Measure whole processes: wall time, processor time and peak memory, in turn; common commands.

Compared commands alternate, so that changes of a machine's speed affect both. Results are medians,
and the ratio of the medians.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

TARGETS = ("gfx906", "gfx908", "gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1101", "gfx1200")
BUNDLER = [sys.executable, "-m", "offload_tool", "bundler"]
JOBS = f"-j{os.cpu_count() or 1}"


def scons(*arguments: str) -> list[str]:
    """Return a command of SCons that finds this package in any folder."""
    places = os.pathsep.join(filter(None, [str(Path.cwd()), os.environ.get("PYTHONPATH")]))
    return ["env", f"PYTHONPATH={places}", sys.executable, "-m", "SCons", "-Q", *arguments]


@dataclass(frozen=True)
class Figures:
    """Medians over several runs: seconds, and peak resident memory in MiB."""

    wall: float
    cpu: float
    memory: float

    def __str__(self) -> str:
        return (
            f"{self.wall * 1000:8.1f} ms wall {self.cpu * 1000:8.1f} ms cpu {self.memory:6.0f} MiB"
        )


_RUNNER = """
import os, sys, time
nowhere = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
start = time.perf_counter()
child = os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ, file_actions=nowhere)
_, status, usage = os.wait4(child, 0)
wall = time.perf_counter() - start
cpu = usage.ru_utime + usage.ru_stime
print(os.waitstatus_to_exitcode(status), wall, cpu, usage.ru_maxrss / 1024)
"""
"""Runs a command: a process's peak starts at that of its parent, 9 MiB here."""


def run_process(
    command: Sequence[str | Path], folder: Path, environment: Mapping[str, str] | None = None
) -> Figures:
    """Run one command without its output. Processor time includes all its child processes.

    :raises subprocess.CalledProcessError: the command failed.
    """
    words = [str(word) for word in command]
    runner = [sys.executable, "-I", "-S", "-c", _RUNNER, *words]
    done = subprocess.run(
        runner, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    status, *figures = done.stdout.split()
    if int(status):
        raise subprocess.CalledProcessError(int(status), words)
    return Figures(*map(float, figures))


def compare(commands: Sequence[Sequence[str | Path]], folder: Path, runs: int = 5) -> list[Figures]:
    """Run the commands in turn, once as a warm-up and then `runs` times; return the medians."""
    for command in commands:
        run_process(command, folder)
    numbered = {str(number): command for number, command in enumerate(commands)}
    return [median(figures) for figures in in_turn(numbered, folder, runs).values()]


def in_turn(
    commands: Mapping[str, Sequence[str | Path]], folder: Path, runs: int, *made: str
) -> dict[str, list[Figures]]:
    """Run the commands in turn, and remove what matches the patterns `made` after each."""
    taken: dict[str, list[Figures]] = {name: [] for name in commands}
    for _ in range(runs):
        for name, command in commands.items():
            taken[name].append(run_process(command, folder))
            remove(folder, *made)
    return taken


def remove(folder: Path, *patterns: str) -> None:
    """Remove the files of a folder that match one of the patterns."""
    for pattern in patterns:
        for file in folder.glob(pattern):
            file.unlink()


def time_call(call: Callable[[], object], runs: int = 5) -> float:
    """Return the median seconds of a call in this process, after a warm-up."""
    call()
    seconds = []
    for _ in range(runs):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def median(figures: Sequence[Figures]) -> Figures:
    """Return the medians of several runs."""
    return Figures(
        statistics.median(f.wall for f in figures),
        statistics.median(f.cpu for f in figures),
        statistics.median(f.memory for f in figures),
    )
