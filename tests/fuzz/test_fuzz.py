"""A bounded run of the fuzzer: `python -m tests.fuzz` goes on where this ends."""

from __future__ import annotations

import faulthandler
import os
import resource
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from offload_tool.cli import main
from tests.conftest import Tool
from tests.fuzz.commands import COMMANDS, Command, choose
from tests.fuzz.guided import REACHED, _readers, inputs, read
from tests.fuzz.mutations import make_case
from tests.fuzz.seeds import HERE, make_seeds
from tests.fuzz.worker import BESIDE, run_cases, run_one

CASES = int(os.environ.get("OFFLOAD_FUZZ_CASES", 0)) or (1500 if os.environ.get("CI") else 500)
SECONDS = max(80, CASES // 20)
"""At most; a usual machine is done in a third of it."""
COMPARED = 150 if os.environ.get("CI") else 60


def test_no_findings(tmp_path: Path) -> None:
    """Mutated files of every format give no traceback, hang, crash, litter or partial output.

    Nor do they need 512 MiB more than before, or get a control character into a message.
    """
    results = list(run_cases(range(CASES), tmp_path / "work", seconds=SECONDS))
    assert [finding for result in results for finding in result.findings] == []
    assert {result.format for result in results} == set(make_seeds())
    assert {0, 1} <= {result.status for result in results}


@pytest.mark.parametrize("path", sorted((HERE / "corpus").glob("*")), ids=lambda path: path.name)
def test_what_was_found_once(path: Path, tmp_path: Path) -> None:
    """Files in which something was found give nothing now, whatever is done with them."""
    data = path.read_bytes()
    for command in COMMANDS:
        if command.name != "report":
            assert run_one(0, data, path.name, command, tmp_path / "work").findings == []


def test_the_judge_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A traceback, litter, a partial output and a control character are found where they are."""

    def wrong(args: list[str]) -> int:
        Path("litter").touch()
        Path("out1").touch()
        sys.stdout.write("\x1b[31m")
        if args[0] == "list":
            raise IndexError
        return 1

    monkeypatch.setattr("tests.fuzz.worker.main", wrong)
    monkeypatch.setenv("OFFLOAD_TRACEBACK", "1")
    list_, unbundle = COMMANDS[0], next(c for c in COMMANDS if len(c.outputs) == 2)
    found = {f.what for f in run_one(0, b"", "x", list_, tmp_path / "work").findings}
    assert found == {"traceback", "litter", "message"}
    found = {f.what for f in run_one(0, b"", "x", unbundle, tmp_path / "work").findings}
    assert found == {"partial", "litter", "message"}


def test_a_crash_and_a_hang_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that dies costs the case that it died of, and no other."""
    calls = iter(range(100))

    def dying(args: list[str]) -> int:
        if next(calls) == 2:
            faulthandler.disable()  # pytest's, whose traceback nobody wants of this one
            os.abort()
        return main(["--version"])

    monkeypatch.setattr("tests.fuzz.worker.main", dying)
    results = list(run_cases(range(5), tmp_path / "work"))
    assert [result.seed for result in results] == list(range(5))
    assert [f.what for result in results for f in result.findings].count("crash") >= 1


PROGRAMS = {"bundler": "clang-offload-bundler", "packager": "llvm-offload-binary"}
_MEMORY, _TIME = 4 << 30, 10


def compare(data: bytes, command: Command, folder: Path, find: Tool) -> str:
    """Run both; give ``same``, ``different``, or why there is nothing to compare.

    ``crash`` and ``hang`` are LLVM's; ``stricter`` is ours where LLVM's program ends with 0,
    ``laxer`` where only ours does.
    """
    answers = []
    for is_ours in (False, True):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / "IN").write_bytes(data)
        (folder / "beside").write_bytes(BESIDE)
        status = _ours(command, folder) if is_ours else _theirs(command, folder, find)
        if status < 0:
            return "hang" if status == -99 else "crash"
        files = {
            name: (folder / name).read_bytes() if (folder / name).exists() else None
            for name in command.outputs
        }
        answers.append((status, files))
    (theirs, their_files), (ours, our_files) = answers
    if theirs or ours:
        if theirs and ours:
            return "both refuse"
        return "laxer" if theirs else "stricter"
    return "same" if their_files == our_files else "different"


def _ours(command: Command, folder: Path) -> int:
    here = Path.cwd()
    os.chdir(folder)
    try:
        return main(list(command.words))
    finally:
        os.chdir(here)


def _theirs(command: Command, folder: Path, find: Tool) -> int:
    args = [find(PROGRAMS[command.words[0]]), *command.words[1:]]

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        resource.setrlimit(resource.RLIMIT_FSIZE, (_MEMORY, _MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    try:
        done = subprocess.run(
            args, cwd=folder, capture_output=True, check=False, timeout=_TIME, preexec_fn=limit
        )
    except subprocess.TimeoutExpired:
        return -99
    return done.returncode


@pytest.mark.llvm
def test_the_same_as_llvm(tmp_path: Path, llvm: Tool) -> None:
    """Where LLVM's program and ours both take a mutated file, their outputs are the same.

    Where a file holds several bundles, ours takes all of them, as documented; LLVM the first.
    """
    answers: Counter[str] = Counter()
    different = []
    for seed in range(100_000):
        case, command = make_case(seed), choose(seed)
        if command.words[0] not in PROGRAMS or case.format == "bundles":
            continue
        answer = compare(case.data, command, tmp_path / "work", llvm)
        answers[answer] += 1
        if answer == "different":
            different.append((seed, case.format, command.words))
        if answers.total() == COMPARED:
            break
    assert different == []
    assert answers["same"] > COMPARED // 20, answers


# -- the guided fuzzer -------------------------------------------------------------------


def test_what_was_reached() -> None:
    """Each input is read, or refused by an error of this package, in little memory."""
    readers = _readers()
    given = inputs(readers)
    assert {data[0] % len(readers) for data in given.values()} == set(range(len(readers)))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for data in given.values():
        read(data, readers)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10
    kept = list(REACHED.glob("*"))
    assert len(kept) > 100
    assert sum(path.stat().st_size for path in kept) < 1 << 20


def test_other_errors_are_findings() -> None:

    def broken(data: bytes) -> None:
        raise IndexError(data)

    with pytest.raises(IndexError):
        read(b"\0", [broken])
