"""Split one compile into the driver's jobs, which run in parallel for all targets.

::

    args -> the driver's plan -> jobs in a folder of this run -> temporary result -> renamed
                  | not known                   | crashed, or a linker failed
                  v                             v
          the original command: messages, statuses and reports are the driver's own

Jobs of passes whose results the old object holds do not run: see `memory`.

Result and depfile get their names on success. An error leaves no result, as with the driver; a run
that a signal interrupts leaves the old files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import filterfalse
from typing import TYPE_CHECKING

from offload_tool.clang.driver import PLAN, llvm_temporary_folder
from offload_tool.clang.environment import commands_in_output
from offload_tool.clang.job_plan import HOST
from offload_tool.errors import ContentError, OffloadError
from offload_tool.io.file_digests import content_of
from offload_tool.io.paths import closing
from offload_tool.io.temporary_directory import FolderOnDemand
from offload_tool.launch.jobserver import slots_of
from offload_tool.launch.memory import DEPFILE, MESSAGES, STDOUT, Memory, why_not_remembered
from offload_tool.launch.planned_pass import DEPFILE_OPTION, add_depfile
from offload_tool.launch.query_plan import PassedThroughError, find_plan
from offload_tool.launch.scheduler import Queries, Scheduler, Step, merge_steps
from offload_tool.launch.write_result import (
    PLACEHOLDER_FILE,
    bundle_writer,
    can_embed_later,
    embed_images,
    is_error_in_source,
    merge_depfiles,
    merge_messages,
    why_not_replaced,
    write_depfile,
)

if TYPE_CHECKING:
    from offload_tool.launch.pch import PlannedPchs
    from offload_tool.launch.remote_passes import OnCluster

_WRAPPER_JOBS = "--wrapper-jobs="
"""An option of clang-linker-wrapper, since LLVM 15."""
_FAILED = 1
"""The compiler's status for an error in its input."""


def run_split(
    command: Sequence[str], environ: Mapping[str, str], report: Callable[[str], None]
) -> tuple[int, bytes, bytes]:
    """Run a compile's passes in parallel; return the driver's status, standard output and messages.

    `report` prints progress, one line each.

    :raises PassedThroughError: the original command must run.
    :raises OffloadError: an output cannot be written.
    """
    with FolderOnDemand("offload-launch-", llvm_temporary_folder(environ)) as folder:
        return _Split(command, environ, report, folder).run()


