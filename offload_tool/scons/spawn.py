"""How this tool's commands run: without a shell where possible, possibly on another machine.

SCons runs every command through ``SPAWN``, which is in no signature. Ours leaves to SCons's own
what needs a shell, and the user's pre- and post-actions. The command of a pass has a function of
its own (``_OFFLOAD_SPAWN``), as the manifest must know the arguments. A command that fails in
``OFFLOAD_DIST`` or ``OFFLOAD_LAUNCHER`` for the engine's own reasons runs once more here.
"""

from __future__ import annotations

import functools
import os
import shlex
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import SCons.Errors

from offload_tool.clang.driver import llvm_temporary_folder, response_text, terminal_args
from offload_tool.errors import OffloadError
from offload_tool.formats.targets.compile_target import CompileTarget
from offload_tool.io import process
from offload_tool.io.process import file_in_memory, written_bytes
from offload_tool.io.temporary_directory import system_temp_folder
from offload_tool.manifest.cut_off import Stages
from offload_tool.passes.command import Command
from offload_tool.passes.compile_pass import CompilePass
from offload_tool.run.diagnostics import Warnings, advice_for, warnings_of
from offload_tool.run.driverless import DirectPasses
from offload_tool.scons import compat, found_tools, settings
from offload_tool.scons.state.build_log import DeclaredPass
from offload_tool.scons.state.node_info import records_of
from offload_tool.scons.types import Environment
from offload_tool.scons.values import reads
from offload_tool.toolchain.probe import Toolchain
from offload_tool.util.frozen import frozen
from offload_tool.util.shell_words import NeedsShellError, shell_words

if TYPE_CHECKING:
    from offload_tool.sccache_dist.fallback import Finished

Runner = Callable[[list[str], dict[str, str]], int]
"""Runs a command in an environment; returns the exit status."""

_printing, _querying = threading.Lock(), threading.Lock()


@reads()
def _program_args(
    target: list[Any], source: list[Any], env: Environment, for_signature: bool
) -> list[str]:
    """Return the arguments before the flags; empty for signatures, which exclude them."""
    if for_signature:
        return []
    return ["$OFFLOAD_LAUNCHER", "$_OFFLOAD_CLANG", "$_OFFLOAD_LOCAL_FLAGS"]


