"""Passes through a compiler launcher (``OFFLOAD_LAUNCHER``): each as a command of the driver.

Compiler caches know the driver's commands, not those of its jobs. So the words of the command are
changed to those of one pass: words for other targets go, those for its own lose ``-Xarch_...``::

    clang++ -c s.hip -o s.o --offload-arch=gfx906,gfx942 -Xarch_gfx942 -O1 -MD
    clang++ -c s.hip -o OUT -O1 --offload-arch=gfx942 --offload-device-only ...

Nobody has to believe that: the driver is asked what such a command would run, and only where that
is the very job of the plan, the launcher gets it. Else the job is run as it is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence

from offload_tool.clang.job_plan import (
    EMBEDDING,
    EMBEDDING_ATTACHED,
    HOST,
    DriverJob,
    UnknownPlanError,
    jobs_in,
)
from offload_tool.clang.options import (
    DEPFILE,
    EMBEDS,
    HEADERS,
    JOB_DEPFILE,
    LIBRARY,
    LINKER_SCRIPT,
    READS,
    TARGETS,
    does,
    takes_next,
    without_values,
)
from offload_tool.launch.deferred_embedding import PLACEHOLDER_FILE

_OUTPUT = ("-o", "--output")
_XARCH = "-Xarch_"
_ACTIONS = ("-emit-obj", "-emit-llvm-bc", "-S")

_FOLLOWED = "-mlink-builtin-bitcode"
_OF_THE_TIME = re.compile(r"__(TIME|DATE|TIMESTAMP)__")
_HEADER_MAP = ".hmap"


def command_of_pass(words: Sequence[str], first: DriverJob, output: str) -> list[str]:
    """Return the driver's words for one pass of a compile with `words`: the compiler's name first.

    `first` is its front end.
    """
    target = first.target
    kept = [words[0], *_kept(words[1:], target)]
    if target == HOST:
        kept.append("--offload-host-only")
        if EMBEDDING in first.words:
            kept += ["-Xclang", EMBEDDING, "-Xclang", PLACEHOLDER_FILE]
        kept += [w for w in first.words if w == f"{EMBEDDING_ATTACHED}{PLACEHOLDER_FILE}"]
    else:
        kept += [f"--offload-arch={target}", "--offload-device-only", "--no-gpu-bundle-output"]
    return [*kept, "-o", output]


def _kept(words: Iterable[str], target: str) -> Iterator[str]:
    own = {f"{_XARCH}{name}" for name in _names(target)}
    rest = iter(words)
    for word in rest:
        if word.startswith(_XARCH):
            value = next(rest, "")
            if word in own:
                yield value
        elif word in _OUTPUT or (does(word, DEPFILE) and takes_next(word)):
            next(rest, "")
        elif not (
            does(word, DEPFILE | TARGETS)
            or (word.startswith(_OUTPUT) and not word.startswith(("-object", "-openmp")))
        ):
            yield word


def _names(target: str) -> tuple[str, ...]:
    return ("host",) if target == HOST else ("device", target)


def why_not_launched(jobs: Sequence[DriverJob]) -> str:
    """Return why a cache would not see all that a pass reads, or not keep all that it writes."""
    for job in jobs:
        if job.beside():
            return f"it also writes '{job.beside()[0]}'"
        for word in job.words[1:]:
            looks = does(word, LIBRARY | LINKER_SCRIPT)
            unseen = does(word, READS | HEADERS) and word != _FOLLOWED
            if (job.sort == "lld" and looks) or unseen or word.endswith(_HEADER_MAP):
                return f"no depfile lists what it reads for '{word}'"
            if _OF_THE_TIME.search(word):
                return f"'{word}' is of the time"
    return ""


def is_the_pass(said: str, jobs: Sequence[DriverJob]) -> bool:
    """Return whether the driver's answer is just these jobs, whatever their files are called."""
    try:
        found = jobs_in(said)
    except UnknownPlanError:
        return False
    return len(found) == len(jobs) and _forms(found) == _forms(jobs)


def _forms(jobs: Sequence[DriverJob]) -> list[tuple[list[str], list[str]]]:
    """Return the words of jobs that decide what they do, and apart from them what is embedded."""
    marks = {job.output: f"\0{number}" for number, job in enumerate(jobs)}
    forms = []
    for job in jobs:
        words = [marks.get(word, word) for word in without_files(job.words)]
        forms.append((words, job.embedded()))
    return forms


def without_files(words: Sequence[str]) -> Iterator[str]:
    """Yield words without depfile and without what is embedded, which stands elsewhere."""
    return without_values(words, JOB_DEPFILE | EMBEDS)


def check_result(jobs: Sequence[DriverJob]) -> None:
    """Check that what a launcher has given is of the pass that it was told to run.

    :raises CodeObjectError: it is something else.
    """
    from offload_tool.errors import CodeObjectError
    from offload_tool.formats.target.compile_target import parse_target
    from offload_tool.passes.verify_output import blame_launcher, check_bitcode, check_code_object

    first, last = jobs[0], jobs[-1]
    if not first.target.startswith("gfx"):
        return  # the host's has the placeholder, or is refused; CUDA's is read by NVIDIA's programs
    device = parse_target(first.target, allow_unknown=True)
    cuid = next((w.partition("=")[2] for w in first.words if w.startswith("-cuid=")), "")
    try:
        if last.sort == "lld" and device.target_id is not None:
            check_code_object(last.output, device.target_id, cuid or None)
        elif "-emit-llvm-bc" in last.words and cuid:
            check_bitcode(last.output, device, cuid)
    except CodeObjectError as error:
        raise blame_launcher(error) from None


def reading_only(
    job: DriverJob, depfile: str, action: str = "-Eonly", output: str = os.devnull
) -> list[str]:
    """Return the command that only lists what a front end reads; its launcher may not tell."""
    words = [action if word in _ACTIONS else word for word in job.words]
    at = words.index("-o")
    words[at + 1] = output
    if "-dependency-file" not in words:
        words[2:2] = ["-dependency-file", depfile]
    return words
