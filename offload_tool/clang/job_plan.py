"""What the driver would run for a compile, as jobs with what each of them waits for.

The driver is asked once (``-###``), with the very words of the command. Its jobs are those of a
serial build; who reads what another one writes is all that keeps them in order::

    cc1 gfx906 -> lld --+                        each target's jobs read the source alone;
    cc1 gfx90a -> lld --+-> bundler -> cc1 host  so they can run at the same time

Temporary files get names in a folder of this run; the jobs are otherwise run as they are, which
is why the result is the driver's. A plan with anything that is not known here is none: the command
is run as it was given.

Source: clang 21, 22.1 and 23, observed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from offload_tool.clang.driver import job_words
from offload_tool.clang.linker_options import unknown_word
from offload_tool.clang.options import WRITES, values

HOST = "host"

_TEMPORARY = re.compile(r".+-[0-9a-f]{6,}(\.\w+)?")
_COLOUR = re.compile(r"\x1b\[[0-9;]*[mK]")
_SAID = re.compile(r"([^:]+: )?(warning|note|remark): .*")
"""What the driver says that the user shall read."""
_USUAL = re.compile(
    r"|.*clang version .*|(Target|Thread model|InstalledDir|Build config|Configuration file): .*"
    r"|(Found|Selected) .*|Candidate .*| \(in-process\)| \".*"
)
_OUTPUTS = ("-o", "--output-file", "--create")
_ATTACHED = ("-output=", "--output=", "-o=", "--create=")
_WRITTEN_IN_LTO = ("-plugin-opt=opt-remarks-filename=", "-plugin-opt=stats-file=")
_WRITTEN_BY_LINKERS = tuple(
    f"{dashes}{name}"
    for name in (
        *("Map", "dependency-file", "time-trace", "reproduce", "why-extract", "lto-obj-path"),
        *("print-archive-stats", "print-symbol-order", "opt-remarks-filename"),
    )
    for dashes in ("-", "--")
)
_FILES_OF_LLVM = re.compile(r"-.*(-file|filename|output|print|dump|dot-|stats|time-passes|debug).*")
"""Options of LLVM's own that let it write files or say something, which all passes would do."""
_TO_LLVM = ("-mllvm=", "--mllvm=", "-plugin-opt=", "--plugin-opt=")
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
"""What programs do that are not the compiler itself, by their names."""
EMBEDDING = "-fcuda-include-gpubinary"
EMBEDDING_ATTACHED = "-fembed-offload-object="
_SPLIT_DWARF = "-gsplit-dwarf"
_TO_LINKERS = "--device-linker="


class UnknownPlanError(Exception):
    """The driver would do something that is not known here; the text says what."""


class DriverJob:
    """A program that the driver would run."""

    __slots__ = ("needs", "output", "sort", "target", "words")

    def __init__(self, words: list[str], sort: str, output: str) -> None:
        self.words = words
        self.sort = sort
        """``cc1``, or one of the values of `_PROGRAMS`."""
        self.output = output
        self.needs: list[int] = []
        """The numbers of the jobs that write what it reads."""
        self.target = ""
        """The target ID, `HOST`, or "" for what joins several."""

    @property
    def source(self) -> str:
        """What a front end reads; "" for other jobs."""
        return self.words[-1] if self.sort == "cc1" else ""

    def beside(self) -> list[str]:
        """Return the files that it writes beside its output, a depfile aside."""
        found = [*values(self.words, WRITES), *_values(self.words, (), _WRITTEN_IN_LTO)]
        if self.sort == "lld":
            attached = [f"{name}=" for name in _WRITTEN_BY_LINKERS]
            found += _values(self.words, _WRITTEN_BY_LINKERS, attached)
        return found

    def embedded(self) -> list[str]:
        """Return the files that a host pass puts into its object as they are."""
        return _values(self.words, (EMBEDDING,), (EMBEDDING_ATTACHED,))

    def embed(self, name: str) -> None:
        """Replace the file that the job puts into its object."""
        for at, word in enumerate(self.words):
            if word.startswith(EMBEDDING_ATTACHED):
                self.words[at] = f"{EMBEDDING_ATTACHED}{name}"
            elif self.words[at - 1] == EMBEDDING:
                self.words[at] = name

    def write_to(self, output: str) -> None:
        """Replace the job's output; a depfile's rule keeps the old name."""
        for at, word in enumerate(self.words):
            before = self.words[at - 1]
            if word == self.output and before in _OUTPUTS:
                self.words[at] = output
            elif word.startswith(_ATTACHED) and word.partition("=")[2] == self.output:
                self.words[at] = f"{word.partition('=')[0]}={output}"
        self.output = output


