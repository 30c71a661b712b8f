r"""A device pass without the driver: the front end and the linker are run as the driver says.

Such a pass is three processes, and the driver alone takes a quarter of the time of a small one.
It is asked once or twice per set of flags (``-###``) what it would run::

    command, its names replaced by marks ---> set of flags
    the first of a set     the driver is asked, and what it answers is run
    the second             too: is it the first answer with the second's names?
    all others             if it was, the first answer with their names; if not, as the first

The names are those of source, output and depfile, and the CUID. What is not plainly understood is
left to the driver, and so is everything after a failure: messages, statuses and crash reports are
the driver's own. Nor is anything said here that the driver would say in colour.

Source: clang 22.1.8, observed; ``clang/lib/Driver/Job.cpp``: several jobs are processes of
their own, one job is not.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from offload_tool.compiler.driver import ask, jobs_of, temporary_folder
from offload_tool.errors import CompilerError
from offload_tool.formats.magics import ELF

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

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


class _FlagSet:
    """What is known of the commands that differ in names alone."""

    def __init__(self, names: _Names, plan: _Plan) -> None:
        self.names, self.plan = names, plan
        self.is_proved: bool | None = None
        """Whether another command's plan was this one with other names; None before one was."""


class DirectPasses:
    """Runs the device passes of one build; each command in one folder, that of this process."""

    def __init__(self) -> None:
        self._known: dict[object, _FlagSet | None] = {}

    def run(self, command: Sequence[str], environment: Mapping[str, str]) -> int | None:
        """Run a command of a device pass, if that can be done without the driver.

        The command is the compiler's one word, flags, ``-o OUTPUT SOURCE``. Gives 0, or minus
        the signal by which somebody stopped it. None is for the driver to be run: nothing was
        said, and what was written will be written again.
        """
        names = _names_in(command)
        if names is None or not _is_plain(command, environment):
            return None
        plan = self._plan(command, names, environment)
        return None if plan is None else _run(plan, environment)

    def _plan(
        self, command: Sequence[str], names: _Names, environment: Mapping[str, str]
    ) -> _Plan | None:
        key = (
            tuple(_renamed(command, names, _MARKS)),
            os.path.splitext(names.source)[1],  # noqa: PTH122 - called for each pass
            tuple(sorted(environment.items())),
            os.getcwd(),  # noqa: PTH109
        )
        known = self._known.get(key)
        if key in self._known and known is None:
            return None
        if known is not None and known.is_proved:
            return known.plan.for_names(known.names, names)
        plan = _asked(command, names, environment)
        if plan is None or known is None:
            self._known[key] = None if plan is None else _FlagSet(names, plan)
        elif known.is_proved is None and not set(names) & set(known.names):
            expected = known.plan.for_names(known.names, names)
            known.is_proved = expected == plan.with_object(expected.object)
        return plan


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
    if any(name.startswith(_VARIABLES_OF_THE_DRIVER) for name in environment):
        return False
    program = shutil.which(command[0], path=environment.get("PATH", os.defpath))
    return program is not None and _is_executable(program)


@functools.lru_cache(maxsize=16)
def _is_executable(program: str) -> bool:
    """Tell whether a program is the compiler itself: a script may do more than to call it."""
    try:
        with Path(program).open("rb") as file:
            return file.read(len(ELF)) == ELF
    except OSError:
        return False


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
        and os.path.dirname(made) == temporary_folder(environment)  # noqa: PTH120
        and not any(word.startswith("@") for word in (*front_end, *linker))
    )
    return _Plan(front_end, linker, made) if is_understood else None


def _renamed(words: Iterable[str], before: _Names, after: _Names) -> list[str]:
    """Give words with other names: where a word is one, and behind ``-main-file-name``."""
    known = dict(zip(before, after, strict=True))
    given = list(words)
    found = [known.get(word, word) for word in given]
    if _MAIN in given:
        at = given.index(_MAIN) + 1
        if given[at] == os.path.basename(before.source):  # noqa: PTH119 - called for each pass
            found[at] = os.path.basename(after.source)  # noqa: PTH119
    return found


def _run(plan: _Plan, environment: Mapping[str, str]) -> int | None:
    """Run a plan; give the status, or None where the driver has more to say.

    The output is written over, as the driver does; after a failure it does so again.
    """
    stem = os.path.splitext(os.path.basename(plan.object))[0]  # noqa: PTH119, PTH122
    said = []
    try:
        with tempfile.NamedTemporaryFile(
            prefix=f"{stem}-", suffix=".o", dir=temporary_folder(environment)
        ) as between:
            own = plan.with_object(between.name)
            for job in (own.front_end, own.linker):
                done = subprocess.run(job, env=environment, capture_output=True, check=False)
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
