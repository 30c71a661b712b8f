"""The driver's jobs for a compile, and the dependencies between them.

The driver is queried once (``-###``), with the arguments of the command. Its jobs are those of a
serial build; only a job that reads another job's output has to wait for it::

    cc1 gfx906 -> lld --+                        each target's jobs read the source alone;
    cc1 gfx90a -> lld --+-> bundler -> cc1 host  so they can run at the same time

The jobs are unchanged, so the result is the driver's. The reader rejects a plan with anything
unknown; the caller then runs the command as given.

Source: clang 21, 22.1 and 23, observed.
"""

from __future__ import annotations

import itertools
import os
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from offload_tool.clang.driver import job_args, jobs_of, option_values, query_plan
from offload_tool.clang.options import (
    DEVICE_LINK,
    EMBEDS,
    FOR_LLVM,
    LINKER,
    TEMPORARIES,
    WRITES,
    does,
    values,
)
from offload_tool.errors import CompilerError

HOST = "host"
_BACKENDS = ("lld", "ptxas")
"""Programs that may read the output of a front end within one pass."""

_COLOUR = re.compile(r"\x1b\[[0-9;]*[mK]")
_MESSAGE = re.compile(r"([^:]+: )?(warning|note|remark): .*")
_NO_MESSAGE = re.compile(
    r"|.*clang version .*|(Target|Thread model|InstalledDir|Build config|Configuration file): .*"
    r"|(Found|Selected) .*|Candidate .*| \(in-process\)"
)
_JOB_LINE = ' "'
_OUTPUTS = ("-o", "--output-file", "--create")
_ATTACHED = ("-output=", "--output=", "-o=", "--create=")
_FILES_OF_LLVM = re.compile(
    r"-.*(-file|filename|output|print|dump|dot-|stats|time-passes|debug(?!ger-tune=)).*"
)
"""LLVM options that write files or print messages, which every pass would do."""
_PROGRAMS = {
    "clang-offload-bundler": "bundler",
    "llvm-offload-binary": "packager",
    "clang-offload-packager": "packager",
    "clang-linker-wrapper": "linker-wrapper",
    "lld": "lld",
    "ld.lld": "lld",
    "ptxas": "ptxas",
    "fatbinary": "fatbinary",
}
EMBEDDING = "-fcuda-include-gpubinary"
EMBEDDING_ATTACHED = "-fembed-offload-object="
_SPLIT_DWARF = "-gsplit-dwarf"
_BEFORE_VALUES = ("-mllvm", "-z", "-o")
"""Options of lld whose values may look like options."""
_TO_LINKERS = "--device-linker="
_FILES_OF_LINKS = (
    *("-filename", "stats-file", "dwo_dir", "save-temps", "obj-path", "index-only", "emit-"),
    *("sample-profile", "cs-profile", "debug-pass-manager"),
)
"""Parts of linker options that name a file, or request other results."""
_RESOLUTION_SUFFIX = ".resolution.txt"
"""The suffix of a file that lld writes for ``--save-temps``, next to its output."""


class UnknownPlanError(Exception):
    """The driver's plan has something that this module does not know; the text names it."""


class DriverJob:
    """A program that the driver would run."""

    __slots__ = ("args", "kind", "needs", "output", "target")

    def __init__(
        self, args: list[str], kind: str, output: str, needs: Iterable[int] = (), target: str = ""
    ) -> None:
        self.args = args
        self.kind = kind
        """``cc1``, ``cc1as``, one of the values of `_PROGRAMS`, or "" if it is unknown."""
        self.output = output
        """The file that it writes; "" if that is not one file."""
        self.needs = [*needs]
        """The indexes of the jobs that write its inputs."""
        self.target = target
        """The target ID, `HOST`, or "" for a job that joins several targets."""

    @property
    def source(self) -> str:
        """The input of a front end; "" for other jobs."""
        return self.args[-1] if self.kind == "cc1" else ""

    def side_files(self) -> list[str]:
        """Return the files that it writes besides its output and its depfile."""
        return [*values(self.args, WRITES | LINKER if self.kind == "lld" else WRITES)]

    def embedded(self) -> list[str]:
        """Return the files that a host pass embeds into its object unchanged."""
        return [*values(self.args, EMBEDS)]

    def embed(self, name: str) -> None:
        """Replace the file that the job embeds into its object."""
        for at, arg in enumerate(self.args):
            if arg.startswith(EMBEDDING_ATTACHED):
                self.args[at] = f"{EMBEDDING_ATTACHED}{name}"
            elif self.args[at - 1] == EMBEDDING:
                self.args[at] = name

    def write_to(self, output: str) -> None:
        """Replace the job's output; a depfile's rule keeps the old name."""
        for at, arg in enumerate(self.args):
            before = self.args[at - 1]
            if arg == self.output and before in _OUTPUTS:
                self.args[at] = output
            elif arg.startswith(_ATTACHED) and arg.partition("=")[2] == self.output:
                self.args[at] = f"{arg.partition('=')[0]}={output}"
        self.output = output


