"""Every pass, run with a real compiler; and what a wrong output is told apart by."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from offload_tool.errors import CodeObjectError, UsageError
from offload_tool.formats.targets.compile_target import parse_target
from offload_tool.passes.compile_pass import CompilePass
from offload_tool.passes.languages import compile_pass
from offload_tool.passes.source_kind import derive_cuid, kind_of_suffix
from offload_tool.run.openmp_jobs import run_device_pass
from offload_tool.toolchain.probe import Toolchain
from tests.conftest import run_tool

HIP = """\
struct dim3 { unsigned x, y, z; };
extern "C" int hipLaunchKernel(const void*, dim3, dim3, void**, unsigned long, struct stream*);
__attribute__((global)) void kernel(int* p) { *p = 1; }
"""
CUDA = """\
struct dim3 { unsigned x, y, z; };
extern "C" int cudaLaunchKernel(const void*, dim3, dim3, void**, unsigned long, struct stream*);
__attribute__((global)) void kernel(int* p) { *p = 1; }
"""
OPENMP = """\
int main(void) {
    int value = 0;
#pragma omp target map(from : value)
    value = 42;
    return value != 42;
}
"""
PLAIN = {
    "hip": ["-nogpuinc", "-nogpulib"],
    "cuda": ["-nocudainc", "-nocudalib", "-Wno-unknown-cuda-version"],
    "openmp": ["-nogpulib"],  # clang 19 comes without them
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in (("k.hip", HIP), ("k.cu", CUDA), ("k.c", OPENMP)):
        (tmp_path / name).write_text(text)
    return tmp_path


def run(compiler: Toolchain, job: CompilePass, source: Path, host_ir: Path | None = None) -> Path:
    """Run a pass; return its output, unchecked."""
    name = job.device.filename if job.device is not None else job.stage
    output = source.with_name(f"{source.stem}.{name}.out")
    read = source if job.compiles_source else host_ir
    job = replace(job, source=source.name, host_ir=str(host_ir or ""))
    command = [*compiler.clang, *job.local_flags(compiler)]
    command += [*job.flags(compiler), *PLAIN[job.kind]]
    command += [*job.last_flags(compiler), "-o", output, read]
    environment = os.environ | dict(compiler.environment)
    if host_ir is not None and job.device is not None:
        assert run_device_pass([*map(str, command)], environment, _call) == 0
    else:
        run_tool(*command, env=environment)
    return output


def _call(args: list[str], environment: Mapping[str, str]) -> int:
    return subprocess.run(args, check=True, env=environment, capture_output=True).returncode


def device_pass(kind: str, name: str, *, rdc: bool = False) -> CompilePass:
    return compile_pass(kind, "device", "13", parse_target(name), rdc=rdc)


@pytest.mark.parametrize(
    ("source", "job"),
    [
        ("k.hip", compile_pass("hip", "host", "13")),
        ("k.hip", device_pass("hip", "gfx90a:xnack+")),
        ("k.hip", compile_pass("hip", "host", "13", rdc=True)),
        ("k.hip", device_pass("hip", "gfx90a:xnack+", rdc=True)),
        ("k.cu", compile_pass("cuda", "host", "13")),
        ("k.cu", device_pass("cuda", "sm_80")),
        ("k.c", compile_pass("openmp", "host-ir", "13")),
    ],
    ids=lambda value: value if isinstance(value, str) else f"{value.stage}-{value.rdc}",
)
def test_outputs_pass_their_check(
    compiler: Toolchain, folder: Path, source: str, job: CompilePass
) -> None:
    """What the compiler makes in a pass is what the check of that pass expects."""
    job.check(run(compiler, job, folder / source))


@pytest.mark.parametrize("name", ["gfx906", "gfx90a:xnack-", "x86_64-unknown-linux-gnu"])
def test_openmp_devices_have_the_entries_of_the_host(
    compiler: Toolchain, folder: Path, name: str
) -> None:
    """A module made with a host IR passes the check against it; another host IR's does not.

    The name of a target region holds the source's inode, so a copy has other ones.
    """
    ir_pass, job = compile_pass("openmp", "host-ir", "13"), device_pass("openmp", name)
    ours = run(compiler, ir_pass, folder / "k.c")
    module = run(compiler, job, folder / "k.c", ours)
    job.check(module, ours)
    shutil.copy(folder / "k.c", folder / "copy.c")
    other = run(compiler, ir_pass, folder / "copy.c")
    with pytest.raises(CodeObjectError, match="expected the kernels that"):
        job.check(module, other)
    stale = run(compiler, job, folder / "copy.c", ours)  # an empty module, status 0
    with pytest.raises(CodeObjectError, match=r"is missing \(found no kernel\)"):
        job.check(stale, ours)


@pytest.mark.parametrize(
    ("job", "wrong", "message"),
    [
        (device_pass("hip", "gfx906", rdc=True), "k.hip", "expected bitcode for gfx906"),
        (device_pass("hip", "gfx906", rdc=True), "empty", "found an empty file"),
        (device_pass("cuda", "sm_80"), "k.hip", r"expected PTX with the line '.target sm_80'"),
        (compile_pass("cuda", "host", "13"), "host", "expected a section .nv_fatbin"),
        (compile_pass("openmp", "host-ir", "13"), "k.hip", "expected host IR"),
    ],
    ids=["source-as-bitcode", "empty", "source-as-ptx", "hip-host-as-cuda", "source-as-ir"],
)
def test_wrong_outputs_are_told(
    compiler: Toolchain, folder: Path, job: CompilePass, wrong: str, message: str
) -> None:
    """What a misled launcher may leave is refused, with what was expected and found."""
    if wrong == "host":
        path = run(compiler, compile_pass("hip", "host", "13"), folder / "k.hip")
    else:
        path = folder / wrong
        path.touch()
    with pytest.raises(CodeObjectError, match=message):
        job.check(path)


def test_ptx_of_another_target(compiler: Toolchain, folder: Path) -> None:
    """PTX for another processor is not what was asked for."""
    made = run(compiler, device_pass("cuda", "sm_75"), folder / "k.cu")
    with pytest.raises(CodeObjectError, match="sm_80"):
        device_pass("cuda", "sm_80").check(made)


def test_passes_that_there_are_not() -> None:
    """Impossible passes are refused when they are described."""
    with pytest.raises(UsageError, match="offload kind 'sycl'"):
        compile_pass("sycl", "host", "13")
    with pytest.raises(UsageError, match="needs a target ID"):
        compile_pass("hip", "device", "13")


def test_kinds_and_cuids() -> None:
    """A suffix tells the kind; a CUID depends on names alone, and tells outputs apart."""
    assert [kind_of_suffix(name) for name in ("a.hip", "a.cu", "a.cpp")] == ["hip", "cuda", None]
    assert derive_cuid("a.hip") == derive_cuid("a.hip") != derive_cuid("a.hip", "other")
