"""Runs the jobs of a plan: each starts when its inputs are complete and a slot is free.

The messages go to one file per job, and are printed when all jobs have ended. After a failure, only
the host's job still starts, since users know its messages, and what is left of passes whose results
are kept; running jobs finish. However a run ends, it leaves no job running and releases all tokens.
"""

from __future__ import annotations

import functools
import itertools
import os
import select
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from offload_tool.io.file_digests import content_of
from offload_tool.io.process import start
from offload_tool.io.signals import end_processes, shielded

if TYPE_CHECKING:
    from offload_tool.launch.jobserver import Slots
    from offload_tool.manifest.cut_off import Stages

_POLL_MS = 10
"""Between polls, on a kernel without pidfd_open (before 5.3)."""
_SHARED_POLL_MS = 100
"""Between looks for a slot that another launch has freed."""


class Step:
    """One process, or one call in this process, with its dependencies."""

    def __init__(
        self, number: int, needs: Sequence[int], args: Sequence[str] = (), messages_file: str = ""
    ) -> None:
        self.number = number
        self.needs = needs
        """The numbers of the steps that must have succeeded before."""
        self.args = args
        """The command; empty for a call, or if the command of another step replaces it."""
        self.call: Callable[[], None] | None = None
        self.environment: Mapping[str, str] | None = None
        """The command's environment, if it differs from that of the run."""
        self.messages_file = messages_file
        self.runs_after_failure = False
        self.may_fail = False
        """Its failure is that of no pass; then `status` is 0."""
        self.has_failed = False
        self.is_replaced = False
        """Another step has done what it would do."""
        self.jobs_option = ""
        """The option that sets the program's number of processes; if empty, it runs one."""
        self.most_jobs = 1
        """The number of processes that it could run."""
        self.held_slots = 1
        self.status: int | None = None
        """As of `os.waitstatus_to_exitcode`; None if it did not finish."""

    @property
    def stdout_file(self) -> str:
        """The file for its standard output."""
        return f"{self.messages_file}.out"


def merge_steps(steps: Sequence[Step], args: Sequence[str]) -> None:
    """Replace the commands of steps by one command, in the first step."""
    for step in steps:
        step.args = ()
    steps[0].args = args


class Queries:
    """Runs queries of the driver and its programs, in parallel.

    Their messages and their temporary files are in a folder of this run, so that they are removed
    with it even if a program is killed.
    """

    def __init__(
        self,
        folder: str,
        slots: Slots,
        environment: Mapping[str, str],
        make_folder: Callable[[], None] = lambda: None,
    ) -> None:
        self.folder = folder
        self._make_folder = make_folder
        self._slots = slots
        self._environment = {**environment, "TMPDIR": folder}
        self._count = itertools.count()

    def in_folder(self, folder: str) -> Queries:
        """Return queries in another folder, which exists."""
        return Queries(folder, self._slots, self._environment)

    def run(self, commands: Iterable[Sequence[str]]) -> list[str | None]:
        """Run commands; return the messages of each, None if it fails or another failed before.

        :raises OSError: a command cannot be started, or the folder cannot be created.
        """
        self._make_folder()
        steps = [
            Step(number, (), args, f"{self.folder}/{number}.query")
            for args, number in zip(commands, self._count, strict=False)
        ]
        Scheduler(steps, self._slots, self._environment).run()
        return [
            os.fsdecode(content_of(step.messages_file)) if step.status == 0 else None
            for step in steps
        ]