class DriverPlan:
    """The jobs in the driver's order; the last one writes the result."""

    __slots__ = ("jobs", "messages", "source", "version")

    def __init__(
        self, jobs: list[DriverJob], messages: list[str], source: str, version: str
    ) -> None:
        self.jobs = jobs
        self.messages = messages
        """The driver's own messages, such as warnings of unused options."""
        self.source = source
        self.version = version

    @property
    def output(self) -> str:
        """The file that the command makes."""
        return self.jobs[-1].output

    @property
    def targets(self) -> list[str]:
        """The target IDs, without duplicates."""
        found = (job.target for job in self.jobs if job.target not in ("", HOST))
        return list(dict.fromkeys(found))

    def passes_in(self, folder: str) -> list[list[int]]:
        """Return the job indexes of each pass (it alone reads the source) into a directory."""
        found = []
        for number, job in enumerate(self.jobs):
            if job.source != self.source or job.needs:
                continue
            readers = [at for at, other in enumerate(self.jobs) if number in other.needs]
            last = self.jobs[readers[0]] if len(readers) == 1 else None
            is_same = last is not None and last.kind in _BACKENDS and last.needs == [number]
            numbers = [number, *(readers if is_same else ())]
            if all(self.jobs[at].output.startswith(f"{folder}/") for at in numbers):
                found.append(numbers)
        return found

    def rename(self, before: str, after: str) -> None:
        """Replace a text in the names of all files."""
        for job in self.jobs:
            job.args = [arg.replace(before, after) for arg in job.args]
            job.output = job.output.replace(before, after)

    def as_value(self) -> dict[str, Any]:
        """Return the plan as a value of JSON's types, for `from_value`."""
        jobs = [[x.args, x.kind, x.output, x.needs, x.target] for x in self.jobs]
        return {**{name: getattr(self, name) for name in self.__slots__}, "jobs": jobs}

    @classmethod
    def from_value(cls, value: Mapping[str, Any]) -> DriverPlan:
        """Return the plan of an `as_value`."""
        return cls(**{**value, "jobs": [DriverJob(*job) for job in value["jobs"]]})

    def replace_jobs(self, jobs: list[DriverJob]) -> None:
        """Replace jobs by others that do the same; on UnknownPlanError it keeps its own."""
        try:
            self.source = _related(jobs)
        except UnknownPlanError:
            _related(self.jobs)
            raise
        self.jobs = jobs


def read_plan(errors: str) -> DriverPlan:
    """Parse ``-###`` output; raise UnknownPlanError."""
    messages, jobs = read_jobs(errors)
    source = _related(jobs)
    version = "\n".join(line for line in errors.splitlines() if " version " in line[:200])
    return DriverPlan(jobs, messages, source, version)


def read_jobs(errors: str) -> tuple[list[str], list[DriverJob]]:
    """Return the driver's messages and known jobs in ``-###`` output; raise UnknownPlanError."""
    messages, jobs = parse_jobs(errors)
    for job in jobs:
        _check_job(job)
    return messages, jobs


def parse_jobs(errors: str) -> tuple[list[str], list[DriverJob]]:
    """Return the driver's messages and all jobs; raise UnknownPlanError for another line."""
    messages, jobs = [], []
    for line in errors.splitlines():
        if line.startswith(_JOB_LINE):
            jobs.append(_parse_job(job_args(line)))
        elif _MESSAGE.fullmatch(_COLOUR.sub("", line)):
            messages.append(line)
        elif not _NO_MESSAGE.fullmatch(line):
            raise UnknownPlanError(f"the driver says {line!r}")
    return messages, jobs


def messages_in(errors: str) -> list[str]:
    """Return the driver's messages for the user, of ``-###`` output."""
    return [line for line in errors.splitlines() if _MESSAGE.fullmatch(_COLOUR.sub("", line))]


def kind_of_job(args: Sequence[str]) -> str:
    """Return the kind of a job: see `DriverJob`; "" for an unknown program."""
    if [*args[1:2]] in (["-cc1"], ["-cc1as"]):
        return args[1][1:]
    return _PROGRAMS.get(re.sub(r"-\d+$", "", os.path.basename(args[0])), "")


def job_in(args: list[str]) -> DriverJob:
    """Parse a command of the driver's; raise UnknownPlanError if it is unknown."""
    job = _parse_job(args)
    _check_job(job)
    return job


def _parse_job(args: list[str]) -> DriverJob:
    outputs = [arg for before, arg in itertools.pairwise(args) if before in _OUTPUTS]
    outputs += (arg.partition("=")[2] for arg in args if arg.startswith(_ATTACHED))
    return DriverJob(args, kind_of_job(args), outputs[0] if len(outputs) == 1 else "")


