r"""Device passes without the driver: run the front end and the linker from its ``-###`` output.

Such a pass is three processes; the driver takes a quarter of the time of a small pass. This module
queries it (``-###``) at most twice per set of flags, and keeps the output for later builds
(`driver_cache`)::

    command, its names replaced by marks ---> set of flags

    first command of a set   query the driver, run the jobs that it prints
    first with other names   query the driver with dummy names: does the first output differ only
      in its names? If not, run the driver for this set of flags, now and always
    this one and all others  run the jobs of the first output with their own names

The names are source, output, depfile, the CUID, and the size of the preamble that a precompiled
header replaces. The driver runs if its ``-###`` output is not recognised, a job crashes or the
linker fails; it then writes messages and crash reports. It also runs if this process may open no
more files (``ulimit -n``). At a terminal, the query requests coloured messages.

Source: clang 22.1.8, observed; ``clang/lib/Driver/Job.cpp``: the driver starts processes for
several jobs, and runs a single job in its own process.
"""

from __future__ import annotations

import functools
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from offload_tool.clang.driver import (
    PLAN,
    jobs_of,
    llvm_temporary_folder,
    query_plan,
    terminal_args,
)
from offload_tool.clang.options import DRIVER, does
from offload_tool.errors import CompilerError
from offload_tool.io.signals import shielded
from offload_tool.io.unnamed_file import file_in_memory, file_without_name, written_bytes
from offload_tool.passes.source_kind import CXX_MODE
from offload_tool.run.advice import device_advice
from offload_tool.toolchain.driver_cache import cached_query, is_program, program_of

if TYPE_CHECKING:
    from offload_tool.run.cut_off import Stages

    Job = tuple[str, ...]
    Jobs = tuple[Job, ...]  # the front end, then the linker; () if the driver must run

_USUAL_LINES = re.compile(
    r'|.*clang version .*|(Target|Thread model|InstalledDir|Build config): .*| ".*'
)
_VARIABLES_OF_THE_DRIVER = ("CC_", "CCC_", "FORCE_CLANG_", "RC_DEBUG_", "CLANG_", "LLD_REPRODUCE")
_ERRORS = 2
_DEPFILE = "-dependency-file"
_CUID = "-cuid="
_PREAMBLE = "-preamble-bytes="
_FILES_OF_THE_LINKER = re.compile(r"--?(Map|reproduce|dependency-file|why-extract|time-trace)")
"""Linker options that write the names of inputs, which differ from the driver's."""
_BETWEEN = "/proc/self/fd/3"
"""The object between the front end and the linker; see `_run_jobs`."""
_BITCODE = "/proc/self/fd/4"
"""The bitcode between the front end and the backend, if they are two jobs."""
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that are reset to their defaults in child processes, as `subprocess` does."""
_FILES = 5
"""File descriptors that this process opens for a pass."""
_UNLIMITED = 1 << 16
_STOPPED_BY = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_MAIN = "-main-file-name"
_CC1, _LLD = ["-cc1"], ["-flavor", "gnu"]


class _Names(NamedTuple):
    """The parts that differ between commands with equal flags."""

    source: str
    output: str
    depfile: str
    cuid: str
    """The whole option, ``-cuid=...``."""
    preamble: str = ""
    """The whole option, ``-preamble-bytes=...``; "" without a precompiled header."""


_MARKS = _Names("\0source", "\0output", "\0depfile", "\0cuid", "\0preamble")
_OTHERS = _Names(
    *(os.devnull, "offload-other.co", "offload-other.d", "-cuid=0ff10ad0", "-preamble-bytes=7,1")
)
"""The names of the second query; the source must exist."""


class _FlagSet:
    """The driver's output for one set of flags; its lock guards all access."""

    def __init__(self, key: list[str], environment: Mapping[str, str]) -> None:
        """`key` is the program and the rest of the cache key."""
        self._key, self._environment = key, environment
        self._lock = threading.Lock()
        self._first: tuple[_Names, Jobs] | None = None
        """The names and the jobs of the first command; None before it."""
        self._holds_for_others: bool | None = None
        """Whether the jobs hold for other names; None before the second query."""

    def jobs_for(self, command: Sequence[str], names: _Names) -> Jobs:
        """Return the jobs of a command; () if the driver must run."""
        with self._lock:
            if self._first is None:
                self._first = self._query("direct", command, names)
            first, jobs = self._first
            if not jobs or names == first:
                return jobs
            if self._holds_for_others is None:
                self._holds_for_others = self._check_others(command, names, first, jobs)
            return _for_names(jobs, first, names) if self._holds_for_others else ()

    def _check_others(
        self, command: Sequence[str], names: _Names, first: _Names, jobs: Jobs
    ) -> bool:
        """Return True if the driver's jobs for dummy names differ only in the names."""
        if {*first} & {*_OTHERS}:
            return False
        _, found = self._query("direct, others", _renamed(command, names, _OTHERS), _OTHERS)
        return found == _for_names(jobs, first, _OTHERS)

    def _query(self, what: str, command: Sequence[str], names: _Names) -> tuple[_Names, Jobs]:
        """Return the driver's jobs for a command, and their names, from the cache or a query."""

        def find() -> list[list[str]]:
            return [[*names], *map(list, _query_jobs(command, names, self._environment))]

        def named(result: list[list[str]]) -> list[str]:
            own = {*result[0], _BETWEEN}  # these are temporary
            return [arg for job in result[1:] for arg in job if arg not in own]

        program, *args = self._key
        result = cached_query(what, program, args, self._environment, find, named)
        first, *jobs = map(tuple, result)
        return _Names(*first), tuple(jobs)


