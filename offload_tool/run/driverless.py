r"""A device pass without the driver: the front end and the linker are run as the driver says.

Such a pass is three processes, and the driver alone takes a quarter of the time of a small one.
It is asked (``-###``) what it would run, in the place of being run, at most twice per set of flags,
and the answers are kept for later builds (`driver_cache`)::

    command, its names replaced by marks ---> set of flags
    the first of a set     the driver is asked, and its answer is run
    the first with others  it is asked of names that nobody has: is that the first answer with
      of its names         these names? If not, the driver is run for this one, now and always
    it, and all others     the answer is run, with their names

The names are those of source, output and depfile, the CUID, and how much of the source a
precompiled header stands for. The driver runs where its ``-###`` output is not recognised, and
again where a job crashes or the linker fails. Messages and crash reports are then the driver's
own. It also runs passes for which this process may open no more files (``ulimit -n``). At a
terminal the driver is asked for messages in colour.

Source: clang 22.1.8, observed; ``clang/lib/Driver/Job.cpp``: several jobs are processes of
their own, one job is not.
"""

from __future__ import annotations

import functools
import os
import re
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, NamedTuple

from offload_tool.clang.driver import (
    PLAN,
    jobs_of,
    llvm_temporary_folder,
    plan_of,
    words_for_terminal,
)
from offload_tool.clang.options import DRIVER, does
from offload_tool.errors import CompilerError
from offload_tool.io.signals import shielded
from offload_tool.toolchain.driver_cache import kept_answer, program_of

if TYPE_CHECKING:
    from offload_tool.run.cut_off import Stages

    Job = tuple[str, ...]

_USUAL_LINES = re.compile(
    r'|.*clang version .*|(Target|Thread model|InstalledDir|Build config): .*| ".*'
)
_VARIABLES_OF_THE_DRIVER = ("CC_", "CCC_", "FORCE_CLANG_", "RC_DEBUG_", "CLANG_", "LLD_REPRODUCE")
_ERRORS = 2
_DEPFILE = "-dependency-file"
_CUID = "-cuid="
_PREAMBLE = "-preamble-bytes="
_FILES_OF_THE_LINKER = re.compile(r"--?(Map|reproduce|dependency-file|why-extract|time-trace)")
"""Its options that write what it was given, which has another name with the driver."""
_BETWEEN = "/proc/self/fd/3"
"""The object that the front end writes and the linker reads; see `_run`."""
_BITCODE = "/proc/self/fd/4"
"""What is between the front end and the backend, where these are two jobs."""
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
"""As `subprocess` does, programs are given these signals back."""
_FILES = 5
"""What this process has open for a pass."""
_UNLIMITED = 1 << 16
_STOPPED_BY = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_MAIN = "-main-file-name"
_CC1, _LLD = ("-cc1",), ("-flavor", "gnu")


class _Names(NamedTuple):
    """What one command has and another one with equal flags has not."""

    source: str
    output: str
    depfile: str
    cuid: str
    """The whole word, ``-cuid=...``."""
    preamble: str = ""
    """The whole word, ``-preamble-bytes=...``: what a precompiled header stands for; "" without."""


class _Plan(NamedTuple):
    """What the driver would run for one command: the front end, then the linker."""

    front_end: Job
    linker: Job
    object: str
    """The temporary file between them."""

    def with_object(self, name: str) -> _Plan:
        """Return the plan with another temporary file."""
        jobs = (self.front_end, self.linker)
        first, second = (
            tuple(name if word == self.object else word for word in job) for job in jobs
        )
        return _Plan(first, second, name)

    def for_names(self, before: _Names, after: _Names) -> _Plan:
        """Return the plan of the command with other names."""
        first, second = (
            tuple(_renamed(job, before, after)) for job in (self.front_end, self.linker)
        )
        return _Plan(first, second, self.object)


_MARKS = _Names("\0source", "\0output", "\0depfile", "\0cuid", "\0preamble")
_OTHERS = _Names(
    *(os.devnull, "offload-other.co", "offload-other.d", "-cuid=0ff10ad0", "-preamble-bytes=7,1")
)
"""With which the driver is asked again: the source must be there."""