class Scheduler:
    """Runs steps and sets their statuses."""

    def __init__(self, steps: Sequence[Step], slots: Slots, environment: Mapping[str, str]) -> None:
        self._steps = {step.number: step for step in steps}
        self._waiting = [step for step in steps if step.status is None]
        self._slots = slots
        self._environment = environment
        self._running: dict[int, Step] = {}
        """The steps by process ID."""
        self._pidfds: dict[int, int] = {}
        """The process of each pidfd."""
        self._poll = select.poll()

    def run(self) -> None:
        """Run the steps.

        :raises OSError: a step cannot be started; all others have been ended.
        """
        try:
            while self._running or self._waiting:
                self._start_ready()
                if self._running:
                    self._wait()
                elif not any(map(self._is_ready, self._waiting)):
                    break  # the remaining steps depend on a failed one
        except BaseException:
            with shielded():
                end_processes(list(self._running))
            raise
        finally:
            for descriptor in self._pidfds:
                os.close(descriptor)
            self._slots.give_all()

    def _is_ready(self, step: Step) -> bool:
        before = [self._steps[number].status for number in step.needs]
        if any(status != 0 for status in before):
            return False
        has_failed = any(other.status not in (None, 0) for other in self._steps.values())
        return step.runs_after_failure or not has_failed

    def _start_ready(self) -> None:
        for step in [step for step in self._waiting if self._is_ready(step)]:
            if not self._slots.take():
                return
            self._waiting.remove(step)
            if not step.args:
                if step.call is not None:
                    step.call()
                step.status = 0
                self._slots.give()
                self._start_ready()
                return
            args = self._with_jobs(step)
            with shielded():  # on a signal, the handler must know the process
                self._spawn(step, args)

    def _with_jobs(self, step: Step) -> Sequence[str]:
        """Return the command with its number of processes set to the slots available now."""
        if not step.jobs_option:
            return step.args
        while step.held_slots < step.most_jobs and self._slots.take():
            step.held_slots += 1
        return [*step.args, f"{step.jobs_option}{step.held_slots}"]

    def _spawn(self, step: Step, args: Sequence[str]) -> None:
        """Start a program without input, with its messages and standard output in files."""
        files = [os.devnull, step.stdout_file, step.messages_file]
        process = start(args, step.environment or self._environment, files)
        self._running[process] = step
        with suppress(OSError, AttributeError):
            descriptor = os.pidfd_open(process)
            self._pidfds[descriptor] = process
            self._poll.register(descriptor, select.POLLIN)

    def _wait(self) -> None:
        """Wait until a process ends, or until a token may be available for a ready step."""
        is_short = any(map(self._is_ready, self._waiting))
        wants = is_short and self._slots.reader >= 0
        if wants:
            self._poll.register(self._slots.reader, select.POLLIN)
        all_watched = len(self._pidfds) == len(self._running)
        shared = _SHARED_POLL_MS if is_short and self._slots.is_shared else None
        events = self._poll.poll(shared if all_watched else _POLL_MS)
        if wants:
            self._poll.unregister(self._slots.reader)
        ended = [descriptor for descriptor, _ in events if descriptor in self._pidfds]
        for descriptor in ended:
            self._reap(self._pidfds[descriptor])
            self._poll.unregister(descriptor)
            del self._pidfds[descriptor]
            os.close(descriptor)
        if not all_watched:
            for process in self._running.keys() - self._pidfds.values():
                self._reap(process)

    def _reap(self, process: int) -> None:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            step = self._running.pop(process)
            code = os.waitstatus_to_exitcode(status)
            step.has_failed = code != 0
            step.status = 0 if step.may_fail else code
            for _ in range(step.held_slots):
                self._slots.give()


class StagedSteps:
    """The steps of one pass, with the decision whether the later ones run.

    ::

        front end -> decide -> backend -> check -> again -> linker    an object, by old driver
        front end -> decide ------------------------------> linker    bitcode by new one, PTX
                       |                    |
                       |                    the backend prints: the whole job runs again
                       as in the record: the old results stay

    See `manifest.cut_off` for the split of one job into front end and backend.
    """

    def __init__(
        self,
        steps: list[Step],
        own: Sequence[Step],
        output: str,
        keep: Callable[[], None],
        stages: Stages,
    ) -> None:
        """`own` are the steps of the pass among `steps`; the first one writes `output`.

        `keep` is called if the old results stay. `stages` have begun.
        """
        self._stages = stages
        self._front, *self._linkers = own
        self._backend: list[Step] = []
        self._job = self._front.args
        self._output = output
        self._read_object = functools.partial(content_of, output)
        self._keep = keep
        self._insert(steps)

    def _insert(self, steps: list[Step]) -> None:
        """Insert the decision, and split the front end's job if its backend can be cut off."""
        front = self._front
        bitcode = f"{front.messages_file}.bc"  # the output may be beside the object
        jobs = self._stages.jobs(front.args, bitcode)
        if not jobs and not self._linkers:
            return
        count = len(steps)
        decide = Step(count, [front.number])
        decide.call = self._decide
        if jobs:
            front.args, self._output = jobs[0], bitcode
            backend = Step(count + 1, [count], jobs[1], front.messages_file)
            check = Step(count + 2, [count + 1])
            check.call = self._check
            self._backend = [backend, check, Step(count + 3, [count + 2], (), front.messages_file)]
        added = [decide, *self._backend]
        for step in steps:
            step.needs = [added[-1].number if n == front.number else n for n in step.needs]
        for step in added:
            step.runs_after_failure = True
        steps += added

    @property
    def all(self) -> list[Step]:
        """The steps that make the result of the pass."""
        return [self._front, *self._backend, *self._linkers]

    def finish(self) -> None:
        """Note whether the jobs have printed messages, which each run must repeat."""
        if not self._backend and not content_of(self._front.messages_file):
            self._stages.printed_nothing()
        if any(content_of(step.messages_file) for step in self._linkers):
            self._stages.reset()

    def _decide(self) -> None:
        if self._stops_after(0):
            self._keep()
            for step in (*self._backend, *self._linkers):
                step.args = ()

    def _check(self) -> None:
        """Run the whole job instead of what has run if two stages would differ from it."""
        self._stops_after(1)
        if self._stages.must_repeat:
            for name in (self._front.messages_file, self._front.stdout_file):
                os.truncate(name, 0)
            self._backend[-1].args = self._job

    def _stops_after(self, number: int) -> bool:
        with open(self._output, "rb") as made, open(self._front.messages_file, "rb") as errors:
            return self._stages.stops_after(number, made, errors, self._read_object)
