r"""Programs that are loaded once for a build: jobs are children of a copy that waits for them.

Of a small pass, half is the dynamic linker and static initialisers of clang and lld, the same each
time. A copy of each program is therefore started once, as it would be for a job, with
``resident.c`` preloaded, and stopped where its main function would be called::

    the build (Python, many threads)            the resident program (one thread)
    ────────────────────────────────            ─────────────────────────────────
    start, LD_PRELOAD=resident.so      ───►     dynamic linking, static initialisers
                                       ◄───     ready: so many threads
    a job: socket, folder, files       ───►     fork ────────────┐ the child
    its words, on that socket          ────────────────────────► │ folder, files, signals
    its process, on that socket        ◄───                      │ main(words)
    its status, on that socket         ◄───     wait ◄───────────┘ exit
    closes a job's socket              ───►     the job is asked to end, and after 5 s ended
    ends, or is killed                 ───►     so are all jobs, and then this program

There is no name in the file system, and a job can do nothing that a newly started process cannot.
Variables are those of the resident program, less the two that it was started with; so are limits,
user, signals that are ignored, and whatever else a process inherits: a job for which any of that is
another one gets another resident program. One whose files have changed is replaced.
Everything that is not as expected makes programs be started as usual, and the reason is told.

Source: glibc's ``csu/libc-start.c``: ``_start`` hands the main function to ``__libc_start_main``.
"""

from __future__ import annotations

import array
import atexit
import hashlib
import os
import platform
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from offload_tool.compiler.answer_cache import cache_folder
from offload_tool.compiler.driver_answers import program_of
from offload_tool.errors import CompilerError, OffloadError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["ResidentPrograms"]

SOURCE = Path(__file__).with_name("resident.c")
_VARIABLE = "OFFLOAD_RESIDENT"
_PRELOAD = "LD_PRELOAD"
_LOADER, _LIBRARY_PATH = "LD_", "LD_LIBRARY_PATH"
_STATUS = struct.Struct("=i")
_NOT_STARTED = -1
_MOST = 8
"""Resident programs of a build: one for clang, one for lld, others where something changed."""
_LARGEST = 1 << 20
"""Bytes of the library; it has 20 thousand."""
_SECONDS = 30
_COARSE = 50_000_000
"""Nanoseconds by which the times of files may be late."""
_ENDED = "the resident program has ended"
_FOR_THE_LOADER = ("/etc/ld.so.cache", "/etc/ld.so.preload")
_INHERITED = frozenset(
    b"Umask Uid Gid Groups SigBlk SigIgn CapInh CapPrm CapEff CapBnd CapAmb NoNewPrivs Seccomp "
    b"Seccomp_filters Cpus_allowed Mems_allowed THP_enabled".split()
)
"""What of /proc/thread-self/status a new process has from the thread that starts it."""


class _GoneError(Exception):
    """A resident program could not run a job."""