class _FlagSet:
    """What the driver has told of one set of flags; read and written under its lock."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.names: _Names | None = None
        """Of the first command; None until there was one."""
        self.plan: _Plan | None = None
        """Its plan; None if the answer is not understood."""
        self.is_proved: bool | None = None
        """Whether it is the same for other names; None until there was one."""


_UNDEFINED = re.compile(rb"error: undefined (?:\w+ )?symbol: (__o(?:ckl|cml)_)?")
_LACKING = (
    "offload: {output}: device code calls what its own source does not define; if another source "
    "does, set OFFLOAD_RDC=True ('offload-tool compile': --rdc, then --link)\n"
)
_LACKING_LIBRARY = (
    "offload: {output}: device code calls ROCm's device libraries, which -nogpulib leaves out; "
    "remove that flag\n"
)


class DirectPasses:
    """Runs the device passes of one build; each command in one folder, that of this process."""

    def __init__(self) -> None:
        self._told: dict[object, _FlagSet] = {}
        self._lacking = threading.local()

    def advise(self, command: Sequence[str]) -> None:
        """Write what to do after this thread's pass has failed in the driver's hands, too."""
        if text := getattr(self._lacking, "text", ""):
            sys.stderr.write(text.format(output=command[-1]))

    def run(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        stages: Stages | None = None,
    ) -> int | None:
        """Run a command of a device pass, if that can be done without the driver.

        The command is the compiler's one word, flags, ``-o OUTPUT SOURCE``. Gives its status: 0, 1
        for code that is wrong, or minus the signal by which somebody stopped it. None is for the
        driver to be run: nothing was said, and what was written will be written again. With
        `stages`, the front end and the backend are two jobs, and the output may stay as it is.
        """
        plan = self._plan(command, environment)
        self._lacking.text = ""
        with _files_left() as are_left:
            try:
                return _run(plan, environment, stages) if plan and are_left else None
            except _UnknownEndError as error:
                if undefined := _UNDEFINED.search(error.text):
                    self._lacking.text = _LACKING_LIBRARY if undefined[1] else _LACKING
                return None

    def run_quietly(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        stages: Stages | None = None,
    ) -> bool | None:
        """Run a command as `run` does, but say nothing; tell whether all is well.

        It is not where there is anything to say. None is for the driver to be run.
        """
        plan = self._plan(command, environment)
        with _files_left() as are_left:
            if plan is None or not are_left:
                return None
            try:
                return _run_jobs(plan, environment, stages) == (0, b"")
            except _UnknownEndError:
                return False

    def _plan(self, command: Sequence[str], environment: Mapping[str, str]) -> _Plan | None:
        names = _names_in(command)
        program = program_of(command, environment)
        if names is None or program is None or not _is_plain(command, environment):
            return None
        key = (
            tuple(_renamed(command, names, _MARKS)),
            os.path.splitext(names.source)[1],
            " ".join(words_for_terminal(environment)),
            tuple(sorted(environment.items())),
            os.getcwd(),
        )
        question = [program, *key[0], *key[1:3]]
        told = self._told.setdefault(key, _FlagSet())
        with told.lock:
            if told.names is None:
                told.names, told.plan = _kept("direct", question, command, names, environment)
            if told.plan is None or names == told.names:
                return told.plan
            if told.is_proved is None:
                told.is_proved = _is_proved(told, question, command, names, environment)
            return told.plan.for_names(told.names, names) if told.is_proved else None


@functools.cache
def _turns() -> threading.BoundedSemaphore:
    """Return as many turns as passes may run at once: half of the files are for all else."""
    most = os.sysconf("SC_OPEN_MAX")
    return threading.BoundedSemaphore(max(1, most // _FILES // 2) if most > 0 else _UNLIMITED)


@contextmanager
def _files_left() -> Iterator[bool]:
    """Return whether there are files left for a pass: the driver needs none of this process."""
    turns = _turns()  # two threads that ask first at once may have one each
    taken = turns.acquire(blocking=False)
    try:
        yield taken
    finally:
        if taken:
            turns.release()


def _kept(
    what: str,
    question: list[str],
    command: Sequence[str],
    names: _Names,
    environment: Mapping[str, str],
) -> tuple[_Names, _Plan | None]:
    """Return what the driver tells of a command, or told an earlier build of one with its flags.

    `question` is its program, and what tells its flags from others.
    """

    def find() -> list[list[str]]:
        plan = _asked(command, names, environment)
        if plan is None:
            return [[*names]]
        return [[*names], [*plan.front_end], [*plan.linker], [plan.object]]

    def named(answer: list[list[str]]) -> list[str]:
        own = {word for words in (answer[0], *answer[3:]) for word in words}  # these come and go
        return [word for job in answer[1:3] for word in job if word not in own]

    answer = kept_answer(what, question[0], question[1:], environment, find, named)
    words = [*map(tuple, answer)]
    return _Names(*words[0]), _Plan(words[1], words[2], *words[3]) if words[1:] else None


def _is_proved(
    told: _FlagSet,
    question: list[str],
    command: Sequence[str],
    names: _Names,
    environment: Mapping[str, str],
) -> bool:
    """Return whether the driver says the same of a command with quite other names."""
    plan, first_names = told.plan, told.names
    if plan is None or first_names is None or {*first_names} & {*_OTHERS}:
        return False
    other = _renamed(command, names, _OTHERS)
    _, found = _kept("direct, others", question, other, _OTHERS, environment)
    expected = plan.for_names(first_names, _OTHERS).with_object(_BETWEEN)
    return found is not None and found.with_object(_BETWEEN) == expected


def _names_in(command: Sequence[str]) -> _Names | None:
    """Find the names in a command; None if it is another one than those of device passes."""
    *words, option, output, source = command
    cuids = [word for word in words if word.startswith(_CUID)]
    if option != "-o" or source.startswith("-") or len(cuids) != 1 or words.count(_DEPFILE) != 1:
        return None
    at = words.index(_DEPFILE)
    if words[at - 1 : at + 2 : 2] != ["-Xclang", "-Xclang"]:
        return None
    preambles = [word for word in words if word.startswith(_PREAMBLE)]
    if len(preambles) > 1:
        return None
    return _Names(source, output, words[at + 2], cuids[0], "".join(preambles))


def _is_plain(command: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Return whether nothing in a command or its environment is about the driver's own doing."""
    if any(word == PLAN or does(word, DRIVER) for word in command):
        return False
    return not any(name.startswith(_VARIABLES_OF_THE_DRIVER) for name in environment)