class DirectPasses:
    """Runs the device passes of one build; all run in the working directory of this process."""

    def __init__(self) -> None:
        self._flag_sets: dict[object, _FlagSet] = {}
        self._advice = threading.local()

    def advise(self, command: Sequence[str]) -> None:
        """Print a hint if this thread's pass failed in the driver, too."""
        if text := getattr(self._advice, "text", ""):
            sys.stderr.write(f"offload: {command[-1]}: {text}\n")

    def run(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        stages: Stages | None = None,
    ) -> int | None:
        """Run the command of a device pass without the driver, if possible.

        The command is the compiler, flags, ``-o OUTPUT SOURCE``. Return 0, 1 for an
        error in the source, or minus the signal that interrupted it. Return None if the driver must
        run: nothing was printed, and the driver overwrites all outputs. With `stages`, front end
        and backend are two jobs, and the output may stay untouched.
        """
        jobs = self._jobs(command, environment)
        self._advice.text = ""
        with _files_left() as has_files:
            if not jobs or not has_files:
                return None
            try:
                status, messages = _run_jobs(jobs, environment, stages)
            except _UnknownEndError as error:
                self._advice.text = device_advice(error.text)
                return None
        is_named = any(os.fsencode(name) in messages for name in (_BETWEEN, _BITCODE))
        if is_named or (status == 1 and not messages):
            return None  # the driver names its object otherwise, and adds messages to a failure
        if messages:
            sys.stderr.flush()
            with open(_ERRORS, "wb", closefd=False) as out:
                out.write(messages)
        return status

    def run_quietly(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        stages: Stages | None = None,
    ) -> bool | None:
        """Run a command as `run` does, but print nothing; return True on success without messages.

        Return None if the driver must run.
        """
        jobs = self._jobs(command, environment)
        with _files_left() as has_files:
            if not jobs or not has_files:
                return None
            try:
                return _run_jobs(jobs, environment, stages) == (0, b"")
            except _UnknownEndError:
                return False

    def _jobs(self, command: Sequence[str], environment: Mapping[str, str]) -> Jobs:
        names = _names_in(command)
        program = program_of(command, environment)
        if names is None or program is None or not _is_plain(command, environment):
            return ()
        key = (
            tuple(_renamed(command, names, _MARKS)),
            os.path.splitext(names.source)[1],
            " ".join(terminal_args(environment)),
            tuple(sorted(environment.items())),
            os.getcwd(),
        )
        flag_set = _FlagSet([program, *key[0], *key[1:3]], environment)
        return self._flag_sets.setdefault(key, flag_set).jobs_for(command, names)


