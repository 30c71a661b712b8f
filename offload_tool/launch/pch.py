"""Precompiled headers (PCHs) of launches: ``OFFLOAD_PCH`` names the headers.

::

    a pass that runs -- is there a current PCH for it? -- yes --> front end with the PCH
                               | no                                  |  fails, or prints
                  another source's mark? -- no: leave one ------+    |
                               | yes                            v    v
                  make the PCH, under a lock; then as above     the pass as it is

A launch knows one source, so it cannot count the users of a PCH. The first compile that wants a PCH
leaves a mark (`offload_tool.pch.marks`). If another source wants it within a minute, all of a build
may, and it makes the PCH. Thus an edit of one source makes no PCH for one compile.

PCHs are in the folder `FOLDER` of the compile, since they hold absolute names. Each belongs to the
text of its includes, and to the front end's arguments that do not depend on the source. Their
recipes are jobs of the driver's plan: see `offload_tool.pch`. Anybody may remove that folder at any
time, and a launch that is killed leaves a PCH without a manifest, which no compile uses.

A pass with a PCH gets the depfile that it would have without, so its record is the same, too.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial

from offload_tool.clang.depfile import clang_depfile, read_depfile
from offload_tool.clang.driver import option_values
from offload_tool.clang.environment import ImplicitInputs, folders_of_job
from offload_tool.clang.job_plan import HOST, DriverJob, DriverPlan
from offload_tool.clang.options import EMBEDS, JOB_DEPFILE, without_values
from offload_tool.errors import FileError, OffloadError, UsageError
from offload_tool.io.file_digests import DigestCache, content_of, digest_of
from offload_tool.io.paths import remove_unused, sibling
from offload_tool.launch.planned_pass import ALL_HEADERS
from offload_tool.launch.scheduler import Step
from offload_tool.passes.command import Command
from offload_tool.pch import pch
from offload_tool.pch.eligibility import reason_of_front_end
from offload_tool.pch.include_prefix import Candidate
from offload_tool.pch.marks import Marks
from offload_tool.pch.recipe import MAP, PchRecipe, front_end_args

SWITCH = "OFFLOAD_PCH"
FOLDER = ".offload-pch"
LAUNCHED = "its launcher runs it"
_NEW = "the headers are new: the next source makes it"
_OTHER_DEPFILE = "its depfile does not list all headers, and nothing else: use -MD"
_KEPT_FOR = 7 * 24 * 3600
"""Seconds without a use, after which a PCH is removed when another one is made."""
_OWN = ("-o", "-main-file-name")
"""Options of the front end whose values depend on the source."""


def wanted_headers(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the headers that the environment names; () if precompiled headers are off.

    :raises UsageError: it names none.
    """
    given = environ.get(SWITCH, "")
    names = tuple(filter(None, given.split(":")))
    if given in ("1", "True") or any(name[0] in "<\"'" for name in names):
        raise UsageError(
            f"{SWITCH}={given}: expected names of headers as in '#include', separated by colons; "
            f"set {SWITCH}=common.h"
        )
    return () if given == "0" else names


