r"""A device pass without the driver: the front end and the linker are run as the driver says.

Such a pass is three processes, and the driver alone takes a quarter of the time of a small one.
It is asked twice per set of flags (``-###``) what it would run, and the answer is kept for later
builds (`driver_answers`)::

    command, its names replaced by marks ---> set of flags
    the first of a set     the driver is asked, and once more with other names: is that the first
                           answer with these names? If not, the driver is run, now and always
    it, and all others     the answer is run, with their names

The names are those of source, output and depfile, and the CUID. What is not plainly understood is
left to the driver, and so is everything after a failure: messages, statuses and crash reports are
the driver's own. Nor is anything said here that the driver would say in colour.

Source: clang 22.1.8, observed; ``clang/lib/Driver/Job.cpp``: several jobs are processes of
their own, one job is not.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING, NamedTuple

from offload_tool.compiler.driver import ask, jobs_of, llvm_temporary_folder
from offload_tool.compiler.driver_answers import kept_answer, program_of
from offload_tool.errors import CompilerError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from offload_tool.compiler.resident import ResidentPrograms

    Job = tuple[str, ...]

__all__ = ["DirectPasses"]

_USUAL_LINES = re.compile(
    r'|.*clang version .*|(Target|Thread model|InstalledDir|Build config): .*| ".*'
)
_FOR_THE_DRIVER = (
    *("@", "-###", "-v", "--verbose", "-time", "--config", "-save-temps", "--save-temps"),
    *("-ftime-", "-fproc-stat-report", "-fcrash-", "-gen-reproducer", "--driver-mode", "-Xarch"),
    *("-fdriver-only", "-working-directory", "--serialize-diagnostics", "-dumpdir"),
)
"""Beginnings of words that mean something to the driver itself, or name files by rules of it."""
_VARIABLES_OF_THE_DRIVER = ("CC_", "CCC_", "FORCE_CLANG_", "RC_DEBUG_", "CLANG_")
_DEPFILE = "-dependency-file"
_CUID = "-cuid="
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


class _Plan(NamedTuple):
    """What the driver would run for one command: the front end, then the linker."""

    front_end: Job
    linker: Job
    object: str
    """The temporary file between them."""

    def with_object(self, name: str) -> _Plan:
        """Give the plan with another temporary file."""
        jobs = (self.front_end, self.linker)
        first, second = (
            tuple(name if word == self.object else word for word in job) for job in jobs
        )
        return _Plan(first, second, name)

    def for_names(self, before: _Names, after: _Names) -> _Plan:
        """Give the plan of the command with other names."""
        first, second = (
            tuple(_renamed(job, before, after)) for job in (self.front_end, self.linker)
        )
        return _Plan(first, second, self.object)


_MARKS = _Names("\0source", "\0output", "\0depfile", "\0cuid")
_OTHERS = _Names(os.devnull, "offload-other.co", "offload-other.d", "-cuid=0ff10ad0")
"""With which the driver is asked again: the source must be there."""


class DirectPasses:
    """Runs the device passes of one build; each command in one folder, that of this process."""

    def __init__(self, resident: ResidentPrograms | None = None) -> None:
        """`resident`, if given, runs the jobs."""
        self._resident = resident
        self._known: dict[object, _Plan | None] = {}
        """For each set of flags, the plan for `_OTHERS`."""

    def run(self, command: Sequence[str], environment: Mapping[str, str]) -> int | None:
        """Run a command of a device pass, if that can be done without the driver.

        The command is the compiler's one word, flags, ``-o OUTPUT SOURCE``. Gives 0, or minus
        the signal by which somebody stopped it. None is for the driver to be run: nothing was
        said, and what was written will be written again.
        """
        plan = self._plan(command, environment)
        return None if plan is None else _run(plan, environment, self._resident)

    def _plan(self, command: Sequence[str], environment: Mapping[str, str]) -> _Plan | None:
        names = _names_in(command)
        program = program_of(command, environment)
        if names is None or program is None or not _is_plain(command, environment):
            return None
        key = (
            tuple(_renamed(command, names, _MARKS)),
            os.path.splitext(names.source)[1],  # noqa: PTH122 - called for each pass
            tuple(sorted(environment.items())),
            os.getcwd(),  # noqa: PTH109
        )
        if key not in self._known:
            self._known[key] = _kept(program, key[:2], command, names, environment)
        known = self._known[key]
        return None if known is None else known.for_names(_OTHERS, names)


def _kept(
    program: str,
    key: tuple[tuple[str, ...], str],
    command: Sequence[str],
    names: _Names,
    environment: Mapping[str, str],
) -> _Plan | None:
    """Give the plan of a set of flags for `_OTHERS`, as an earlier build was told it, or this."""

    def find() -> list[list[str]]:
        plan = _proved(command, names, environment)
        return [] if plan is None else [[*plan.front_end], [*plan.linker], [plan.object]]

    def named(answer: list[list[str]]) -> list[str]:
        made = {word for words in answer[2:] for word in words}  # in a folder that always changes
        return [word for job in answer[:2] for word in job if word not in made]

    answer = kept_answer("direct", program, [*key[0], key[1]], environment, find, named)
    try:
        first, second, (between,) = (tuple(map(str, words)) for words in answer)
    except (TypeError, ValueError):
        return None
    return _Plan(first, second, between)


def _proved(command: Sequence[str], names: _Names, environment: Mapping[str, str]) -> _Plan | None:
    """Give the plan for `_OTHERS`, if that of the command is the same with its names."""
    plan = _asked(command, names, environment)
    if plan is None or {*names} & {*_OTHERS}:
        return None
    others = _asked(_renamed(command, names, _OTHERS), _OTHERS, environment)
    if others is None:
        return None
    expected = others.for_names(_OTHERS, names)
    return others if expected == plan.with_object(expected.object) else None


def _names_in(command: Sequence[str]) -> _Names | None:
    """Find the names in a command; None if it is another one than those of device passes."""
    *words, option, output, source = command
    cuids = [word for word in words if word.startswith(_CUID)]
    if option != "-o" or source.startswith("-") or len(cuids) != 1 or words.count(_DEPFILE) != 1:
        return None
    at = words.index(_DEPFILE)
    if words[at - 1 : at + 2 : 2] != ["-Xclang", "-Xclang"]:
        return None
    return _Names(source, output, words[at + 2], cuids[0])


def _is_plain(command: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Tell whether nothing in a command or its environment is about the driver's own doing."""
    if any(word.startswith(_FOR_THE_DRIVER) for word in command):
        return False
    return not any(name.startswith(_VARIABLES_OF_THE_DRIVER) for name in environment)


