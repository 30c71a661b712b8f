r"""The links of ``clang-linker-wrapper`` as separate jobs of the plan, one for each target.

The new offload driver passes all targets' bitcode to one job. That job runs clang for each target,
and clang runs the linker, which generates the device code. This module queries both for their
commands, as it does the driver, and replaces the one job::

    cc1 gfx906 --+
    cc1 gfx90a --+-> packager -> linker-wrapper -> cc1 host     becomes

    cc1 gfx906 -> ld.lld --+
    cc1 gfx90a -> ld.lld --+-> bundler -> cc1 host

The queries (``--dry-run``, ``-###``) use empty files, since neither program reads them. A wrapper
with unknown options or additional outputs stays one job.

Source: clang 22.1 and 23, observed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from offload_tool.clang.driver import PLAN, option_values
from offload_tool.clang.job_plan import (
    DriverJob,
    DriverPlan,
    UnknownPlanError,
    job_in,
    read_jobs,
    renamed,
    unknown_arg,
)
from offload_tool.launch.scheduler import Queries

if TYPE_CHECKING:
    Target = tuple[str, str]
    """Triple and target ID."""

_WRAPPER = "linker-wrapper"
_KNOWN = ("--emit-fatbin-only", "--compress", "--no-canonical-prefixes", "-o")
_KNOWN_BEGINNINGS = (
    *("--should-extract=", "--device-compiler=", "--device-linker=", "--host-triple="),
    *("--linker-path=", "--compression-level=", "--wrapper-jobs="),
)
_COMMAND = re.compile(r' "([^"]+)" (.+)')
"""A line of ``--dry-run``: only the program is in quotes."""
_IMAGE = re.compile(r"--image=file=(.*),triple=([^,]+),arch=([^,]+),kind=\w+(?:,feature=[^,]*)*")
_BUNDLER = "clang-offload-bundler"


def link_each_target(plan: DriverPlan, queries: Queries) -> None:
    """Replace a plan's ``clang-linker-wrapper`` by links of single targets.

    The plan's temporary files are in the folder of the queries.

    :raises UnknownPlanError: the jobs are not all recognised; the plan is unchanged.
    """
    wrapper = next(job for job in plan.jobs if job.kind == _WRAPPER)
    before = [plan.jobs[number] for number in wrapper.needs]
    if [job.kind for job in before] != ["packager"]:
        raise UnknownPlanError("the job also links the host's object")  # clang 21
    (packager,) = before
    images = _images(packager, {job.output for job in plan.jobs if job.kind == "cc1"})
    queries = queries.in_folder(f"{queries.folder}/queries")
    os.mkdir(queries.folder)
    links, messages = _links(wrapper, packager, images, queries)
    at = plan.jobs.index(wrapper)
    front = [job for job in plan.jobs[:at] if job is not packager]
    plan.replace_jobs([*front, *links, *plan.jobs[at + 1 :]])
    plan.messages += messages


def _query(queries: Queries, commands: Sequence[Sequence[str]]) -> list[str]:
    """Run queries; return their messages.

    :raises UnknownPlanError: one fails.
    """
    try:
        results = queries.run(commands)
    except OSError as error:
        raise UnknownPlanError(str(error)) from error
    for args, messages in zip(commands, results, strict=True):
        if messages is None:
            raise UnknownPlanError(f"'{args[0]}' does not say what it would run")
    return [messages for messages in results if messages is not None]


def _links(
    wrapper: DriverJob, packager: DriverJob, images: dict[Target, str], queries: Queries
) -> tuple[list[DriverJob], list[str]]:
    """Return the links, the bundler's job after them, and clang's messages."""
    commands, bundler = _commands(wrapper, packager, images.values(), queries)
    by_target = {_target(command): command for command in commands}
    if by_target.keys() != images.keys() or len(by_target) != len(commands):
        raise UnknownPlanError("it would link other targets than are compiled")
    names = {bundler.output: wrapper.output}
    for target, image in images.items():
        extracted = _input(by_target[target], queries.folder)
        names[extracted] = image
        Path(extracted).write_bytes(b"")
    jobs, messages = [], []
    for text in _query(queries, [[*by_target[target], PLAN] for target in images]):
        job, lines = _link(text)
        jobs.append(job)
        messages += lines
        names[job.output] = f"{os.path.dirname(queries.folder)}/{os.path.basename(job.output)}"
    jobs.append(bundler)
    for job in jobs:
        job.args = [renamed(arg, names) for arg in job.args]
        job.output = names[job.output]
    if any(queries.folder in arg for job in jobs for arg in job.args):
        raise UnknownPlanError("it would read files of its own")
    return jobs, messages


def _commands(
    wrapper: DriverJob, packager: DriverJob, images: Iterable[str], queries: Queries
) -> tuple[list[list[str]], DriverJob]:
    """Return the wrapper's commands: clang for each target, then the bundler."""
    name = packager.output
    package = f"{queries.folder}/{os.path.basename(name)}"
    args = [package if arg == name else arg for arg in wrapper.args]
    _refuse_unknown(args, (package, wrapper.output))
    for image in images:
        Path(image).write_bytes(b"")
    _query(queries, [[package if arg == name else arg for arg in packager.args]])
    # Several jobs would print into each other's lines.
    (text,) = _query(queries, [[*args, "--wrapper-jobs=1", "--dry-run"]])
    # Reject any other output: the list of commands may be incomplete.
    lines = [_COMMAND.fullmatch(line) for line in text.splitlines()]
    found = [[line[1], *line[2].split(" ")] for line in lines if line is not None]
    if len(found) != len(lines) or not found:
        raise UnknownPlanError("what it would run cannot be read")
    if not all(os.path.isabs(command[0]) for command in found):
        raise UnknownPlanError("it does not find its programs")
    *links, last = found
    if not os.path.basename(last[0]).startswith(_BUNDLER):
        raise UnknownPlanError(f"it would run '{last[0]}' in the end")
    return links, job_in(last)


