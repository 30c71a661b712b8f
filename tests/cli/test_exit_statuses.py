"""Runs each row of the table in docs/exit-statuses.md."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from offload_tool.cli.parser import whole_parser
from tests.cli.conftest import names, run
from tests.conftest import ROOT, Capture, try_tool
from tests.fuzz.seeds import HERE
from tests.operations.fatbins import make_bundle

COMMANDS = [
    *("list", "extract", "match", "thin", "split", "join", "merge", "check", "diff", "report"),
    *("repack", "target", "why"),
    *("embed", "archive", "dist", "dist init", "compile", "launch"),
]
DROP_INS = ["bundler", "packager", "wrapper"]
FLAGS = ("--", "-nogpuinc", "-nogpulib")
GFX906 = ("compile", "k.hip", "-o", "k.co", "--target-id", "gfx906")
ERRORS = {
    **dict.fromkeys(("list", "target", "why", "packager"), ("none",)),
    **dict.fromkeys(
        ("extract", "repack", "split", "join", "report", "archive"), ("none", "-o", "out")
    ),
    "match": ("none", "gfx906"),
    "thin": ("none", "--keep", "gfx906", "-o", "out"),
    "merge": ("none", "none", "-o", "out"),
    "check": ("none", "--targets", "gfx906"),
    "diff": ("none", "none"),
    "embed": ("none", "--cuid", "x", "-o", "out"),
    "dist init": ("--scheduler", "http://127.0.0.1:1", "--token-file", "none", "-o", "out"),
    "compile": ("none.hip", "-o", "out", "--host"),
    "launch": ("no-such-compiler",),
    "bundler": ("-type=bc", "-list", "-input=none"),
    "wrapper": ("--kind=hip", "-o", "out", "none"),
}
"""Errors in well-formed command lines."""

ROWS = [
    # command, status, words, what standard output and standard error say
    ("`list`", "1", "list mixed", "gfx906", "broken"),
    ("`list --target`", "1", "list good --target gfx908", "^$", "no image"),
    ("`match`", "0", "match good gfx906:xnack+", "", "^$"),
    ("`match`", "1", "match good gfx908", "no image", ""),
    ("`match`", "1", "match empty gfx906", "", ""),
    ("`target` with a device", "0", "target gfx906 gfx906:xnack+", "loads", "^$"),
    ("`target` with a device", "1", "target gfx906 gfx908", "does not load", "^$"),
    ("`check`", "0", "check good --targets gfx906", "^$", "^$"),
    ("`check`", "1", "check good --targets gfx906,gfx908", "^good: no image for gfx908; .*\n$", ""),
    ("`check`", "1", "check mixed --targets gfx906", "", "broken"),
    ("`diff`", "0", "diff gfx90a.co gfx90a.co", "", "^$"),
    ("`diff`", "1", "diff gfx90a.co sm_90a.cubin", "removed", ""),
    ("`diff`", "1", "diff mixed mixed", "", "broken"),
    ("`extract`", "1", "extract mixed -o out", r"^out/.*gfx906\n$", "broken"),
    ("`report`", "1", "report mixed -o page.html", "", "mixed/broken"),
]
COMPILES = [
    # command, status, what stands in for the compiler, target ID, the end of what is said
    ("`compile`", "the compiler's", '"$real" "$@"; echo odd >&2; exit 7', "gfx906", 7, "odd\n"),
    ("`compile`", "128 + N", '"$real" "$@"; kill -9 $$', "gfx906", 137, "ended by signal 9\n"),
    ("`compile`", "1", "exit 0", "gfx906", 1, ""),
    ("`compile`", "2", 'exec "$real" "$@"', "gfx906,gfx908", 2, ""),
]
CASES = [row[:2] for row in (*ROWS, *COMPILES) if row[:2] != ("`target` with a device", "0")]


def case(command: str, status: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Note the row of the table that a test runs."""
    CASES.append((command, status))
    return lambda test: test


def test_every_row_is_run() -> None:
    table = re.findall(
        r"^\| (.+?) \| (.+?) \| .+ \|$", (ROOT / "docs/exit-statuses.md").read_text(), re.MULTILINE
    )
    assert table.pop(0) == ("command", "status")
    assert sorted(table) == sorted({*CASES})


