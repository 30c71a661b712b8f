"""Start programs: the one module that does.

Standard input is empty, unless a caller gives a file. A program that is interrupted is ended with
its descendants. ``posix_spawn`` is used, as subprocess takes longer to load than a small file to
compile.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, NamedTuple

from offload_tool.io.signals import end_processes, shielded
from offload_tool.util.which import which

_WRITE = os.O_WRONLY | os.O_CREAT | os.O_APPEND  # two stages of a pass write to one file
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that are reset to their defaults in child processes, as ``subprocess`` does."""
_NO_INPUT = (os.devnull,)


class Captured(NamedTuple):
    """What a program did."""

    status: int
    """Negative for a signal, as for `os.waitstatus_to_exitcode`."""
    output: bytes
    errors: bytes


def start(
    command: Sequence[str],
    environment: Mapping[str, str],
    files: Sequence[int | str | None] = _NO_INPUT,
) -> int:
    """Start a program with `files` as descriptors 0, 1, ...; return its process ID. Raise OSError.

    They are open files, names of files to append to, or None for ours.
    """
    program = (
        command[0] if "/" in command[0] else which(command[0], environment.get("PATH", os.defpath))
    )
    if program is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), command[0])
    actions: list[tuple[int, int, int] | tuple[int, int, str, int, int]] = []
    copies: list[int] = []
    try:
        for number, file in enumerate(files):
            if isinstance(file, str):
                flags = _WRITE if number else os.O_RDONLY
                actions.append((os.POSIX_SPAWN_OPEN, number, file, flags, 0o600))
            elif file is not None:
                # Among the numbers of the program, an action before this one would replace it.
                copies.append(fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, len(files)))
                actions.append((os.POSIX_SPAWN_DUP2, copies[-1], number))
        return os.posix_spawn(
            program, list(command), environment, file_actions=actions, setsigdef=_IGNORED_BY_PYTHON
        )
    finally:
        for copy in copies:
            os.close(copy)


def run(
    command: Sequence[str],
    environment: Mapping[str, str],
    files: Sequence[int | str | None] = _NO_INPUT,
    *,
    timeout: float | None = None,
) -> int:
    """Run a program with `files` as in `start`; return its status as in `Captured`.

    `timeout` is in seconds; Linux before 5.3 waits without a limit. Raises TimeoutError or OSError.
    """
    process = 0
    try:
        with shielded():  # on a signal, the handler below must know the process
            process = start(command, environment, files)
        if timeout is not None:
            _wait(process, timeout)
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    except BaseException:
        if process:
            end_processes([process])
        raise


def _wait(process: int, timeout: float) -> None:
    try:
        descriptor = os.pidfd_open(process)
    except (OSError, AttributeError):
        return
    with os.fdopen(descriptor):
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        if not poll.poll(1000 * timeout):
            raise TimeoutError(f"it did not end within {timeout} seconds")


def capture(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    given: bytes = b"",
    timeout: float | None = None,
) -> Captured:
    """Run a program with `given` as its input; errors and `timeout` are as for `run`."""
    # Not pipes: a process that the program leaves behind would hold them open.
    with _memory() as source, _memory() as output, _memory() as errors:
        files: list[int | str | None] = [os.devnull, output.fileno(), errors.fileno()]
        if given:
            source.write(given)
            source.seek(0)
            files[0] = source.fileno()
        status = run(command, environment, files, timeout=timeout)
        return Captured(status, written_bytes(output), written_bytes(errors))


def capture_merged(command: Sequence[str], environment: Mapping[str, str]) -> tuple[int, bytes]:
    """Run a program; return its status, and all that it prints, in order. Raise OSError."""
    with _memory() as output:
        number = output.fileno()
        return run(command, environment, (os.devnull, number, number)), written_bytes(output)


def _memory() -> IO[bytes]:
    return file_in_memory(os.environ.get("TMPDIR", "/tmp"))  # noqa: S108


# -- files without a name, of which nothing is left if a run is killed ---------------------


def file_in_memory(folder: str) -> IO[bytes]:
    """Return a file for messages, in memory, or in `folder` if the system refuses."""
    with suppress(OSError, AttributeError):  # in a sandbox; with an older C library
        return os.fdopen(os.memfd_create("offload"), "w+b", 0)
    return file_without_name(folder)


def file_without_name(folder: str) -> IO[bytes]:
    """Return a new unnamed file in a directory."""
    flags = os.O_TMPFILE | os.O_RDWR | os.O_EXCL | os.O_CLOEXEC
    try:
        return os.fdopen(os.open(folder, flags, 0o600), "w+b", 0)
    except OSError:  # e.g. the file system does not support O_TMPFILE
        import tempfile  # loads slower than a small file compiles

        return tempfile.TemporaryFile(buffering=0, dir=folder)


def written_bytes(file: IO[bytes]) -> bytes:
    """Return all bytes of an open file, wherever its position is."""
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0)
