"""The driver's jobs for OpenMP: its queries, and plans that cannot be carried out."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from offload_tool.clang.driver import QueryResult, query_plan
from offload_tool.errors import CompilerError
from offload_tool.formats.targets.compile_target import parse_target
from offload_tool.passes.compile_pass import CompilePass
from offload_tool.passes.languages import compile_pass
from offload_tool.run import openmp_jobs
from offload_tool.run.job_cache import JobCache
from offload_tool.run.openmp_jobs import job_cache, link_image, run_device_pass
from offload_tool.toolchain.disk_cache import cache_folder
from offload_tool.toolchain.probe import Toolchain
from tests.conftest import run_tool
from tests.scripts import script
from tests.toolchain.installed import write_device_libraries


def test_no_linker_wrapper(tmp_path: Path) -> None:
    """A compiler without its linker wrapper is refused by name, and what to install is named."""
    plan = ' "/nowhere/clang-linker-wrapper" "--linker-path=/usr/bin/ld" "-o" "out"'
    clang = script(tmp_path / "clang", f"echo '{plan}' >&2")
    (tmp_path / "a.bc").write_bytes(b"BC\xc0\xde")
    inputs = [str(tmp_path / "a.bc")]
    command = [str(clang), "-o", str(tmp_path / "out"), *inputs]
    target = parse_target("gfx90a"), "gfx90a"
    with pytest.raises(CompilerError, match=r"clang-linker-wrapper', which is not there; install"):
        link_image(command, inputs, target, os.environ, lambda *_: 0)
    assert not (tmp_path / "out").exists()


_TICK = 0.05
"""Seconds after which the cache believes that a file does not change any more."""
CPU = "x86_64-unknown-linux-gnu"
SOURCE = """\
int main(void) {
  int x = 0;
#pragma omp target map(from : x)
  x = VALUE;
  return x != VALUE;
}
"""


class Passes:
    """Passes over sources of one folder."""

    def __init__(self, folder: Path, compiler: Toolchain) -> None:
        """`folder` is the working directory."""
        self.folder, self.compiler = folder, compiler
        self._environment = os.environ | dict(compiler.environment)

    def write(self, name: str, value: int, target: str = CPU) -> list[str]:
        """Write a source and its host IR; return the command of its device's pass."""
        source = self.folder / f"{name}.c"
        source.write_text(SOURCE.replace("VALUE", str(value)))
        self._run(compile_pass("openmp", "host-ir", "13"), source.name, f"{name}.bc", f"{name}.c")
        job = compile_pass("openmp", "device", "13", parse_target(target))
        return self._command(job, source.name, f"{name}.o", source.name, f"{name}.bc")

    def _command(
        self, job: CompilePass, source: str, output: str, read: str, host_ir: str = ""
    ) -> list[str]:
        compiler, job = self.compiler, replace(job, source=source, host_ir=host_ir)
        flags = [*job.local_flags(compiler), *job.flags(compiler)]
        return [*compiler.clang, *flags, "-o", output, read]

    def _run(self, job: CompilePass, source: str, output: str, read: str) -> None:
        command = self._command(job, source, output, read)
        run_tool(*command, env=self._environment)

    def run(self, command: list[str], cache: JobCache) -> int:
        """Run a device's pass with the jobs of a cache."""

        def call(args: list[str], environment: Mapping[str, str]) -> int:
            return subprocess.run(args, check=False, env=environment).returncode

        return run_device_pass(command, self._environment, call, cache)


@pytest.fixture
def passes(
    tmp_path: Path, compiler: Toolchain, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Passes]:
    """Return passes of a compiler that was queried for nothing."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    cache_folder.cache_clear()
    yield Passes(tmp_path / "work", compiler)
    cache_folder.cache_clear()


@pytest.fixture
def queries(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """Return the commands of which the driver was queried for its plan."""
    found: list[Sequence[str]] = []

    def counted(command: Sequence[str], environment: Mapping[str, str]) -> QueryResult:
        found.append(command)
        return query_plan(command, environment)

    monkeypatch.setattr(openmp_jobs, "query_plan", counted)
    return found


def test_queries_of_many_sources(passes: Passes, queries: list[Sequence[str]]) -> None:
    """The driver is queried twice for all sources, and not by the next build; the same bytes."""
    commands = [passes.write(name, value) for value, name in enumerate("abcd")]
    first = job_cache()
    assert [passes.run(command, first) for command in commands] == [0] * 4
    assert len(queries) == 2
    made = [Path(f"{name}.o").read_bytes() for name in "abcd"]
    for command, expected in zip(commands, made, strict=True):
        Path(command[-2]).unlink()
        assert passes.run(command, job_cache()) == 0
        assert Path(command[-2]).read_bytes() == expected
    assert len(queries) == 2
    assert len({*made}) == 4


def test_refused_commands(
    passes: Passes, queries: list[Sequence[str]], capfd: pytest.CaptureFixture[str]
) -> None:
    """The plan of a command that the driver refuses is not stored: it may be accepted later."""
    folder = passes.folder.parent / "libraries"
    *command, option, output, source = passes.write("a", 1, "gfx906")
    command += [f"--rocm-device-lib-path={folder}", option, output, source]
    cache = job_cache()
    assert passes.run(command, cache) != 0
    assert "ROCm device library" in capfd.readouterr().err
    write_device_libraries(folder, passes.compiler.clang)
    time.sleep(_TICK)
    assert passes.run(command, cache) == 0
    assert Path(output).exists()
    queries.clear()
    assert passes.run(command, job_cache()) == 0
    assert queries == []


def test_changed_folder(passes: Passes, queries: list[Sequence[str]]) -> None:
    """A plan depends on the folders that it names: after a change, the driver is queried."""
    *command, option, output, source = passes.write("a", 1)
    headers = passes.folder.parent / "installed/include"
    headers.mkdir(parents=True)
    time.sleep(_TICK)
    command += ["-isystem", str(headers), option, output, source]
    assert passes.run(command, job_cache()) == passes.run(command, job_cache()) == 0
    assert len(queries) == 1
    (headers / "new.h").write_text("")
    assert passes.run(command, job_cache()) == 0
    assert len(queries) == 2


def test_intermediate_files(passes: Passes) -> None:
    """The files that ``-save-temps`` keeps of each source are there, and the object is the same."""
    for name in "ab":
        *command, option, output, source = passes.write(name, 1)
        made = []
        for flags in ([], ["-save-temps"]):
            assert passes.run([*command, *flags, option, output, source], job_cache()) == 0
            made.append(Path(output).read_bytes())
        assert made[0] == made[1]
        assert [*passes.folder.glob(f"{name}-openmp-*.s")]
