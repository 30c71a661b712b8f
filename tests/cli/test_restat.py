"""``--restat`` and ``archive``: outputs with equal bytes are left untouched."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.conftest import run
from tests.conftest import Capture

HOST = "host-x86_64-unknown-linux-gnu-"
GFX906, GFX908 = (f"hipv4-amdgcn-amd-amdhsa--{name}" for name in ("gfx906", "gfx908"))
TARGETS = f"-targets={HOST},{GFX906},{GFX908}"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory, with some inputs."""
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b", "c"):
        Path(name).write_text(f"the contents of {name}")
    return tmp_path


def is_kept(output: str, *args: str) -> bool:
    """Run a command, which must succeed; return whether it left `output` untouched."""
    os.utime(output, (1, 1))
    before = Path(output).stat().st_ino
    assert run(*args) == 0
    after = Path(output).stat()
    kept = after.st_mtime == 1
    assert kept == (after.st_ino == before)
    return kept


IMAGE = "--image=file=a,triple=amdgcn-amd-amdhsa,arch=gfx906,kind=openmp"
COMMANDS = {
    "bundler": ["-type=o", f"-targets={HOST},{GFX906}", "-input=b", "-input=a", "-output=out"],
    "packager": ["-o", "out", IMAGE],
    "archive": ["-o", "out", "a", "b"],
    "wrapper": ["-o", "out", "--kind=openmp", "--triple=x86_64-unknown-linux-gnu", "a"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_outputs_stay(command: str) -> None:
    """With --restat, a file with the same bytes keeps its inode and time; others do not.

    Without it, the drop-ins and `archive` write their outputs as LLVM's tools do.
    """
    args = COMMANDS[command]
    assert run(command, "--restat", *args) == 0
    assert is_kept("out", command, "--restat", *args)
    assert not is_kept("out", command, *args)
    Path("a").write_text("another content")
    assert not is_kept("out", command, "--restat", *args)


def test_unbundling() -> None:
    """Each output of an unbundling is kept or replaced by its own bytes."""
    bundle = [TARGETS, "-type=o", *(f"-input={name}" for name in "abc"), "-output=all"]
    apart = ["-unbundle", TARGETS, "-type=o", "-input=all"]
    apart += [f"-output=out.{name}" for name in "abc"]
    assert run("bundler", *bundle) == 0
    assert run("bundler", "--restat", *apart) == 0
    Path("c").write_text("another content")
    assert run("bundler", *bundle) == 0
    for name in "abc":
        os.utime(f"out.{name}", (1, 1))
    assert run("bundler", "--restat", *apart) == 0
    assert [Path(f"out.{name}").stat().st_mtime == 1 for name in "abc"] == [True, True, False]


def test_it_is_no_option_of_the_drop_in(capfd: Capture) -> None:
    """--restat is accepted only before the drop-in's own options, which match LLVM's."""
    assert run("bundler", *COMMANDS["bundler"], "--restat") != 0
    assert "Unknown command line argument '--restat'" in capfd.readouterr().err
    assert not Path("out").exists()
