"""Where ``offload-tool compile`` runs the compiler: as OFFLOAD_LAUNCHER and OFFLOAD_DIST say.

As in SCons builds, what fails for the engine's reasons is compiled again on this machine,
once, and said; passes that must stay on this machine stay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from offload_tool.cli.printing.lines import pass_on, print_lines
from offload_tool.errors import UsageError

if TYPE_CHECKING:
    from offload_tool.run.pass_command import WantedPass
    from offload_tool.run.run_pass import Runner
    from offload_tool.sccache_dist.fallback import Finished


def choose_runner(wanted: WantedPass, environ: Mapping[str, str]) -> Runner | None:
    """Return what runs the compiler of a pass in the OS environment `environ`.

    :returns: None where the compiler is run as it is.
    :raises UsageError: OFFLOAD_DIST names no usable folder, or stands beside a launcher.
    :raises CompilerError: the folder is of another compiler, or its engine cannot be started.
    """
    folder, launcher = environ.get("OFFLOAD_DIST", ""), launcher_of(environ)
    if folder and launcher:
        raise UsageError("OFFLOAD_DIST brings its own launcher; unset OFFLOAD_LAUNCHER")
    if launcher:
        return _with_launcher(launcher, environ, is_device=wanted.stage == "device")
    if folder and wanted.stage == "device" and wanted.kind == "hip":
        return _distributed(folder, environ)
    return None


def _with_launcher(
    launcher: Sequence[str], environ: Mapping[str, str], *, is_device: bool
) -> Runner:
    from offload_tool.run.pass_command import cached_toolchain

    compiler = cached_toolchain(environ).identity

    def run(command: Sequence[str], environment: Mapping[str, str]) -> int:
        from offload_tool.run.launcher_key import run_launched

        def run_once(before: Sequence[str], words: Sequence[str]) -> int:
            if not is_device:
                from offload_tool.run.run_pass import run_command

                return run_command([*before, *words], environment)
            from offload_tool.sccache_dist.fallback import run_with_launcher

            return _finish(*run_with_launcher(before, words, environment))

        return run_launched(launcher, command, environment, compiler, run_once)

    return run


def _distributed(folder: str, environ: Mapping[str, str]) -> Runner:
    from offload_tool.run.pass_command import cached_toolchain
    from offload_tool.sccache_dist.config import load_distribution
    from offload_tool.sccache_dist.session import Session

    distribution = load_distribution(folder)
    distribution.check_compiler(cached_toolchain(environ))
    session = Session(distribution)

    def run(command: Sequence[str], environment: Mapping[str, str]) -> int:
        print_lines(session.begin_quickly())
        return _finish(*session.run(command, environment))

    return run


def _finish(finished: Finished, message: str) -> int:
    pass_on(finished.output)
    if message:
        print_lines([message])
    return finished.status


def launcher_of(environ: Mapping[str, str]) -> list[str]:
    """Return the words of OFFLOAD_LAUNCHER.

    :raises UsageError: it is not a command.
    """
    text = environ.get("OFFLOAD_LAUNCHER", "")
    if not text:
        return []
    import shlex

    try:
        return shlex.split(text)
    except ValueError as error:
        raise UsageError(
            f"OFFLOAD_LAUNCHER={text!r} is not a command: {error}; quote it as a shell does"
        ) from error
