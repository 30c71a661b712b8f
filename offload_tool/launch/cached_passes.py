"""Which jobs of a plan make a pass whose result can be kept, and what that depends on.

A pass is a front end that reads the source, and the linker or assembler that alone reads what it
makes. Its key holds all that is known before::

    the folder of the build, the variables that the compiler heeds, both programs and their
    shared libraries, and the words of both commands, with temporary files by number

and its manifest all that it has read (`result_cache`). What is written beside the result is not
kept, so a compile with such files, with modules or with plugins has no pass here; nor has one that
looks for headers or libraries in ways that are not followed here, or whose source holds the time of
the compile or lets the assembler read a file.
"""

from __future__ import annotations

import functools
import json
import os

from offload_tool.clang.argument_files import possible_files
from offload_tool.clang.depfile import read_depfile
from offload_tool.clang.environment import HEEDED_VARIABLES
from offload_tool.clang.plan_passes import passes_of
from offload_tool.clang.search_path import folders_of_job
from offload_tool.errors import OffloadError
from offload_tool.io.file_digests import digest_of
from offload_tool.launch.result_cache import PassFiles
from offload_tool.manifest.assembler_includes import lets_assembler_read
from offload_tool.manifest.include_search import expected_lookups
from offload_tool.manifest.race_check import Start
from offload_tool.toolchain.programs import LIBRARY_PATH, program_identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from offload_tool.clang.job_plan import DriverJob, DriverPlan
    from offload_tool.launch.result_cache import ResultCache

__all__ = ["CachedPass", "cached_passes"]

_VERSION = "2"
_SYSTEM_TOO = "-sys-header-deps"
_NOT_FOLLOWED = (
    *("-fmodule", "-fbuild-session", "-fprebuilt-module"),
    *("-load", "-fplugin", "-fpass-plugin", "--load-pass-plugin"),
    *("-ivfsoverlay", "-iframework", "-F", "-include-pch"),
)
"""Beginnings of words: plugins may write and print what they like, frameworks and overlays find
headers under other names than theirs, a precompiled header is refused where one of its headers is
newer."""
_LIBRARIES = ("-l", "--library", "-T", "--script")
_HEADER_MAP = ".hmap"
_NO_INPUTS = frozenset({"-MT", "-o", "-dependency-file", "-main-file-name", "-D", "-U"})
"""The word after one of these names no file that is read."""
_OF_THE_TIME = (b"__TIME__", b"__DATE__", b"__TIMESTAMP__")
_SYSTEM = "/usr/"


class CachedPass:
    """A pass, by its jobs."""

    __slots__ = (
        "_cache",
        "_files",
        "_folder",
        "_key",
        "_named",
        "_start",
        "_words",
        "job",
        "numbers",
    )

    def __init__(
        self,
        cache: ResultCache,
        plan: DriverPlan,
        numbers: list[int],
        folder: str,
        before: str,
        library_path: str,
    ) -> None:
        self._cache = cache
        self._folder = folder
        self.numbers = numbers
        """Of its jobs."""
        jobs = [plan.jobs[number] for number in numbers]
        self.job = jobs[0]
        self._words = [word for job in jobs for word in job.words[1:]]
        named = _named_in(self._words, folder)
        self._named = [name for name in named if os.path.isfile(name)]  # noqa: PTH113
        # With their names: one that is not there may come, and be read.
        self._key = _key(jobs, folder, f"{before}{json.dumps(self._named)}", library_path)
        self._files = PassFiles(jobs[-1].output, "", f"{folder}/{numbers[0]}.said")
        self._start: Start | None = None

    def let_tell(self, depfile: str) -> None:
        """Make the front end list all that it reads in a depfile."""
        self._files.depfile = depfile
        if _SYSTEM_TOO not in self.job.words:
            self.job.words.insert(2, _SYSTEM_TOO)
        if "-MT" not in self.job.words:
            self.job.words[2:2] = ["-MT", "result"]

    def fetch(self) -> bool:
        """Write what the pass would write, where that is known; else note that it begins."""
        if self._cache.fetch(self._key, self._files):
            return True
        self._start = Start.now(f"{self._folder}/now", self._named, folders_of_job(self._words))
        return False

    def store(self) -> None:
        """Keep what the pass has written, if it ran and all is known that it has read."""
        if self._start is None:
            return
        try:
            listed = read_depfile(self._files.depfile)
        except OffloadError:
            return
        read = list(dict.fromkeys([*listed, *self._named]))
        known = {os.path.normpath(name) for name in listed}
        if os.path.normpath(self.job.source) not in known or any(map(_is_not_all, read)):
            return
        lookups = expected_lookups(
            listed, folders_of_job(self._words), self._words, self._cache.prints
        )
        if any(map(self._came_meanwhile, lookups.present)):
            return
        self._cache.store(self._key, self._files, read, lookups, self._start)

    def _came_meanwhile(self, name: str) -> bool:
        """Return whether a file may have come after the pass has looked for it."""
        assert self._start is not None  # noqa: S101 - it began
        try:
            found = [os.stat(name), os.lstat(name)]  # noqa: PTH116
        except OSError:
            return True
        return any(one.st_ctime_ns >= self._start.moment for one in found)


