"""Runs a drop-in and LLVM's own tool on the same inputs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Result:
    """Result of a run of either program."""

    status: int
    output: bytes
    errors: str


class Bench:
    """The two programs, each with the same files in a separate folder.

    They run in its subfolder `inner`; `run` is the drop-in, `tool` LLVM's program, or its name.
    """

    def __init__(
        self, run: Callable[..., int], folder: Path, tool: str, capture: Any, inner: str = ""
    ) -> None:
        self.run = run
        self.folder = folder
        self.tool = tool
        self.capture = capture
        self.inner = inner
        self.environ = {k: v for k, v in os.environ.items() if "BUNDLE" not in k}
        self.ours_alone: list[str] = []
        """Options for our program only."""
        for side in ("ours", "theirs"):
            (folder / side / inner).mkdir(parents=True)

    def write(self, name: str, content: bytes) -> str:
        for side in ("ours", "theirs"):
            (self.folder / side / name).write_bytes(content)
        return name

    def content(self, side: str, name: str) -> bytes | None:
        path = self.folder / side / name
        return path.read_bytes() if path.exists() else None

    def ours(self, *arguments: str) -> Result:
        self.capture.readouterr()
        before = Path.cwd()
        os.chdir(self.folder / "ours" / self.inner)
        try:
            status = self.run(self.tool, [*self.ours_alone, *arguments], self.environ)
        finally:
            os.chdir(before)
        captured = self.capture.readouterr()
        return Result(status, captured.out, captured.err.decode())

    def theirs(self, *arguments: str) -> Result:
        done = subprocess.run(
            [self.tool, *arguments],
            cwd=self.folder / "theirs" / self.inner,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        return Result(done.returncode, done.stdout, done.stderr.decode())

    def assert_same(self, arguments: Sequence[str], outputs: Sequence[str] = ()) -> Result:
        """Run both; compare status, messages and, unless they failed, output files."""
        for side in ("ours", "theirs"):
            for name in outputs:
                (self.folder / side / name).unlink(missing_ok=True)
        ours, theirs = self.ours(*arguments), self.theirs(*arguments)
        assert ours == theirs, arguments
        for name in outputs:
            expected = None if ours.status else self.content("theirs", name)
            assert self.content("ours", name) == expected, (arguments, name)
        return ours