class _Split:
    def __init__(
        self,
        command: Sequence[str],
        environ: Mapping[str, str],
        report: Callable[[str], None],
        folder: FolderOnDemand,
    ) -> None:
        self._command = command
        self._environ = environ
        self._report = report
        self._folder, self._on_demand = folder.name, folder
        self._cuid_args: list[str] = []
        """The arguments added to the command."""
        self._slots = slots_of(environ)
        self._queries = Queries(folder.name, self._slots, environ, self._create_folder)
        self._cluster: OnCluster | None = None
        self._depfiles: dict[int, str] = {}
        """Depfiles of the passes over the source, by job number."""
        self._listed: set[int] = set()
        """The passes whose launcher also writes the depfile."""
        self._memory: Memory | None = None

    def run(self) -> tuple[int, bytes, bytes]:
        found = find_plan(self._command, self._environ, self._queries)
        self._plan, self._cuid_args, notes = found
        for note in notes:
            self._report(note)
        plan, output, depfile = self._plan, self._plan.output, self._prepare()
        for name in filter(None, (output, depfile)):
            reason = why_not_replaced(name)
            if reason:
                raise PassedThroughError(reason)
        has_host = any(job.target == HOST for job in plan.jobs)
        targets = ", ".join(plan.targets) + (" and the host" if has_host else "")
        self._report(f"split: {targets}; at once: {self._slots.origin}")
        reason = why_not_remembered(plan, self._folder, self._environ)
        if reason:
            self._report(f"not remembered: {reason}")
        else:
            self._memory = Memory(plan, self._depfiles, self._environ, self._create_folder)
            if self._memory.is_complete:
                if self._memory.renew():
                    return self._repeat(self._memory, depfile)
                self._memory = None  # another process is writing the object
        self._create_folder()
        with FolderOnDemand(".offload-", os.path.dirname(output) or os.curdir) as folder:
            self._create_folder(folder)
            temporary = f"{folder.name}/object"
            plan.jobs[-1].write_to(temporary)
            if self._memory is not None:
                _or_pass_through(partial(self._memory.begin, temporary), OffloadError)
            result = self._run_jobs(output, depfile)
            if result[0] == 0:
                self._rename(temporary, output)
        if result[0]:
            _remove(output)
        return result

    def _create_folder(self, folder: FolderOnDemand | None = None) -> None:
        try:
            (folder or self._on_demand).make()
        except OSError as error:
            raise PassedThroughError(f"no folder for temporary files: {error}") from error

    def _repeat(self, memory: Memory, depfile: str) -> tuple[int, bytes, bytes]:
        """Return what a compile prints of which nothing has to run; write the depfile."""
        self._report_outcomes(memory)
        if depfile:
            self._join_depfiles(depfile, memory.texts(DEPFILE))
        stdout = b"".join(memory.texts(STDOUT).values())
        return 0, stdout, self._merged(self._plan.messages, memory.texts(MESSAGES))

    def _report_outcomes(self, memory: Memory) -> None:
        for line in memory.outcomes():
            self._report(line)

    def _rename(self, temporary: str, output: str) -> None:
        with closing(os.open(temporary, os.O_RDONLY | os.O_CLOEXEC)) as descriptor:
            os.replace(temporary, output)
            if self._memory is not None:
                self._memory.save(descriptor)

    def _run_jobs(self, output: str, depfile: str) -> tuple[int, bytes, bytes]:
        """Run the jobs and write the depfile; return status, standard output and messages."""
        plan, memory = self._plan, self._memory
        steps = [self._step(number) for number in range(len(plan.jobs))]
        if memory is not None:
            try:
                memory.restore(steps)
            except OSError as error:
                raise PassedThroughError(f"no space for temporary files: {error}") from error
        if can_embed_later(plan.jobs[-1]):
            steps.append(self._embed_later(steps[-1]))
        launched = self._launched(steps)
        self._add_depfiles(steps, launched, is_wanted=bool(depfile))
        pchs = self._find_pchs(launched)
        if memory is not None:
            memory.stage(steps, launched, self._command, self._environ)
        if pchs is not None:
            pchs.insert(steps, self._depfiles, self._report)
        self._run_steps(steps)
        self._remove_scripts()
        status = self._status(steps)
        if not status:
            self._complete(steps, launched)
        elif memory is not None:
            memory.keep(steps, launched)
        if depfile and not status:
            texts = {n: _depfile_text(name) for n, name in self._depfiles.items()}
            self._join_depfiles(depfile, texts)
        lines = [*plan.messages]
        if self._cluster is not None:
            lines += self._cluster.messages(output)
        stdout = b"".join(content_of(step.stdout_file) for step in steps[: len(plan.jobs)])
        messages = {step.number: content_of(step.messages_file) for step in steps}
        return status, stdout, self._merged(lines, messages)

    def _find_pchs(self, launched: Container[int]) -> PlannedPchs | None:
        """Find the precompiled headers for passes that run here; None if they are off."""
        if not self._environ.get("OFFLOAD_PCH"):
            return None
        from offload_tool.launch.pch import LAUNCHED, PlannedPchs, wanted_headers

        memory, wanted = self._memory, wanted_headers(self._environ)
        if wanted and memory is None:
            self._report("without precompiled headers: the compile is not remembered")
        if not wanted or memory is None:
            return None
        pchs = PlannedPchs(wanted, self._plan, self._environ, memory.identity, memory.digests)
        passes = {
            number: LAUNCHED if number in launched else memory.reason_against_pch(number)
            for number in self._depfiles
            if not memory.is_skipped(number)
        }
        self._slots.take()
        try:
            pchs.find(passes)
        finally:
            self._slots.give()
        return pchs

    def _complete(self, steps: Sequence[Step], launched: Mapping[int, list[int]]) -> None:
        """Check and note the results of all passes.

        :raises PassedThroughError: a pass has not read a file of ``#embed``.
        """
        for number, name in self._depfiles.items():
            job = self._plan.jobs[number]
            # Clang 22 writes no depfile then, and reports a missing file only if it need not.
            has_one = os.path.isfile(name) or self._is_skipped([number])
            if DEPFILE_OPTION in job.args and not has_one:
                raise PassedThroughError(f"{job.target}: a file that '#embed' names is missing")
        if launched:
            from offload_tool.launch.launcher_commands import check_result

            for numbers in launched.values():
                check_result([self._plan.jobs[number] for number in numbers])
        if self._memory is not None:
            self._memory.finish(steps, launched)
            self._report_outcomes(self._memory)

    def _run_steps(self, steps: Sequence[Step]) -> None:
        try:
            Scheduler(steps, self._slots, self._environ).run()
            while self._cluster is not None and self._cluster.restore_failed():
                Scheduler(steps, self._slots, self._environ).run()
        except OSError as error:
            raise PassedThroughError(f"a job cannot be run: {error}") from error

    def _prepare(self) -> str:
        """Name the depfiles of this run; return the depfile's final name, or ""."""
        depfile = ""
        for number, job in enumerate(self._plan.jobs):
            if (
                job.source == self._plan.source
            ):  # HIP's device passes write no depfile, CUDA's the same
                depfile = _remove_depfile_args(job.args) or depfile
                self._depfiles[number] = f"{self._folder}/{number}.d"
        return depfile

    def _launched(self, steps: Sequence[Step]) -> dict[int, list[int]]:
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

        candidates = list(self._candidates())
        plans = self._queries.run([[*command, PLAN] for _, command in candidates])
        launched = {}
        for (numbers, command), text in zip(candidates, plans, strict=True):
            jobs = [self._plan.jobs[number] for number in numbers]
            own_steps = [steps[number] for number in numbers]
            reason = ""
            if text is None or not runs_exactly(text, jobs):
                reason = self._compile_by_script(numbers, own_steps, launcher)
            elif self._cluster is not None:
                reason = self._cluster.send(jobs[0].target, command, own_steps)
            else:
                merge_steps(own_steps, [*shlex.split(launcher), *command])
            if reason:
                self._report_skipped(jobs[0].target, reason)
            else:
                launched[numbers[0]] = numbers
        return launched

    def _candidates(self) -> Iterator[tuple[list[int], list[str]]]:
        """Yield the jobs and the driver command of each pass for launcher or cluster."""
        from offload_tool.launch.launcher_commands import command_of_pass, why_not_launched

        cluster, plan = self._cluster, self._plan
        args = [*self._command, *self._cuid_args]
        passes = plan.passes_in(self._folder)
        for numbers in filterfalse(self._is_skipped, passes):
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
            is_other = is_pass and number not in seen and not self._is_skipped([number])
            if is_other and (job.target != HOST or cluster is None):
                self._report_skipped(job.target, "its result is no temporary file")

    def _is_skipped(self, numbers: Sequence[int]) -> bool:
        return self._memory is not None and self._memory.is_skipped(numbers[0])

    def _compile_by_script(self, numbers: list[int], steps: Sequence[Step], launcher: str) -> str:
        """Hand a pass without a driver command to ccache; return why that is impossible, or ""."""
        from offload_tool.launch.launcher_commands import command_for_ccache, is_ccache

        if not is_ccache(launcher):
            return "no command is this pass alone"
        import shlex

        plan, depfile = self._plan, self._depfiles[numbers[0]]
        jobs = [plan.jobs[number] for number in numbers]
        try:
            args, environment = command_for_ccache(jobs, depfile, plan.version, self._environ)
        except OSError as error:
            return str(error)
        steps[0].environment = environment
        merge_steps(steps, [*shlex.split(launcher), *args])
        self._listed.add(numbers[0])
        return ""

    def _remove_scripts(self) -> None:
        """Remove the rules of ccache's scripts from depfiles."""
        for name in (self._depfiles[number] for number in self._listed):
            from offload_tool.launch.launcher_commands import without_script

            text = content_of(name)
            with open(name, "wb") as file:
                file.write(without_script(name, text))

    def _report_skipped(self, target: str, reason: str) -> None:
        """Print why a pass does not run through the launcher or on the cluster."""
        where = "launcher" if self._cluster is None else "cluster"
        self._report(f"{target}: without the {where}: {reason}")

    def _add_depfiles(
        self, steps: list[Step], launched: Container[int], *, is_wanted: bool
    ) -> None:
        """Name the depfile of each pass over the source; add a step for that of a launcher."""
        for number, name in self._depfiles.items():
            job = self._plan.jobs[number]
            is_own = self._memory is not None and not any(commands_in_output(job.args))
            if self._is_skipped([number]) or not (is_wanted or is_own):
                continue
            if DEPFILE_OPTION not in job.args:
                add_depfile(job, name)
            if number in launched and number not in self._listed:
                from offload_tool.launch.launcher_commands import dependency_command

                messages_file = f"{self._folder}/{len(steps)}.messages"
                steps.append(Step(len(steps), (), dependency_command(job), messages_file))

    def _step(self, number: int) -> Step:
        job = self._plan.jobs[number]
        step = Step(number, job.needs, job.args, f"{self._folder}/{number}.messages")
        is_begun = self._memory is not None and bool(job.needs)  # its result is kept
        step.runs_after_failure = job.target == HOST or is_begun
        if job.kind == "linker-wrapper":  # it compiles for all targets
            step.jobs_option, step.most_jobs = _WRAPPER_JOBS, len(self._plan.targets)
        if job.kind == "bundler":
            write = bundle_writer(job.args, self._environ)
            if write is not None:
                step.args, step.call = (), partial(_or_pass_through, write, OffloadError)
        return step

    def _embed_later(self, host: Step) -> Step:
        """Start the host pass at once; return the step that completes its object."""
        job = self._plan.jobs[-1]
        (images,) = job.embedded()
        output, object_file = job.output, f"{self._folder}/host.o"
        job.embed(PLACEHOLDER_FILE)
        job.write_to(object_file)
        job.needs = []
        step = Step(host.number + 1, [*host.needs, host.number])

        def write() -> None:
            if self._memory is not None and self._memory.is_kept(host.number):
                self._memory.exchange(images, output)
            else:
                embed_images(object_file, images, output)

        step.call = partial(_or_pass_through, write, ContentError)
        host.needs = []
        return step

    def _status(self, steps: Sequence[Step]) -> int:
        """Return the status; only the compiler's own errors are reported here.

        :raises PassedThroughError: the driver must report another failure.
        """
        failed = [step for step in steps if step.status not in (None, 0)]
        passes = [step for step in failed if step.number < len(self._plan.jobs)]
        for step in passes:
            job = self._plan.jobs[step.number]
            messages = content_of(step.messages_file)
            if step.status != _FAILED or job.kind != "cc1" or not is_error_in_source(messages):
                raise PassedThroughError(f"'{job.args[0]}' failed: status {step.status}")
        if failed and not passes:
            raise PassedThroughError("what a pass reads could not be listed")
        return _FAILED if passes else 0

    def _join_depfiles(self, depfile: str, texts: Mapping[int, bytes]) -> None:
        """Write the depfile of passes whose depfiles have some texts, by job number."""
        jobs = self._plan.jobs
        phony = any("-MP" in job.args for job in jobs)
        hosts = [n for n in texts if jobs[n].target == HOST]
        host = (hosts or [*texts])[0]
        devices = [text for n, text in texts.items() if n != host]
        try:
            write_depfile(depfile, merge_depfiles(texts[host], devices, phony=phony))
        except OSError as error:
            raise PassedThroughError(f"'{depfile}': {error.strerror}") from error

    def _merged(self, lines: Sequence[str], messages: Mapping[int, bytes]) -> bytes:
        """Return lines, and the messages of jobs as users read them."""
        text = os.fsencode("".join(f"{line}\n" for line in lines))
        host, devices = b"", dict[str, bytes]()
        for number, job in enumerate(self._plan.jobs):
            message = messages.get(number, b"")
            if job.target == HOST:
                host += message
            elif message:
                target = job.target or "all targets"
                devices[target] = devices.get(target, b"") + message
        return text + merge_messages(host, devices)


def _depfile_text(name: str) -> bytes:
    """Return the content of a job's depfile; empty if it wrote none.

    :raises PassedThroughError: it cannot be read: without it, dependencies would be missing.
    """
    try:
        with open(name, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise PassedThroughError(f"'{name}': {error.strerror}") from error


def _or_pass_through(write: Callable[[], None], error_type: type[OffloadError]) -> None:
    try:
        write()
    except error_type as error:
        raise PassedThroughError(str(error)) from error


def _remove_depfile_args(args: list[str]) -> str:
    """Remove the depfile from a command; return the last one's name, or ""."""
    name = ""
    while DEPFILE_OPTION in args:
        at = args.index(DEPFILE_OPTION)
        name = args[at + 1]
        del args[at : at + 2]
    return name


def _remove(name: str) -> None:
    with suppress(OSError):
        os.unlink(name)
