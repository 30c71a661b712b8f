"""The driver's jobs of compiles with equal flags, from at most two queries (``-###``).

The results are kept for later builds (`driver_cache`)::

    command, its names replaced by marks ---> set of flags

    first command of a set   query the driver
    first with other names   query the driver with dummy names: does the first output differ only
      in its names? If not, the jobs of this set's other commands are unknown, now and always
    this one and all others  the jobs of the first output with their own names

The names are the parts that differ between compiles, such as source, output and depfile.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from offload_tool.clang.driver import PLAN, terminal_args
from offload_tool.clang.options import DRIVER, does
from offload_tool.errors import CompilerError
from offload_tool.passes.source_kind import CXX_MODE
from offload_tool.toolchain.driver_cache import cached_query, program_of

Job = tuple[str, ...]
Jobs = tuple[Job, ...]
"""() if the driver must run."""
Names = tuple[str, ...]
"""The source, then others."""

_VARIABLES_OF_THE_DRIVER = ("CC_", "CCC_", "FORCE_CLANG_", "RC_DEBUG_", "CLANG_", "LLD_REPRODUCE")
_MAIN = "-main-file-name"
_OF_THIS_PROCESS = "/proc/self/"


class Language(NamedTuple):
    """The commands of a cache."""

    what: str
    """Names the stored results."""
    marks: Names
    others: Names
    """The names of the second query; the source must exist."""
    query: Callable[[Sequence[str], Names, Mapping[str, str]], Jobs | None]
    """Returns the driver's jobs; None, which is not stored, if it refuses the command."""


class JobCache:
    """The jobs of commands; all run in the working directory of this process."""

    def __init__(self, language: Language) -> None:
        self._language = language
        self._flag_sets: dict[object, _FlagSet] = {}

    def jobs(
        self, command: Sequence[str], names: Names, environment: Mapping[str, str]
    ) -> Jobs | None:
        """Return a command's jobs, None if unknown; raise CompilerError for an unknown plan."""
        program = program_of(command, environment)
        if program is None or not _is_plain(command, environment):
            return None
        key = (
            tuple(_renamed(command, names, self._language.marks)),
            os.path.splitext(names[0])[1],
            " ".join(terminal_args(environment)),
            tuple(sorted(environment.items())),
            os.getcwd(),
        )
        flag_set = _FlagSet(self._language, [program, *key[0], *key[1:3]], environment)
        return self._flag_sets.setdefault(key, flag_set).jobs_for(command, names)


class _FlagSet:
    """The driver's output for one set of flags; its lock guards all access."""

    def __init__(self, language: Language, key: list[str], environment: Mapping[str, str]) -> None:
        """`key` is the program and the rest of the cache key."""
        self._language, self._key, self._environment = language, key, environment
        self._lock = threading.Lock()
        self._first: tuple[Names, Jobs] | None = None
        """The names and the jobs of the first command; None before it."""
        self._holds_for_others: bool | None = None
        """Whether the jobs hold for other names; None before the second query."""

    def jobs_for(self, command: Sequence[str], names: Names) -> Jobs | None:
        """Return the jobs of a command; None if they are unknown."""
        with self._lock:
            if self._first is None:
                self._first = self._query(self._language.what, command, names)
            if self._first is None:
                return None
            first, jobs = self._first
            if not jobs or names == first:
                return jobs
            if self._holds_for_others is None:
                self._holds_for_others = self._check_others(command, names, first, jobs)
            return _for_names(jobs, first, names) if self._holds_for_others else None

    def _check_others(self, command: Sequence[str], names: Names, first: Names, jobs: Jobs) -> bool:
        """Return True if the driver's jobs for dummy names differ only in the names."""
        others = self._language.others
        if {*first} & {*others}:
            return False
        what = f"{self._language.what}, others"
        try:
            found = self._query(what, _renamed(command, names, others), others)
        except CompilerError:  # it would name the dummies
            return False
        return found is not None and found[1] == _for_names(jobs, first, others)

    def _query(self, what: str, command: Sequence[str], names: Names) -> tuple[Names, Jobs] | None:
        """Return the driver's jobs for a command, and their names, from the cache or a query."""

        def find() -> list[list[str]] | None:
            jobs = self._language.query(command, names, self._environment)
            return None if jobs is None else [[*names], *map(list, jobs)]

        def named(result: list[list[str]] | None) -> list[str] | None:
            if result is None:
                return None
            args = (arg for job in result[1:] for arg in job if arg not in result[0])
            return [arg for arg in args if not arg.startswith(_OF_THIS_PROCESS)]

        program, *args = self._key
        result = cached_query(what, program, args, self._environment, find, named)
        if result is None:
            return None
        first, *jobs = map(tuple, result)
        return first, tuple(jobs)


def _is_plain(command: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Return True if neither command nor environment changes what the driver itself does."""
    if any(arg == PLAN or (does(arg, DRIVER) and arg != CXX_MODE) for arg in command):
        return False
    return not any(name.startswith(_VARIABLES_OF_THE_DRIVER) for name in environment)


def _renamed(args: Sequence[str], before: Names, after: Names) -> list[str]:
    """Return `args` with other names: whole arguments, and the base name of the source."""
    known = {old: new for old, new in zip(before, after, strict=True) if old}
    renamed = [known.get(arg, arg) for arg in args]
    if _MAIN in args:
        at = args.index(_MAIN) + 1
        if args[at] == os.path.basename(before[0]):
            renamed[at] = os.path.basename(after[0])
    return renamed


def _for_names(jobs: Jobs, before: Names, after: Names) -> Jobs:
    return tuple(tuple(_renamed(job, before, after)) for job in jobs)
