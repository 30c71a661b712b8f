"""The cut-off of a pass: its later jobs do not run if the front end's output is as before.

::

    front end -> decide -> backend -> linker         an object, by old offload driver
    front end -> decide --------------> linker       the new one's bitcode, CUDA's PTX
                   |
                   as in the record: the old results stay

See `run.cut_off` for the split of one job into front end and backend.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from offload_tool.io.file_digests import content_of
from offload_tool.launch.scheduler import Step
from offload_tool.manifest.manifest import PassRecord
from offload_tool.run.cut_off import Stages

_SWITCH = "OFFLOAD_CUTOFF"


class StagedSteps:
    """The steps of one pass, with the decision between them."""

    def __init__(
        self,
        steps: list[Step],
        own: Sequence[Step],
        output: str,
        keep: Callable[[], None],
        environ: Mapping[str, str],
    ) -> None:
        """`own` are the steps of the pass among `steps`; the first one writes `output`.

        `keep` is called if the old results stay.
        """
        self.stages = Stages()
        self._is_on = environ.get(_SWITCH) != "0"
        self._steps = steps
        self._front, *self._rest = own
        self._output = output
        self._keep = keep
        self._is_split = False

    def begin(
        self, before: PassRecord | None, command: Sequence[str], *, is_unchanged: bool
    ) -> None:
        """Insert the decision; see `Stages.begin`. `command` is the user's."""
        if not self._is_on:
            return
        front, steps = self._front, self._steps
        self.stages.begin(before, command, is_unchanged=is_unchanged)
        bitcode = f"{self._output}.bc"
        jobs = self.stages.jobs(front.args, bitcode)
        if not jobs and not self._rest:
            return
        decide = Step(len(steps), [front.number])
        decide.call = self._decide
        last = decide
        if jobs:
            front.args, self._output, self._is_split = jobs[0], bitcode, True
            last = Step(len(steps) + 1, [decide.number], jobs[1], front.messages_file)
            self._rest.insert(0, last)
        for step in steps:
            step.needs = [last.number if n == front.number else n for n in step.needs]
        steps += [decide, last] if jobs else [decide]
        decide.runs_after_failure = last.runs_after_failure = True

    @property
    def all(self) -> list[Step]:
        """The steps that make the result of the pass."""
        return [self._front, *self._rest]

    def finish(self) -> None:
        """Note whether the later jobs have printed messages, which each run must repeat."""
        if self._is_split:
            self._stops_after(1)
        if any(content_of(step.messages_file) for step in self._rest[self._is_split :]):
            self.stages.reset()

    def _decide(self) -> None:
        if self._stops_after(0):
            self._keep()
            for step in self._rest:
                step.args = ()

    def _stops_after(self, number: int) -> bool:
        with open(self._output, "rb") as made, open(self._front.messages_file, "rb") as errors:
            self.stages.watch(made, errors)
            return self.stages.stops_after(number)
