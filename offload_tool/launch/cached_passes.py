"""Which jobs of a plan make a pass whose result can be kept, and what that depends on.

A pass is a front end that reads the source, and the linker or assembler that alone reads what it
makes. Its key holds all that is known before::

    the folder of the build, the variables that the compiler heeds, both programs and the libraries
    beside them, and the words of both commands, with temporary files by number

and its manifest all that it has read (`result_cache`). What is written beside the result is not
kept, so a compile with such files, or with modules, has no pass here; nor has one whose source
holds the time of the compile.
"""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path

from offload_tool.compiler.depfile import read_depfile
from offload_tool.compiler.fingerprints import digest_of, look_at
from offload_tool.compiler.heeded import HEEDED_VARIABLES
from offload_tool.compiler.lookups import expected_lookups, folders_of_job
from offload_tool.compiler.manifest import Start
from offload_tool.compiler.named_files import possible_files
from offload_tool.errors import OffloadError
from offload_tool.launch.passes_of_plan import passes_of
from offload_tool.launch.result_cache import PassFiles

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from offload_tool.launch.driver_plan import DriverJob, DriverPlan
    from offload_tool.launch.result_cache import ResultCache

__all__ = ["CachedPass", "cached_passes"]

_VERSION = "1"
_SYSTEM_TOO = "-sys-header-deps"
_MODULES = ("-fmodule", "-fbuild-session", "-fprebuilt-module")
_OF_THE_TIME = (b"__TIME__", b"__DATE__", b"__TIMESTAMP__")
_SYSTEM = "/usr/"
_LIBRARY_FOLDERS = ("../lib", "../lib64")


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
        self, cache: ResultCache, plan: DriverPlan, numbers: list[int], folder: str, before: str
    ) -> None:
        self._cache = cache
        self._folder = folder
        self.numbers = numbers
        """Of its jobs."""
        jobs = [plan.jobs[number] for number in numbers]
        self.job = jobs[0]
        self._words = [word for job in jobs for word in job.words[1:]]
        self._key = _key(jobs, folder, before)
        self._named = [
            name
            for name in possible_files(self._words)
            if not name.startswith(folder) and os.path.isfile(name)  # noqa: PTH113
        ]
        self._files = PassFiles(jobs[-1].output, "", f"{folder}/{numbers[0]}.said")
        self._start: Start | None = None

    def let_tell(self, depfile: str) -> None:
        """Let the front end list all that it reads in a depfile."""
        self._files.depfile = depfile
        if _SYSTEM_TOO not in self.job.words:
            self.job.words.insert(2, _SYSTEM_TOO)
        if "-MT" not in self.job.words:
            self.job.words[2:2] = ["-MT", "result"]

    def fetch(self) -> bool:
        """Write what the pass would write, where that is known; else note that it begins."""
        if self._cache.fetch(self._key, self._files):
            return True
        self._start = Start.now(f"{self._folder}/now", self._named)
        return False

    def store(self) -> None:
        """Keep what the pass has written, if it ran and all is known that it has read."""
        if self._start is None:
            return
        try:
            listed = read_depfile(Path(self._files.depfile))
        except OffloadError:
            return
        read = list(dict.fromkeys([*listed, *self._named]))
        if self.job.source not in read or any(map(_tells_time, read)):
            return
        lookups = expected_lookups(
            listed, folders_of_job(self._words), self._words, self._cache.prints
        )
        self._cache.store(self._key, self._files, read, lookups, self._start)


def cached_passes(
    plan: DriverPlan, cache: ResultCache, folder: str, environ: Mapping[str, str]
) -> list[CachedPass]:
    """Give the passes of a plan whose results can be kept; `folder` is that of temporary files."""
    words = [word for job in plan.jobs for word in job.words]
    if any(job.beside() for job in plan.jobs) or any(word.startswith(_MODULES) for word in words):
        return []
    variables = [environ.get(name, "") for name in HEEDED_VARIABLES]
    before = json.dumps([_VERSION, os.getcwd(), variables, plan.version])  # noqa: PTH109
    return [CachedPass(cache, plan, numbers, folder, before) for numbers in passes_of(plan, folder)]


def _key(jobs: Sequence[DriverJob], folder: str, before: str) -> str:
    marks = {job.output: f"\0{number}" for number, job in enumerate(jobs)}
    words = [[_marked(word, marks, folder) for word in job.words] for job in jobs]
    programs = sorted({word for job in jobs for word in _program(job.words[0])})
    return digest_of(json.dumps([before, words, programs]).encode())


def _marked(word: str, marks: Mapping[str, str], folder: str) -> str:
    for name, mark in marks.items():
        word = word.replace(name, mark)
    return word.replace(folder, "\0folder")


@functools.cache  # most jobs of a compile run the same two
def _program(name: str) -> tuple[str, ...]:
    """Give what tells a program, and the libraries of its installation, from others."""
    real = os.path.realpath(name)
    home = os.path.dirname(real)  # noqa: PTH120
    found = [real]
    for place in _LIBRARY_FOLDERS:
        folder = os.path.normpath(os.path.join(home, place))  # noqa: PTH118
        try:
            found += [entry.path for entry in os.scandir(folder) if ".so" in entry.name]
        except OSError:
            continue
    return tuple(f"{path} {look_at(path)}" for path in found)


@functools.cache  # the passes of a compile read mostly the same
def _tells_time(name: str) -> bool:
    if name.startswith(_SYSTEM):
        return False
    try:
        with open(name, "rb") as file:  # noqa: PTH123
            text = file.read()
    except OSError:
        return True
    return any(word in text for word in _OF_THE_TIME)
