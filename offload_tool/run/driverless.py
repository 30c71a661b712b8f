r"""Passes without the driver: run the front end and the linker from its ``-###`` output.

A device pass is three processes; the driver takes a quarter of the time of a small pass. A host
pass is the front end alone, which can have two stages (see `cut_off`). The driver runs if its
``-###`` output is not recognised, or if this process may open no more files (``ulimit -n``). If a
job crashes or the linker fails, it runs, too, since it writes messages and reports of that.

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
from contextlib import contextmanager
from typing import IO

from offload_tool.clang.driver import PLAN, llvm_temporary_folder, query_plan, with_terminal_args
from offload_tool.clang.job_plan import UnknownPlanError, parse_jobs
from offload_tool.errors import CompilerError
from offload_tool.io import process
from offload_tool.io.file_digests import content_of
from offload_tool.io.process import file_in_memory, file_without_name, written_bytes
from offload_tool.manifest.cut_off import Stages
from offload_tool.passes.command import Command
from offload_tool.run.diagnostics import advice_for, device_advice
from offload_tool.run.job_cache import JobCache, Jobs, Language, Names
from offload_tool.toolchain.driver_cache import is_program

_ERRORS = 2
_CUID = "-cuid="
_PREAMBLE = "-preamble-bytes="
_FILES_OF_THE_LINKER = re.compile(r"--?(Map|reproduce|dependency-file|why-extract|time-trace)")
"""Linker options that write the names of inputs, which differ from the driver's."""
_BETWEEN = "/proc/self/fd/3"
"""The object between the front end and the linker; see `_run_jobs`."""
_BITCODE = "/proc/self/fd/4"
"""The bitcode between the front end and the backend, if they are two jobs."""
_FILES = 5
"""File descriptors that this process opens for a pass."""
_UNLIMITED = 1 << 16
_STOPPED_BY = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LLD = ["-flavor", "gnu"]


_MARKS = ("\0source", "\0output", "\0depfile", "\0cuid", "\0preamble")
"""Stand for names of a command. The last two are whole options, the last one is empty without a
precompiled header."""
_OTHERS = (
    *(os.devnull, "offload-other.co", "offload-other.d", "-cuid=0ff10ad0", "-preamble-bytes=7,1"),
)


class DirectPasses:
    """Runs the passes of one build; all run in the working directory of this process."""

    def __init__(self) -> None:
        self._cache = JobCache(_PASSES)
        self._advice = threading.local()

    def advise(self, command: Sequence[str]) -> None:
        """Print a hint if this thread's pass failed in the driver, too."""
        if text := getattr(self._advice, "text", ""):
            sys.stderr.write(f"offload: {command[-1]}: {text}\n")

    def run(
        self, command: Sequence[str], environment: Mapping[str, str], stages: Stages | None = None
    ) -> int | None:
        """Run the command of a pass without the driver, if possible.

        The command is the compiler, flags, ``-o OUTPUT SOURCE``. Return 0, 1 for an
        error in the source, or minus the signal that interrupted it. Return None if the driver must
        run: nothing was printed, and the driver overwrites all outputs. With `stages`, front end
        and backend are two jobs, and the output may stay untouched.
        """
        self._advice.text = ""
        try:
            done = self._run(command, environment, stages)
        except _UnknownEndError as error:
            self._advice.text = device_advice(error.text)
            return None
        if done is None:
            return None
        status, messages = done
        is_named = any(os.fsencode(name) in messages for name in (_BETWEEN, _BITCODE))
        if is_named or (status == 1 and not messages):
            return None  # the driver names its object otherwise, and adds messages to a failure
        if messages:
            sys.stderr.flush()
            advice = advice_for(command, messages) if status else ""
            with open(_ERRORS, "wb", closefd=False) as out:
                out.write(messages + os.fsencode(advice))
        return status

    def run_quietly(
        self, command: Sequence[str], environment: Mapping[str, str], stages: Stages | None = None
    ) -> bool | None:
        """Run a command as `run` does, silently: True without messages; None for the driver."""
        try:
            done = self._run(command, environment, stages, is_quiet=True)
        except _UnknownEndError:
            return False
        return None if done is None else done == (0, b"")

    def _run(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        stages: Stages | None,
        *,
        is_quiet: bool = False,
    ) -> tuple[int, bytes] | None:
        names = _names_in(command)
        jobs = self._cache.jobs(command, names, environment) if names is not None else None
        with _files_left() as has_files:
            return _run_jobs(jobs, environment, stages, is_quiet) if jobs and has_files else None


@functools.cache
def _turns() -> threading.BoundedSemaphore:
    """Return a semaphore for concurrent passes; they may use half of the open-file limit.

    The rest is for this process, and for the copies while a program starts: see `process.start`.
    """
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