def toolchain_variables(env: Environment, program: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the variables by which command lines name the compiler and linkers."""
    found = found_tools.toolchain(env)
    own = dict(found.environment)
    more = {"SHELL_ENV_GENERATORS": compat.with_variables(env, lambda given: {**given, **own})}
    return {
        "_OFFLOAD_PROGRAM": _program_args,
        "_OFFLOAD_CC": list(found.cc),
        "_OFFLOAD_CLANG": list(found.clang),
        "_OFFLOAD_LOCAL_FLAGS": list(found.local_flags),
        "_OFFLOAD_LLD": list(found.lld),
        "_OFFLOAD_IDENTITY": found.identity,
        # SCons's own function would leave folders' names, and backquotes in others, to a shell.
        "ESCAPE": shlex.quote,
        "SPAWN": command_spawn(program or found.clang, env["SPAWN"]),
        # The compiler's own version output identifies it, not its path or bytes.
        "IMPLICIT_COMMAND_DEPENDENCIES": False,
        **(more if own else {}),
    }


def runner_of(env: Environment, job: CompilePass) -> Runner:
    """Return the runner of a compiler pass; raise UsageError or CompilerError for OFFLOAD_DIST."""
    is_device = job.device is not None
    folder = env.subst("$OFFLOAD_DIST") if is_device else ""
    launcher = tuple(settings.launcher(env, folder))
    toolchain = found_tools.toolchain(env)
    if not compat.is_build():
        return partial(run_args, program=1)
    if folder and job.is_distributed:
        from offload_tool.sccache_dist.cluster import load_cluster

        path = settings.folder_path(env, "OFFLOAD_DIST")
        load_cluster(path).check_compiler(toolchain)
        return _distributed(path)
    if launcher:
        return _with_launcher(launcher, toolchain, is_device=is_device)
    clang = toolchain.clang
    if is_device and job.needs_host_ir:
        return _openmp_jobs
    if env["OFFLOAD_DIRECT"] and job.can_bypass_driver and toolchain.is_driver_alone:
        return _without_driver(clang)
    return partial(run_args, program=len(clang))


@frozen
class DirectRunner:
    """Runs passes without the driver, if possible."""

    passes: DirectPasses
    program: int
    """The number of arguments that name the compiler."""
    stages: Stages | None = None

    def __call__(self, command: list[str], environment: dict[str, str]) -> int:
        """Run the command of a pass."""
        # Between the builds of one process, the user may install another compiler.
        if not compat.is_interactive():
            done = self.passes.run(command, environment, self.stages)
            if done is not None:
                return done
        if self.stages is not None:
            self.stages.reset()
        return run_args(command, environment, self.program)

    def run_quietly(self, command: Sequence[str], environment: Mapping[str, str]) -> bool | None:
        """Run a command without output; see `DirectPasses.run_quietly`."""
        if compat.is_interactive():
            return None
        return self.passes.run_quietly(command, environment, self.stages)


def with_cut_off(run: Runner, node: Any, stages: Stages) -> Runner:
    """Return the runner of a pass in `stages`, whose output stays if its bitcode does."""
    node.set_precious()

    def run_in_stages(command: list[str], environment: dict[str, str]) -> int:
        output = Path(node.get_internal_path())
        # Further actions would run on their own output. A compiler can write no file that this user
        # may not write, such as another user's in a shared folder.
        keeps_output = not compat.has_more_actions(node) and os.access(output, os.W_OK)
        records_of(node).begin_stages(stages, keeps_output=keeps_output)
        if not stages.known_digest:
            output.unlink(missing_ok=True)
        return run(command, environment)

    return run_in_stages


def with_driver_warnings(env: Environment, run: Runner, whole: Sequence[str]) -> Runner:
    """Return the runner of a pass that first prints the `whole` compile's warnings, once."""
    known, key = compat.of_build(env, dict[tuple[str, ...], Warnings]), tuple(whole)

    def run_with_warnings(command: list[str], environment: dict[str, str]) -> int:
        with _querying:
            is_new = key not in known
            found = known[key] if key in known else warnings_of(whole, environment)
            known[key] = found
        if is_new or found.is_error:
            sys.stderr.write(found.text)
        return 1 if found.is_error else run(command, environment)

    return run_with_warnings


def _openmp_jobs(command: list[str], environment: dict[str, str]) -> int:
    from offload_tool.run.openmp_jobs import job_cache, run_device_pass

    # Between the builds of one process, the user may install another compiler.
    cache = job_cache() if compat.is_interactive() else None
    return run_device_pass(command, environment, run_job, cache)


def openmp_linker(inputs: Sequence[Any], target: tuple[CompileTarget, str]) -> Runner:
    """Return the runner of the driver's link of nodes of device code: see `link_image`."""

    def run(command: list[str], environment: dict[str, str]) -> int:
        from offload_tool.run.openmp_jobs import link_image

        return link_image(command, [*map(str, inputs)], target, environment, run_job)

    return run


def run_job(job: list[str], environment: Mapping[str, str]) -> int:
    """Run a job of the driver's plan, such as ``clang -cc1 ...``."""
    return run_args(job, environment, 2)


@functools.lru_cache(maxsize=8)
def _without_driver(clang: tuple[str, ...]) -> DirectRunner:
    return DirectRunner(DirectPasses(), len(clang))


@functools.lru_cache(maxsize=8)
def _with_launcher(launcher: tuple[str, ...], toolchain: Toolchain, *, is_device: bool) -> Runner:
    from offload_tool.run.launcher import run_launched
    from offload_tool.sccache_dist.fallback import run_with_fallback

    program = len(toolchain.clang)

    def run(args: list[str], environment: dict[str, str]) -> int:
        def run_once(before: Sequence[str], command: Command) -> int:
            argv = command.argv()
            if not is_device:
                return run_args([*before, *argv], environment, len(before) + program)
            with shortened(argv, program) as short:
                return _finish(*run_with_fallback([*before, *short], short, environment))

        used = launcher if tuple(args[: len(launcher)]) == launcher else ()
        command = Command.read(args[len(used) :], program)
        if command is None:  # the user's own command: what it reads is not known
            return run_args(args[len(used) :], environment, program)
        return run_launched(used, command, environment, toolchain.identity, run_once)

    return run


@functools.lru_cache(maxsize=8)
def _distributed(folder: str) -> Runner:
    from offload_tool.sccache_dist.cluster import load_cluster

    cluster, beginning = load_cluster(folder), threading.Lock()
    begin = functools.cache(lambda: _print_lines(cluster.begin()))

    def run(command: list[str], environment: dict[str, str]) -> int:
        with beginning:  # with the first compile, if there is any
            begin()
        return _finish(*cluster.run(command, environment))

    return run


def _finish(finished: Finished, message: str) -> int:
    _write_messages(finished.output)
    if message:
        _print_lines([message])
    return finished.status


def _write_messages(messages: bytes) -> None:
    if not messages:
        return
    with _printing:
        sys.stdout.flush()
        sys.stderr.buffer.write(messages)
        sys.stderr.flush()


def _print_lines(lines: list[str]) -> None:
    with _printing:
        for line in lines:
            print(line)  # noqa: T201 - as SCons reports its steps
        sys.stdout.flush()


_LONGEST_ARG = 120_000
"""Bytes; Linux rejects arguments of 128 KiB or more (``MAX_ARG_STRLEN``)."""
_LONGEST_COMMAND = 1_000_000
"""Bytes; Linux allows 2 MiB of arguments and variables with the usual stack limit."""
_CANNOT_RUN = 127


def command_spawn(program: Sequence[str], others: Callable[..., int]) -> Callable[..., int]:
    """Return SPAWN for commands that begin with `program`; `others` runs all others."""

    def spawn(
        shell: str, escape: Any, name: str, parts: list[str], environment: dict[str, str]
    ) -> int:
        args: list[str] = []
        with suppress(NeedsShellError, ValueError):
            args = shell_words(" ".join(parts))
        if args[: len(program)] == [*program]:
            return run_args(args, environment, len(program))
        return others(shell, escape, name, parts, environment)

    return spawn


def pass_spawn(
    run: Runner, removed_on_failure: Sequence[str] = (), declared: DeclaredPass | None = None
) -> Callable[..., int]:
    """Return the function that runs a pass, removes files on failure, and measures its time."""

    def spawn(
        _shell: Any, _escape: Any, _name: str, parts: list[str], environment: dict[str, str]
    ) -> int:
        status, start = 1, time.perf_counter()
        try:
            status = run(_pass_args(parts), environment)
        except OffloadError as error:
            raise SCons.Errors.BuildError(errstr=str(error)) from error
        finally:
            if declared is not None and declared.seconds is not None:
                declared.seconds += time.perf_counter() - start
            if status:
                for name in removed_on_failure:
                    Path(name).unlink(missing_ok=True)
        return status

    return spawn


def _pass_args(parts: list[str]) -> list[str]:
    try:
        return shell_words(" ".join(parts))
    except ValueError as error:
        raise SCons.Errors.BuildError(errstr=str(error)) from None
    except NeedsShellError as error:
        raise SCons.Errors.BuildError(
            errstr=f"the command has {error}, but compilers are run without a shell; quote "
            "it, or set the variable from Python (env.ParseConfig, os.environ)"
        ) from None


def run_args(command: list[str], environment: Mapping[str, str], program: int) -> int:
    """Run a command, with a response file if it is too long; return its exit status."""
    has_colours = os.path.basename(command[program - 1]).startswith("clang")
    colours = terminal_args(environment) if has_colours else []
    args = [*command[:program], *colours, *command[program:]]
    with (
        shortened(args, program) as short,
        file_in_memory(llvm_temporary_folder(environment)) as printed,
    ):
        try:
            status = process.run(short, environment, [None, None, printed.fileno()])
        except OSError as error:
            sys.stderr.write(f"offload: '{command[0]}' cannot be run: {error.strerror}\n")
            return _CANNOT_RUN
        messages = written_bytes(printed)
    advice = advice_for(command, messages) if status and messages else ""
    _write_messages(messages + os.fsencode(advice))
    return status


@contextmanager
def shortened(command: list[str], program: int) -> Iterator[list[str]]:
    """Yield a command that the system can run: with a response file if it is too long."""
    sizes = [len(os.fsencode(arg)) + 1 for arg in command]
    if max(sizes) < _LONGEST_ARG and sum(sizes) < _LONGEST_COMMAND:
        yield command
        return
    with tempfile.NamedTemporaryFile(
        prefix="offload-", suffix=".rsp", dir=system_temp_folder()
    ) as file:
        file.write(response_text(command[program:]))
        file.flush()
        yield [*command[:program], f"@{file.name}"]
