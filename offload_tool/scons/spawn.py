"""SPAWN functions of this tool's commands: without a shell, possibly on another machine.

SCons runs every command through ``SPAWN``, which is in no signature. These functions split
arguments quoted by SCons as a shell would, but run no shell. A command that fails in
``OFFLOAD_DIST`` or ``OFFLOAD_LAUNCHER`` for the engine's own reasons runs once more on this
machine, with a message.
"""

from __future__ import annotations

import atexit
import copy
import functools
import os
import re
import shlex
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import SCons.Errors

from offload_tool.clang.driver import response_text
from offload_tool.errors import OffloadError
from offload_tool.io.temporary_directory import usual_folder
from offload_tool.passes.languages import LANGUAGES
from offload_tool.scons import compat, readers
from offload_tool.scons.state.node_classes import records_of
from offload_tool.scons.state.pass_state import depfile_of
from offload_tool.toolchain.probe import Toolchain

if TYPE_CHECKING:
    from offload_tool.run.cut_off import Stages
    from offload_tool.sccache_dist.fallback import Finished
    from offload_tool.sccache_dist.session import Session
    from offload_tool.scons.types import Environment


_printing = threading.Lock()


def _program_words(
    target: list[Any],
    source: list[Any],
    env: Environment,
    for_signature: bool,
) -> list[str]:
    """Return the arguments before the flags; empty for signatures, which exclude them."""
    if for_signature:
        return []
    return ["$OFFLOAD_LAUNCHER", "$_OFFLOAD_CLANG", "$_OFFLOAD_LOCAL_FLAGS"]


