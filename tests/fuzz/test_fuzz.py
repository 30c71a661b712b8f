"""A bounded run of the fuzzer: `python -m tests.fuzz` goes on where this ends."""

from __future__ import annotations

import faulthandler
import os
import sys
from collections import Counter
from pathlib import Path

import pytest

from offload_tool.cli import main
from tests.conftest import Tool
from tests.fuzz.commands import COMMANDS, choose
from tests.fuzz.llvm import PROGRAMS, compare
from tests.fuzz.mutations import make_case
from tests.fuzz.seeds import HERE, make_seeds
from tests.fuzz.worker import run_cases, run_one

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