def _names_in(command: Sequence[str]) -> Names | None:
    """Return the names in a command; None if it is not of the form of a pass."""
    read = Command.read(command, 1)
    if read is None or not read.depfile or read.source.startswith("-"):
        return None
    cuids = {arg for arg in read.flags if arg.startswith(_CUID)}  # twice for the host
    preambles = [arg for arg in read.flags if arg.startswith(_PREAMBLE)]
    if len(cuids) != 1 or len(preambles) > 1:
        return None
    return read.source, read.output, read.depfile, cuids.pop(), "".join(preambles)


def _query_jobs(command: Sequence[str], names: Names, environment: Mapping[str, str]) -> Jobs:
    """Query the driver for its jobs; return () if it fails or its output is not recognised."""
    source, output, *_ = names
    try:
        result = query_plan(with_terminal_args(command, environment), environment)
    except CompilerError:
        return ()
    try:
        messages, jobs = parse_jobs(result.errors)
    except UnknownPlanError:
        return ()
    is_silent = not (result.status or result.output or messages)
    if not is_silent or not jobs:
        return ()
    front_end, *linkers = jobs
    object_file = front_end.output
    is_understood = (
        front_end.kind == "cc1"
        and front_end.source == source
        and "-emit-obj" in front_end.args
        and jobs[-1].output == output
        and not any(a.startswith("@") or PLAN in a for job in jobs for a in job.args)
        and is_program(front_end.args[0], command[0], environment)
    )
    if not is_understood:
        return ()
    if not linkers:
        return (tuple(front_end.args),)
    linker = linkers[0]
    links_object = (
        len(linkers) == 1
        and linker.args[1:3] == _LLD
        and linker.args.count(object_file) == 1
        and os.path.dirname(object_file) == result.folder
        and not any(map(_FILES_OF_THE_LINKER.match, linker.args))
    )
    if not links_object:
        return ()
    return tuple(tuple(_BETWEEN if a == object_file else a for a in job.args) for job in jobs)


_PASSES = Language("direct", _MARKS, _OTHERS, _query_jobs)


class _UnknownEndError(Exception):
    """A job ended in a way that the driver reports in more detail."""

    def __init__(self, text: bytes = b"") -> None:
        super().__init__()
        self.text = text


def _run_jobs(
    jobs: Jobs, environment: Mapping[str, str], stages: Stages | None, is_quiet: bool
) -> tuple[int, bytes]:
    """Run jobs; return their status (0, 1, or minus a signal) and messages. Raise _UnknownEndError.

    The jobs overwrite the output, as the driver does; after a failure the driver overwrites it
    again. The object between the jobs has no name in any directory, so a kill leaves nothing of it
    behind. With `is_quiet`, they end behind the first that prints a message.
    """
    found = _run_once(jobs, environment, stages, is_quiet)
    if stages is not None and stages.must_repeat and not (is_quiet and found[1]):
        found = _run_once(jobs, environment, stages, is_quiet)  # as one job
    return found


def _object_of(front_end: Sequence[str], between: IO[bytes]) -> bytes:
    """Return what the front end's job has written: a host's object has a name."""
    name = front_end[front_end.index("-o") + 1]
    return written_bytes(between) if name == _BETWEEN else content_of(name)


def _run_once(
    jobs: Jobs, environment: Mapping[str, str], stages: Stages | None, is_quiet: bool
) -> tuple[int, bytes]:
    front_end, *linkers = jobs
    folder = llvm_temporary_folder(environment)
    try:
        with (
            file_in_memory(folder) as errors,
            file_in_memory(folder) as output,
            file_without_name(folder) as between,
            file_without_name(folder) as bitcode,
        ):
            files = [None, output.fileno(), errors.fileno(), between.fileno()]
            made = bitcode, errors, functools.partial(_object_of, front_end, between)
            two = stages.jobs(front_end, _BITCODE) if stages is not None else ()
            if two:
                files.append(bitcode.fileno())
            for number, job in enumerate([*(two or [front_end]), *linkers]):
                status = process.run(job, environment, files)
                if -status in _STOPPED_BY:
                    return status, b""
                if status == 1 and not number and os.path.exists(job[-1]):
                    break  # an error in the source: the driver adds nothing
                if status:
                    raise _UnknownEndError(written_bytes(errors))
                is_enough = two and stages is not None and stages.stops_after(number, *made)
                if is_enough or (is_quiet and os.fstat(errors.fileno()).st_size):
                    break
            text = written_bytes(errors)
            if os.fstat(output.fileno()).st_size:
                raise _UnknownEndError
            if stages is not None and not text:
                stages.printed_nothing()
    except OSError as error:  # the command is too long, or a program or directory is missing
        raise _UnknownEndError from error
    return status, text
