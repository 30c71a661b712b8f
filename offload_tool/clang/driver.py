r"""Query programs, clang's driver first: its jobs, its version, its paths.

Source: clang 19.1 to 23, observed: with ``-###`` the driver writes its jobs to standard error, one
a line. Each argument is in double quotes, with a backslash before each ``"``, ``\`` and ``$`` in
it, and before nothing else. A shell's rules read that; those of `shlex` do not. The jobs of the
compiler itself have ``-cc1``.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import NamedTuple

from offload_tool.clang.argument_files import all_args
from offload_tool.clang.options import REMOVED, does, without_values
from offload_tool.errors import CompilerError
from offload_tool.io.process import capture
from offload_tool.util.memoize import memoized

_TIMEOUT_SECONDS = 120
PLAN = "-###"
"""The driver prints its jobs instead of running them. It still removes the files of ``-MJ``."""
_ERRORS = 2
_FRONT_END = "-cc1"
# Compiled on first use: many runs query nothing.
_QUOTED = r"\"[^\"\\]*(?:\\.[^\"\\]*)*\""
_ARGUMENT = rf"(?P<quoted>{_QUOTED})|\S+"
_JOB = rf"^ *{_QUOTED}(?: +{_QUOTED})*"
"""An argument may hold newlines and whatever else ends lines for `str.splitlines`."""
_ESCAPED = r"\\(.)"


class QueryResult(NamedTuple):
    """The output of a program, decoded by `os.fsdecode`, as it may hold arguments of commands."""

    status: int
    output: str
    errors: str
    folder: str = ""
    """The directory of the temporary files that it names."""

    @property
    def reason(self) -> str:
        """The reason of a failure, for messages: the last line of its errors, or of its output."""
        lines = (self.errors or self.output).strip().splitlines()
        printable = os.fsencode(lines[-1]).decode(errors="replace") if lines else ""
        return printable or f"exit status {self.status}"


def query(command: Sequence[str], environment: Mapping[str, str] = os.environ) -> QueryResult:
    """Run a query of a program, without input, in English (``LC_ALL=C``); raise CompilerError."""
    folder = llvm_temporary_folder(environment)
    with ExitStack() as stack:
        # The driver creates its temporary files with -###, too, and removes them when it ends. As a
        # killed driver leaves them, such a query gets its own temporary directory. Source: clang
        # 22.1.8, observed.
        if PLAN in command:
            from offload_tool.io.temporary_directory import temporary_folder

            with suppress(OSError):
                folder = str(stack.enter_context(temporary_folder("offload-asked-", folder)))
                environment = {**environment, "TMPDIR": folder}
        try:
            done = capture(command, {**environment, "LC_ALL": "C"}, timeout=_TIMEOUT_SECONDS)
        except OSError as error:
            raise CompilerError(
                f"{command[0]} cannot be run: {error}; install it, or name another program"
            ) from error
    return QueryResult(done.status, os.fsdecode(done.output), os.fsdecode(done.errors), folder)


def terminal_args(environment: Mapping[str, str]) -> list[str]:
    """Return the option for coloured messages at a terminal; a user's options override it.

    Source: clang 19.1 and 22.1, observed: so does a ``NO_COLOR`` that is not empty.
    """
    has_colours = os.isatty(_ERRORS) and environment.get("TERM", "dumb") not in ("", "dumb")
    return ["-fcolor-diagnostics"] if has_colours and not environment.get("NO_COLOR") else []


def with_terminal_args(command: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Return a command with `terminal_args` behind the compiler, before which may be launchers."""
    words = (n for n, word in enumerate(command, 1) if "clang" in os.path.basename(word))
    at = next(words, 1)
    return [*command[:at], *terminal_args(environment), *command[at:]]


def query_plan(command: Sequence[str], environment: Mapping[str, str] = os.environ) -> QueryResult:
    """Query the driver for a command's jobs; no file is touched. Errors are those of `query`."""
    return query([*without_removed(command), PLAN], environment)


def without_removed(args: Sequence[str]) -> list[str]:
    """Return a command for a query, without the options that let the driver remove a file.

    The driver truncates the reports that they name at each start, with ``-###``, too: those of a
    concurrent or earlier compile. If a response file holds such an option, the result has all
    response files expanded. Source: clang 22.1.8, observed.
    """
    expanded = all_args(args)
    return [
        *(without_values(expanded, REMOVED) if any(does(w, REMOVED) for w in expanded) else args)
    ]


def run_checked(made: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
    """Run a program that creates a file, `made` in messages; raise CompilerError if it fails."""
    result = query(command, environment)
    if result.status:
        raise CompilerError(f"'{command[0]}' cannot make {made}: {result.reason}")


@memoized(64)
def output_of(command: Sequence[str], *options: str) -> str:
    """Return the output of a query, which runs once; raise CompilerError if it fails."""
    result = query([*command, *options])
    if result.status:
        raise CompilerError(f"{command[0]} {' '.join(options)} failed: {result.reason}")
    return result.output


def jobs_of(result: QueryResult) -> list[list[str]]:
    """Return the arguments of each job in the driver's ``-###`` output."""
    return [job_args(found[0]) for found in re.finditer(_JOB, result.errors, re.MULTILINE)]


def job_args(line: str) -> list[str]:
    """Return the arguments of a job, parsed from a line of ``-###``."""
    found = re.finditer(_ARGUMENT, line)
    return [re.sub(_ESCAPED, r"\1", arg[0][1:-1]) if arg["quoted"] else arg[0] for arg in found]


def response_text(args: Iterable[str]) -> bytes:
    """Return the text of a response file for LLVM's tools: in double quotes a backslash escapes."""
    escaped = (arg.replace("\\", "\\\\").replace('"', '\\"') for arg in args)
    return b"".join(os.fsencode(f'"{arg}"\n') for arg in escaped)


class FrontEnd(NamedTuple):
    """The front-end commands of a compile without an input."""

    jobs: tuple[tuple[str, ...], ...] = ()
    is_accepted: bool = False
    """False if the driver reports an error. Source: clang 22.1.8, observed: where a device library
    is missing, the jobs are there, but name none. So such a result must not be stored."""


@memoized(256)
def query_front_end(command: Sequence[str], environment: Mapping[str, str]) -> FrontEnd:
    """Query the driver for a compile's front-end commands: none if it does not run."""
    try:
        result = query_plan([*command, os.devnull], environment)
    except CompilerError:
        return FrontEnd()
    jobs = tuple(tuple(job) for job in jobs_of(result) if _FRONT_END in job)
    return FrontEnd(jobs, result.status == 0)


def option_values(job: Sequence[str], option: str) -> Iterator[str]:
    """Return the arguments that follow an option in a job."""
    return (value for arg, value in itertools.pairwise(job) if arg == option)


def llvm_temporary_folder(environment: Mapping[str, str]) -> str:
    """Return LLVM's temporary directory: ``llvm::sys::path::system_temp_directory``."""
    names = ("TMPDIR", "TMP", "TEMP", "TEMPDIR")
    values = (environment[name] for name in names if name in environment)
    return next(values, "/tmp")  # noqa: S108 - a name as LLVM has it
