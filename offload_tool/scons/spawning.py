"""How the commands of device compiles are run where another machine may run them.

SCons runs every command through ``SPAWN``. Device compiles get one of their own if
``OFFLOAD_DIST`` or ``OFFLOAD_LAUNCHER`` is set: what fails for the engine's reasons is run
again on this machine, once, and said. ``SPAWN`` is in no signature.
"""

from __future__ import annotations

import atexit
import functools
import shlex
import sys
import threading
from typing import TYPE_CHECKING, Any

import SCons.Errors

from offload_tool.errors import OffloadError, UsageError
from offload_tool.scons import settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from offload_tool.distribution.running import Finished
    from offload_tool.distribution.session import Session

__all__ = ["device_spawn"]

_printing = threading.Lock()


def device_spawn(env: Any, kind: str) -> Callable[..., Any] | None:
    """Give the SPAWN function of device compiles, or None for that of the environment.

    :raises UsageError: OFFLOAD_DIST names no usable folder, or stands beside a launcher.
    :raises CompilerError: the folder is of another compiler.
    """
    folder = env.subst("$OFFLOAD_DIST")
    launcher = shlex.split(env.subst("$OFFLOAD_LAUNCHER"))
    if folder and launcher:
        raise UsageError("OFFLOAD_DIST brings its own launcher; unset OFFLOAD_LAUNCHER")
    if folder and kind == "hip":
        return _distributed(env, str(env.Dir(folder).get_abspath()))
    return _with_launcher(tuple(launcher)) if launcher else None


@functools.lru_cache(maxsize=8)
def _with_launcher(launcher: tuple[str, ...]) -> Callable[..., int]:
    from offload_tool.distribution.running import run_with_launcher

    def run(_shell: Any, _escape: Any, _name: str, words: list[str], env: dict[str, str]) -> int:
        command = shlex.split(" ".join(words))
        used = launcher if tuple(command[: len(launcher)]) == launcher else ()
        try:
            finished, message = run_with_launcher(used, command[len(used) :], env)
        except OffloadError as error:
            raise SCons.Errors.BuildError(errstr=str(error)) from error
        return _finish(finished, message)

    return run


def _distributed(env: Any, folder: str) -> Callable[..., int]:
    from offload_tool.distribution.settings import load_distribution

    load_distribution(folder).check_compiler(settings.toolchain(env))
    return _spawn_of(folder)


@functools.lru_cache(maxsize=8)
def _spawn_of(folder: str) -> Callable[..., int]:
    from offload_tool.distribution.session import Session
    from offload_tool.distribution.settings import load_distribution

    session = Session(load_distribution(folder))
    beginning = _Once(session)

    def run(_shell: Any, _escape: Any, _name: str, words: list[str], env: dict[str, str]) -> int:
        try:
            beginning.wait()
            finished, message = session.run(shlex.split(" ".join(words)), env)
        except OffloadError as error:
            raise SCons.Errors.BuildError(errstr=str(error)) from error
        return _finish(finished, message)

    return run


class _Once:
    """Begins a session when the first compile runs: not where there is nothing to compile."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._begun = False

    def wait(self) -> None:
        """Begin, or wait until another thread has."""
        with self._lock:
            if not self._begun:
                _say(self._session.begin())
                self._begun = True
                atexit.register(self._end)

    def _end(self) -> None:
        _say(self._session.summary())


def _finish(finished: Finished, message: str) -> int:
    with _printing:
        if finished.output:
            sys.stdout.flush()
            sys.stderr.buffer.write(finished.output)
            sys.stderr.flush()
    if message:
        _say([message])
    return finished.status


def _say(lines: list[str]) -> None:
    with _printing:
        for line in lines:
            print(line)  # noqa: T201 - as SCons says what it does
        sys.stdout.flush()