class _File(NamedTuple):
    """A file as it was looked at; times are in nanoseconds."""

    inode: int
    size: int
    modified: int
    changed: int

    @classmethod
    def at(cls, path: str) -> _File | None:
        """Look at a file; None where there is none."""
        try:
            found = os.stat(path)  # noqa: PTH116 - called for twenty files a job
        except (OSError, ValueError):
            return None
        return cls(found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


class ResidentPrograms:
    """Runs the jobs of one build; may be used by many threads."""

    def __init__(self, compiler: str) -> None:
        """`compiler` makes the library that is preloaded."""
        self._compiler = compiler
        self._lock = threading.Lock()
        self._programs: dict[object, _Resident | None] = {}
        self._started: list[_Resident] = []
        self._library: int | None = None
        """A descriptor of what is preloaded."""
        self._reasons: list[str] = []
        self._jobs = 0
        self._owner = os.getpid()
        atexit.register(self.close)

    def run(
        self, words: Sequence[str], environment: Mapping[str, str], files: Sequence[int]
    ) -> int | None:
        """Run a program; its descriptors from 1 on are the `files`, and 0 is that of this process.

        Gives its status as `os.waitstatus_to_exitcode` does; None if it has to be run as usual.
        """
        resident = self._resident(words[0], environment)
        if resident is None:
            return None
        try:
            status = resident.run(words, files)
        except (_GoneError, OSError) as error:
            resident.is_gone = str(error) == _ENDED
            self._refuse(f"{words[0]}: {error}")
            return None
        with self._lock:
            self._jobs += 1
        return status

    @property
    def counts(self) -> str:
        """How many jobs were run so, as text."""
        return f"{self._jobs} jobs of {len(self._started)} resident programs"

    @property
    def reasons(self) -> list[str]:
        """Why others were run as usual, each once."""
        return list(self._reasons)

    def close(self) -> None:
        """End the resident programs; jobs that still run are asked to end."""
        if os.getpid() != self._owner:  # a child that has forked has them, too
            return
        atexit.unregister(self.close)
        with self._lock:
            for each in self._started:
                each.close()
            self._programs.clear()
            if self._library is not None:
                os.close(self._library)
                self._library = None

    def _refuse(self, reason: str) -> None:
        if reason not in self._reasons:
            self._reasons.append(reason)

    def _resident(self, program: str, environment: Mapping[str, str]) -> _Resident | None:
        """Give the resident program for a job, which may have to be started."""
        try:
            key = (program, tuple(environment.items()), _inherited())
            with self._lock:
                is_known = key in self._programs
                known = self._programs.get(key)
                if not is_known or (known is not None and not known.is_current()):
                    self._programs[key] = None  # one that is not current may have jobs: it stays
                    known = self._programs[key] = self._start(program, environment)
                return known if known is not None and not known.is_gone else None
        except (OffloadError, OSError) as error:
            self._refuse(str(error))
            return None

    def _start(self, program: str, environment: Mapping[str, str]) -> _Resident:
        if sys.platform != "linux":
            raise CompilerError("resident programs need Linux")
        if not os.path.isabs(program) or program_of([program], environment) is None:  # noqa: PTH117
            raise CompilerError(f"{program} is no program, or a script")
        for name in environment:
            if name.startswith(_LOADER) and name != _LIBRARY_PATH:
                raise CompilerError(f"the variable {name} is for the dynamic linker")
        if len(self._started) == _MOST:
            raise CompilerError(f"{_MOST} resident programs were not enough: too much changes")
        if self._library is None:
            self._library = _opened_library(self._compiler, environment)
        resident = _Resident(program, environment, self._library)
        self._started.append(resident)
        return resident


class _Resident:
    """One program, loaded."""

    def __init__(self, program: str, environment: Mapping[str, str], library: int) -> None:
        """Start it.

        :raises CompilerError: it cannot be resident.
        :raises OSError: it cannot be started.
        """
        self._program = program
        self.is_gone = False
        """Whether it has ended by itself, or was killed."""
        begun = time.time_ns()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [program],
                env={
                    **environment,
                    # A name with a blank in it could not be said.
                    _PRELOAD: f"/proc/self/fd/{library}",
                    _VARIABLE: f"{theirs.fileno()}:{library}:{os.getpid()}",
                },
                pass_fds=(library, theirs.fileno()),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        try:
            self._control.settimeout(_SECONDS)
            self._wait_until_ready(program)
            self._control.settimeout(None)
            self._files = self._mapped(environment, library, begun - _COARSE)
        except BaseException:
            self._process.kill()
            self.close()
            raise

    def _wait_until_ready(self, program: str) -> None:
        try:
            answer = self._control.recv(_STATUS.size)
        except OSError:
            answer = b""
        if len(answer) != _STATUS.size:
            raise CompilerError(f"{program} is no program that glibc's dynamic linker loads")
        (threads,) = _STATUS.unpack(answer)
        if threads != 1:
            raise CompilerError(f"{program} has {threads} threads before its main function")
        if not Path(f"/proc/{self._process.pid}/exe").samefile(program):
            raise CompilerError(f"{program} is run by another program")

    def _mapped(
        self, environment: Mapping[str, str], library: int, begun: int
    ) -> dict[str, _File | None]:
        """Give the files that are in its memory, and where the dynamic linker has looked.

        :raises CompilerError: one has changed since `begun`, a time in nanoseconds.
        """
        searched = environment.get(_LIBRARY_PATH, "").replace(";", ":").split(":")
        files = {name: _File.at(name) for name in (*_FOR_THE_LOADER, *filter(None, searched))}
        own = os.readlink(f"/proc/self/fd/{library}")  # noqa: PTH115
        for line in Path(f"/proc/{self._process.pid}/maps").read_bytes().splitlines():
            _, begins, name = line.partition(b" /")
            path = os.fsdecode(b"/" + name)
            if begins and path != own:
                files[path] = now = _File.at(path)
                if now is None or max(now.modified, now.changed) > begun:
                    raise CompilerError(f"{path} was changed while a program was started")
        return files

    def is_current(self) -> bool:
        """Tell whether a program started now would be the same."""
        return all(_File.at(path) == seen for path, seen in self._files.items())

    def run(self, words: Sequence[str], files: Sequence[int]) -> int:
        """Run a job to its end; give its status.

        :raises _GoneError: it was not run, or not to its end. It runs no more.
        :raises OSError: this process has no room for what is needed.
        """
        text = b"".join(os.fsencode(word) + b"\0" for word in words)
        own, theirs = socket.socketpair()
        with own:
            with theirs:
                folder = os.open(".", os.O_PATH | os.O_DIRECTORY)
                try:
                    self._send([theirs.fileno(), folder, 0, *files])
                finally:
                    os.close(folder)
            with suppress(ConnectionError):  # it has ended, and says why
                own.sendall(text)
                own.shutdown(socket.SHUT_WR)
            process = _number(own)
            status = None if process in {None, _NOT_STARTED} else _number(own)
        if process == _NOT_STARTED:
            raise _GoneError("the system had no room for another job")
        if status is None:
            self._wait_for(process)
            raise _GoneError(_ENDED)
        return os.waitstatus_to_exitcode(status)

    def _send(self, descriptors: Sequence[int]) -> None:
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))
        try:
            self._control.sendmsg([b"\0"], [rights])
        except ConnectionError as error:
            raise _GoneError(_ENDED) from error

    def _wait_for(self, process: int | None) -> None:
        """Wait until a job is gone that has lost its parent, which asks it to end."""
        end = time.monotonic() + _SECONDS
        own = os.stat(self._program)  # noqa: PTH116
        while process is not None and time.monotonic() < end:
            try:
                found = os.stat(f"/proc/{process}/exe")  # noqa: PTH116
            except OSError:
                return
            if not os.path.samestat(found, own):
                return
            time.sleep(0.01)

    def close(self) -> None:
        """End it, and its jobs."""
        self._control.close()
        try:
            self._process.wait(timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _number(talk: socket.socket) -> int | None:
    """Read a number; None where there is none."""
    answer = b""
    with suppress(ConnectionError):
        answer = talk.recv(_STATUS.size, socket.MSG_WAITALL)
    return _STATUS.unpack(answer)[0] if len(answer) == _STATUS.size else None


def _inherited() -> tuple[object, ...]:
    """Give what a process that this thread starts has from it, its variables and folder aside."""
    with open("/proc/thread-self/status", "rb") as file:  # noqa: PTH123 - read for each job
        status = [line for line in file if line.split(b":")[0] in _INHERITED]
    with open("/proc/self/limits", "rb") as file:  # noqa: PTH123
        limits = file.read()
    with open("/proc/self/cgroup", "rb") as file:  # noqa: PTH123
        groups = file.read()
    return (*status, limits, groups, os.getpriority(os.PRIO_PROCESS, 0), os.getpgrp())


def _opened_library(compiler: str, environment: Mapping[str, str]) -> int:
    """Open the library that is preloaded, which is made once for each compiler, and kept.

    It is ``<cache folder>/resident-<checksum of what it was made of>-<checksum of it>.so``.

    :raises CompilerError: it cannot be made, or others can write it.
    """
    program = program_of([compiler], environment)
    if program is None:
        raise CompilerError(f"{compiler} is no program, or a script")
    source = SOURCE.read_bytes()
    command = [program, "-x", "c", "-O1", "-shared", "-fPIC", str(SOURCE), "-ldl"]
    question = repr((source, command, platform.machine(), _File.at(program))).encode()
    beginning = f"resident-{_checksum(question)}-"
    for library in Path(cache_folder()).glob(f"{beginning}*.so"):
        descriptor = _opened(library)
        if library.name == f"{beginning}{_checksum(os.pread(descriptor, _LARGEST, 0))}.so":
            return descriptor
        os.close(descriptor)  # damaged
    return _opened(_made_library(command, environment, beginning))


def _made_library(command: Sequence[str], environment: Mapping[str, str], beginning: str) -> Path:
    import tempfile

    parent = Path(cache_folder())
    with tempfile.TemporaryDirectory(prefix="offload-", dir=parent) as folder:
        made = Path(folder) / "resident.so"
        done = subprocess.run(
            [*command, "-o", str(made)],
            env={**environment, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if "error" in line]
            why = lines[0] if lines else f"exit status {done.returncode}"
            raise CompilerError(f"{command[0]} cannot compile {SOURCE.name}: {why}")
        made.chmod(0o700)
        return made.replace(parent / f"{beginning}{_checksum(made.read_bytes())}.so")


def _checksum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]


def _opened(library: Path) -> int:
    """Open the library, if nobody else can have written it.

    :raises CompilerError: it is another user's, or others can write it.
    """
    descriptor = os.open(library, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    found = os.fstat(descriptor)
    if (
        not stat.S_ISREG(found.st_mode)
        or found.st_uid != os.geteuid()
        or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    ):
        os.close(descriptor)
        raise CompilerError(f"{library} can be written by others; remove it")
    return descriptor