def _asked(command: Sequence[str], names: _Names, environment: Mapping[str, str]) -> _Plan | None:
    """Ask the driver what it would run; None if that, or all that it says, is not understood."""
    more = words_for_terminal(environment)
    try:
        answer = plan_of([command[0], *more, *command[1:]], environment)
    except CompilerError:
        return None
    lines = answer.errors.splitlines()
    if answer.status or answer.output or not all(map(_USUAL_LINES.fullmatch, lines)):
        return None
    jobs = jobs_of(answer)
    if len(jobs) != 2:
        return None
    front_end, linker = (tuple(job) for job in jobs)
    if front_end.count("-o") != 1 or linker.count("-o") != 1:
        return None
    made = front_end[front_end.index("-o") + 1]
    is_understood = (
        front_end[1:2] == _CC1
        and linker[1:3] == _LLD
        and front_end[-1] == names.source
        and "-emit-obj" in front_end
        and linker[linker.index("-o") + 1] == names.output
        and linker.count(made) == 1
        and os.path.dirname(made) == answer.folder
        and not any(word.startswith("@") or PLAN in word for word in (*front_end, *linker))
        and not any(map(_FILES_OF_THE_LINKER.match, linker))
        and _is_program(front_end[0], command[0], environment)
    )
    return _Plan(front_end, linker, made) if is_understood else None


def _is_program(asked: str, command: str, environment: Mapping[str, str]) -> bool:
    """Return whether the front end is the program that was called: no cache, say, is between."""
    called = program_of([command], environment)
    try:
        return called is not None and os.path.samefile(asked, called)
    except OSError:
        return False


