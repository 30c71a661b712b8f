"""What ptxas is told is what clang's driver tells it, and where it is found."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from offload_tool.formats.targets.compile_target import parse_target
from offload_tool.passes.cuda import ptxas_flags
from offload_tool.passes.openmp import gpu_flags
from offload_tool.toolchain.probe import Toolchain
from offload_tool.util.frozen import replaced
from tests.conftest import Tool
from tests.scripts import script

CASES = {
    "": ["-O0"],
    "-O2": ["-O2"],
    "-Os": ["-O2"],
    "-Ofast": ["-O3"],
    "-g": ["-g", "--dont-merge-basicblocks", "--return-at-end"],
    "-O2 -g": ["-O2", "-lineinfo"],
    "-O1 -Xcuda-ptxas --maxrregcount -Xcuda-ptxas 32": ["-O1", "--maxrregcount", "32"],
    "-Xclang -S -O3": ["-O3"],
    "-fgpu-rdc -O2": ["-O2"],
    "@flags": ["-O1"],
}


@pytest.mark.llvm
@pytest.mark.parametrize("given", CASES)
def test_flags(given: str, llvm: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The flags of a PTX pass become those of the driver's assembler, wherever they are written."""
    monkeypatch.chdir(tmp_path)
    Path("flags").write_text("-O1\n")
    args = ["-x", "cuda", "--cuda-device-only", "--offload-arch=sm_80", "-nogpuinc", "-nogpulib"]
    command = [llvm("clang"), *args, *given.split(), "-S"]
    assert [*ptxas_flags(command, os.environ)] == CASES[given]


def test_ptxas_of_a_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiler: Toolchain
) -> None:
    """An OpenMP pass gets the one in NVIDIA's wheel, if there is none on PATH and no toolkit."""
    ptxas = tmp_path / "nvidia/cu13/bin/ptxas"
    ptxas.parent.mkdir(parents=True)
    script(ptxas, "echo release 13")
    access = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode: f"{tmp_path}/" in str(path) and access(path, mode)
    )
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.syspath_prepend(tmp_path)
    without = replaced(compiler, openmp_flags=())
    assert gpu_flags(parse_target("sm_80"), without) == [f"--ptxas-path={ptxas}"]
