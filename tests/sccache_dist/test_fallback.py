"""A launcher's failures are told from the compiler's, and the compile runs again here."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from offload_tool.errors import CompilerError
from offload_tool.sccache_dist.cluster import Counters
from offload_tool.sccache_dist.config import Distribution
from offload_tool.sccache_dist.fallback import (
    Finished,
    is_engine_failure,
    run_once,
    run_with_launcher,
)
from offload_tool.sccache_dist.session import Report, Session
from tests.scripts import script

HERE = {"PATH": os.defpath}


@pytest.fixture(autouse=True)
def _run_in_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run compiles in the folder of each test."""
    monkeypatch.chdir(tmp_path)


RAN = "echo ran >>runs; echo compiled >&2"
WRONG = "echo ran >>runs; echo wrong >&2; exit 3"
KILLED = "echo ran >>runs; kill -9 $$"
RUNS = [  # how a launcher ends, the compiler, and what comes of both; a failed status
    ("exit 254", RAN, (0, b"compiled\n"), 1, 254),
    ("exit 233", RAN, (0, b"compiled\n"), 1, 233),
    ("exit 245", RAN, (0, b"compiled\n"), 1, 245),
    ("exit 1", RAN, (0, b"compiled\n"), 1, 1),
    ("kill -9 $$", RAN, (0, b"compiled\n"), 1, 137),
    ("kill $$", RAN, (0, b"compiled\n"), 1, 143),
    ("exit 254", WRONG, (3, b"wrong\n"), 1, None),  # what fails here too is the compiler's
    ("echo error: wrong >&2; exit 0", RAN, (0, b"node lost\nerror: wrong\n"), 0, None),
    ("echo error: wrong >&2; exit 1", RAN, (1, b"node lost\nerror: wrong\n"), 0, None),
    (None, KILLED, (137, b""), 1, None),  # without a launcher
]


@pytest.mark.parametrize(("ending", "compiler", "outcome", "runs", "failed"), RUNS)
def test_who_compiles(
    tmp_path: Path,
    ending: str | None,
    compiler: str,
    outcome: tuple[int, bytes],
    runs: int,
    failed: int | None,
) -> None:
    """What a lost node or a killed launcher fails runs again here, once; all else stays as it is.

    The launcher's messages are put aside then, and a message of ours says so.
    """
    launcher = [script(tmp_path / "launcher", f"echo node lost >&2; {ending}")] * bool(ending)
    command = [script(tmp_path / "compiler", compiler)]
    finished, message = run_with_launcher(launcher, command, HERE)
    assert (finished.status, finished.output) == outcome
    ran = tmp_path / "runs"
    assert (ran.read_text() if ran.exists() else "") == "ran\n" * runs
    said = f"offload: {''.join(launcher)} failed (status {failed}: node lost)"
    assert message == (f"{said}; compiled again on this machine" if failed is not None else "")


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
    """With status 1, an error that is not the launcher's own is the compiler's."""
    assert is_engine_failure(Finished(1, output), "/usr/bin/srun") is failed


def test_statuses() -> None:
    """Success and what the user stops (Ctrl-C) are not failures of the engine; the rest is."""
    others = {s for s in range(256) if not is_engine_failure(Finished(s, b"error:"), "srun")}
    assert others == {0, 1} | {128 + s for s in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)}


def test_missing_program() -> None:
    """A program that is not there is an error of ours, not a traceback."""
    with pytest.raises(CompilerError, match="No such file"):
        run_once(["/nowhere/clang"], HERE)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (r"printf 'first\nbad\033[31m\001end\n\n' >&2", "bad [31m end"),
        ("echo a; echo clang: error: b; echo c", "clang: error: b"),
    ],
    ids=["last line", "error"],
)
def test_reason(tmp_path: Path, said: str, reason: str) -> None:
    """Of what a failed compile says, the error or the last line is shown, without controls."""
    launcher = script(tmp_path / "launcher", f"{said}; exit 254")
    _, message = run_with_launcher([launcher], ["/bin/true"], HERE)
    assert f"failed (status 254: {reason});" in message


def fake(tmp_path: Path, sccache: str) -> Distribution:
    """Return a distribution whose sccache is a script, for ``clang`` in `tmp_path`."""
    variables = {"SCCACHE_CONF": "/nowhere", "SCCACHE_SERVER_UDS": str(tmp_path / "socket")}
    return Distribution(
        folder=tmp_path,
        scheduler="http://127.0.0.1:1",
        compilers=(str(tmp_path / "clang"),),
        identity="",
        sccache=script(tmp_path / "sccache", sccache),
        environment=tuple(variables.items()),
    )


