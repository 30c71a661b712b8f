"""The limit on processes: the tokens of GNU make's jobserver, a number, or the cores.

Each process that make (or Ninja 1.13) starts may run one job. For each further job it reads a
token, a byte, from a pipe, and must write that same byte back, however it ends::

    MAKEFLAGS=... --jobserver-auth=fifo:/tmp/GMfifo123    a named pipe (make 4.4, Ninja)
    MAKEFLAGS=... --jobserver-auth=3,4                    descriptors of a pipe, inherited
    MAKEFLAGS=... --jobserver-fds=3,4                     the same (make before 4.2)
    MAKEFLAGS=... -j8                                     no jobserver: a number

Make passes descriptors only to commands that it recognises as another make (``$(MAKE)``, or a ``+``
prefix). Other commands see the numbers in MAKEFLAGS without the pipe, and run one job.

Another client may take a token between poll and read, so reads must not block. Opening the pipe
again gives a descriptor with its own flags (all clients share those of the inherited one).

Builds without either (Ninja before 1.13) start many launches at once. They share the cores of the
machine, by a lock on one file for each, which the kernel releases if a process is killed. Machines
with one home folder have files of their own::

    <cache folder>/cores/HOST-0   HOST-1   HOST-2   HOST-3   HOST-wanted

The first launch on a machine removes the files of others that are old, as each container may be a
new machine. A machine that still needs them makes new ones.

A launch waits some seconds for its first core, and keeps it until its processes have ended. As long
as one waits, it shares a lock on the last file, and no other takes a further core. If the time has
passed, it runs one process all the same: those that hold the cores may have been stopped. A launch
with a launcher or cluster does not wait, since passes may run elsewhere.

Source: the GNU make manual, "POSIX Jobserver Interaction"; make 4.3 and Ninja 1.13, observed.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Mapping
from contextlib import suppress

from offload_tool.errors import CompilerError
from offload_tool.io.paths import remove_unused
from offload_tool.io.signals import shielded
from offload_tool.toolchain.disk_cache import cache_folder
from offload_tool.util.cores import usable_cores

_AUTH = ("--jobserver-auth=", "--jobserver-fds=")
_FIFO = "fifo:"
_JOBS = "OFFLOAD_LAUNCH_JOBS"
_ELSEWHERE = ("OFFLOAD_LAUNCHER", "OFFLOAD_DIST")
_PATIENCE = 5.0
"""Seconds to wait for the first core."""
_POLL = 0.02
_KEPT = 30 * 86_400
"""Seconds after which the files of another machine may go."""


class Slots:
    """Slots for processes: the implicit first one, and tokens or a fixed number of others."""

    is_shared = False
    """Whether other processes may free a slot without a sign."""

    def __init__(self, origin: str, more: int, reader: int = -1, writer: int = -1) -> None:
        self.origin = origin
        """The origin of the limit, for messages."""
        self.reader = reader
        """Readable when a token may be available; -1 without a jobserver."""
        self._writer = writer
        self._more = more
        """The further slots, without a jobserver."""
        self._tokens: list[bytes] = []
        self._taken = 0

    def take(self) -> bool:
        """Take a slot; return False if none is free."""
        if self._taken == 0 or self._take_token():
            self._taken += 1
            return True
        return False

    def give(self) -> None:
        """Release one slot, tokens first."""
        self._taken -= 1
        if self._tokens:
            self._give_token()

    def give_all(self) -> None:
        """Release all slots once no process runs."""
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
        # The byte came from this pipe, so the pipe has room for it.
        with shielded():
            os.write(self._writer, self._tokens[-1])
            self._tokens.pop()


class _Cores(Slots):
    """A slot for each core, shared by this user's launches on this machine."""

    is_shared = True

    def __init__(self, cores: int, folder: str, patience: float) -> None:
        """`patience` is how long to wait for the first core, in seconds."""
        super().__init__(f"{cores} cores, shared", 0)
        host = os.path.join(folder, os.uname().nodename.replace("/", "_"))
        self._files = [f"{host}-{number}" for number in range(cores)]
        self._wanted = f"{host}-wanted"
        self._patience = patience
        self._locks: list[int] = []
        if not os.path.exists(self._files[0]):
            remove_unused(folder, _KEPT)

    def take(self) -> bool:
        has_core = False
        with suppress(OSError):  # files cannot be locked here
            has_core = self._has_core()
        if self._taken and not has_core:
            return False
        self._taken += 1
        return True

    def give(self) -> None:
        self._taken -= 1
        while len(self._locks) > max(self._taken, 1):
            os.close(self._locks.pop())

    def give_all(self) -> None:
        self._taken = 0
        while self._locks:
            os.close(self._locks.pop())

    def _has_core(self) -> bool:
        """Lock a core for one process more than run; return False if none is free."""
        while len(self._locks) <= self._taken:
            lock = self._further_core() if self._taken else self._first_core()
            if lock is None:
                return False
            self._locks.append(lock)
        return True

    def _first_core(self) -> int | None:
        lock, wanted = self._free_core(), None
        until = time.monotonic() + self._patience
        try:
            while lock is None and time.monotonic() < until:
                wanted = wanted or _lock(self._wanted, fcntl.LOCK_SH)
                time.sleep(_POLL)
                lock = self._free_core()
        finally:
            if wanted is not None:
                os.close(wanted)
        return lock

    def _further_core(self) -> int | None:
        wanted = _lock(self._wanted, fcntl.LOCK_EX)
        if wanted is None:
            return None
        os.close(wanted)
        return self._free_core()

    def _free_core(self) -> int | None:
        locks = (_lock(name, fcntl.LOCK_EX) for name in self._files)
        return next((lock for lock in locks if lock is not None), None)