def _asked(command: Sequence[str], names: _Names, environment: Mapping[str, str]) -> _Plan | None:
    """Ask the driver what it would run; None if that, or all that it says, is not understood."""
    try:
        answer = ask([*command, "-###"], environment)
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
        and os.path.dirname(made) == llvm_temporary_folder(environment)  # noqa: PTH120
        and not any(word.startswith("@") for word in (*front_end, *linker))
    )
    return _Plan(front_end, linker, made) if is_understood else None


def _renamed(words: Iterable[str], before: _Names, after: _Names) -> list[str]:
    """Give words with other names: where a word is one, and behind ``-main-file-name``.

    Source: clang 22.1.8, observed: that is the base name of the source.
    """
    known = dict(zip(before, after, strict=True))
    given = list(words)
    found = [known.get(word, word) for word in given]
    if _MAIN in given:
        at = given.index(_MAIN) + 1
        if given[at] == os.path.basename(before.source):  # noqa: PTH119 - called for each pass
            found[at] = os.path.basename(after.source)  # noqa: PTH119
    return found


def _run(
    plan: _Plan, environment: Mapping[str, str], resident: ResidentPrograms | None
) -> int | None:
    """Run a plan; give the status, or None where the driver has more to say.

    The output is written over, as the driver does; after a failure it does so again.
    """
    stem = os.path.splitext(os.path.basename(plan.object))[0]  # noqa: PTH119, PTH122
    said = []
    try:
        with tempfile.NamedTemporaryFile(
            prefix=f"{stem}-", suffix=".o", dir=llvm_temporary_folder(environment)
        ) as between:
            own = plan.with_object(between.name)
            for job in (own.front_end, own.linker):
                done = _run_job(job, environment, resident)
                if -done.returncode in _STOPPED_BY:
                    return done.returncode
                if done.returncode or done.stdout:
                    return None
                said.append(done.stderr)
    except OSError:  # too long a command, or a program that is gone
        return None
    text = b"".join(said)
    if text and sys.stderr.isatty():  # the driver would have asked for colours
        return None
    sys.stderr.flush()
    sys.stderr.buffer.write(text)
    sys.stderr.flush()
    return 0


def _run_job(
    job: Job, environment: Mapping[str, str], resident: ResidentPrograms | None
) -> subprocess.CompletedProcess[bytes]:
    """Run one program of a plan."""
    if resident is not None:
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            status = resident.run(job, environment, [output.fileno(), errors.fileno()])
            if status is not None:
                said = [
                    os.pread(each.fileno(), os.fstat(each.fileno()).st_size, 0)
                    for each in (output, errors)
                ]
                return subprocess.CompletedProcess(job, status, *said)
    return subprocess.run(job, env=environment, capture_output=True, check=False)