STATS = (
    '{"stats": {"requests_executed": 8, "dist_compiles": {"a": %d}, "dist_errors": 0, '
    '"cache_hits": {"counts": {}}}}'
)


def device(compiler: str) -> list[str]:
    flags = ["-x", "hip", "--cuda-device-only", "-nogpulib", "-nogpuinc"]
    return [compiler, *flags, "-c", "-o", "out", "in"]


def test_session_runs_again_and_says_so(tmp_path: Path) -> None:
    """From many threads, each compile that the engine fails runs here once, with one message."""
    session = Session(
        fake(
            tmp_path,
            f"case $1 in --*) echo '{STATS % 8}'; exit;; esac\n"
            "echo 'sccache: Job failed on server'; echo dead >&2; exit 254",
        )
    )
    compiler = script(tmp_path / "clang", "echo ran >>runs")
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: session.run(device(compiler), HERE), range(8)))
    assert {finished.status for finished, _ in results} == {0}
    assert {message for _, message in results} == {
        "offload: out: the distributed compile failed (status 254: dead); "
        "compiled again on this machine"
    }
    assert (tmp_path / "runs").read_text() == "ran\n" * 8
    assert str(session.report()) == "distributed 0 of 8, 8 again locally"


def test_openmp_and_cuda_stay_here(tmp_path: Path) -> None:
    """An OpenMP or CUDA compile is not given to the engine at all."""
    session = Session(fake(tmp_path, "echo engine >>runs"))
    compiler = script(tmp_path / "clang", "echo here >>runs")
    session.run([*device(compiler), "-fopenmp"], HERE)
    session.run([*device(compiler)[:2], "cuda", *device(compiler)[3:]], HERE)
    assert (tmp_path / "runs").read_text() == "here\n" * 2


REPORTS = [
    ((5, 4, 1, 0, 0), False, "distributed 4 of 5, 1 again locally"),
    ((5, 0, 0, 5, 0), False, "distributed 0 of 5, 0 again locally, 5 from the cache"),
    ((5, 0, 0, 0, 0), False, "distributed 0 of 5, 0 again locally, 5 only locally"),
    ((1, 0, 0, 0, 1), False, "distributed 0 of 1, 0 again locally, 1 failed"),
    ((5, 9, 0, 0, 0), True, "distributed 9 of 5, 0 again locally (together with another build)"),
]


@pytest.mark.parametrize(("counts", "shared", "words"), REPORTS)
def test_report(counts: tuple[int, ...], shared: bool, words: str) -> None:
    """A report says where each compile ran, and knows when nothing was distributed."""
    report = Report(*counts, shared=shared)
    assert str(report) == words
    assert report.nothing_distributed is ("only locally" in words)


def test_counters_of_a_new_engine() -> None:
    """Counters that went back are those of an engine started anew."""
    assert Counters(5, 4, 1, 0).since(Counters(3, 3, 0, 0)) == Counters(2, 1, 1, 0)
    assert Counters(2, 2, 0, 0).since(Counters(3, 3, 0, 0)) == Counters(2, 2, 0, 0)


def test_broken_engine_is_said(tmp_path: Path) -> None:
    """Where sccache gives no counters, the summary says that, and claims nothing."""
    session = Session(fake(tmp_path, "case $1 in --*) echo broken >&2; exit 2;; esac"))
    session.run(device(script(tmp_path / "clang", "")), HERE)
    (line,) = session.summary()
    assert "sccache gives no counters: broken" in line


def test_environment(tmp_path: Path) -> None:
    """The engine sees the folder's settings and the compiler's environment, no other settings."""
    distribution = fake(tmp_path, "env >seen")
    environment = {**HERE, "SCCACHE_RECACHE": "1", "CPATH": "/x"}
    compiler = script(tmp_path / "clang", "")
    Session(distribution).run(device(compiler), environment)
    seen = (tmp_path / "seen").read_text().splitlines()
    assert "CPATH=/x" in seen
    assert f"SCCACHE_SERVER_UDS={tmp_path / 'socket'}" in seen
    assert not any(line.startswith("SCCACHE_RECACHE") for line in seen)


def test_another_compiler_is_not_sent(tmp_path: Path) -> None:
    """A compile with another compiler than the packed one is an error, not an odd result."""
    session = Session(fake(tmp_path, "exit 0"))
    script(tmp_path / "clang", "")
    with pytest.raises(CompilerError, match="but this compile runs '/bin/true'"):
        session.run(device("/bin/true"), HERE)
