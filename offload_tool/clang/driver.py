r"""Asking programs, clang's driver first: what it would run, and what it says of itself.

Source: clang 19.1 to 23, observed: with ``-###`` the driver writes each job to its standard error,
one a line. Each word is in double quotes, with a backslash before each ``"``, ``\`` and ``$`` in
it, and before nothing else, so that a shell's rules would do, but not those of `shlex`. The jobs
of the compiler itself are those with ``-cc1``.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import NamedTuple

from offload_tool.clang.argument_files import all_words
from offload_tool.clang.options import REMOVED, does, without_values
from offload_tool.errors import CompilerError
from offload_tool.util.memoize import remembered

_SECONDS = 120
PLAN = "-###"
_ERRORS = 2
_FRONT_END = "-cc1"
# Compiled when they are needed: often nothing has to be asked.
_QUOTED = r"\"[^\"\\]*(?:\\.[^\"\\]*)*\""
_WORD = rf"(?P<quoted>{_QUOTED})|\S+"
_JOB = rf"^ *{_QUOTED}(?: +{_QUOTED})*"
"""A word may have line ends, and whatever else ends lines for `str.splitlines`."""
_ESCAPED = r"\\(.)"


class Answer(NamedTuple):
    """What a program has said, as `os.fsdecode` has it: words of commands are in it."""

    status: int
    output: str
    errors: str
    folder: str = ""
    """The one of the temporary files that it names: see `_temporaries_apart`."""

    @property
    def reason(self) -> str:
        """Why it failed, for messages: the last line of its errors, or of its output."""
        lines = (self.errors or self.output).strip().splitlines()
        return _printable(lines[-1]) if lines else f"exit status {self.status}"


def _printable(text: str) -> str:
    return os.fsencode(text).decode(errors="replace")


def ask(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Answer:
    """Run a program that only tells something, in `environment` (that of this process).

    It reads nothing, and speaks English.

    :raises CompilerError: it cannot be run, or does not end.
    """
    import subprocess

    given = os.environ if environment is None else environment
    with _temporaries_apart(command, given) as (variables, folder):
        try:
            done = subprocess.run(
                command,
                env={**variables, "LC_ALL": "C"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CompilerError(
                f"{command[0]} cannot be run: {error}; install it, or name another program"
            ) from error
    return Answer(done.returncode, os.fsdecode(done.stdout), os.fsdecode(done.stderr), folder)


def words_for_terminal(environment: Mapping[str, str]) -> list[str]:
    """Return the option that asks for messages in colour, where a user sees them in colour.

    It stands before a command's own options, which win.
    """
    sees_colours = os.isatty(_ERRORS) and environment.get("TERM", "dumb") not in ("", "dumb")
    return ["-fcolor-diagnostics"] if sees_colours else []


@contextmanager
def _temporaries_apart(
    command: Sequence[str], environment: Mapping[str, str]
) -> Iterator[tuple[Mapping[str, str], str]]:
    """Yield the variables for a command, and the folder that its temporary files are in.

    With ``-###``, too, the driver makes those that it names, and removes them when it ends. Where
    it is killed they would stay, so that they have a folder of their own. Source: clang 22.1.8,
    observed.
    """
    usual = llvm_temporary_folder(environment)
    with ExitStack() as stack:
        own = None
        if PLAN in command:
            from offload_tool.io.temporary_directory import temporary_folder

            with suppress(OSError):
                own = stack.enter_context(temporary_folder("offload-asked-", usual))
        if own is None:
            yield environment, usual
        else:
            yield {**environment, "TMPDIR": str(own)}, str(own)


def question(command: Sequence[str], *, behind: int | None = None) -> list[str]:
    """Return the command that asks a driver what it would run; it may remove files of ``-MJ``.

    The word that asks is the last, or comes `behind` so many words.
    """
    at = len(command) if behind is None else behind
    return [*command[:at], PLAN, *command[at:]]


def plan_of(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Answer:
    """Ask a driver what it would run for a command; no file of a user's is touched.

    :raises CompilerError: it cannot be run, or does not end.
    """
    return ask(question(without_removed(command)), environment)


def without_removed(words: Sequence[str]) -> list[str]:
    """Return words without those that let the driver remove a file, for a question.

    They name reports that it begins anew for each run, also where it is only asked: what a compile
    that runs, or has run, has written would go. Where such words are in a response file, the
    words in it come in the place of its name. Source: clang 22.1.8, observed.
    """
    expanded = all_words(words)
    return [
        *(without_values(expanded, REMOVED) if any(does(w, REMOVED) for w in expanded) else words)
    ]


def make(what: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
    """Run a program that makes something: `what` names it in the message.

    :raises CompilerError: it cannot be run, or fails.
    """
    answer = ask(command, environment)
    if answer.status:
        raise CompilerError(f"'{command[0]}' cannot make {what}: {answer.reason}")


@remembered(64)
def output_of(command: tuple[str, ...], *question: str) -> str:
    """Return what a program writes when it is asked; once for each question.

    :raises CompilerError: it cannot be run, or fails.
    """
    answer = ask([*command, *question])
    if answer.status:
        raise CompilerError(f"{command[0]} {' '.join(question)} failed: {answer.reason}")
    return answer.output


def jobs_of(answer: Answer) -> list[list[str]]:
    """Return the words of each job in the driver's answer to ``-###``."""
    return [job_words(found[0]) for found in re.finditer(_JOB, answer.errors, re.MULTILINE)]


def job_words(line: str) -> list[str]:
    """Return the words of a job as ``-###`` prints it."""
    found = re.finditer(_WORD, line)
    return [re.sub(_ESCAPED, r"\1", word[0][1:-1]) if word["quoted"] else word[0] for word in found]


def response_text(words: Iterable[str]) -> bytes:
    """Return the content of a response file (``@file`` in a command of LLVM's) with `words`.

    Source: LLVM's ``cl::TokenizeGNUCommandLine``: in double quotes a backslash escapes.
    """
    escaped = (word.replace("\\", "\\\\").replace('"', '\\"') for word in words)
    return b"".join(os.fsencode(f'"{word}"\n') for word in escaped)


def front_end_jobs(
    command: Sequence[str], environment: Mapping[str, str]
) -> tuple[tuple[str, ...], ...]:
    """Return the commands of the front end that a compile without an input would run.

    None where the driver refuses the command: the compile itself will say what is wrong.
    """
    return _front_end_jobs(tuple(command), tuple(sorted(environment.items())))


@remembered(256)
def _front_end_jobs(
    command: tuple[str, ...], environment: tuple[tuple[str, str], ...]
) -> tuple[tuple[str, ...], ...]:
    try:
        answer = plan_of([*command, os.devnull], dict(environment))
    except CompilerError:
        return ()
    return tuple(tuple(job) for job in jobs_of(answer) if _FRONT_END in job)


def forget_jobs() -> None:
    """Forget what the driver said: another installation of GCC may be there."""
    _front_end_jobs.cache_clear()


def option_values(job: Sequence[str], option: str) -> Iterator[str]:
    """Return the words that come after an option in a job."""
    return (value for word, value in itertools.pairwise(job) if word == option)


def llvm_temporary_folder(environment: Mapping[str, str]) -> str:
    """Name the folder of LLVM's temporary files: ``llvm::sys::path::system_temp_directory``."""
    names = ("TMPDIR", "TMP", "TEMP", "TEMPDIR")
    given = (environment[name] for name in names if name in environment)
    return next(given, "/tmp")  # noqa: S108 - a name as LLVM has it
