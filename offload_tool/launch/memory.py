"""The records of a compile's passes, in one file beside the object: ``.NAME.o.manifest``.

::

    the passes of the plan --> all are current, and the object is intact --> it gets a new time
            |
            +-- current:  its results are taken from the old object
            +-- others:   run
            v
    the driver's join of the images --> the host's object, or the old one with other images

An image is recognised by its digest, so nothing is kept of it but the object itself. The object is
renamed first, then the manifest. If a call is killed between, or if anything else has written the
object, the digest of the object is not that of the manifest, and all passes run. After an error
there is no object, and `old_results` has a file of its own.

The host pass runs whenever an image has changed and the object cannot be made from the old one:
with ``-flto``, and where the old offload driver bundles relocatable code.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial

from offload_tool.clang.argument_files import unlisted_by, unlisted_in_link
from offload_tool.clang.environment import has_time_macro
from offload_tool.clang.job_plan import HOST, DriverJob, DriverPlan, renamed
from offload_tool.errors import OffloadError
from offload_tool.io.file_digests import (
    DigestCache,
    content_of,
    digest_of,
    file_stat_from,
)
from offload_tool.io.paths import remove
from offload_tool.launch.old_results import (
    EMBEDDED,
    KEPT,
    NOTHING,
    RESULTS,
    OldResults,
    kept_path,
    results_name,
)
from offload_tool.launch.planned_pass import PlannedPass
from offload_tool.launch.scheduler import StagedSteps, Step
from offload_tool.launch.write_result import PLACEHOLDER_FILE, can_embed_later, embeds_nothing
from offload_tool.manifest import manifest_path
from offload_tool.manifest.key import Cause, Reason
from offload_tool.manifest.manifest import (
    OutputRecord,
    PassRecord,
    read_output_record,
    write_output_record,
)
from offload_tool.manifest.pass_run import PassRun
from offload_tool.toolchain.disk_cache import kept_by_stat
from offload_tool.toolchain.identity import LIBRARY_PATH, program_identity

SWITCH = "OFFLOAD_LAUNCH_MEMORY"
_JOIN = "join"
"""The text of the jobs that join the images."""
MESSAGES, STDOUT, DEPFILE, PCH = "messages", "output", "depfile", "precompiled header"
"""What is known of each pass besides its record and results: what it wrote, and how."""
_NMAKE = "-MV"


class _Pass:
    """A pass of the plan: all jobs for one target."""

    def __init__(self, target: str, numbers: list[int], results: list[int], run: PassRun) -> None:
        self.target = target
        self.numbers = numbers
        self.results = results
        """The jobs whose output others read."""
        self.run = run
        self.is_current = False
        self.is_kept = False
        """Its results are those of the old object."""
        self.staged: StagedSteps | None = None
        self.outcome = ""
        """For messages; "" if it is current."""

    def steps(self, steps: Sequence[Step]) -> list[Step]:
        """Return the steps that must have succeeded."""
        own = [steps[number] for number in self.numbers]
        return own if self.staged is None else self.staged.all


def why_not_remembered(plan: DriverPlan, folder: str, environ: Mapping[str, str]) -> str:
    """Return why a compile has no manifest; "" if it has one."""
    if environ.get(SWITCH) == "0":
        return f"{SWITCH}=0"
    targets = [job.target for job in plan.jobs if job.source == plan.source]
    if len(targets) != len({*targets}) or "" in targets:
        return "a target has several passes"
    for job in plan.jobs[:-1]:
        if not job.output.startswith(f"{folder}/"):
            return f"'{job.output}' is kept"
    return next(filter(None, map(_why_unknown, plan.jobs)), "")


def _why_unknown(job: DriverJob) -> str:
    """Return what of a job's inputs and outputs is not known; "" if all is."""
    if job.kind == "linker-wrapper":
        return "one job links all targets, with programs of its own"
    if job.side_files():
        return f"it also writes '{job.side_files()[0]}'"
    unlisted = unlisted_by if job.kind == "cc1" else unlisted_in_link
    if name := unlisted(job.args[1:]):
        return f"no depfile lists what it reads for '{name}'"
    for arg in job.args[1:]:
        if arg == _NMAKE:
            return f"what it reads for '{arg}' is not known"
        if has_time_macro(os.fsencode(arg)):
            return f"'{arg}' is of the time"
    return ""


