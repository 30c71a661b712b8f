"""Run one compile; after a failure of the engine, run it again here, once.

A launcher's own failures look like the compiler's. sccache-dist turns every failure of a compiler
on a server, including errors in the source, into status 254, and a refused token into 1. srun
returns 233 or 245 if a node died, and 1 if the allocation is gone. A failing clang returns 1 and
prints "error:". Any other failure is discarded, and the compile runs again on this machine.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from offload_tool.clang.driver import option_values
from offload_tool.errors import CompilerError
from offload_tool.io.process import capture_merged
from offload_tool.util.cores import usable_cores

_FAILED = 1  # clang's status for an error in its input
_SHELL_SIGNAL = 128  # a shell and srun add a signal's number to this
_STOPPED_BY_USER = frozenset({signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})
_REASON_CHARACTERS = 300

# Limits the compiles that run again: with -j64, 64 may fail at once.
_local_slots = threading.BoundedSemaphore(usable_cores())


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

    Only sccache's own messages do not begin with its name. A kill counts: its cause, such as the
    other machine's memory, may not exist here. A stop by the user (Ctrl-C) does not.
    """
    name = Path(launcher).name
    if finished.status == _FAILED and name != "sccache":
        own, lines = f"{name}: ".encode(), finished.output.splitlines()
        return not any(b"error" in line and not line.startswith(own) for line in lines)
    return finished.status != 0 and finished.status - _SHELL_SIGNAL not in _STOPPED_BY_USER


def run_once(command: Sequence[str], environment: Mapping[str, str]) -> Finished:
    """Run a command; keep its output, so that outputs do not mix. Raise CompilerError."""
    try:
        status, output = capture_merged(command, environment)
    except OSError as error:
        reason = error.strerror or error
        raise CompilerError(f"'{command[0]}' cannot be run: {reason}") from error
    return Finished(status if status >= 0 else _SHELL_SIGNAL - status, output)


def run_with_fallback(
    launched: Sequence[str],
    command: Sequence[str],
    environment: Mapping[str, str],
    launched_environment: Mapping[str, str] | None = None,
) -> tuple[Finished, str]:
    """Run `launched`, or after its failure `command`; return the result and the reason."""
    finished = run_once(launched, launched_environment or environment)
    if [*launched] == [*command] or not is_engine_failure(finished, launched[0]):
        return finished, ""
    with _local_slots:
        again = run_once(command, environment)
    output = next(option_values(command, "-o"), command[-1])
    return again, "" if again.status else retry_message(output, launched[0], finished)


def retry_message(output: str, launcher: str, finished: Finished) -> str:
    """Return a line that reports a compile that ran here after a failure of its launcher."""
    failed = f"offload: {output}: {launcher} failed ({finished.reason})"
    return f"{failed}; compiled again on this machine"