def _check_job(job: DriverJob) -> None:
    args, kind = job.args, job.kind
    if any(arg.startswith("@") for arg in args):
        raise UnknownPlanError("the driver would write a response file")
    if not kind:
        raise UnknownPlanError(f"the driver would run '{args[0]}'")
    if kind == "linker-wrapper" and any(_SPLIT_DWARF in arg for arg in args):
        raise UnknownPlanError("debug information of device code would be beside temporary files")
    if kind == "linker-wrapper" and (arg := unknown_arg(_linker_args(args))):
        raise UnknownPlanError(f"'{arg}' is not known of a link of device code")
    for arg in values(args, FOR_LLVM):
        if _FILES_OF_LLVM.fullmatch(arg):
            raise UnknownPlanError(f"'{arg}' lets LLVM write or say more in each pass")
    if not job.output:
        raise UnknownPlanError(f"'{os.path.basename(args[0])}' would not write one file")


def _linker_args(args: Iterable[str]) -> Iterator[str]:
    for arg in args:
        if arg.startswith(_TO_LINKERS):
            value = arg.removeprefix(_TO_LINKERS)
            yield value if value.startswith("-") else value.partition("=")[2]  # triple=value


def unknown_arg(args: Iterable[str]) -> str:
    """Return the first argument by which a device link may use other files; "" if none."""
    before = ""
    for arg in args:
        is_flag = arg.startswith("-") and arg != "-o" and before not in _BEFORE_VALUES
        is_known = does(arg, DEVICE_LINK) and not any(x in arg for x in _FILES_OF_LINKS)
        if is_flag and not is_known:
            return arg
        before = arg
    return ""


def _related(jobs: list[DriverJob]) -> str:
    _connect(jobs)
    _name_targets(jobs)
    return _check(jobs)


def _connect(jobs: list[DriverJob]) -> None:
    """Set the dependencies of jobs on earlier ones; reject two jobs that write one file."""
    written: set[str] = set()
    for number, job in enumerate(jobs):
        for name in (job.output, *job.side_files()):
            if name in written:
                raise UnknownPlanError(f"two passes would write '{name}'")
            written.add(name)
        job.needs = [
            before
            for before, other in enumerate(jobs[:number])
            if any(other.output in arg for arg in job.args)
        ]


def _name_targets(jobs: list[DriverJob]) -> None:
    for job in jobs:
        if job.kind in ("cc1", "cc1as"):
            job.target = _target(job)
        else:
            before = {jobs[index].target for index in job.needs}
            if len(before) == 1 and job.kind in ("lld", "ptxas"):
                (job.target,) = before


def _target(job: DriverJob) -> str:
    """Return `HOST`, or the target ID of a device pass: the processor, then LLVM's features."""
    triple = next(option_values(job.args, "-triple"), "")
    if not triple.startswith(("amdgcn", "amdgpu", "nvptx", "spirv")):
        return HOST
    processor = next(option_values(job.args, "-target-cpu"), "")
    features = {}
    for feature in option_values(job.args, "-target-feature"):
        if feature[1:] in ("sramecc", "xnack"):
            features[feature[1:]] = feature[0]
    if not processor and "spirv" in triple:
        processor = "amdgcnspirv"
    return ":".join([processor, *(f"{name}{features[name]}" for name in sorted(features))])


def _check(jobs: list[DriverJob]) -> str:
    """Return the source of jobs; reject all but passes over one source with one result."""
    if not jobs:
        raise UnknownPlanError("the driver would run nothing")
    consumed = {index for job in jobs for index in job.needs}
    if consumed != set(range(len(jobs) - 1)):
        raise UnknownPlanError("the driver would write several results")
    outputs = {job.output for job in jobs}
    first = [job for job in jobs if job.kind == "cc1" and job.source not in outputs]
    sources = {job.source for job in first}
    if len(sources) != 1:
        raise UnknownPlanError(f"the driver would compile {len(sources)} sources")
    if sum(job.target == HOST for job in first) > 1 or len(first) < 2:
        raise UnknownPlanError("there is one pass alone")
    return sources.pop()


def renamed(arg: str, names: Mapping[str, str]) -> str:
    """Return an argument in which the names of files are replaced by others."""
    for before, after in names.items():
        arg = arg.replace(before, after)
    return arg


def keeps_temporaries(args: Iterable[str]) -> bool:
    """Return whether a compile keeps its intermediate files, which others would overwrite."""
    return any(does(arg, TEMPORARIES) for arg in args)


def side_files(
    command: Sequence[str], environment: Mapping[str, str], output: str
) -> dict[str, bool]:
    """Return what a compile has written besides `output`: files and folders, as it spells them.

    These are split DWARF, traces, reports and temporaries; the driver's plan names them. The value
    is True if the file is named after the output, so that no other compile writes it.
    ``--save-temps`` names files after the source alone, and a user may give one name for all.
    Source: clang 22.1.8, observed.
    """
    try:
        jobs = jobs_of(query_plan(command, environment))
    except CompilerError:
        return {}
    stem = posixpath.splitext(output)[0]
    found: dict[str, bool] = {}
    for args in jobs:
        for name in values(args, WRITES):
            local = posixpath.relpath(name) if name.startswith("/") else name
            found[local] = local.startswith(stem)
        for written in option_values(args, "-o"):  # temporaries that are not kept are gone
            found |= dict.fromkeys({written, f"{written}{_RESOLUTION_SUFFIX}"} - {output}, False)
    return {name: own for name, own in found.items() if os.path.exists(name)}
