"""The plan of a compile: the driver's jobs, in a folder of this run.

The queries of the driver and of ``clang-linker-wrapper`` take longer than to check a compile that
has nothing to do, so their result is cached on disk (`driver_cache`), with a mark for the folder.
It is not cached for flags by which the driver reads configuration files or queries the machine.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from offload_tool.clang.driver import PLAN, terminal_args
from offload_tool.clang.environment import commands_in_output
from offload_tool.clang.job_plan import DriverPlan, UnknownPlanError, read_plan
from offload_tool.clang.options import (
    CONFIGURATION,
    CUID,
    DEPFILE,
    JOB_DEPFILE,
    TARGETS,
    WRITES,
    does,
    takes_next,
    without_values,
)
from offload_tool.clang.response_file import configuration_args, expand_command
from offload_tool.errors import UsageError
from offload_tool.io.file_digests import digest_of
from offload_tool.launch.passthrough import why_args_not_split, why_unknown
from offload_tool.launch.scheduler import Queries
from offload_tool.toolchain.driver_cache import cached_query, program_of
from offload_tool.toolchain.identity import all_configuration_files, configuration_files

_FOR_TARGET, _FOR_SIDE = "-Xarch_", ("-Xarch_host", "-Xarch_device")
_MARK = "\0folder"
_NATIVE = "native"
_FIXED_CUID = "-fuse-cuid=none"
_CONFIGURED = "Configuration file: "


class PassedThroughError(Exception):
    """The original command must run; the text is the reason."""


def find_plan(
    command: Sequence[str], environ: Mapping[str, str], queries: Queries
) -> tuple[DriverPlan, list[str], list[str]]:
    """Return the plan of a command, the arguments that were added to it, and what to report.

    Its temporary files are in the folder of the queries.

    :raises PassedThroughError: it is not known.
    """
    folder = queries.folder
    reason = why_unknown(command[0], environ)
    if reason:
        raise PassedThroughError(reason)
    try:
        given, files = expand_command(command[1:])
    except UsageError as error:
        raise PassedThroughError(str(error)) from error
    reason = why_args_not_split([*files, *given])
    if reason:
        raise PassedThroughError(reason)
    cuid_args = _cuid(given, environ)
    # Prepend them: the last of the user's arguments may take a value, or be "--".
    # A launcher or cluster may run passes; their driver checks no terminal.
    is_remote = any(environ.get(name) for name in ("OFFLOAD_LAUNCHER", "OFFLOAD_DIST"))
    args = [*([] if is_remote else terminal_args(environ)), *cuid_args, *command[1:]]
    is_configured = False

    def find() -> Any:
        nonlocal is_configured
        text = _query([command[0], PLAN, *args], queries)
        is_configured = _CONFIGURED in text
        _check_configuration(text)
        plan, notes = _with_each_link(text, queries)
        plan.rename(folder, _MARK)
        return {"plan": plan.as_value(), "notes": [note.replace(folder, _MARK) for note in notes]}

    def named(value: Any) -> list[str] | None:
        # The driver does not check what flags name. It may find the same folder, too.
        own = Counter(name for arg in given for name in (arg, arg[2:], arg.partition("=")[2]))
        jobs = DriverPlan.from_value(value["plan"]).jobs
        args = (Counter(without_values(job.args, JOB_DEPFILE | WRITES)) for job in jobs)
        return None if is_configured else [arg for each in args for arg in each - own]

    def more() -> Iterable[str]:
        from offload_tool.toolchain.installations import installation_folders

        return installation_folders(environ)

    program = program_of(command, environ)
    if program is None or _is_uncertain(given):
        value = find()
    else:
        value = cached_query("launch", program, args, environ, find, named, local=True, more=more)
    plan = DriverPlan.from_value(value["plan"])
    plan.rename(_MARK, folder)
    if not os.path.isfile(plan.source):
        raise PassedThroughError(f"'{plan.source}' is no file")
    notes = [note.replace(_MARK, folder) for note in value["notes"]]
    return plan, cuid_args, notes


def _query(command: Sequence[str], queries: Queries) -> str:
    try:
        (text,) = queries.run([command])
    except OSError as error:
        raise PassedThroughError(f"the compiler cannot be run: {error}") from error
    if text is None:
        raise PassedThroughError("the driver refuses it")
    return text


def _check_configuration(text: str) -> None:
    """Raise PassedThroughError for an option in configuration files that rules out a split."""
    for name in all_configuration_files(configuration_files(text)):
        reason = why_args_not_split(configuration_args(name))
        if reason:
            raise PassedThroughError(f"'{name}': {reason}")


def _with_each_link(text: str, queries: Queries) -> tuple[DriverPlan, list[str]]:
    """Parse the driver's output; replace the new driver's one link for all targets by theirs."""
    notes = []
    try:
        plan = read_plan(text)
    except UnknownPlanError as error:
        raise PassedThroughError(str(error)) from error
    if any(PLAN in recorded for job in plan.jobs for recorded in commands_in_output(job.args)):
        raise PassedThroughError("the output contains the command as the driver gets it")
    if any(job.kind == "linker-wrapper" for job in plan.jobs):
        from offload_tool.launch.linker_wrapper import link_each_target

        try:
            link_each_target(plan, queries)
        except UnknownPlanError as error:
            notes.append(f"all targets are linked in one job: {error}")
    return plan, notes


def _is_uncertain(args: Sequence[str]) -> bool:
    """Return whether the plan depends on more than the arguments and the installations."""
    return any(
        does(arg, CONFIGURATION)
        or (does(arg, CUID) and arg.startswith("-fuse-cuid") and arg != _FIXED_CUID)
        or (does(arg, TARGETS) and _NATIVE in arg)
        or arg == _NATIVE
        for arg in args
    )


def _cuid(args: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """Return the option with this compile's ID, which the driver would derive from its arguments.

    It must not depend on other targets, since each target's code contains it. Nor may it depend on
    the working directory if ccache shares results between folders.
    """
    if any(does(arg, CUID) for arg in args):
        return []
    kept = [os.getcwd()]
    before = ""
    for arg in args:
        for_targets = (x.startswith(_FOR_TARGET) and x not in _FOR_SIDE for x in (arg, before))
        about_targets = does(arg, TARGETS) or any(for_targets)
        value_of_depfile = does(before, DEPFILE) and takes_next(before)
        if not (about_targets or does(arg, DEPFILE) or value_of_depfile):
            kept.append(arg)
        before = arg
    if environ.get("CCACHE_BASEDIR") and environ.get("OFFLOAD_LAUNCHER"):
        from offload_tool.launch.launcher_commands import relative_to_build

        kept = [relative_to_build(arg, environ) for arg in kept]
    digest = digest_of("\0".join(kept).encode(errors="surrogateescape"))
    return [f"-cuid={digest[:16]}"]
