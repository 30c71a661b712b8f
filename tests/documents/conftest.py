"""An SConstruct, and LLVM's command beside it, in one folder."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import Tool
from tests.scons.conftest import Project, Run, empty_project

REGION = "int {0}(void) {{ int v = 0;\n#pragma omp target map(from : v)\nv = 1; return v; }}\n"
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

    def refused(self, body: str, *messages: str) -> Run:
        """Run an SConstruct that must fail with all `messages`, without a traceback."""
        run = self.project.sconstruct(body, HEAD).fails("-Q")
        assert [text for text in messages if text not in run.errors] == []
        return run

    def run(self, tool: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run one of LLVM's programs, which must succeed."""
        done = self.tried(tool, *arguments)
        assert done.returncode == 0, done.stderr
        return done

    def tried(self, tool: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run one of LLVM's programs, whatever becomes of it."""
        command = [self.llvm(tool), *arguments]
        return subprocess.run(
            command, cwd=self.folder, capture_output=True, text=True, check=False, timeout=60
        )


@pytest.fixture
def beside(tmp_path: Path, llvm: Tool) -> Beside:
    """Return a project with files a.in to c.in, and C sources."""
    made = Beside(empty_project(tmp_path / "project"), llvm)
    for name in "abc":
        made.write(f"{name}.in", f"content of {name}\n")
        made.write(f"{name}.c", f"int {name};\n")
    for name in ("one", "two"):
        made.write(f"{name}.c", REGION.format(name))
    return made