def _renamed(words: Iterable[str], before: _Names, after: _Names) -> list[str]:
    """Return words with other names: where a word is one, and behind ``-main-file-name``.

    Source: clang 22.1.8, observed: that is the base name of the source.
    """
    known = {old: new for old, new in zip(before, after, strict=True) if old}
    given = list(words)
    found = [known.get(word, word) for word in given]
    if _MAIN in given:
        at = given.index(_MAIN) + 1
        if given[at] == os.path.basename(before.source):
            found[at] = os.path.basename(after.source)
    return found


def _run(plan: _Plan, environment: Mapping[str, str], stages: Stages | None) -> int | None:
    """Run a plan, and say what it says; return the status, None if the driver has more to say.

    :raises _UnknownEndError: see `_run_jobs`.
    """
    status, text = _run_jobs(plan, environment, stages)
    if any(os.fsencode(name) in text for name in (_BETWEEN, _BITCODE)) or (
        status == 1 and not text
    ):
        return None  # the driver's object has another name, and something to say of a failure
    if text:
        sys.stderr.flush()
        with open(_ERRORS, "wb", closefd=False) as out:
            out.write(text)
    return status


class _UnknownEndError(Exception):
    """A job has ended in a way of which the driver has more to say."""

    def __init__(self, text: bytes = b"") -> None:
        super().__init__()
        self.text = text


def _run_jobs(
    plan: _Plan, environment: Mapping[str, str], stages: Stages | None = None
) -> tuple[int, bytes]:
    """Run a plan; return the status: 0, 1, or minus a signal, and what was said.

    The output is written over, as the driver does; after a failure it does so again. The object
    between the jobs has no name in any folder: whoever is killed, nothing of it stays.

    :raises _UnknownEndError: it has another one.
    """
    own = plan.with_object(_BETWEEN)
    folder = llvm_temporary_folder(environment)
    try:
        with (
            _in_memory() as errors,
            _in_memory() as output,
            _without_name(folder) as between,
            _without_name(folder) as bitcode,
        ):
            files = [output.fileno(), errors.fileno(), between.fileno()]
            two = stages.jobs(own.front_end, _BITCODE) if stages is not None else ()
            if stages is not None and two:
                files.append(bitcode.fileno())
                stages.watch(bitcode, errors)
            for number, job in enumerate([*(two or [own.front_end]), own.linker]):
                status = _run_job(job, environment, files)
                if -status in _STOPPED_BY:
                    return status, b""
                if status == 1 and not number and os.path.exists(job[-1]):
                    break  # the code is wrong, and nobody says more of that
                if status:
                    raise _UnknownEndError(_content(errors))
                if two and stages is not None and stages.end_with(number):
                    break
            text = _content(errors)
            if os.fstat(output.fileno()).st_size:
                raise _UnknownEndError
    except OSError as error:  # too long a command, or a program or folder that is gone
        raise _UnknownEndError from error
    return status, text


def _content(file: IO[bytes]) -> bytes:
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0)


def _in_memory() -> IO[bytes]:
    """Return a file that takes what is said of a full disk, too."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("offload"), "w+b", 0)
    return _without_name(llvm_temporary_folder(os.environ))  # Python is of an older C library


def _without_name(folder: str) -> IO[bytes]:
    """Return a new file in a folder."""
    flags = os.O_TMPFILE | os.O_RDWR | os.O_EXCL | os.O_CLOEXEC
    try:
        return os.fdopen(os.open(folder, flags, 0o600), "w+b", 0)
    except OSError:  # the file system has no such files, say
        import tempfile  # which takes longer to load than a small file to compile

        return tempfile.TemporaryFile(buffering=0, dir=folder)


def _run_job(job: Job, environment: Mapping[str, str], files: Sequence[int]) -> int:
    """Run one program of a plan; return its status as `os.waitstatus_to_exitcode` does.

    Its descriptors from 1 on are the `files`; it gets none of the others that this process has.

    :raises OSError: it cannot be run.
    """
    places = enumerate(files, start=1)
    given = [(os.POSIX_SPAWN_DUP2, file, number) for number, file in places]
    process = 0
    try:
        with shielded():  # a signal that comes meanwhile must find the process known
            process = os.posix_spawn(
                job[0], job, environment, file_actions=given, setsigdef=_IGNORED_BY_PYTHON
            )
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    except BaseException:
        if process:
            with suppress(ProcessLookupError, ChildProcessError):
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)
        raise
