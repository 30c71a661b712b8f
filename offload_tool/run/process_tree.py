"""Ends processes with all that they have started: a driver's passes would go on writing."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

_GRACE, _POLL = 5.0, 0.01
"""Seconds, at most, in which processes that were told to end are waited for, and between looks."""


def end_processes(processes: Sequence[int]) -> None:
    """End children of this process and what they have started; wait until all are gone."""
    family: dict[int, None] = {}
    while new := [n for one in processes for n in _with_descendants(one) if n not in family]:
        _send(new, signal.SIGSTOP)  # so that it starts no other one
        family.update(dict.fromkeys(new))
    _send(family, signal.SIGTERM)
    _send(family, signal.SIGCONT)
    for process in processes:
        with suppress(ChildProcessError):
            os.waitpid(process, 0)
    until = time.monotonic() + _GRACE
    while any(map(_is_running, family)) and time.monotonic() < until:
        time.sleep(_POLL)


def _send(processes: Iterable[int], number: int) -> None:
    for process in processes:
        with suppress(ProcessLookupError):  # it has just ended
            os.kill(process, number)


def _is_running(process: int) -> bool:
    """Return whether a process is still there, and not only its exit status."""
    try:
        text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] not in "ZX"


def _with_descendants(process: int) -> list[int]:
    try:
        text = Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii")
    except OSError:
        return [process]
    return [
        process,
        *(number for child in text.split() for number in _with_descendants(int(child))),
    ]