class DriverPlan:
    """The jobs in the driver's order; the last one writes the result."""

    __slots__ = ("jobs", "said", "source", "temporary", "version")

    def __init__(
        self, jobs: list[DriverJob], said: list[str], source: str, temporary: list[str]
    ) -> None:
        self.jobs = jobs
        self.said = said
        """What the driver itself says: warnings of unused options, say."""
        self.source = source
        self.temporary = temporary
        """The names of temporary files, in no folder of this run yet."""
        self.version = ""
        """What the compiler says of itself."""

    @property
    def output(self) -> str:
        """The file that is asked for."""
        return self.jobs[-1].output

    @property
    def targets(self) -> list[str]:
        """The target IDs, each once."""
        found = (job.target for job in self.jobs if job.target not in ("", HOST))
        return list(dict.fromkeys(found))

    def with_temporaries_in(self, folder: str) -> None:
        """Name the temporary files as files of a folder."""
        names = {name: f"{folder}/{os.path.basename(name)}" for name in self.temporary}
        for job in self.jobs:
            job.words = [_renamed(word, names) for word in job.words]
            job.output = names.get(job.output, job.output)

    def replace_jobs(self, jobs: list[DriverJob]) -> None:
        """Take other jobs, which do the same together.

        :raises UnknownPlanError: they are no passes over the source with one result. The jobs
            are as they were.
        """
        try:
            self.source = _related(jobs)
        except UnknownPlanError:
            _related(self.jobs)
            raise
        self.jobs = jobs


def read_plan(errors: str, folder: str) -> DriverPlan:
    """Read what the driver has said to ``-###``; `folder` is that of its temporary files.

    :raises UnknownPlanError: something in it is not known here.
    """
    said, lines = read_lines(errors)
    jobs = _jobs(lines)
    source = _related(jobs)
    consumed = {jobs[index].output for job in jobs for index in job.needs}
    temporary = [name for name in consumed if _is_temporary(name, folder)]
    plan = DriverPlan(jobs, said, source, sorted(temporary))
    plan.version = "\n".join(line for line in errors.splitlines() if " version " in line[:200])
    return plan


def read_lines(errors: str) -> tuple[list[str], list[str]]:
    """Return what the driver has said to ``-###``: what is for the user, and the lines of jobs.

    :raises UnknownPlanError: something in it is not known here.
    """
    said = []
    lines = []
    for line in errors.splitlines():
        if line.startswith(' "'):
            lines.append(line)
        elif _SAID.fullmatch(_COLOUR.sub("", line)):
            said.append(line)
        elif not _USUAL.fullmatch(line):
            raise UnknownPlanError(f"the driver says {line!r}")
    return said, lines


def jobs_in(errors: str) -> list[DriverJob]:
    """Read the jobs alone of what the driver has said to ``-###``.

    :raises UnknownPlanError: one of them is not known here.
    """
    return _jobs([line for line in errors.splitlines() if line.startswith(' "')])


def _jobs(lines: Iterable[str]) -> list[DriverJob]:
    return [job_in(job_words(line)) for line in lines]


def job_in(words: list[str]) -> DriverJob:
    """Read a command of the driver's.

    :raises UnknownPlanError: it is not known here.
    """
    if any(word.startswith("@") for word in words):
        raise UnknownPlanError("the driver would write a response file")
    name = os.path.basename(words[0])
    if words[1:2] in (["-cc1"], ["-cc1as"]):
        sort = words[1][1:]
    else:
        sort = _PROGRAMS.get(re.sub(r"-\d+$", "", name), "")
    if not sort:
        raise UnknownPlanError(f"the driver would run '{words[0]}'")
    if sort == "linker-wrapper" and any(_SPLIT_DWARF in word for word in words):
        raise UnknownPlanError("debug information of device code would be beside temporary files")
    if sort == "linker-wrapper" and (word := unknown_word(_of_links(words))):
        raise UnknownPlanError(f"'{word}' is not known of a link of device code")
    for word in _values(words, ("-mllvm", "--mllvm"), _TO_LLVM):
        if _FILES_OF_LLVM.fullmatch(word):
            raise UnknownPlanError(f"'{word}' lets LLVM write or say more in each pass")
    outputs = _values(words, _OUTPUTS, _ATTACHED)
    if len(outputs) != 1:
        raise UnknownPlanError(f"'{name}' would write {len(outputs)} files")
    return DriverJob(words, sort, outputs[0])


