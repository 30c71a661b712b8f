"""Split one compile into the driver's jobs, which run in parallel for all targets.

::

    args -> the driver's plan -> jobs in a folder of this run -> temporary result -> renamed
                  | not known                   | crashed, or a linker failed
                  v                             v
          the original command: messages, statuses and reports are the driver's own

Result and depfile get their names on success. An error leaves no result, as with the driver; a run
that a signal interrupts leaves the old files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING

from offload_tool.clang.driver import PLAN, llvm_temporary_folder, terminal_args
from offload_tool.clang.job_plan import HOST, DriverPlan, UnknownPlanError, read_plan
from offload_tool.clang.options import CUID, DEPFILE, TARGETS, does, takes_next
from offload_tool.clang.response_file import expand_command
from offload_tool.errors import ContentError, OffloadError, UsageError
from offload_tool.io.file_digests import content_of
from offload_tool.io.temporary_directory import temporary_folder
from offload_tool.launch.jobserver import slots_of
from offload_tool.launch.passthrough import why_args_not_split, why_unknown
from offload_tool.launch.scheduler import Queries, Scheduler, Step, merge_steps
from offload_tool.launch.write_result import (
    PLACEHOLDER_FILE,
    bundle_writer,
    can_embed_later,
    embed_images,
    merge_depfiles,
    why_not_replaced,
    write_depfile,
)

if TYPE_CHECKING:
    from offload_tool.launch.remote_passes import OnCluster

_DEPFILE = "-dependency-file"
_WRAPPER_JOBS = "--wrapper-jobs="
"""An option of clang-linker-wrapper, since LLVM 15."""
_FAILED = 1
"""The compiler's status for an error in its input."""
_FOR_TARGET = "-Xarch_gfx"


class PassedThroughError(Exception):
    """The original command must run; the text is the reason."""


def run_split(
    command: Sequence[str], environ: Mapping[str, str], report: Callable[[str], None]
) -> tuple[int, bytes, bytes]:
    """Run a compile's passes in parallel; return the driver's status, standard output and messages.

    `report` prints progress, one line each.

    :raises PassedThroughError: the original command must run.
    :raises OffloadError: an output cannot be written.
    """
    with ExitStack() as stack:
        parent = llvm_temporary_folder(environ)
        try:
            folder = stack.enter_context(temporary_folder("offload-launch-", parent))
        except OSError as error:
            raise PassedThroughError(f"no folder for temporary files: {error}") from error
        return _Split(command, environ, report, str(folder)).run()