def cached_passes(
    plan: DriverPlan, cache: ResultCache, folder: str, environ: Mapping[str, str]
) -> list[CachedPass]:
    """Return the passes of a plan whose results can be kept; `folder` has temporary files."""
    words = [word for job in plan.jobs for word in job.words]
    if any(job.beside() or _looks_for_libraries(job) for job in plan.jobs):
        return []
    if any(map(_is_not_followed, words)):
        return []
    variables = [environ.get(name, "") for name in HEEDED_VARIABLES]
    before = json.dumps([_VERSION, os.getcwd(), variables, plan.version])  # noqa: PTH109
    path = environ.get(LIBRARY_PATH, "")
    passes = passes_of(plan, folder)
    return [CachedPass(cache, plan, numbers, folder, before, path) for numbers in passes]


def _is_not_followed(word: str) -> bool:
    return (
        word.startswith(_NOT_FOLLOWED)
        or word.endswith(_HEADER_MAP)
        or _may_change(word.encode(errors="surrogateescape"))
    )


def _looks_for_libraries(job: DriverJob) -> bool:
    """Return whether a link reads files that no word names as they are."""
    return job.sort == "lld" and any(word.startswith(_LIBRARIES) for word in job.words)


def _named_in(words: Sequence[str], folder: str) -> list[str]:
    """Return the names of files that words of jobs may name, but for temporary ones."""
    before = ["", *words]
    inputs = [word for word, last in zip(words, before, strict=False) if last not in _NO_INPUTS]
    return [name for name in possible_files(inputs) if not name.startswith(folder)]


def _key(jobs: Sequence[DriverJob], folder: str, before: str, library_path: str) -> str:
    marks = {job.output: f"\0{number}" for number, job in enumerate(jobs)}
    words = [[_marked(word, marks, folder) for word in job.words] for job in jobs]
    programs = sorted({word for job in jobs for word in _program(job.words[0], library_path)})
    return digest_of(json.dumps([before, words, programs]).encode())


def _marked(word: str, marks: Mapping[str, str], folder: str) -> str:
    for name, mark in marks.items():
        word = word.replace(name, mark)
    return word.replace(folder, "\0folder")


@functools.cache  # most jobs of a compile run the same two
def _program(name: str, library_path: str) -> tuple[str, ...]:
    """Return what tells a program and its libraries from others; their folder tells more."""
    return os.path.realpath(name), program_identity(name, library_path)


@functools.cache  # the passes of a compile read mostly the same
def _is_not_all(name: str) -> bool:
    """Return whether a file makes more of a result than its content."""
    if name.startswith(_SYSTEM):
        return False
    try:
        with open(name, "rb") as file:  # noqa: PTH123
            return _may_change(file.read())
    except OSError:
        return True


def _may_change(text: bytes) -> bool:
    """Return whether a text means more than it says: the time, or a file for the assembler."""
    return any(word in text for word in _OF_THE_TIME) or lets_assembler_read(text)
