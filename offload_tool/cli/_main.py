"""How a command ends, whatever happened: with one line, a status, and no litter.

Each command turns its own errors into lines. What is left comes here:

=========================  ======  ==============================================
what                       status  line
=========================  ======  ==============================================
SIGINT, SIGTERM, SIGHUP    128+N   which; outputs are what they were
the reader went (`head`)   1       none
a stream closed or full    1       which
no memory, nested too deep 1       that
too many open files        1       that
anything else              1       what; OFFLOAD_TRACEBACK=1 shows where
=========================  ======  ==============================================
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from offload_tool.cli.printing import (
    StreamError,
    abandon,
    finish,
    print_lines,
    reserve_streams,
)
from offload_tool.errors import OffloadError, shortage
from offload_tool.io.limits import Budget, Limits, limited
from offload_tool.io.signals import Stopped, check_stopped, stopping

_ENDED_BY_SIGNAL = 128


def guarded(run: Callable[[], int]) -> int:
    """Run a command within the limits of the environment; return its exit status."""
    reserve_streams()
    try:
        with stopping():
            return _limited(run)
    except Stopped as stopped:
        _say(f"ended by {stopped}; outputs are whole, or what they were")
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
    except StreamError as error:
        _say(f"error: {error}")
    except OffloadError as error:
        _say(f"error: {error}")
    except RecursionError:
        _say("error: something is nested too deep")
    except Exception as error:
        check_stopped()  # before 3.12, Python wraps what comes while a class is made
        if lacking := shortage(error):
            _say(f"error: {lacking}")
            return 1
        if os.environ.get("OFFLOAD_TRACEBACK"):
            raise
        _say(
            f"error: {type(error).__name__}: {error}; nobody foresaw this: please report it, with "
            "what OFFLOAD_TRACEBACK=1 shows"
        )
    return 1


def _say(text: str) -> None:
    print_lines([f"offload-tool: {text}"])