class _Split:
    def __init__(
        self,
        command: Sequence[str],
        environ: Mapping[str, str],
        report: Callable[[str], None],
        folder: str,
    ) -> None:
        self._command = command
        self._environ = environ
        self._report = report
        self._folder = folder
        self._cuid_args: list[str] = []
        """The arguments added to the command."""
        self._slots = slots_of(environ)
        self._queries = Queries(folder, self._slots, environ)
        self._cluster: OnCluster | None = None
        self._depfiles: dict[int, str] = {}
        """Depfiles of the passes over the source, by job number."""
        self._listed: set[int] = set()
        """The passes whose launcher also writes the depfile."""

    def run(self) -> tuple[int, bytes, bytes]:
        plan = self._query_plan()
        output, depfile = plan.output, self._prepare(plan)
        for name in filter(None, (output, depfile)):
            reason = why_not_replaced(name)
            if reason:
                raise PassedThroughError(reason)
        temporary = plan.output
        try:
            status, stdout, messages = self._run_jobs(plan, output, depfile)
            if status == 0:
                os.replace(temporary, output)
        finally:
            _remove(temporary)
        if status:
            _remove(output)
        return status, stdout, messages

    def _run_jobs(self, plan: DriverPlan, output: str, depfile: str) -> tuple[int, bytes, bytes]:
        """Run the jobs and write the depfile; return status, standard output and messages."""
        has_host = any(job.target == HOST for job in plan.jobs)
        targets = ", ".join(plan.targets) + (" and the host" if has_host else "")
        self._report(f"split: {targets}; at once: {self._slots.origin}")
        steps = [self._step(plan, number) for number in range(len(plan.jobs))]
        if can_embed_later(plan.jobs[-1]):
            steps.append(self._embed_later(plan, steps[-1]))
        launched = self._launched(plan, steps)
        if depfile:
            self._add_depfiles(plan, steps, launched)
        self._run_steps(steps)
        status = self._status(plan, steps)
        if launched and not status:
            from offload_tool.launch.launcher_commands import check_result

            for numbers in launched.values():
                check_result([plan.jobs[number] for number in numbers])
        if depfile and not status:
            self._join_depfiles(plan, depfile)
        lines = [*plan.messages]
        if self._cluster is not None:
            lines += self._cluster.messages(output)
        messages = "".join(f"{line}\n" for line in lines).encode(errors="surrogateescape")
        stdout = b"".join(content_of(step.stdout_file) for step in steps[: len(plan.jobs)])
        return status, stdout, messages + self._messages(plan, steps)

    def _run_steps(self, steps: Sequence[Step]) -> None:
        try:
            Scheduler(steps, self._slots, self._environ).run()
            while self._cluster is not None and self._cluster.restore_failed():
                Scheduler(steps, self._slots, self._environ).run()
        except OSError as error:
            raise PassedThroughError(f"a job cannot be run: {error}") from error

    def _query_plan(self) -> DriverPlan:
        reason = why_unknown(self._command[0], self._environ)
        if reason:
            raise PassedThroughError(reason)
        try:
            given, files = expand_command(self._command[1:])
        except UsageError as error:
            raise PassedThroughError(str(error)) from error
        reason = why_args_not_split([*files, *given])
        if reason:
            raise PassedThroughError(reason)
        self._cuid_args = _cuid(given, self._environ)
        # Prepend them: the last of the user's arguments may take a value, or be "--".
        # A launcher or cluster may run passes; their driver checks no terminal.
        is_remote = any(self._environ.get(name) for name in ("OFFLOAD_LAUNCHER", "OFFLOAD_DIST"))
        more = [] if is_remote else terminal_args(self._environ)
        args = [self._command[0], PLAN, *more, *self._cuid_args, *self._command[1:]]
        try:
            (text,) = self._queries.run([args])
        except OSError as error:
            raise PassedThroughError(f"the compiler cannot be run: {error}") from error
        if text is None:
            raise PassedThroughError("the driver refuses it")
        try:
            plan = read_plan(text, self._folder)
        except UnknownPlanError as error:
            raise PassedThroughError(str(error)) from error
        if not os.path.isfile(plan.source):
            raise PassedThroughError(f"'{plan.source}' is no file")
        return plan

    def _prepare(self, plan: DriverPlan) -> str:
        """Name all files of this run; return the depfile's final name, or ""."""
        plan.with_temporaries_in(self._folder)
        self._link_each_target(plan)
        depfile = ""
        for number, job in enumerate(plan.jobs):
            if job.source == plan.source:  # HIP's device passes write no depfile, CUDA's the same
                depfile = _remove_depfile_args(job.args) or depfile
                self._depfiles[number] = f"{self._folder}/{number}.d"
        last = plan.jobs[-1]
        last.write_to(f"{last.output}.{os.urandom(6).hex()}.tmp")
        return depfile

    def _link_each_target(self, plan: DriverPlan) -> None:
        """Replace the new offload driver's one link for all targets by one for each."""
        if all(job.kind != "linker-wrapper" for job in plan.jobs):
            return
        from offload_tool.launch.linker_wrapper import link_each_target

        try:
            link_each_target(plan, self._folder, self._environ, self._slots)
        except UnknownPlanError as error:
            self._report(f"all targets are linked in one job: {error}")

    def _launched(self, plan: DriverPlan, steps: Sequence[Step]) -> dict[int, list[int]]:
        """Hand passes to launcher or cluster, as commands of the driver; return their jobs."""
        launcher = self._environ.get("OFFLOAD_LAUNCHER", "")
        folder = self._environ.get("OFFLOAD_DIST", "")
        if not (launcher or folder):
            return {}
        if folder:
            from offload_tool.launch.remote_passes import OnCluster

            self._cluster = OnCluster(folder, self._environ)
        import shlex

        from offload_tool.launch.launcher_commands import runs_exactly

        candidates = list(self._candidates(plan))
        plans = self._queries.run([[*command, PLAN] for _, command in candidates])
        launched = {}
        for (numbers, command), text in zip(candidates, plans, strict=True):
            jobs = [plan.jobs[number] for number in numbers]
            own_steps = [steps[number] for number in numbers]
            reason = ""
            if text is None or not runs_exactly(text, jobs):
                reason = self._compile_by_script(plan, numbers, own_steps, launcher)
            elif self._cluster is not None:
                reason = self._cluster.send(jobs[0].target, command, own_steps)
            else:
                merge_steps(own_steps, [*shlex.split(launcher), *command])
            if reason:
                self._report_skipped(jobs[0].target, reason)
            else:
                launched[numbers[0]] = numbers
        return launched

    def _candidates(self, plan: DriverPlan) -> Iterator[tuple[list[int], list[str]]]:
        """Yield the jobs and the driver command of each pass for launcher or cluster."""
        from offload_tool.launch.launcher_commands import command_of_pass, why_not_launched

        cluster = self._cluster
        args = [*self._command, *self._cuid_args]
        passes = plan.passes_in(self._folder)
        for numbers in passes:
            jobs = [plan.jobs[number] for number in numbers]
            reason = "" if cluster is not None else why_not_launched(jobs)
            if reason:
                self._report_skipped(jobs[0].target, reason)
            elif cluster is None or cluster.may_run(jobs[0]):
                if cluster is not None:
                    args = cluster.with_language(args)
                yield numbers, command_of_pass(args, jobs[0], jobs[-1].output)
        seen = {numbers[0] for numbers in passes}
        for number, job in enumerate(plan.jobs):
            is_pass = job.source == plan.source and not job.needs
            if is_pass and number not in seen and (job.target != HOST or cluster is None):
                self._report_skipped(job.target, "its result is no temporary file")

    def _compile_by_script(
        self, plan: DriverPlan, numbers: list[int], steps: Sequence[Step], launcher: str
    ) -> str:
        """Hand a pass without a driver command to ccache; return why that is impossible, or ""."""
        from offload_tool.launch.launcher_commands import command_for_ccache, is_ccache

        if not is_ccache(launcher):
            return "no command is this pass alone"
        import shlex

        jobs, depfile = [plan.jobs[number] for number in numbers], self._depfiles[numbers[0]]
        try:
            args, environment = command_for_ccache(jobs, depfile, plan.version, self._environ)
        except OSError as error:
            return str(error)
        steps[0].environment = environment
        merge_steps(steps, [*shlex.split(launcher), *args])
        self._listed.add(numbers[0])
        return ""

    def _report_skipped(self, target: str, reason: str) -> None:
        """Print why a pass does not run through the launcher or on the cluster."""
        where = "launcher" if self._cluster is None else "cluster"
        self._report(f"{target}: without the {where}: {reason}")

    def _add_depfiles(self, plan: DriverPlan, steps: list[Step], launched: Container[int]) -> None:
        """Name the depfile of each pass over the source; add a step for that of a launcher."""
        for number, name in self._depfiles.items():
            job = plan.jobs[number]
            if _DEPFILE not in job.args:
                job.args[2:2] = [_DEPFILE, name]
            if number in launched and number not in self._listed:
                from offload_tool.launch.launcher_commands import dependency_command

                messages_file = f"{self._folder}/{len(steps)}.messages"
                steps.append(Step(len(steps), (), dependency_command(job), messages_file))

    def _step(self, plan: DriverPlan, number: int) -> Step:
        job = plan.jobs[number]
        step = Step(number, job.needs, job.args, f"{self._folder}/{number}.messages")
        step.runs_after_failure = job.target == HOST
        if job.kind == "linker-wrapper":  # it compiles for all targets
            step.jobs_option, step.most_jobs = _WRAPPER_JOBS, len(plan.targets)
        if job.kind == "bundler":
            write = bundle_writer(job.args, self._environ)
            if write is not None:
                step.args, step.call = (), partial(_or_pass_through, write, OffloadError)
        return step

    def _embed_later(self, plan: DriverPlan, host: Step) -> Step:
        """Start the host pass at once; return the step that completes its object."""
        job = plan.jobs[-1]
        (images,) = job.embedded()
        output, object_file = job.output, f"{self._folder}/host.o"
        job.embed(PLACEHOLDER_FILE)
        job.write_to(object_file)
        job.needs = []
        step = Step(host.number + 1, [*host.needs, host.number])
        write = partial(embed_images, object_file, images, output)
        step.call = partial(_or_pass_through, write, ContentError)
        host.needs = []
        return step

    def _status(self, plan: DriverPlan, steps: Sequence[Step]) -> int:
        """Return the status; only the compiler's own errors are reported here.

        :raises PassedThroughError: the driver must report another failure.
        """
        failed = [step for step in steps if step.status not in (None, 0)]
        passes = [step for step in failed if step.number < len(plan.jobs)]
        for step in passes:
            job = plan.jobs[step.number]
            if step.status != _FAILED or job.kind != "cc1":
                raise PassedThroughError(f"'{job.args[0]}' failed: status {step.status}")
        if failed and not passes:
            raise PassedThroughError("what a pass reads could not be listed")
        return _FAILED if passes else 0

    def _messages(self, plan: DriverPlan, steps: Sequence[Step]) -> bytes:
        messages = {step.number: content_of(step.messages_file) for step in steps}
        if not any(messages.values()):
            return b""
        from offload_tool.launch.merge_diagnostics import merge_messages

        host = b""
        devices: dict[str, bytes] = {}
        for number, job in enumerate(plan.jobs):
            if job.target == HOST:
                host += messages[number]
            elif messages[number]:
                target = job.target or "all targets"
                devices[target] = devices.get(target, b"") + messages[number]
        return merge_messages(host, devices)

    def _join_depfiles(self, plan: DriverPlan, depfile: str) -> None:
        phony = any("-MP" in job.args for job in plan.jobs)
        hosts = [n for n in self._depfiles if plan.jobs[n].target == HOST]
        host = (hosts or [*self._depfiles])[0]
        try:
            devices = [_depfile_text(name) for n, name in self._depfiles.items() if n != host]
            text = merge_depfiles(_depfile_text(self._depfiles[host]), devices, phony=phony)
            write_depfile(depfile, text)
        except OSError as error:
            name = error.filename or depfile
            raise PassedThroughError(f"'{name}': {error.strerror}") from error


