"""Run one compile; after a failure of the engine, run it again here, once.

A launcher's own failures look like the compiler's. sccache-dist turns every failure of a compiler
on a server, including errors in the source, into status 254. srun returns 233 or 245 if a node
died, and 1 if the allocation is gone. A failing clang returns 1 and prints "error:". Any other
failure is discarded, and the compile runs again on this machine, whose compiler decides.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from offload_tool.errors import CompilerError

_FAILED = 1  # clang's status for an error in its input
_SHELL_SIGNAL = 128  # a shell and srun add a signal's number to this
_STOPPED_BY_USER = frozenset({signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})
_REASON_CHARACTERS = 300

# Limits the compiles that run again: with -j64, 64 may fail at once.
_local_slots = threading.BoundedSemaphore(max(1, os.cpu_count() or 1))


@dataclass(frozen=True, slots=True)
class Finished:
    """A process that has ended."""

    status: int
    """Its exit status; 128 + N where signal N killed it."""
    output: bytes
    """Its standard output and standard error, in the order written."""

    @property
    def reason(self) -> str:
        """The status and the most useful line: the first error, or else the last line."""
        lines = self.output.decode(errors="replace").strip().splitlines() or [""]
        line = next((line for line in lines if "error:" in line), lines[-1])
        text = "".join(c if c.isprintable() else " " for c in line)
        text = f": {text[:_REASON_CHARACTERS]}" if text else ""
        return f"status {self.status}{text}"


def is_engine_failure(finished: Finished, launcher: str) -> bool:
    """Return whether the launcher failed, not the compiler that it runs.

    The launcher's own messages begin with the name `launcher`. A kill counts as its failure: the
    cause on another machine, such as its memory, may not exist here. A stop by the user (Ctrl-C)
    does not.
    """
    if finished.status == _FAILED:
        own = f"{Path(launcher).name}: ".encode()
        lines = finished.output.splitlines()
        return not any(b"error" in line and not line.startswith(own) for line in lines)
    return finished.status != 0 and not was_stopped(finished.status)


def was_stopped(status: int) -> bool:
    """Return whether a status means that the user stopped the compile."""
    return status - _SHELL_SIGNAL in _STOPPED_BY_USER


def run_once(command: Sequence[str], environment: Mapping[str, str]) -> Finished:
    """Run a command; its output is buffered, so that outputs of several commands do not mix.

    :raises CompilerError: there is no such program.
    """
    # A file in memory instead of pipes, which would need a thread for each compile.
    descriptor = os.memfd_create("compile", os.MFD_CLOEXEC)
    try:
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
        )
        try:
            status = process.wait()
        except BaseException:  # `subprocess.run` does not wait after a KeyboardInterrupt
            process.kill()
            process.wait()
            raise
        size = os.fstat(descriptor).st_size
        output = os.pread(descriptor, size, 0) if size else b""
    except OSError as error:
        raise CompilerError(f"'{command[0]}' cannot be run: {error.strerror or error}") from error
    finally:
        os.close(descriptor)
    return Finished(status if status >= 0 else _SHELL_SIGNAL - status, output)


def run_locally(command: Sequence[str], environment: Mapping[str, str]) -> Finished:
    """Run a compile that failed elsewhere; at most one per core of this machine at a time."""
    with _local_slots:
        return run_once(command, environment)


def run_with_launcher(
    launcher: Sequence[str], command: Sequence[str], environment: Mapping[str, str]
) -> tuple[Finished, str]:
    """Run ``LAUNCHER COMMAND``; after a failure of the launcher, run the command without it.

    :returns: the result, and a message to print: the reason of the second run in one line, or "".
    """
    finished = run_once([*launcher, *command], environment)
    if not launcher or not is_engine_failure(finished, launcher[0]):
        return finished, ""
    again = run_locally(command, environment)
    if again.status != 0:
        return again, ""
    failed = f"offload: {launcher[0]} failed ({finished.reason})"
    return again, f"{failed}; compiled again on this machine"
