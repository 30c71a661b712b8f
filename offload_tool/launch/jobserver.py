"""How many processes may run: the tokens of GNU make's jobserver, or a number.

Each process that make (or Ninja 1.13) starts may run one job. For each further one it takes a
token, a byte, out of a pipe, and must put that very byte back, however it ends::

    MAKEFLAGS=... --jobserver-auth=fifo:/tmp/GMfifo123    a named pipe (make 4.4, Ninja)
    MAKEFLAGS=... --jobserver-auth=3,4                    descriptors of a pipe, inherited
    MAKEFLAGS=... --jobserver-fds=3,4                     the same (make before 4.2)
    MAKEFLAGS=... -j8                                     no jobserver: a number

Make gives descriptors only to commands that it takes for another make (``$(MAKE)``, or with ``+``
before them); others have their numbers in MAKEFLAGS, but not the pipe, and run one job.

Somebody else may take a token between a look and a read, so the pipe is never waited for in a
read. It is opened anew, which gives a descriptor whose own flags say so (those of the inherited
one are shared with all other clients).

Source: the GNU make manual, "POSIX Jobserver Interaction"; make 4.3 and Ninja 1.13, observed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from contextlib import suppress

from offload_tool.io.signals import shielded

_AUTH = ("--jobserver-auth=", "--jobserver-fds=")
_FIFO = "fifo:"
_JOBS = "OFFLOAD_LAUNCH_JOBS"


class Slots:
    """Places for processes; the first one is ours, the others are tokens, or places of our own."""

    def __init__(self, described: str, more: int, reader: int = -1, writer: int = -1) -> None:
        self.described = described
        """Says where the number comes from."""
        self.reader = reader
        """Can be read when there may be a token; -1 without a jobserver."""
        self._writer = writer
        self._more = more
        """Of our own, without a jobserver."""
        self._tokens: list[bytes] = []
        self._taken = 0

    def take(self) -> bool:
        """Take a place, if there is one now."""
        if self._taken == 0 or self._take_token():
            self._taken += 1
            return True
        return False

    def give(self) -> None:
        """Release one place: tokens first."""
        self._taken -= 1
        if self._tokens:
            self._give_token()

    def give_all(self) -> None:
        """Release all places: nothing runs any more."""
        self._taken = 0
        while self._tokens:
            self._give_token()

    def _take_token(self) -> bool:
        if self.reader < 0:
            return self._taken <= self._more
        with shielded(), suppress(BlockingIOError):
            token = os.read(self.reader, 1)
            if token:
                self._tokens.append(token)
                return True
        return False

    def _give_token(self) -> None:
        # A pipe from which this byte came has room for it.
        with shielded():
            os.write(self._writer, self._tokens[-1])
            self._tokens.pop()


def slots_of(environ: Mapping[str, str]) -> Slots:
    """Return the places that the environment allows."""
    auth, number = _make_flags(environ.get("MAKEFLAGS", ""))
    if auth:
        found = _open_fifo(auth) if auth.startswith(_FIFO) else _open_descriptors(auth)
        return found or Slots(f"one: make's jobserver {auth} is not to be had here", 0)
    if number:
        return Slots(f"-j{number} of MAKEFLAGS", number - 1)
    named = environ.get(_JOBS, "")
    if named.isdecimal() and int(named):
        return Slots(f"{_JOBS}={named}", int(named) - 1)
    cores = len(os.sched_getaffinity(0))
    return Slots(f"{cores} cores", cores - 1)


def _make_flags(flags: str) -> tuple[str, int]:
    """Return the jobserver and the number of jobs that MAKEFLAGS names; the last ones count."""
    auth, number = "", 0
    words = flags.split(" -- ", 1)[0].split()
    for at, word in enumerate(words):
        if word.startswith(_AUTH):
            auth = word.partition("=")[2]
        elif word == "-j" and words[at + 1 : at + 2] and words[at + 1].isdecimal():
            number = int(words[at + 1])
        elif word.startswith("-j") and word[2:].isdecimal():
            number = int(word[2:])
    return auth, number


def _open_fifo(auth: str) -> Slots | None:
    path = auth.removeprefix(_FIFO)
    try:
        # For both: a pipe that nobody else writes to would have ended, else.
        opened = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    if not stat.S_ISFIFO(os.fstat(opened).st_mode):
        os.close(opened)
        return None
    return Slots(f"the jobserver {auth}", 0, opened, opened)


def _open_descriptors(auth: str) -> Slots | None:
    try:
        reader, writer = (int(number) for number in auth.split(","))
        if not all(number > 2 and _is_pipe(number) for number in (reader, writer)):
            return None
        # Where make has not passed its pipe on, the numbers may be those of others' pipes.
        if not os.path.sameopenfile(reader, writer):
            return None
        own = os.open(f"/proc/self/fd/{reader}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (ValueError, OverflowError, OSError):
        return None
    return Slots(f"the jobserver {auth}", 0, own, writer)


def _is_pipe(number: int) -> bool:
    return stat.S_ISFIFO(os.fstat(number).st_mode)
