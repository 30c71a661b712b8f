"""How the commands of this tool are run: as words, without a shell.

SCons gives ``SPAWN`` the command as text whose words it has quoted. It is split here as a shell
would, so that what a file is called can never be a command.
"""

from __future__ import annotations

import functools
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import SCons.Errors

from offload_tool.clang.driver import response_text
from offload_tool.io.temporary_directory import usual_folder

_LONGEST_WORD = 120_000
"""Bytes; Linux takes no argument of 128 KiB or more (``MAX_ARG_STRLEN``)."""
_LONGEST_COMMAND = 1_000_000
"""Bytes; Linux takes 2 MiB of arguments and variables with the usual limit of the stack."""
_CANNOT_RUN = 127
_OPERATORS = frozenset({"&&", "||", "|", "|&", ";", "&", ">", ">>", "<", "2>", "2>&1", "&>"})
_PLAIN = re.compile(r"'(?P<quoted>[^']*)'|[^\s'\"\\]+")
_EXPANSION = re.compile(r"`|\$[({A-Za-z_]")


def command_spawn(program: Sequence[str]) -> Callable[..., int]:
    """Return the SPAWN function of commands that begin with `program`.

    No shell is between: what a file is called can never be a command. A command that is too long
    for the system is given to the program in a response file.
    """
    return _with_program(tuple(program))


@functools.lru_cache(maxsize=32)
def _with_program(program: tuple[str, ...]) -> Callable[..., int]:
    def run(_shell: Any, _escape: Any, _name: str, words: list[str], env: dict[str, str]) -> int:
        return run_words(split_words(words), len(program), env)

    return run


def run_words(command: list[str], program: int, variables: dict[str, str]) -> int:
    """Run a command, of which `program` words name the program; return its exit status."""
    with shortened(command, program) as short:
        try:
            return subprocess.call(short, env=variables)
        except OSError as error:
            sys.stderr.write(f"offload: '{short[0]}' cannot be run: {error.strerror}\n")
            return _CANNOT_RUN


def split_words(parts: list[str]) -> list[str]:
    """Split a command as a shell does; refuse what only a shell could do with it.

    :raises BuildError: a quote is not closed, or an operator or expansion of shells is there.
    """
    words: list[str] = []
    pending = ""
    for part in parts:
        if part in _OPERATORS or (not part.startswith("'") and _EXPANSION.search(part)):
            raise SCons.Errors.BuildError(
                errstr=f"the command has {part!r}, but compilers are run without a shell; quote "
                "it, or set the variable from Python (env.ParseConfig, os.environ)"
            )
        plain = None if pending else _PLAIN.fullmatch(part)
        if plain is not None:  # shlex takes seconds for a word of 100 KB
            words.append(part if plain["quoted"] is None else plain["quoted"])
            continue
        pending = f"{pending} {part}" if pending else part
        with suppress(ValueError):  # a quote that a later part closes
            words += shlex.split(pending)
            pending = ""
    if pending:
        raise SCons.Errors.BuildError(
            errstr=f"no closing quotation in the command {' '.join(parts)}"
        )
    return words


@contextmanager
def shortened(command: list[str], program: int) -> Iterator[list[str]]:
    """Yield a command that the system can run: its options are in a file where they are many."""
    sizes = [len(os.fsencode(word)) + 1 for word in command]
    if max(sizes) < _LONGEST_WORD and sum(sizes) < _LONGEST_COMMAND:
        yield command
        return
    with tempfile.NamedTemporaryFile(prefix="offload-", suffix=".rsp", dir=usual_folder()) as file:
        file.write(response_text(command[program:]))
        file.flush()
        yield [*command[:program], f"@{file.name}"]
