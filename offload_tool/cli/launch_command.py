"""``offload-tool launch COMPILER ARGS...``: a compiler launcher that runs a compile's passes apart.

Most commands of a build have nothing to split: `decision` tells so before anything else is
imported, and the compiler takes this process's place.
"""

from __future__ import annotations

import os
import sys

from offload_tool.launch.decision import reason_to_pass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["launch"]

_VERBOSE = "OFFLOAD_LAUNCH_VERBOSE"
_TOOL = "offload-tool launch"
_USAGE = f"usage: {_TOOL} COMPILER ARGS..."
_WRONG_USAGE, _NOT_FOUND, _NOT_RUNNABLE = 2, 127, 126


def launch(words: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run a compiler's command; give its exit status, if the compiler does not take our place."""
    if not words or words[0] in ("-h", "--help"):
        os.write(1 if words else 2, f"{_USAGE}\n".encode())
        return 0 if words else _WRONG_USAGE
    reason = reason_to_pass(words[0], words[1:], environ)
    if reason:
        return _pass_through(words, environ, reason)
    from offload_tool.cli.outcome import guarded
    from offload_tool.launch.split import PassedThroughError, run_split

    passed = ""

    def run() -> int:
        nonlocal passed
        from offload_tool.cli.terminal import pass_on

        try:
            status, said = run_split(words, environ, lambda text: _say(environ, text))
        except PassedThroughError as error:
            passed = str(error)
            return 0
        pass_on(said)
        return status

    status = guarded(run)
    return _pass_through(words, environ, passed) if passed else status


def _pass_through(words: Sequence[str], environ: Mapping[str, str], reason: str) -> int:
    """Let the compiler take the place of this process; come back only where there is none."""
    _say(environ, f"passed through: {reason}")
    sys.stdout.flush()
    try:
        os.execvpe(words[0], list(words), environ)  # noqa: S606 - no shell is wanted
    except OSError as error:
        _print(f"error: '{words[0]}' cannot be run: {error.strerror}")
        return _NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_RUNNABLE


def _say(environ: Mapping[str, str], text: str) -> None:
    if environ.get(_VERBOSE, "") not in ("", "0"):
        _print(text)


def _print(text: str) -> None:
    from offload_tool.cli.terminal import print_lines

    print_lines([f"{_TOOL}: {text}"])