def _depfile_text(name: str) -> bytes:
    """Return the content of a job's depfile; empty if it wrote none.

    :raises OSError: it cannot be read: without it, dependencies would be missing.
    """
    with suppress(FileNotFoundError), open(name, "rb") as file:
        return file.read()
    return b""


def _cuid(args: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """Return the option with this compile's ID, which the driver would derive from its arguments.

    It must not depend on other targets, since each target's code contains it. Nor may it depend on
    the working directory if ccache shares results between folders.
    """
    if any(does(arg, CUID) for arg in args):
        return []
    from offload_tool.io.file_digests import digest_of

    kept = [os.getcwd()]
    before = ""
    for arg in args:
        about_targets = does(arg, TARGETS) or _FOR_TARGET in (arg[:9], before[:9])
        value_of_depfile = does(before, DEPFILE) and takes_next(before)
        if not (about_targets or does(arg, DEPFILE) or value_of_depfile):
            kept.append(arg)
        before = arg
    if environ.get("CCACHE_BASEDIR") and environ.get("OFFLOAD_LAUNCHER"):
        from offload_tool.launch.launcher_commands import relative_to_build

        kept = [relative_to_build(arg, environ) for arg in kept]
    digest = digest_of("\0".join(kept).encode(errors="surrogateescape"))
    return [f"-cuid={digest[:16]}"]


def _or_pass_through(write: Callable[[], None], error_type: type[OffloadError]) -> None:
    try:
        write()
    except error_type as error:
        raise PassedThroughError(str(error)) from error


def _remove_depfile_args(args: list[str]) -> str:
    """Remove the depfile from a command; return the last one's name, or ""."""
    name = ""
    while _DEPFILE in args:
        at = args.index(_DEPFILE)
        name = args[at + 1]
        del args[at : at + 2]
    return name


def _remove(name: str) -> None:
    with suppress(OSError):
        os.unlink(name)