def _lock(name: str, operation: int) -> int | None:
    """Return the descriptor of a file that is locked now; None if another holds it."""
    lock = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    except BaseException:
        os.close(lock)
        raise
    return lock


def slots_of(environ: Mapping[str, str]) -> Slots:
    """Return the slots that the environment allows."""
    auth, number = _make_flags(environ.get("MAKEFLAGS", ""))
    if auth:
        found = _open_fifo(auth) if auth.startswith(_FIFO) else _open_descriptors(auth)
        return found or Slots(f"one: make's jobserver {auth} is not to be had here", 0)
    if number:
        return Slots(f"-j{number} of MAKEFLAGS", number - 1)
    named = environ.get(_JOBS, "")
    if named.isdecimal() and int(named):
        return Slots(f"{_JOBS}={named}", int(named) - 1)
    cores = usable_cores()
    try:
        patience = 0.0 if any(map(environ.get, _ELSEWHERE)) else _PATIENCE
        folder = os.path.join(cache_folder(), "cores")
        os.makedirs(folder, mode=0o700, exist_ok=True)
        return _Cores(cores, folder, patience)
    except (CompilerError, OSError):  # no folder is to be had
        return Slots(f"{cores} cores", cores - 1)


def _make_flags(flags: str) -> tuple[str, int]:
    """Return the jobserver and the number of jobs in MAKEFLAGS; the last ones count."""
    auth, number = "", 0
    args = flags.split(" -- ", 1)[0].split()
    for at, arg in enumerate(args):
        if arg.startswith(_AUTH):
            auth = arg.partition("=")[2]
        elif arg == "-j" and args[at + 1 : at + 2] and args[at + 1].isdecimal():
            number = int(args[at + 1])
        elif arg.startswith("-j") and arg[2:].isdecimal():
            number = int(arg[2:])
    return auth, number


def _open_fifo(auth: str) -> Slots | None:
    path = auth.removeprefix(_FIFO)
    try:
        # Open it for writing, too: with no writer, reads would report end of file.
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
        if not all(n > 2 and stat.S_ISFIFO(os.fstat(n).st_mode) for n in (reader, writer)):
            return None
        # If make did not pass its pipe on, the numbers may belong to other pipes.
        if not os.path.sameopenfile(reader, writer):
            return None
        own = os.open(f"/proc/self/fd/{reader}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (ValueError, OverflowError, OSError):
        return None
    return Slots(f"the jobserver {auth}", 0, own, writer)