def toolchain_variables(env: Environment, program: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the variables through which command lines name the compiler and linkers.

    `program` are the first arguments of the command, if they are not the compiler's.
    """
    found = readers.toolchain(env)
    return {
        "_OFFLOAD_PROGRAM": _program_words,
        "_OFFLOAD_CLANG": list(found.clang),
        "_OFFLOAD_LOCAL_FLAGS": list(found.local_flags),
        "_OFFLOAD_LLD": list(found.lld),
        "_OFFLOAD_IDENTITY": found.identity,
        # SCons's own function would leave folders' names, and backquotes in others, to a shell.
        "ESCAPE": shlex.quote,
        "SPAWN": command_spawn(program or found.clang),
        # The compiler's own version output identifies it, not its path or bytes.
        "IMPLICIT_COMMAND_DEPENDENCIES": False,
        "ENV": {**env["ENV"], **dict(found.environment)},
    }


def device_spawn(env: Environment, kind: str) -> Callable[..., int]:
    """Return the SPAWN function of device compiles.

    :raises UsageError: OFFLOAD_DIST names no usable folder, or is combined with a launcher.
    :raises CompilerError: the folder is of another compiler.
    """
    folder = env.subst("$OFFLOAD_DIST")
    launcher = readers.launcher(env, folder)
    if folder and LANGUAGES[kind].is_distributed:
        return _distributed(env, readers.place(env, "OFFLOAD_DIST"))
    if launcher:
        return _with_launcher(tuple(launcher), readers.toolchain(env), is_device=True)
    clang = readers.toolchain(env).clang
    is_direct = env["OFFLOAD_DIRECT"] and LANGUAGES[kind].is_direct and len(clang) == 1
    return _without_driver(clang) if is_direct else command_spawn(clang)


def host_spawn(env: Environment) -> Callable[..., int]:
    """Return the SPAWN function of host compiles."""
    toolchain, launcher = readers.toolchain(env), tuple(readers.launcher(env))
    if launcher:
        return _with_launcher(launcher, toolchain, is_device=False)
    return command_spawn(toolchain.clang)


class DirectSpawn:
    """The SPAWN function of passes that run without the driver, if possible."""

    def __init__(self, clang: tuple[str, ...]) -> None:
        from offload_tool.run.driverless import DirectPasses

        self._passes = DirectPasses()
        self._through_driver = command_spawn(clang)
        self._stages: Stages | None = None

    def in_stages(self, stages: Stages) -> DirectSpawn:
        """Return a copy for one pass, which runs in stages."""
        made = copy.copy(self)
        made._stages = stages
        return made

    def __call__(
        self, shell: Any, escape: Any, name: str, words: list[str], env: dict[str, str]
    ) -> int:
        """Run the command of a pass, as SCons's SPAWN."""
        # Between the builds of one process, the user may install another compiler.
        command, stages = split_words(words), self._stages
        done = None if compat.is_interactive() else self._passes.run(command, env, stages)
        if done is not None:
            return done
        if stages is not None:
            stages.forget()
        status = self._through_driver(shell, escape, name, words, env)
        if status:
            self._passes.advise(command)
        return status

    def run_quietly(self, command: Sequence[str], environment: Mapping[str, str]) -> bool | None:
        """Run a command without output; see `DirectPasses.run_quietly`."""
        if compat.is_interactive():
            return None
        return self._passes.run_quietly(command, environment, self._stages)


def without_leftovers(spawn: Callable[..., int], node: Any) -> Callable[..., int]:
    """Return the SPAWN function of a pass that removes its depfile on failure."""

    def run(*arguments: Any) -> int:
        status = spawn(*arguments)
        if status:
            Path(depfile_of(node)).unlink(missing_ok=True)
        return status

    return run


def with_cut_off(
    spawn: Callable[..., int],
    node: Any,
    accelerated: Callable[[Callable[..., int]], Callable[..., int]],
) -> Callable[..., int]:
    """Return the SPAWN function of a device pass that stops if its bitcode is unchanged.

    `accelerated` wraps a SPAWN function in a faster one. The output stays until the bitcode
    changes, and is removed if the compile fails.
    """
    from offload_tool.run.cut_off import Stages

    if not isinstance(spawn, DirectSpawn):
        return accelerated(spawn)
    stages = Stages()
    whole = accelerated(spawn.in_stages(stages))
    node.set_precious()

    def run(*arguments: Any) -> int:
        output = Path(node.get_internal_path())
        records_of(node).begin_stages(stages)
        if not stages.known:
            output.unlink(missing_ok=True)
        status = whole(*arguments)
        if status:
            output.unlink(missing_ok=True)
        return status

    return run


_without_driver = functools.lru_cache(maxsize=8)(DirectSpawn)


@functools.lru_cache(maxsize=8)
def _with_launcher(
    launcher: tuple[str, ...], toolchain: Toolchain, *, is_device: bool
) -> Callable[..., int]:
    from offload_tool.run.launcher_key import run_launched
    from offload_tool.sccache_dist.fallback import run_with_launcher

    clang = toolchain.clang

    def run(_shell: Any, _escape: Any, _name: str, words: list[str], env: dict[str, str]) -> int:
        def run_once(before: Sequence[str], command: Sequence[str]) -> int:
            if not is_device:
                return run_words([*before, *command], len(before) + len(clang), env)
            with shortened([*command], len(clang)) as short:
                return _finish(*run_with_launcher(before, short, env))

        command = split_words(words)
        used = launcher if tuple(command[: len(launcher)]) == launcher else ()
        try:
            return run_launched(used, command[len(used) :], env, toolchain.identity, run_once)
        except OffloadError as error:
            raise SCons.Errors.BuildError(errstr=str(error)) from error

    return run


def _distributed(env: Environment, folder: str) -> Callable[..., int]:
    from offload_tool.sccache_dist.config import load_distribution

    load_distribution(folder).check_compiler(readers.toolchain(env))
    return _spawn_of(folder)


@functools.lru_cache(maxsize=8)
def _spawn_of(folder: str) -> Callable[..., int]:
    from offload_tool.sccache_dist.config import load_distribution
    from offload_tool.sccache_dist.session import Session

    session = Session(load_distribution(folder))
    beginning = _Once(session)

    def run(_shell: Any, _escape: Any, _name: str, words: list[str], env: dict[str, str]) -> int:
        try:
            beginning.wait()
            finished, message = session.run(split_words(words), env)
        except OffloadError as error:
            raise SCons.Errors.BuildError(errstr=str(error)) from error
        return _finish(finished, message)

    return run


class _Once:
    """Starts a session with the first compile, if there is any."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._begun = False

    def wait(self) -> None:
        """Start the session, or wait until another thread has."""
        with self._lock:
            if not self._begun:
                _say(self._session.begin())
                self._begun = True
                atexit.register(self._end)

    def _end(self) -> None:
        _say(self._session.summary())


def _finish(finished: Finished, message: str) -> int:
    with _printing:
        if finished.output:
            sys.stdout.flush()
            sys.stderr.buffer.write(finished.output)
            sys.stderr.flush()
    if message:
        _say([message])
    return finished.status


def _say(lines: list[str]) -> None:
    with _printing:
        for line in lines:
            print(line)  # noqa: T201 - as SCons says what it does
        sys.stdout.flush()


_LONGEST_WORD = 120_000
"""Bytes; Linux rejects arguments of 128 KiB or more (``MAX_ARG_STRLEN``)."""
_LONGEST_COMMAND = 1_000_000
"""Bytes; Linux allows 2 MiB of arguments and variables with the usual stack limit."""
_CANNOT_RUN = 127
_OPERATORS = frozenset({"&&", "||", "|", "|&", ";", "&", ">", ">>", "<", "2>", "2>&1", "&>"})
_PLAIN = re.compile(r"'(?P<quoted>[^']*)'|[^\s'\"\\]+")
_EXPANSION = re.compile(r"`|\$[({A-Za-z_]")


def command_spawn(program: Sequence[str]) -> Callable[..., int]:
    """Return the SPAWN function of commands that begin with `program`.

    It uses no shell: no file name can become a command. A command that is too long for the system
    goes into a response file.
    """
    return _with_program(tuple(program))


@functools.lru_cache(maxsize=32)
def _with_program(program: tuple[str, ...]) -> Callable[..., int]:
    def run(_shell: Any, _escape: Any, _name: str, words: list[str], env: dict[str, str]) -> int:
        return run_words(split_words(words), len(program), env)

    return run


def run_words(command: list[str], program: int, variables: dict[str, str]) -> int:
    """Run a command whose first `program` arguments name the program; return its exit status."""
    with shortened(command, program) as short:
        try:
            return subprocess.call(short, env=variables)
        except OSError as error:
            sys.stderr.write(f"offload: '{short[0]}' cannot be run: {error.strerror}\n")
            return _CANNOT_RUN


def split_words(parts: list[str]) -> list[str]:
    """Split a command as a shell does; reject constructs that need a shell.

    :raises BuildError: an unclosed quote, or an operator or expansion of shells.
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
        if plain is not None:  # shlex takes seconds for an argument of 100 KB
            words.append(part if plain["quoted"] is None else plain["quoted"])
            continue
        pending = f"{pending} {part}" if pending else part
        with suppress(ValueError):  # a later part closes the quote
            words += shlex.split(pending)
            pending = ""
    if pending:
        raise SCons.Errors.BuildError(
            errstr=f"no closing quotation in the command {' '.join(parts)}"
        )
    return words


@contextmanager
def shortened(command: list[str], program: int) -> Iterator[list[str]]:
    """Yield a command that the system can run: with a response file if it is too long."""
    sizes = [len(os.fsencode(word)) + 1 for word in command]
    if max(sizes) < _LONGEST_WORD and sum(sizes) < _LONGEST_COMMAND:
        yield command
        return
    with tempfile.NamedTemporaryFile(prefix="offload-", suffix=".rsp", dir=usual_folder()) as file:
        file.write(response_text(command[program:]))
        file.flush()
        yield [*command[:program], f"@{file.name}"]
