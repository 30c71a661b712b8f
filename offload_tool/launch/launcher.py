"""The command of a compiler launcher: ``OFFLOAD_LAUNCHER``."""

from __future__ import annotations

import shlex

from offload_tool.errors import UsageError


def launcher_args(launcher: str, folder: str) -> list[str]:
    """Return the arguments of ``OFFLOAD_LAUNCHER``; `folder` is that of ``OFFLOAD_DIST``.

    :raises UsageError: the launcher is not a command, or both are given.
    """
    try:
        args = shlex.split(launcher)
    except ValueError as error:
        raise UsageError(
            f"OFFLOAD_LAUNCHER={launcher!r} is not a command: {error}; quote it as a shell does"
        ) from error
    if args and folder:
        raise UsageError("OFFLOAD_DIST brings its own launcher; unset OFFLOAD_LAUNCHER")
    return args
