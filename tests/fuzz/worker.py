"""Cases in a forked process: what kills it, or does not end, is found as well."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import resource
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from offload_tool.cli import main
from tests.fuzz import commands
from tests.fuzz.mutations import make_case
from tests.fuzz.seeds import make_seeds

MEMORY, SECONDS = 2 << 30, 20
"""Of address space, beyond what the process has; of processor time for one operation."""
GREW = 512 << 20
"""Bytes of memory that an operation on a file of 1 MiB must not need."""
BESIDE = b"__CLANG_OFFLOAD_BUNDLE__" + bytes(8)
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_PREFIX = re.compile(r"(offload-tool\b|usage: |Uncompressed|  |Extracted: |clang|llvm|')")


class Finding(NamedTuple):
    """Something that must not be."""

    seed: int
    format: str
    command: str
    what: str
    """``traceback``, ``hang``, ``crash``, ``memory``, ``litter``, ``partial`` or ``message``."""
    detail: str


class Result(NamedTuple):
    """One operation."""

    seed: int
    format: str
    command: str
    status: int
    seconds: float
    findings: list[Finding]


def run_one(seed: int, data: bytes, form: str, command: commands.Command, folder: Path) -> Result:
    """Run a command over a file, in this process; return what was wrong."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "IN").write_bytes(data)
    (folder / "beside").write_bytes(BESIDE)
    if commands.WHEEL in command.words:
        (folder / commands.WHEEL).hardlink_to(folder / "IN")
    found: list[Finding] = []

    def find(what: str, detail: str) -> None:
        found.append(Finding(seed, form, " ".join(command.words), what, detail))

    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    status = 99
    with _streams(folder) as text:
        try:
            status = main(list(command.words))
        except SystemExit as exit_:
            status = exit_.code if isinstance(exit_.code, int) else 1
        except BaseException:
            find("traceback", traceback.format_exc())
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
    if grown > GREW:
        find("memory", f"{grown} bytes")
    _check_text(text, find)
    _check_files(folder, command, status, find)
    return Result(seed, form, command.name, status, time.monotonic() - started, found)


@contextlib.contextmanager
def _streams(folder: Path) -> Iterator[list[str]]:
    """Send both streams into files; return their text afterwards: standard error, then output."""
    text: list[str] = []
    old, objects = [os.dup(1), os.dup(2)], (sys.stdout, sys.stderr)
    paths = [folder / ".stdout", folder / ".stderr"]
    here = Path.cwd()
    for number, path in enumerate(paths, 1):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
        os.dup2(descriptor, number)
        os.close(descriptor)
    opened = [os.fdopen(number, "w", closefd=False) for number in (1, 2)]
    sys.stdout, sys.stderr = opened
    os.chdir(folder)
    try:
        yield text
    finally:
        os.chdir(here)
        for stream in (sys.stdout, sys.stderr):
            stream.close()
        sys.stdout, sys.stderr = objects
        for number, path in enumerate(paths, 1):
            os.dup2(old[number - 1], number)
            os.close(old[number - 1])
            text.append(path.read_bytes().decode("utf-8", "surrogateescape"))
            path.unlink()


def _check_text(text: list[str], find) -> None:
    for stream, content in zip(("stdout", "stderr"), text, strict=True):
        if match := _CONTROL.search(content):
            find("message", f"{stream} has {match[0]!r}: {content[:200]!r}")
    for line in text[1].splitlines():
        if not _PREFIX.match(line):
            find("message", f"a line of stderr: {line[:200]!r}")


def _check_files(folder: Path, command: commands.Command, status: int, find) -> None:
    left = {path.name for path in folder.iterdir()} - {"IN", "beside", commands.WHEEL}
    wanted = {name.rstrip("/") for name in command.outputs}
    if left - wanted:
        find("litter", f"{sorted(left - wanted)}")
    if (folder / "beside").read_bytes() != BESIDE:
        find("litter", "another input was changed")
    if status and left & wanted and not command.writes_on_error:
        find("partial", f"status {status}, and {sorted(left & wanted)}")
    if (folder / "out").is_dir():
        names = {path.name for path in (folder / "out").iterdir()} - {".kpack"}
        hidden = [name for name in names if name.startswith(".")]
        if hidden:
            find("litter", f"out/{hidden}")


def run_cases(seeds: Iterable[int], folder: Path, *, seconds: float = 1e9) -> Iterator[Result]:
    """Run the cases of these numbers in forked processes, one after the other."""
    make_seeds()
    ends = time.monotonic() + seconds
    numbers = iter(seeds)
    part: list[int] = []
    while time.monotonic() < ends:
        part = part or list(itertools.islice(numbers, 200))
        if not part:
            return
        for result in _forked(part, folder, ends):  # those behind the last one it died before
            part = part[part.index(result.seed) + 1 :]
            yield result


def _forked(part: list[int], folder: Path, ends: float) -> Iterator[Result]:
    reading, writing = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if not child:
        os.close(reading)
        _work(part, folder, writing, ends)
    os.close(writing)
    done = 0
    with os.fdopen(reading) as lines:
        for line in lines:
            values = json.loads(line)
            done += 1
            yield Result(*values[:-1], [Finding(*row) for row in values[-1]])
    _, status = os.waitpid(child, 0)
    if status and done < len(part):
        seed, command = part[done], commands.choose(part[done])
        case = make_case(seed)
        number = os.waitstatus_to_exitcode(status)
        what = "hang" if number in (-signal.SIGALRM, -signal.SIGPROF) else "crash"
        finding = Finding(seed, case.format, " ".join(command.words), what, f"ended with {number}")
        yield Result(seed, case.format, command.name, number, SECONDS, [finding])


def _work(part: list[int], folder: Path, writing: int, ends: float) -> None:
    os.environ["OFFLOAD_TRACEBACK"] = "1"
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (MEMORY, MEMORY))
    for seed in part:
        if time.monotonic() > ends:
            break
        case = make_case(seed)
        # Of processor time: another load must not look like a hang. Who only waits has longer.
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        signal.alarm(10 * SECONDS)
        result = run_one(seed, case.data, case.format, commands.choose(seed), folder)
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        os.write(writing, json.dumps(result).encode() + b"\n")
    os._exit(0)