def _input(command: Sequence[str], folder: str) -> str:
    """Return the input of a link: a file that the wrapper extracts from the package."""
    written = set(option_values(command, "-o"))
    found = [arg for arg in command if arg.startswith(f"{folder}/") and arg not in written]
    if len(found) != 1:
        raise UnknownPlanError(f"it would link {len(found)} files for one target")
    return found[0]


def _images(packager: DriverJob, outputs: set[str]) -> dict[Target, str]:
    """Return the packaged files by target; each must be one of `outputs`."""
    images: dict[Target, str] = {}
    for arg in packager.args:
        if arg.startswith("--image="):
            found = _IMAGE.fullmatch(arg)
            if found is None or found[1] not in outputs or (found[2], found[3]) in images:
                raise UnknownPlanError(f"'{arg}' is no image of a pass over the source")
            images[found[2], found[3]] = found[1]
    return images


def _refuse_unknown(args: Sequence[str], files: tuple[str, str]) -> None:
    for arg in args[1:]:
        if not arg or re.search(r"\s", arg):
            raise UnknownPlanError(f"a blank is in '{arg}'")
        is_known = arg in _KNOWN or arg.startswith(_KNOWN_BEGINNINGS)
        if not (is_known or arg in files):
            raise UnknownPlanError(f"'{arg}' is not known of it")


def _target(command: Sequence[str]) -> Target:
    triple = [arg.partition("=")[2] for arg in command if arg.startswith("--target=")]
    processor = [arg.partition("=")[2] for arg in command if arg.startswith("-mcpu=")]
    if len(triple) != 1 or len(processor) != 1:
        raise UnknownPlanError(f"'{' '.join(command)}' is no link for one target")
    return triple[0], processor[0]


def _link(text: str) -> tuple[DriverJob, list[str]]:
    """Parse clang's ``-###`` output for a link: the linker, and nothing else."""
    messages, jobs = read_jobs(text)
    if [job.kind for job in jobs] != ["lld"]:
        raise UnknownPlanError("a link would be more than the linker's work")
    (job,) = jobs
    arg = unknown_arg(job.args[1:])
    if arg:
        raise UnknownPlanError(f"'{arg}' is not known of a link")
    return job, messages
