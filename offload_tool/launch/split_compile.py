"""Split one compile into the driver's jobs, which run in parallel for all targets.

::

    args -> the driver's plan -> jobs in a folder of this run -> result beside its name -> renamed
                  | not known                   | crashed, or a linker failed
                  v                             v
          the original command: messages, statuses and reports are the driver's own

Result and depfile get their names on success. An error leaves no result, as with the driver; a run
that a signal interrupts leaves the old files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING

from offload_tool.clang.driver import PLAN, llvm_temporary_folder, terminal_args
from offload_tool.clang.job_plan import HOST, DriverJob, DriverPlan, UnknownPlanError, read_plan
from offload_tool.clang.options import CUID, DEPFILE, TARGETS, does, takes_next
from offload_tool.clang.response_file import expand_command
from offload_tool.errors import ContentError, OffloadError, UsageError
from offload_tool.io.file_digests import content_of
from offload_tool.io.temporary_directory import temporary_folder
from offload_tool.launch.jobserver import Slots, slots_of
from offload_tool.launch.passthrough import reason_in_args, why_unknown
from offload_tool.launch.scheduler import Step, as_one, run_steps
from offload_tool.launch.write_result import (
    PLACEHOLDER_FILE,
    can_wait,
    embed_now,
    union,
    why_not_replaced,
    write_depfile,
    writer_of,
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
    command: Sequence[str], environ: Mapping[str, str], say: Callable[[str], None]
) -> tuple[int, bytes, bytes]:
    """Run a compile's passes in parallel; return the driver's status, standard output and messages.

    `say` prints progress, one line each.

    :raises PassedThroughError: the original command must run.
    :raises OffloadError: an output cannot be written.
    """
    with ExitStack() as stack:
        made = temporary_folder("offload-launch-", llvm_temporary_folder(environ))
        try:
            folder = stack.enter_context(made)
        except OSError as error:
            raise PassedThroughError(f"no folder for temporary files: {error}") from error
        return _Split(command, environ, say, str(folder)).run()


class _Split:
    def __init__(
        self,
        command: Sequence[str],
        environ: Mapping[str, str],
        say: Callable[[str], None],
        folder: str,
    ) -> None:
        self._command = command
        self._environ = environ
        self._say = say
        self._folder = folder
        self._pinned: list[str] = []
        """The arguments added to the command."""
        self._slots = slots_of(environ)
        self._cluster: OnCluster | None = None
        self._named = ""
        """The result's name."""
        self._depfiles: dict[int, str] = {}
        """Depfiles of the passes over the source, by job number."""
        self._listed: set[int] = set()
        """The passes whose launcher also writes the depfile."""

    def run(self) -> tuple[int, bytes, bytes]:
        plan = self._asked()
        output, depfile = plan.output, self._prepare(plan)
        for name in filter(None, (output, depfile)):
            reason = why_not_replaced(name)
            if reason:
                raise PassedThroughError(reason)
        result, self._named = plan.output, output
        try:
            status, printed, said = self._run_jobs(plan, with_depfiles=bool(depfile))
            if status == 0:
                if depfile:
                    self._join_depfiles(plan, depfile)
                os.replace(result, output)
        finally:
            _remove(result)
        if status:
            _remove(output)
        return status, printed, said

    def _run_jobs(self, plan: DriverPlan, *, with_depfiles: bool) -> tuple[int, bytes, bytes]:
        slots = self._slots
        self._say(f"split: {', '.join(plan.targets)} and the host; at once: {slots.described}")
        steps = [self._step(plan, number) for number in range(len(plan.jobs))]
        if can_wait(plan.jobs[-1]):
            steps.append(self._embed_later(plan, steps[-1]))
        launched = self._launched(plan, steps, slots)
        if with_depfiles:
            for number, name in self._depfiles.items():
                if _DEPFILE not in plan.jobs[number].args:
                    plan.jobs[number].args[2:2] = [_DEPFILE, name]
                if number in launched and number not in self._listed:
                    steps.append(self._reading(len(steps), plan.jobs[number], name))
        self._run_steps(steps, slots)
        status = self._status(plan, steps)
        if launched and not status:
            from offload_tool.launch.launcher_commands import check_result

            for numbers in launched.values():
                check_result([plan.jobs[number] for number in numbers])
        lines = [*plan.messages]
        if self._cluster is not None:
            lines += self._cluster.told(self._named)
        said = "".join(f"{line}\n" for line in lines).encode(errors="surrogateescape")
        printed = b"".join(content_of(step.printed) for step in steps[: len(plan.jobs)])
        return status, printed, said + self._messages(plan, steps)

    def _run_steps(self, steps: Sequence[Step], slots: Slots) -> None:
        try:
            run_steps(steps, slots, self._environ)
            while self._cluster is not None and self._cluster.call_back():
                run_steps(steps, slots, self._environ)
        except OSError as error:
            raise PassedThroughError(f"a job cannot be run: {error}") from error

    def _asked(self) -> DriverPlan:
        reason = why_unknown(self._command[0], self._environ)
        if reason:
            raise PassedThroughError(reason)
        said = f"{self._folder}/plan"
        try:
            given, files = expand_command(self._command[1:])
        except UsageError as error:
            raise PassedThroughError(str(error)) from error
        reason = reason_in_args([*files, *given])
        if reason:
            raise PassedThroughError(reason)
        self._pinned = _cuid(given, self._environ)
        # Prepend them: the last of the user's arguments may take a value, or be "--".
        # A launcher or cluster may run passes; their driver checks no terminal.
        others = any(self._environ.get(name) for name in ("OFFLOAD_LAUNCHER", "OFFLOAD_DIST"))
        more = [] if others else terminal_args(self._environ)
        args = [self._command[0], PLAN, *more, *self._pinned, *self._command[1:]]
        asking = Step(0, (), args, said)
        try:
            run_steps([asking], Slots("one", 0), self._asking)
        except OSError as error:
            raise PassedThroughError(f"the compiler cannot be run: {error}") from error
        if asking.status:
            raise PassedThroughError("the driver refuses it")
        text = content_of(said).decode(errors="surrogateescape")
        try:
            plan = read_plan(text, self._folder)
        except UnknownPlanError as error:
            raise PassedThroughError(str(error)) from error
        if not os.path.isfile(plan.source):
            raise PassedThroughError(f"'{plan.source}' is no file")
        return plan

    @property
    def _asking(self) -> dict[str, str]:
        """Return the environment of driver queries, which create temporary files.

        They are in our folder, and removed with it even if the driver is killed.
        """
        return {**self._environ, "TMPDIR": self._folder}

    def _prepare(self, plan: DriverPlan) -> str:
        """Name all files of this run; return the depfile's final name, or ""."""
        plan.with_temporaries_in(self._folder)
        self._link_each_target(plan)
        depfile = ""
        for number, job in enumerate(plan.jobs):
            if job.source == plan.source:  # HIP's device passes write no depfile, CUDA's the same
                depfile = _taken(job.args) or depfile
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
            self._say(f"all targets are linked in one job: {error}")

    def _launched(
        self, plan: DriverPlan, steps: Sequence[Step], slots: Slots
    ) -> dict[int, list[int]]:
        """Hand passes to launcher or cluster, as commands of the driver; return each one's jobs."""
        launcher = self._environ.get("OFFLOAD_LAUNCHER", "")
        cluster = self._cluster = self._named_cluster(launcher)
        if not launcher and cluster is None:
            return {}
        import shlex

        from offload_tool.launch.launcher_commands import (
            command_of_pass,
            is_the_pass,
            why_not_launched,
        )

        args = [*self._command, *self._pinned]
        where = "launcher" if cluster is None else "cluster"
        passes = plan.passes_in(self._folder)
        wanted = {}
        for numbers in passes:
            first, jobs = numbers[0], [plan.jobs[number] for number in numbers]
            reason = "" if cluster is not None else why_not_launched(jobs)
            if reason:
                self._say(f"{jobs[0].target}: without the {where}: {reason}")
            elif cluster is None or cluster.may_run(jobs[0]):
                if cluster is not None:
                    args = cluster.with_language(args)
                command = command_of_pass(args, jobs[0], jobs[-1].output)
                asking = Step(first, (), [*command, PLAN], f"{self._folder}/{first}.asked")
                wanted[first] = (numbers, jobs, command, asking)
        self._say_left(plan, {numbers[0] for numbers in passes}, where)
        run_steps([row[-1] for row in wanted.values()], slots, self._asking)
        launched = {}
        for first, (numbers, jobs, command, asking) in wanted.items():
            target, own = jobs[0].target, [steps[number] for number in numbers]
            said = content_of(asking.said).decode(errors="surrogateescape")
            reason = ""
            if asking.status or not is_the_pass(said, jobs):
                reason = self._compile_by_script(plan, numbers, own, launcher)
            elif cluster is not None:
                reason = cluster.send(target, command, own)
            else:
                as_one(own, [*shlex.split(launcher), *command])
            if reason:
                self._say(f"{target}: without the {where}: {reason}")
            else:
                launched[first] = numbers
        return launched

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
            args, more = command_for_ccache(jobs, depfile, plan.version, self._environ)
        except OSError as error:
            return str(error)
        steps[0].environment = more
        as_one(steps, [*shlex.split(launcher), *args])
        self._listed.add(numbers[0])
        return ""

    def _say_left(self, plan: DriverPlan, taken: set[int], where: str) -> None:
        """Print which passes are no candidates for a launcher or cluster."""
        for number, job in enumerate(plan.jobs):
            begins = job.source == plan.source and not job.needs
            if begins and number not in taken and (job.target != HOST or self._cluster is None):
                self._say(f"{job.target}: without the {where}: its result is no temporary file")

    def _named_cluster(self, launcher: str) -> OnCluster | None:
        folder = self._environ.get("OFFLOAD_DIST", "")
        if not folder:
            return None
        from offload_tool.launch.remote_passes import OnCluster
        from offload_tool.sccache_dist.fallback import choose_engine

        choose_engine(launcher, folder)
        return OnCluster(folder, self._environ)

    def _reading(self, number: int, job: DriverJob, depfile: str) -> Step:
        """Return the step that lists the inputs of a pass that a launcher runs."""
        from offload_tool.launch.launcher_commands import reading_only

        return Step(number, (), reading_only(job, depfile), f"{self._folder}/{number}.said")

    def _step(self, plan: DriverPlan, number: int) -> Step:
        job = plan.jobs[number]
        step = Step(number, job.needs, job.args, f"{self._folder}/{number}.said")
        step.wanted_after_failure = job.target == HOST
        if job.kind == "linker-wrapper":  # it compiles for all targets
            step.jobs_option, step.most_jobs = _WRAPPER_JOBS, len(plan.targets)
        if job.kind == "bundler":
            write = writer_of(job.args, self._environ)
            if write is not None:
                step.args, step.call = (), partial(_called, write, OffloadError)
        return step

    def _embed_later(self, plan: DriverPlan, host: Step) -> Step:
        """Start the host pass at once; return the step that completes its object."""
        job = plan.jobs[-1]
        (images,) = job.embedded()
        output, made = job.output, f"{self._folder}/host.o"
        job.embed(PLACEHOLDER_FILE)
        job.write_to(made)
        job.needs = []
        step = Step(host.number + 1, [*host.needs, host.number])
        step.call = partial(_called, partial(embed_now, made, images, output), ContentError)
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
        said = {step.number: content_of(step.said) for step in steps}
        if not any(said.values()):
            return b""
        from offload_tool.launch.merge_diagnostics import joined_messages

        host = b""
        devices: dict[str, bytes] = {}
        for number, job in enumerate(plan.jobs):
            if job.target == HOST:
                host += said[number]
            elif said[number]:
                target = job.target or "all targets"
                devices[target] = devices.get(target, b"") + said[number]
        return joined_messages(host, devices)

    def _join_depfiles(self, plan: DriverPlan, depfile: str) -> None:
        phony = any("-MP" in job.args for job in plan.jobs)
        host = next(n for n in self._depfiles if plan.jobs[n].target == HOST)
        try:
            devices = [_depfile_text(name) for n, name in self._depfiles.items() if n != host]
            text = union(_depfile_text(self._depfiles[host]), devices, phony=phony)
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


def _called(call: Callable[[], None], error_type: type[OffloadError]) -> int:
    try:
        call()
    except error_type as error:
        raise PassedThroughError(str(error)) from error
    return 0


def _taken(args: list[str]) -> str:
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
