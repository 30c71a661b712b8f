"""A launcher's failures are told from the compiler's, and the compile runs again here."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from offload_tool.errors import CompilerError
from offload_tool.sccache_dist.fallback import (
    Finished,
    is_engine_failure,
    run_once,
    run_with_fallback,
)
from tests.scripts import script

HERE = {"PATH": os.defpath}


@pytest.fixture(autouse=True)
def _run_in_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


RAN = "echo ran >>runs; echo compiled >&2"
WRONG = "echo ran >>runs; echo wrong >&2; exit 3"
KILLED = "echo ran >>runs; kill -9 $$"
RUNS = [  # how a launcher ends, the compiler, and what comes of both; the reason of a second run
    ("exit 254", RAN, (0, b"compiled\n"), 1, "254: node lost"),
    ("exit 1", RAN, (0, b"compiled\n"), 1, "1: node lost"),
    ("kill -9 $$", RAN, (0, b"compiled\n"), 1, "137: node lost"),
    (r"printf 'bad\033[31m\001end\n\n'; exit 254", RAN, (0, b"compiled\n"), 1, "254: bad [31m end"),
    ("echo error: b; echo c; exit 2", RAN, (0, b"compiled\n"), 1, "2: error: b"),
    ("exit 254", WRONG, (3, b"wrong\n"), 1, None),  # what fails here too is the compiler's
    ("echo error: wrong >&2; exit 0", RAN, (0, b"node lost\nerror: wrong\n"), 0, None),
    ("echo error: wrong >&2; exit 1", RAN, (1, b"node lost\nerror: wrong\n"), 0, None),
    (None, KILLED, (137, b""), 1, None),  # without a launcher
]


@pytest.mark.parametrize(("ending", "compiler", "outcome", "runs", "reason"), RUNS)
def test_who_compiles(
    tmp_path: Path,
    ending: str | None,
    compiler: str,
    outcome: tuple[int, bytes],
    runs: int,
    reason: str | None,
) -> None:
    """What a lost node or a killed launcher fails runs again here, once; all else stays as it is.

    The launcher's messages are dropped then, and one line names their error or their last line.
    """
    launcher = [script(tmp_path / "launcher", f"echo node lost >&2; {ending}")] * bool(ending)
    command = [script(tmp_path / "compiler", compiler), "-o", "k.o"]
    finished, message = run_with_fallback([*launcher, *command], command, HERE)
    assert (finished.status, finished.output) == outcome
    ran = tmp_path / "runs"
    assert (ran.read_text() if ran.exists() else "") == "ran\n" * runs
    line = f"offload: k.o: {''.join(launcher)} failed (status {reason}); compiled again on this "
    assert message == (f"{line}machine" if reason is not None else "")


SOURCE_ERROR = b"k.hip:1:1: error: unknown type\n1 error generated.\n"


@pytest.mark.parametrize(
    ("output", "failed"),
    [
        (SOURCE_ERROR, False),
        (SOURCE_ERROR + b"srun: error: n1: task 0: Exited with exit code 1\n", False),
        (b"clang: error: no such file or directory: 'k.hip'\n", False),
        (b"srun: error: Unable to confirm allocation for job 6: Invalid job id\n", True),
        (b"srun: Job step aborted\n", True),
        (b"", True),
    ],
)
def test_who_failed(output: bytes, failed: bool) -> None:
    """With status 1, an error that is not the launcher's own is the compiler's, or sccache's."""
    assert is_engine_failure(Finished(1, output), "/usr/bin/srun") is failed
    assert is_engine_failure(Finished(1, output), "/usr/bin/sccache")


def test_statuses() -> None:
    """Success and what the user stops (Ctrl-C) are not failures of the engine; the rest is."""
    others = {s for s in range(256) if not is_engine_failure(Finished(s, b"error:"), "srun")}
    assert others == {0, 1} | {128 + s for s in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)}


def test_missing_program() -> None:
    """A program that is not there is an error of ours, not a traceback."""
    with pytest.raises(CompilerError, match="No such file"):
        run_once(["/nowhere/clang"], HERE)
