"""Ends every command with one line, an exit status, and no leftover files.

Commands report their own errors. All other exceptions end here:

=========================  ======  ==============================================
cause                      status  line
=========================  ======  ==============================================
a signal of `STOPPING`     128+N   names the signal; outputs keep their old bytes
the reader went (`head`)   1       none
a stream closed or full    1       names the stream
no memory, nested too deep 1       names the shortage
too many open files        1       names the shortage
the current folder is gone 1       says so
anything else              1       the error; OFFLOAD_TRACEBACK=1 shows where
=========================  ======  ==============================================
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from offload_tool.cli.printing import (
    StreamError,
    abandon,
    begin,
    finish,
    print_error,
    print_lines,
)
from offload_tool.errors import OffloadError, shortage
from offload_tool.io.limits import Budget, Limits, limited
from offload_tool.io.paths import removed_folder
from offload_tool.io.signals import Stopped, check_stopped, stopping

_ENDED_BY_SIGNAL = 128


def guarded(run: Callable[[], int]) -> int:
    """Run a command within the limits of the environment; return its exit status."""
    begin()
    try:
        with stopping():
            return _limited(run)
    except Stopped as stopped:
        _print_line(f"ended by {stopped}; outputs are whole, or what they were")
        return _ENDED_BY_SIGNAL + stopped.number


def _limited(run: Callable[[], int]) -> int:
    try:
        with limited(Budget(Limits.of(os.environ))):
            try:
                return finish(run())
            except SystemExit:  # of --help
                finish(0)
                raise
    except BrokenPipeError:
        abandon(sys.stdout)
    except (StreamError, OffloadError) as error:
        print_error("offload-tool", error)
    except RecursionError:
        _print_line("error: something is nested too deep")
    except Exception as error:
        check_stopped()  # before 3.12, Python wraps exceptions raised while a class is created
        if lacking := shortage(error) or removed_folder():
            _print_line(f"error: {lacking}")
            return 1
        if os.environ.get("OFFLOAD_TRACEBACK"):
            raise
        _print_line(
            f"error: {type(error).__name__}: {error}; unexpected error: please report it, with "
            "the output of OFFLOAD_TRACEBACK=1"
        )
    return 1


def _print_line(text: str) -> None:
    print_lines([f"offload-tool: {text}"])