@pytest.mark.parametrize(("command", "status", "args", "out", "err"), ROWS)
def test_status(
    here: Path, capfd: Capture, command: str, status: str, args: str, out: str, err: str
) -> None:
    """Each command has the status of its row; broken files among others are reported."""
    assert run(*args.split()) == int(status)
    output = capfd.readouterr()
    assert re.search(out, output.out)
    assert re.search(err, output.err)
    if "out" in args:
        assert [path.read_bytes() for path in Path("out").iterdir()] == [b"code"]
    if "page" in args:
        assert "mixed/broken" in Path("page.html").read_text()


@pytest.mark.parametrize(("command", "status", "text", "target", "expected", "message"), COMPILES)
def test_compile(
    folder: Path,
    stand_in: Callable[[str], None],
    capfd: Capture,
    command: str,
    status: str,
    text: str,
    target: str,
    expected: int,
    message: str,
) -> None:
    """An error of the compiler, a wrong result, and two target IDs for one output."""
    stand_in(text)
    assert run(*GFX906[:-1], target, "--depfile", "k.d", *FLAGS) == expected
    assert capfd.readouterr().err.endswith(message)
    assert names() == {"k.hip"}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory: good files, and a folder with a broken one."""
    folder = tmp_path / "here"
    (folder / "mixed").mkdir(parents=True)
    monkeypatch.chdir(folder)
    (folder / "empty").mkdir()
    for name in ("gfx90a.co", "sm_90a.cubin"):
        shutil.copy(HERE / "seeds" / name, folder)
    make_bundle(folder / "good", {"gfx906": b"code"})
    make_bundle(folder / "mixed/good", {"gfx906": b"code"})
    (folder / "mixed/broken").write_bytes((folder / "good").read_bytes()[:-1])
    return folder


def test_every_command_is_here() -> None:
    (commands,) = (action for action in whole_parser()._actions if action.choices)
    known = {args.split()[0] for args in (*COMMANDS, *DROP_INS)}
    assert known | {"doctor"} == set(commands.choices or ())
    assert set(ERRORS) == {*COMMANDS, *DROP_INS} - {"dist"}


@case("every command", "0")
@pytest.mark.parametrize("command", [*COMMANDS, *DROP_INS])
def test_help(command: str, capfd: Capture) -> None:
    assert run(*command.split(), "--help") == 0
    assert capfd.readouterr().err == ""
    assert run("--version") == 0
    assert "offload-tool " in capfd.readouterr().out


@case("every command", "1")
@pytest.mark.parametrize("command", ERRORS)
def test_error(command: str, here: Path, capfd: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert run(*command.split(), *ERRORS[command]) == 1
    output = capfd.readouterr()
    assert output.out == ""
    assert output.err.count("\n") == 1
    assert not Path("out").exists()


@case("every command, drop-ins aside", "2")
@pytest.mark.parametrize("command", COMMANDS)
def test_usage(command: str, here: Path) -> None:
    assert run(*command.split(), "--bogus") == 2
    assert run(*command.split()) == 2


@case("every command, in a pipe", "1")
def test_closed_pipe(here: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    for args in (["list", "good"], ["list", "--help"]):
        done = subprocess.run(
            [sys.executable, "-m", "offload_tool", *args],
            stdout=writer,
            stderr=subprocess.PIPE,
            env=buffered,
            check=False,
        )
        assert (done.returncode, done.stderr) == (1, b""), args
    os.close(writer)


@case("`doctor`", "1")
def test_doctor(monkeypatch: pytest.MonkeyPatch, capfd: Capture) -> None:
    """No language has a compiler, as each line says; the command has no arguments to reject."""
    monkeypatch.setenv("OFFLOAD_CLANG", "/no/clang")
    assert run("doctor") == 1
    assert capfd.readouterr().out.count("which is not an executable file") == 3
    assert run("doctor", "--bogus") == 2


@case("`launch`", "the compiler's")
def test_launched_compiler_error() -> None:
    command = (sys.executable, "-m", "offload_tool", "launch", "sh", "-c", "exit 42")
    assert try_tool(*command).returncode == 42


@case("`bundler`, `packager`, `wrapper`", "1")
@pytest.mark.parametrize("command", DROP_INS)
def test_drop_ins(command: str, here: Path) -> None:
    assert run(command, "--bogus") == 1
