"""An SConstruct, and LLVM's command beside it, in one folder."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import Tool
from tests.scons.conftest import Project, Run, empty_project

HEAD = "env = Environment(tools=['offload'], toolpath=[PyPackageDir('offload_tool.scons')])\n"


@dataclass
class Beside:
    """A project whose outputs are compared with those of LLVM's programs."""

    project: Project
    llvm: Tool

    @property
    def folder(self) -> Path:
        """Where everything is."""
        return self.project.folder

    def write(self, name: str, content: str | bytes) -> str:
        """Write a file; return its name."""
        data = content.encode() if isinstance(content, str) else content
        (self.folder / name).write_bytes(data)
        return name

    def read(self, name: str) -> bytes:
        """Return what a file holds."""
        return (self.folder / name).read_bytes()

    def scons(self, body: str) -> Run:
        """Run an SConstruct, which must succeed, and find all of it up to date afterwards."""
        self.project.sconstruct(body, HEAD)
        run = self.project.run("-Q")
        assert run.status == 0, run.output + run.errors
        self.project.assert_up_to_date()
        return run

    def refused(self, body: str, *words: str) -> Run:
        """Run an SConstruct that must fail with all of `words`, without a traceback."""
        self.project.sconstruct(body, HEAD)
        run = self.project.run("-Q")
        assert run.status == 2, run.output
        for word in words:
            assert word in run.errors
        assert "Traceback" not in run.errors
        return run

    def run(self, tool: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run one of LLVM's programs, which must succeed."""
        done = self.tried(tool, *arguments)
        assert done.returncode == 0, done.stderr
        return done

    def bundle(self, names: str, ids: Sequence[str], output: str, *options: str) -> None:
        """Bundle what `names` has of the files a.in to c.in, with LLVM's bundler."""
        inputs = [f"-input={name}.in" for name in names]
        words = [*(options or ["-type=bc"]), f"-targets={','.join(ids)}", f"-output={output}"]
        self.run("clang-offload-bundler", *words, *inputs)

    def tried(self, tool: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run one of LLVM's programs, whatever becomes of it."""
        command = [self.llvm(tool), *arguments]
        return subprocess.run(
            command, cwd=self.folder, capture_output=True, text=True, check=False, timeout=60
        )


@pytest.fixture
def beside(tmp_path: Path, llvm: Tool) -> Beside:
    """Return a project with files a.in to c.in."""
    made = Beside(empty_project(tmp_path / "project"), llvm)
    for name in "abc":
        made.write(f"{name}.in", f"content of {name}\n")
    return made


@pytest.fixture
def host_object(beside: Beside) -> str:
    """Return the name of an object file of the host."""
    beside.write("host.c", "int host(void) { return 1; }\n")
    beside.run("clang", "-c", "host.c", "-o", "host.o")
    return "host.o"