def _of_links(words: Iterable[str]) -> Iterator[str]:
    """Yield the words that ``clang-linker-wrapper`` hands on to linkers."""
    for word in words:
        if word.startswith(_TO_LINKERS):
            value = word.removeprefix(_TO_LINKERS)
            yield value if value.startswith("-") else value.partition("=")[2]  # triple=value


def _values(words: Sequence[str], options: Iterable[str], attached: Iterable[str]) -> list[str]:
    found = [words[at + 1] for at, word in enumerate(words[:-1]) if word in options]
    return found + [
        word.removeprefix(begin) for word in words for begin in attached if word.startswith(begin)
    ]


def _related(jobs: list[DriverJob]) -> str:
    """Note how jobs depend on one another, and whose they are; return the source."""
    _connect(jobs)
    _name_targets(jobs)
    return _check(jobs)


def _connect(jobs: list[DriverJob]) -> None:
    """Note what each job reads of the ones before it, and refuse two that write one file."""
    written: set[str] = set()
    for number, job in enumerate(jobs):
        for name in (job.output, *job.beside()):
            if name in written:
                raise UnknownPlanError(f"two passes would write '{name}'")
            written.add(name)
        job.needs = [
            before
            for before, other in enumerate(jobs[:number])
            if any(other.output in word for word in job.words)
        ]


def _name_targets(jobs: list[DriverJob]) -> None:
    for job in jobs:
        if job.sort in ("cc1", "cc1as"):
            job.target = _target(job) if _is_for_device(job) else HOST
        else:
            before = {jobs[index].target for index in job.needs}
            if len(before) == 1 and job.sort in ("lld", "ptxas"):
                (job.target,) = before


def _is_for_device(job: DriverJob) -> bool:
    triple = _values(job.words, ("-triple",), ())
    return bool(triple) and triple[0].startswith(("amdgcn", "amdgpu", "nvptx", "spirv"))


def _target(job: DriverJob) -> str:
    """Return the target ID of a device pass: LLVM's features are the ID's, behind the processor."""
    processor = next(iter(_values(job.words, ("-target-cpu",), ())), "")
    features = {}
    for feature in _values(job.words, ("-target-feature",), ()):
        if feature[1:] in ("sramecc", "xnack"):
            features[feature[1:]] = feature[0]
    if not processor and "spirv" in _values(job.words, ("-triple",), ())[0]:
        processor = "amdgcnspirv"
    return ":".join([processor, *(f"{name}{features[name]}" for name in sorted(features))])


def _check(jobs: list[DriverJob]) -> str:
    """Return the source, where these are passes over one source with one result."""
    if not jobs:
        raise UnknownPlanError("the driver would run nothing")
    consumed = {index for job in jobs for index in job.needs}
    if consumed != set(range(len(jobs) - 1)):
        raise UnknownPlanError("the driver would write several results")
    made = {job.output for job in jobs}
    first = [job for job in jobs if job.sort == "cc1" and job.source not in made]
    sources = {job.source for job in first}
    if len(sources) != 1:
        raise UnknownPlanError(f"the driver would compile {len(sources)} sources")
    if sum(job.target == HOST for job in first) != 1 or len(first) < 2:
        raise UnknownPlanError("there is one pass alone")
    return sources.pop()


def _is_temporary(name: str, folder: str) -> bool:
    return os.path.dirname(name) == folder and bool(_TEMPORARY.fullmatch(os.path.basename(name)))


def _renamed(word: str, names: Mapping[str, str]) -> str:
    for before, after in names.items():
        if before in word:
            word = word.replace(before, after)
    return word
