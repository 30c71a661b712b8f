"""Stop on signals, and end child processes with their descendants.

A signal stops this process at any point outside a `shielded` block. The command line installs the
handler (`stopping`). A program that uses this package keeps its own handlers; this module then has
no effect.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

STOPPING = (
    *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGALRM),
    *(signal.SIGXCPU, signal.SIGUSR1, signal.SIGUSR2),
)
"""Signals that users and systems send, and that end a process by default."""
_GRACE, _POLL = 5.0, 0.01  # seconds to wait for descendants after SIGTERM, and between checks


class Stopped(KeyboardInterrupt):
    """Raised on signal `number`, so that unfinished outputs are removed."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(signal.Signals(number).name)


class _State:
    depth = 0
    """Nesting of `shielded` blocks."""
    pending: int | None = None
    """The signal that arrived in a `shielded` block."""
    stopped: int | None = None
    """The signal that was raised; cleanup is not interrupted again."""


def _stop(number: int) -> NoReturn:
    _State.stopped = number
    raise Stopped(number)


def check_stopped() -> None:
    """Raise `Stopped` again if Python discarded it because a destructor raised it."""
    if _State.stopped is not None:
        raise Stopped(_State.stopped)


def _handle(number: int, _: FrameType | None) -> None:
    if _State.stopped is not None:
        return
    if _State.depth:
        _State.pending = number
    else:
        _stop(number)


@contextmanager
def stopping() -> Iterator[None]:
    """Raise `Stopped` in the block for the first signal of `STOPPING` that was not ignored."""
    before = {}
    unraisable = sys.unraisablehook

    def hook(problem: sys.UnraisableHookArgs) -> None:
        if not isinstance(problem.exc_value, Stopped):  # `check_stopped` raises it again
            unraisable(problem)

    try:
        sys.unraisablehook = hook
        for number in STOPPING:
            if signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, _handle)
        yield
        check_stopped()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        sys.unraisablehook = unraisable
        _State.stopped = _State.pending = None


class shielded:  # noqa: N801 - used like a function
    """A block that a signal does not interrupt; the signal takes effect after it."""

    def __enter__(self) -> None:
        _State.depth += 1

    def __exit__(self, *_: object) -> None:
        _State.depth -= 1
        if not _State.depth and _State.pending is not None and _State.stopped is None:
            number, _State.pending = _State.pending, None
            _stop(number)


def end_processes(processes: Sequence[int]) -> None:
    """End children of this process and their descendants; wait until all have exited."""
    family: dict[int, None] = {}
    while new := [n for one in processes for n in _with_descendants(one) if n not in family]:
        _send(new, signal.SIGSTOP)  # so that it starts no new process
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
        with suppress(ProcessLookupError):  # it has just exited
            os.kill(process, number)


def _is_running(process: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
            text = file.read()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] not in "ZX"


def _with_descendants(process: int) -> list[int]:
    try:
        with open(f"/proc/{process}/task/{process}/children", encoding="ascii") as file:
            text = file.read()
    except OSError:
        return [process]
    return [
        process,
        *(number for child in text.split() for number in _with_descendants(int(child))),
    ]