class Memory:
    """What is known of the passes of one compile."""

    def __init__(
        self,
        plan: DriverPlan,
        depfiles: Mapping[int, str],
        environ: Mapping[str, str],
        make_folder: Callable[[], None],
    ) -> None:
        """`plan` is the driver's own; `depfiles` names those of the front ends, by job number.

        `make_folder` creates the folder of the depfiles.
        """
        self._plan, self._depfiles = plan, depfiles
        self._output = plan.output
        self.digests = DigestCache()
        path = environ.get(LIBRARY_PATH, "")
        self.identity = cache(lambda program: program_identity(program, path))
        self._passes = [*self._find_passes(environ, make_folder)]
        self._join = self._join_key()
        self._record = read_output_record(manifest_path(self._output), self.digests, self._output)
        self._texts: dict[str, str] = {}
        self._old: OldResults | None = None
        self._embeds_later = can_embed_later(plan.jobs[-1])
        self._images = plan.jobs[-1].embedded()[0] if self._embeds_later else ""
        self.is_complete = self._judge()
        """Nothing has to run."""

    def _find_passes(
        self, environ: Mapping[str, str], make_folder: Callable[[], None]
    ) -> Iterable[_Pass]:
        plan, by_target = self._plan, dict[str, list[int]]()
        for number, job in enumerate(plan.jobs):
            if job.target:
                by_target.setdefault(job.target, []).append(number)
        for target, numbers in by_target.items():
            read = {n for at, job in enumerate(plan.jobs) if at not in numbers for n in job.needs}
            resolver = PlannedPass(
                *(plan, numbers, self._depfiles[numbers[0]], environ),
                *(self.identity, self.digests, make_folder),
            )
            results = [number for number in numbers if number in read]
            yield _Pass(target, numbers, results, PassRun(resolver, self.digests))

    def _join_key(self) -> str:
        """Return the commands of the jobs that join the images, and their programs."""
        jobs = [job for job in self._plan.jobs if not job.target]
        marks = {job.output: f"\0{number}" for number, job in enumerate(self._plan.jobs)}
        args = [[renamed(arg, marks) for arg in job.args] for job in jobs]
        return json.dumps([*args, [self.identity(job.args[0]) for job in jobs]])

    # -- the verdict -----------------------------------------------------------------------

    def _judge(self) -> bool:
        """Find the passes that need not run; return True if none has to."""
        record = self._record
        old = None if record is None else OldResults(record, self._output)
        damage = Cause.NO_RECORD if old is None else old.damage(self.digests)
        if damage is not None or record is None or old is None:
            for each in self._passes:
                each.run.reason = Reason(damage or Cause.NO_RECORD)
            return False
        self._old = old
        for each in self._passes:
            each.run.record = record.passes.get(each.target)
            each.is_current = each.run.is_current()
        is_same_join = old.are_an_object and record.texts.get(_JOIN) == self._join
        if is_same_join and all(each.is_current for each in self._passes):
            return True
        old.load()
        for each in self._passes:
            if each.is_current and self._old_results(each) is None:
                is_host = each.target == HOST and not self._embeds_later
                each.is_current = False
                each.run.reason = Reason(Cause.OTHERS if is_host else Cause.RESULT)
        return False

    def _old_results(self, each: _Pass) -> list[bytes] | None:
        """Return the old results of a pass; None if they are not all there."""
        if self._old is None:
            return None
        if each.target == HOST and self._embeds_later:
            return [self._old.host_object] if self._old.embedded is not None else None
        digests = self._old_texts.get(results_name(each.target), "").split()
        is_known = len(digests) == len(each.results) > 0
        return self._old.with_digests(digests) if is_known else None

    @property
    def _old_texts(self) -> Mapping[str, str]:
        return self._record.texts if self._record is not None else {}

    # -- a run -----------------------------------------------------------------------------

    def is_skipped(self, number: int) -> bool:
        """Return whether the pass of a job does not run."""
        return any(number in each.numbers and each.is_current for each in self._passes)

    def is_kept(self, number: int) -> bool:
        """Return whether the results of a job's pass are those of the old object, as yet."""
        return any(number in each.numbers and each.is_kept for each in self._passes)

    def reason_against_pch(self, number: int) -> str:
        """Return what of a pass's last run is a reason against a precompiled header; "" if none.

        With one, the bitcode may differ for the same code, so the backend could not be cut off.
        """
        each = next(each for each in self._passes if number in each.numbers)
        if self._old_texts.get(f"{each.target} {MESSAGES}"):
            return "it has printed messages the last time"
        record, reason, source = each.run.record, each.run.reason, self._plan.source
        if record is None or reason is None or self._old_texts.get(f"{each.target} {PCH}"):
            return ""
        may_be_cut_off = reason.subject == source and record.has_bitcode
        others = ((name, digest) for name, digest in record.inputs.items() if name != source)
        if may_be_cut_off and all(self.digests.digest(name) == digest for name, digest in others):
            return "it ran without the last time, and only its source has changed"
        return ""

    def begin(self, marker: str) -> None:
        """Note the state of all inputs before the passes run.

        :raises FileError: the file `marker` cannot be written.
        """
        for each in self._passes:
            if not each.is_current:
                each.run.begin(marker)

    def restore(self, steps: Sequence[Step]) -> None:
        """Write what current passes would write, and clear their steps.

        :raises OSError: a file cannot be written.
        """
        for each in (one for one in self._passes if one.is_current):
            self._texts |= self._texts_before(each)
            step = steps[each.numbers[0]]
            names = step.messages_file, step.stdout_file, self._depfiles[each.numbers[0]]
            for file, name in zip(names, (MESSAGES, STDOUT, DEPFILE), strict=True):
                _write(file, os.fsencode(self._texts[f"{each.target} {name}"]))
            for number in each.numbers:
                steps[number].args = ()
            self._keep(each)

    def _texts_before(self, each: _Pass) -> dict[str, str]:
        names = [f"{each.target} {name}" for name in (RESULTS, MESSAGES, STDOUT, DEPFILE, PCH)]
        return {name: self._old_texts.get(name, "") for name in names}

    def _keep(self, each: _Pass) -> None:
        """Write the results of a pass that are in the old object.

        :raises OSError: a file cannot be written.
        """
        each.is_kept = True
        if each.target == HOST and self._embeds_later:  # the object itself, by `exchange`
            _write(self._plan.jobs[-1].output, b"")
            return
        for number, data in zip(each.results, self._old_results(each) or (), strict=True):
            _write(self._plan.jobs[number].output, data)

    def stage(
        self,
        steps: list[Step],
        launched: Container[int],
        command: Sequence[str],
        environ: Mapping[str, str],
    ) -> None:
        """Insert the decisions after which passes may end: see `StagedSteps`."""
        from offload_tool.manifest.cut_off import CUTOFF, Stages  # not if all is current

        if environ.get(CUTOFF) == "0":
            return
        for each in self._passes:
            first = each.numbers[0]
            if each.is_current or first in launched:
                continue
            stages = Stages.of(environ)
            is_unchanged = each.run.is_key_unchanged and self._old_results(each) is not None
            stages.begin(each.run.record, command, is_unchanged=is_unchanged)
            each.run.stages = stages
            own = [steps[number] for number in each.numbers]
            output = self._plan.jobs[first].output
            each.staged = StagedSteps(steps, own, output, partial(self._keep, each), stages)

    def exchange(self, images: str, output: str) -> None:
        """Write the old object with other images to `output`.

        :raises ContentError, FileError: see `exchange_images`.
        """
        if self._old is not None:
            self._old.exchange(images, output)

    def finish(self, steps: Sequence[Step], launched: Iterable[int]) -> None:
        """Note what the passes that ran have read and written."""
        for each in self._passes:
            self._note(each, steps, launched)
        self._texts[_JOIN] = self._join
        if self._images:
            is_nothing = self._embedded_now() == NOTHING
            self._texts[EMBEDDED] = NOTHING if is_nothing else self.digests.digest(self._images)

    def _has_old_images(self) -> bool:
        known = self._old_texts.get(EMBEDDED)
        return known == NOTHING or bool(self._images and known == self.digests.digest(self._images))

    def _embedded_now(self) -> str:
        """Return the text `EMBEDDED` of the host's object before the images are exchanged."""
        if any(each.is_kept for each in self._passes if each.target == HOST):
            return self._old_texts.get(EMBEDDED, "")
        is_nothing = embeds_nothing(content_of(self._plan.jobs[-1].output))
        return NOTHING if is_nothing else self.digests.digest(PLACEHOLDER_FILE)

    def _note(self, each: _Pass, steps: Sequence[Step], launched: Iterable[int]) -> None:
        if each.is_current:
            return
        how = "from the launcher" if each.numbers[0] in launched else "compiled"
        how = "front end only" if each.is_kept else how
        each.outcome = f"{how}: {each.run.reason}"
        if each.staged is not None:
            each.staged.finish()
        each.run.record = None
        with suppress(OffloadError):  # what it has read is not known
            each.run.record = _if_sure(each.run.finish())
        jobs = self._plan.jobs
        if each.is_kept and not each.results:  # the host's object, of which only images may change
            made = self._old_texts.get(results_name(HOST), "")
        else:
            names = [jobs[number].output for number in each.results or each.numbers[-1:]]
            made = " ".join(map(self.digests.digest, names))
        # The host's object contains the images, too.
        is_host = each.target == HOST
        if each.run.stages is not None and (not is_host or self._has_old_images()):
            kept = self._old_texts.get(results_name(each.target), "")
            each.run.stages.check(kept, made, self._output)
        texts = {
            RESULTS: made,
            MESSAGES: _text_of(steps[n].messages_file for n in each.numbers),
            STDOUT: _text_of(steps[n].stdout_file for n in each.numbers),
            DEPFILE: _text_of([self._depfiles[each.numbers[0]]]),
            PCH: "used" * steps[each.numbers[0]].is_replaced,
        }
        texts = {f"{each.target} {name}": text for name, text in texts.items()}
        self._texts |= texts
        before = self._texts_before(each) | {name: texts[name] for name in texts if PCH in name}
        if each.run.record is not None and texts != before:
            each.run.record = each.run.record._replace(earlier=())  # they had other results

    def keep(self, steps: Sequence[Step], launched: Container[int]) -> None:
        """Keep the results of this compile, which failed, for the next one.

        A pass that has failed keeps its results of the run before.
        """
        parts: list[bytes] = []
        records: dict[str, PassRecord] = {}
        for each in self._passes:
            results = self._results_to_keep(each, steps, launched)
            record = each.run.record
            if record is not None and results:
                records[each.target] = record
                parts += results
                if each.target == HOST and self._embeds_later:
                    self._texts[results_name(HOST)] = digest_of(results[0])
        path = kept_path(self._output)
        if not parts:
            _remove(path)
            return
        from offload_tool.io import replace_file

        data = b"".join(parts)
        with suppress(OffloadError), replace_file(path) as out:  # such as a full disk
            out.write(data)
        self._texts[KEPT] = " ".join(str(len(part)) for part in parts)
        self._write_record(OutputRecord(digest_of(data), records, self._texts))

    def _results_to_keep(
        self, each: _Pass, steps: Sequence[Step], launched: Container[int]
    ) -> list[bytes] | None:
        """Note what is known of a pass, and return its results; None if there are none."""
        is_host = each.target == HOST and self._embeds_later
        is_done = each.is_current or (
            each.numbers[0] not in launched  # its cache has the result
            and all(step.status == 0 for step in each.steps(steps))
        )
        if is_done:
            self._note(each, steps, ())
        else:
            each.run.record = self._record.passes.get(each.target) if self._record else None
            self._texts |= self._texts_before(each)
        if is_host:
            old = self._old_texts.get(EMBEDDED, "")
            self._texts[EMBEDDED] = self._embedded_now() if is_done else old
        if each.is_kept or not is_done:
            return self._old_results(each)
        if is_host:
            return [content_of(self._plan.jobs[-1].output)]
        return [content_of(self._plan.jobs[number].output) for number in each.results]

    def texts(self, name: str) -> dict[int, bytes]:
        """Return a text of each pass (`MESSAGES`, `STDOUT`, `DEPFILE`), by its first job."""
        return {
            each.numbers[0]: os.fsencode(self._texts.get(f"{each.target} {name}", ""))
            for each in self._passes
        }

    def outcomes(self) -> list[str]:
        """Return what has become of each pass."""
        return [f"{each.target}: {each.outcome or 'current'}" for each in self._passes]

    def save(self, descriptor: int) -> None:
        """Write the manifest of the new object, which is open; it has got its name."""
        with open(descriptor, "rb", closefd=False) as file:
            self._save(descriptor, digest_of(file.read()))

    def renew(self) -> bool:
        """Renew the time of the object; return False if it has just been replaced."""
        record = self._record
        if record is None:
            return False
        with suppress(OSError), open(self._output, "rb") as file:
            known = self.digests.cached(self._output)
            is_judged = known is not None and known[0] == file_stat_from(os.fstat(file.fileno()))
            if is_judged or digest_of(file.read()) == record.output:
                os.utime(file.fileno())
                self._texts = {**record.texts}
                self._save(file.fileno(), record.output)
                return True
        return False

    def _save(self, descriptor: int, digest: str) -> None:
        self.digests.store(self._output, file_stat_from(os.fstat(descriptor)), digest)
        records = {each.target: each.run.record for each in self._passes}
        known = {target: record for target, record in records.items() if record is not None}
        self._write_record(OutputRecord(digest, known, self._texts))
        _remove(kept_path(self._output))

    def _write_record(self, record: OutputRecord) -> None:
        path = manifest_path(self._output)
        try:
            write_output_record(path, record, self.digests, self._output)
        except OffloadError:  # such as a full disk: the object is still right
            _remove(path)


def _if_sure(record: PassRecord) -> PassRecord | None:
    """Return a record; None if all inputs are not known, or the time is one of them."""
    return record if record.output and not any(map(_has_time, [*record.inputs])) else None


@kept_by_stat
def _has_time(name: str) -> bool:
    return has_time_macro(content_of(name))


def _text_of(names: Iterable[str]) -> str:
    return os.fsdecode(b"".join(map(content_of, names)))


def _remove(name: str) -> None:
    with suppress(OSError):
        remove(name)


def _write(name: str, data: bytes) -> None:
    with open(name, "wb") as file:
        file.write(data)