class PlannedPchs:
    """The precompiled headers for the passes of one compile."""

    def __init__(
        self,
        wanted: tuple[str, ...],
        plan: DriverPlan,
        environ: Mapping[str, str],
        identity: Callable[[str], str],
        digests: DigestCache,
    ) -> None:
        """`identity` returns that of a program; the jobs of `plan` write their depfiles."""
        self._wanted, self._plan, self._environ = wanted, plan, environ
        self._identity, self._digests = identity, digests
        self._found: dict[int, pch.UsablePch | str] = {}

    def find(self, passes: Mapping[int, str]) -> None:
        """Find or make PCHs for passes, by the number of their first job.

        The values are known reasons against a PCH; "" for none. What other launches make is waited
        for at last.
        """
        for waits in (False, True):
            for number in passes.keys() - self._found.keys():
                try:
                    job = self._plan.jobs[number]
                    self._found[number] = passes[number] or self._find(job, waits=waits)
                except BlockingIOError:
                    continue
                except OSError as error:
                    self._found[number] = str(FileError(FOLDER, error))
                except OffloadError as error:
                    self._found[number] = str(error)

    def _find(self, job: DriverJob, *, waits: bool) -> pch.UsablePch | str:
        """Return the PCH for a pass, or why there is none.

        :raises BlockingIOError: another launch makes it, and this one does not wait.
        """
        args = [*without_values(job.args, JOB_DEPFILE)]
        is_linked = any(job.output in each.args for each in self._plan.jobs if each.kind == "lld")
        if is_linked and not any(arg.startswith("-flto") for arg in args):
            args = [arg for arg in args if not arg.startswith("-emit-llvm")]  # no output is bitcode
        args = [arg for arg in args if not arg.startswith(MAP)]  # the new PCH is checked for it
        if reason := reason_of_front_end(next(option_values(args, "-x"), ""), args):
            return reason
        if ALL_HEADERS not in job.args or any(arg.startswith("-fdepfile-entry") for arg in args):
            return _OTHER_DEPFILE
        candidates = self._recipe(job, ()).search_path.candidates(job.source)
        candidate = next(filter(self._is_wanted, candidates.all), None)
        if candidate is None:
            return f"its first includes have no header of {SWITCH}; '{candidates.stop}' ends them"
        recipe = self._recipe(job, candidate.headers)
        if (found := pch.find_state(recipe, job.source)) is not None:
            return found
        os.makedirs(FOLDER, exist_ok=True)
        with open(sibling(recipe.file, ".lock"), "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
            if (found := pch.find_state(recipe, job.source)) is not None:
                return found
            # Not before: a PCH that another launch makes has another state than its headers.
            marks = Marks(recipe, candidate, self._digests)
            if not marks.are_enough and not marks.has_other(job.source):
                marks.add(job.source)
                return _NEW
            state = pch.states(recipe)[0]
            pch.make_pch(state, candidate, refuses_errors=True)
            remove_unused(FOLDER, _KEPT_FOR, but=(".lock",))
            return pch.find_usable(state, job.source)

    def _is_wanted(self, candidate: Candidate) -> bool:
        names = [each[1:-1] for each in candidate.headers]
        return {*([candidate.spelling] if candidate.includers else names)} <= {*self._wanted}

    def _recipe(self, job: DriverJob, headers: Sequence[str]) -> PchRecipe:
        """Return the recipe of a PCH of `headers` for a job."""
        given = [*without_values(job.args[:-1], JOB_DEPFILE | EMBEDS)]
        for option in _OWN:
            at = given.index(option) if option in given else len(given)
            del given[at : at + 2]
        args = pch.args_without_source(given)
        text = "\0".join([*headers, "", *args])
        number = digest_of(text.encode(errors="surrogateescape"))[:16]
        name = job.target.replace(":", "-")
        return PchRecipe(
            f"{FOLDER}/{name}.{number}.pch",
            "host" if job.target == HOST else "device",
            args,
            1,
            self._environ,
            self._identity(args[0]),
            cache(lambda: ImplicitInputs(tuple(dict.fromkeys(folders_of_job(args))))),
            lambda: self._plan.version,
            lambda: self._digests,
        )

    def insert(
        self, steps: list[Step], depfiles: Mapping[int, str], report: Callable[[str], None]
    ) -> None:
        """Insert the front ends with PCHs before those without; `depfiles` are as in `Memory`."""
        for number in sorted(self._found):
            usable, job = self._found[number], self._plan.jobs[number]
            if isinstance(usable, str):
                report(f"{job.target}: without a precompiled header: {usable}")
                continue
            front = steps[number]
            args = [*front.args[:-1], *front_end_args(usable.args()), front.args[-1]]
            trial = Step(len(steps), front.needs, args, f"{front.messages_file}.pch")
            verdict = Step(len(steps) + 1, [trial.number])
            trial.may_fail = True
            trial.runs_after_failure = verdict.runs_after_failure = front.runs_after_failure
            front.needs = [verdict.number]
            verdict.call = partial(_judge, usable, job, depfiles[number], trial, front, report)
            steps += [trial, verdict]


def _judge(
    usable: pch.UsablePch,
    job: DriverJob,
    depfile: str,
    trial: Step,
    front: Step,
    report: Callable[[str], None],
) -> None:
    """Skip the front end without the PCH if the one with it is as good."""
    command = Command((job.args[0],), (), job.output, job.source, depfile)
    reason = pch.MESSAGES
    if not (trial.has_failed or content_of(trial.messages_file) or content_of(trial.stdout_file)):
        try:
            reason = usable.reason_of_names(command)
            read = usable.files_read(job.source, read_depfile(depfile))
            text = clang_depfile([*option_values(job.args, "-MT")], read, phony="-MP" in job.args)
        except OffloadError as error:
            reason = str(error)
    if not reason:
        for name in (depfile, front.messages_file, front.stdout_file):
            with open(name, "wb") as file:
                file.write(text if name == depfile else b"")
        front.args, front.is_replaced = (), True
    how = f"without a precompiled header: {reason}" if reason else "with the precompiled header"
    report(f"{job.target}: {how}")