@functools.cache
def _turns() -> threading.BoundedSemaphore:
    """Return a semaphore for concurrent passes; they may use half of the open-file limit."""
    most = os.sysconf("SC_OPEN_MAX")
    return threading.BoundedSemaphore(max(1, most // _FILES // 2) if most > 0 else _UNLIMITED)


@contextmanager
def _files_left() -> Iterator[bool]:
    """Yield True if a pass may open its files; the driver needs none of this process's."""
    turns = _turns()  # two threads that call it first at once may each get a semaphore
    taken = turns.acquire(blocking=False)
    try:
        yield taken
    finally:
        if taken:
            turns.release()


def _names_in(command: Sequence[str]) -> _Names | None:
    """Return the names in a command; None if it is not of the form of a device pass."""
    *args, option, output, source = command
    cuids = [arg for arg in args if arg.startswith(_CUID)]
    if option != "-o" or source.startswith("-") or len(cuids) != 1 or args.count(_DEPFILE) != 1:
        return None
    at = args.index(_DEPFILE)
    if args[at - 1 : at + 2 : 2] != ["-Xclang", "-Xclang"]:
        return None
    preambles = [arg for arg in args if arg.startswith(_PREAMBLE)]
    if len(preambles) > 1:
        return None
    return _Names(source, output, args[at + 2], cuids[0], "".join(preambles))


def _is_plain(command: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Return True if neither command nor environment changes what the driver itself does."""
    if any(arg == PLAN or (does(arg, DRIVER) and arg != CXX_MODE) for arg in command):
        return False
    return not any(name.startswith(_VARIABLES_OF_THE_DRIVER) for name in environment)


def _query_jobs(command: Sequence[str], names: _Names, environment: Mapping[str, str]) -> Jobs:
    """Query the driver for its jobs; return () if it fails or its output is not recognised."""
    more = terminal_args(environment)
    try:
        first = next(at for at, arg in enumerate(command) if arg.startswith("-"))
        result = query_plan([*command[:first], *more, *command[first:]], environment)
    except CompilerError:
        return ()
    lines = result.errors.splitlines()
    if result.status or result.output or not all(map(_USUAL_LINES.fullmatch, lines)):
        return ()
    jobs = jobs_of(result)
    if len(jobs) != 2:
        return ()
    front_end, linker = jobs
    if front_end.count("-o") != 1 or linker.count("-o") != 1:
        return ()
    object_file = front_end[front_end.index("-o") + 1]
    is_understood = (
        front_end[1:2] == _CC1
        and linker[1:3] == _LLD
        and front_end[-1] == names.source
        and "-emit-obj" in front_end
        and linker[linker.index("-o") + 1] == names.output
        and linker.count(object_file) == 1
        and os.path.dirname(object_file) == result.folder
        and not any(arg.startswith("@") or PLAN in arg for arg in (*front_end, *linker))
        and not any(map(_FILES_OF_THE_LINKER.match, linker))
        and is_program(front_end[0], command[0], environment)
    )
    if not is_understood:
        return ()
    return tuple(tuple(_BETWEEN if arg == object_file else arg for arg in job) for job in jobs)


def _renamed(args: Sequence[str], before: _Names, after: _Names) -> list[str]:
    """Return `args` with other names: whole arguments, and the value of ``-main-file-name``.

    Source: clang 22.1.8, observed: that is the base name of the source.
    """
    known = {old: new for old, new in zip(before, after, strict=True) if old}
    renamed = [known.get(arg, arg) for arg in args]
    if _MAIN in args:
        at = args.index(_MAIN) + 1
        if args[at] == os.path.basename(before.source):
            renamed[at] = os.path.basename(after.source)
    return renamed


def _for_names(jobs: Jobs, before: _Names, after: _Names) -> Jobs:
    """Return the jobs of the command with other names."""
    return tuple(tuple(_renamed(job, before, after)) for job in jobs)


class _UnknownEndError(Exception):
    """A job ended in a way that the driver reports in more detail."""

    def __init__(self, text: bytes = b"") -> None:
        super().__init__()
        self.text = text


def _run_jobs(
    jobs: Jobs, environment: Mapping[str, str], stages: Stages | None = None
) -> tuple[int, bytes]:
    """Run jobs; return their status (0, 1, or minus a signal) and their messages.

    The jobs overwrite the output, as the driver does; after a failure the driver overwrites it
    again. The object between the jobs has no name in any directory, so a kill leaves nothing of it
    behind.

    :raises _UnknownEndError: it ended in another way.
    """
    front_end, linker = jobs
    folder = llvm_temporary_folder(environment)
    try:
        with (
            file_in_memory(folder) as errors,
            file_in_memory(folder) as output,
            file_without_name(folder) as between,
            file_without_name(folder) as bitcode,
        ):
            files = [output.fileno(), errors.fileno(), between.fileno()]
            two = stages.jobs(front_end, _BITCODE) if stages is not None else ()
            if stages is not None and two:
                files.append(bitcode.fileno())
                stages.watch(bitcode, errors)
            for number, job in enumerate([*(two or [front_end]), linker]):
                status = _run_job(job, environment, files)
                if -status in _STOPPED_BY:
                    return status, b""
                if status == 1 and not number and os.path.exists(job[-1]):
                    break  # an error in the source: the driver adds nothing
                if status:
                    raise _UnknownEndError(written_bytes(errors))
                if two and stages is not None and stages.stops_after(number):
                    break
            text = written_bytes(errors)
            if os.fstat(output.fileno()).st_size:
                raise _UnknownEndError
    except OSError as error:  # the command is too long, or a program or directory is missing
        raise _UnknownEndError from error
    return status, text


def _run_job(job: Job, environment: Mapping[str, str], files: Sequence[int]) -> int:
    """Run one program; return its status as `os.waitstatus_to_exitcode` does.

    It inherits only `files`, as descriptors 1, 2, and so on.

    :raises OSError: it cannot be run.
    """
    actions = [(os.POSIX_SPAWN_DUP2, file, number) for number, file in enumerate(files, start=1)]
    process = 0
    try:
        with shielded():  # on a signal, the handler below must know the process
            process = os.posix_spawn(
                job[0], job, environment, file_actions=actions, setsigdef=_IGNORED_BY_PYTHON
            )
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    except BaseException:
        if process:
            with suppress(ProcessLookupError, ChildProcessError):
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)
        raise
