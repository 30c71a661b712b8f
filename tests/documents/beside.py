"""An SConstruct beside LLVM's own commands: rows of tables, and what checks them."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import pytest

from tests.conftest import Tool, try_tool
from tests.scons.conftest import KERNEL, Project, Run, empty_project

HOST = "host-x86_64-unknown-linux-gnu-"
CPU = "x86_64-pc-linux-gnu"
HIP = "hip-amdgcn-amd-amdhsa--"
GFX906, GFX908 = f"{HIP}gfx906", f"{HIP}gfx908"
OPENMP, OF_NVIDIA = "openmp-amdgcn-amd-amdhsa--gfx906", "openmp-nvptx64-nvidia-cuda--sm_80"
AMD = "triple=amdgcn-amd-amdhsa"
NVIDIA = "triple=nvptx64-nvidia-cuda"
BUNDLER, PACKAGER = "clang-offload-bundler", "llvm-offload-binary"
UNBUNDLE = f"{BUNDLER} -type=bc -unbundle"


REGION = "int {0}(void) {{ int v = 0;\n#pragma omp target map(from : v)\nv = 1; return v; }}\n"
HEAD = "env = Environment(tools=['offload'], toolpath=[PyPackageDir('offload_tool.scons')])\n"


class Row(NamedTuple):
    """An SConstruct, and what is expected of it."""

    scons: str
    same: Mapping[str, str] = MappingProxyType({})
    """LLVM's file for each of ours; empty if the SConstruct is refused."""
    llvm: Sequence[str] = ()
    """LLVM's commands behind it."""
    messages: Sequence[str] = ()
    before: Sequence[str] = ()
    """LLVM's commands before it."""
    begins: Mapping[str, bytes] = MappingProxyType({})
    """The first bytes of files of ours."""
    is_refused: bool = False
    """The SConstruct is refused, though there are files to be compared."""
    refused_there: str = ""
    """LLVM's command that fails with the first message, too."""


@dataclass
class Beside:
    """A project whose outputs are compared with those of LLVM's programs."""

    project: Project
    llvm: Tool

    @property
    def folder(self) -> Path:
        return self.project.folder

    def write(self, name: str, content: str | bytes) -> str:
        """Write a file; return its name."""
        data = content.encode() if isinstance(content, str) else content
        (self.folder / name).write_bytes(data)
        return name

    def read(self, name: str) -> bytes:
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
        done = self.tried(tool, *arguments)
        assert done.returncode == 0, done.stderr
        return done

    def tried(self, tool: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run one of LLVM's programs, whatever becomes of it."""
        return try_tool(self.llvm(tool), *arguments, cwd=self.folder)

    def check(self, row: Row) -> None:
        """Check that our outputs are LLVM's, or that nothing is made and a message says why."""
        for line in row.before:
            self.run(*shlex.split(line))
        is_refused = not row.same or row.is_refused
        errors = (self.refused if is_refused else self.scons)(row.scons).errors
        for message in row.messages:
            assert message in errors
        assert row.messages or "warning" not in errors
        assert not (is_refused and list(self.folder.glob("x.*")))
        if row.refused_there:
            done = self.tried(*shlex.split(row.refused_there))
            assert (done.returncode, row.messages[0] in done.stderr) == (1, True)
        for line in row.llvm:
            self.run(*shlex.split(line))
        for ours, theirs in row.same.items():
            # The packager pads the images that it extracts.
            end = b"\0" if PACKAGER in str(row.llvm) and ours.endswith(".co") else b""
            assert self.read(ours).rstrip(end) == self.read(theirs).rstrip(end), ours
        for ours, begin in row.begins.items():
            assert self.read(ours).startswith(begin)


@pytest.fixture
def beside(tmp_path: Path, llvm: Tool) -> Beside:
    """Return a project with files a.in to d.in, and C sources."""
    made = Beside(empty_project(tmp_path / "project"), llvm)
    made.write("k.hip", KERNEL.replace("VALUE", "1"))
    for name in "abcd":
        made.write(f"{name}.in", f"content of {name}\n")
        made.write(f"{name}.c", f"int {name};\n")
    for name in ("one", "two"):
        made.write(f"{name}.c", REGION.format(name))
    return made


def bundled(names: str, ids: Sequence[str], output: str, options: str = "-type=bc") -> str:
    inputs = " ".join(f"-input={name}.in" for name in names)
    return f"{BUNDLER} {options} -targets={','.join(ids)} {inputs} -output={output}"


def bundle(files: str, ids: object, **options: object) -> str:
    """Return a call of OffloadBundle that makes ``ours.hipfb``."""
    more = "".join(f", OFFLOAD_{name}={value!r}" for name, value in options.items())
    names = [f"{name}.in" for name in files]
    return f"env.OffloadBundle('ours.hipfb', {names}, OFFLOAD_TARGETS={ids!r}{more})\n"


def packaged(names: str, described: Sequence[str], output: str = "theirs") -> str:
    pairs = zip(names, described, strict=False)
    images = " ".join(f"--image=file={name}.in,{what}" for name, what in pairs)
    return f"{PACKAGER} -o {output} {images}"


def package(call: str) -> str:
    return f"env.OffloadPackage('ours', {call})\n"


def archived(container: str, arguments: str, kind: str = "hip") -> str:
    return f"{PACKAGER} {container} --archive --image=file=theirs.a,{arguments},kind={kind}"


OURS = {"ours.hipfb": "theirs"}
PACKAGE = {"ours.offload": "theirs"}
PLAIN = {"BUNDLE_ALIGN": 1}
THREE = [f"{AMD},arch={arch},kind=hip" for arch in ("gfx906", "gfx908", "gfx90a")]
