"""One composition, compiled with its precompiled header and without, in this process."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

from offload_tool.cli import main
from offload_tool.pch.pch import refusal_of
from tests.pch_constructs.compositions import Composition

_SIDES = {
    ("hip", "device"): ["--target-id", "gfx906"],
    ("cuda", "device"): ["--target-id", "sm_80"],
    ("hip", "host"): ["--host"],
    ("cuda", "host"): ["--host"],
}
_AGAIN = 8
_NOT_USED = "' is not used: "


class Outcome(NamedTuple):
    """What came of a composition."""

    what: str
    """``same``, ``refused``, ``different``, ``broken`` (it does not compile) or ``random``.

    Clang up to 22 orders static device variables that host code uses by their addresses in memory,
    so that one command gives two outputs, without any precompiled header.
    """
    why: str = ""


class Judge(Protocol):
    """Compiles compositions in two ways."""

    def judge(self, composition: Composition) -> Outcome:
        """Compile a composition in both."""


class Trial:
    """Compiles compositions, one after the other, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.project = folder / "project"

    def judge(self, composition: Composition) -> Outcome:
        """Compile a composition with and without."""
        shutil.rmtree(self.project, ignore_errors=True)
        self.project.mkdir(parents=True)
        composition.write(self.project)
        with inside(self.project):
            return self._judged(composition)

    def _judged(self, composition: Composition) -> Outcome:
        flags = composition.command(self.project)
        side = _SIDES[composition.kind, composition.stage]
        args = ["compile", composition.source, "--kind", composition.kind, *side]
        args += ["--rdc"] * composition.is_rdc

        def compiled(*more: str, output: str = "out") -> tuple[int, str]:
            return _said(lambda: _run(*args, "-o", output, *more, "--", *flags))

        status, messages = compiled("--emit-pch", output="of.pch")
        refused = refusal_of("of.pch") if status == 0 else ""
        if refused:
            return Outcome("refused", refused)
        plain_status, plain_said = compiled()
        if plain_status:
            return Outcome("broken", f"status {plain_status}: {plain_said}")
        if status:
            return Outcome("refused", "its headers do not compile")
        plain = _taken()
        status, messages = compiled("--pch", "of.pch")
        first, _, rest = messages.partition("\n")
        reason = first.partition(_NOT_USED)[2]
        if status or (rest if reason else messages) != plain_said:
            return Outcome(
                "different", f"status {status}, messages:\n{messages}\nwithout:\n{plain_said}"
            )
        if _taken() != plain:
            if any(compiled() != (0, plain_said) or _taken() != plain for _ in range(_AGAIN)):
                return Outcome("random", "without, other bytes come out each time")
            Path("plain").write_bytes(plain)
            return Outcome("different", f"other bytes {reason}")
        if reason:
            return Outcome("refused", reason)
        if plain_said:
            return Outcome("refused", "messages of the compiler")
        return Outcome("same")


_worker: list[Judge] = []


def begin_worker(make: Callable[[Path], Judge], folder: Path) -> None:
    """Make this process one that judges compositions, below `folder`."""
    _worker.append(make(folder / str(os.getpid())))


def judge_by_worker(composition: Composition) -> Outcome:
    """Compile a composition with and without, in a process that `begin_worker` has made ready."""
    return _worker[0].judge(composition)


def _taken() -> bytes:
    """Return the bytes of the output, which is then gone, so that the next one is made anew."""
    data = Path("out").read_bytes()
    for name in ("out", ".out.manifest"):
        Path(name).unlink()
    return data


def _run(*args: str) -> int:
    try:
        return main(args)
    except SystemExit as end:
        return int(str(end.code))


@contextmanager
def inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    os.environ["PWD"] = str(folder)
    try:
        yield
    finally:
        os.chdir(before)
        os.environ["PWD"] = str(before)


def _said(run: Callable[[], int]) -> tuple[int, str]:
    """Run something; return its status, and what this process and those it runs say."""
    with tempfile.TemporaryFile() as file:
        kept = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            status = run()
        finally:
            os.dup2(kept, 2)
            os.close(kept)
        file.seek(0)
        return status, file.read().decode(errors="replace")
