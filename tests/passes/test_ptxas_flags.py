"""What ptxas is told is what clang's driver tells it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from offload_tool.passes.cuda import ptxas_flags

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
def test_flags(
    given: str, llvm: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The flags of a PTX pass become those of the driver's assembler, wherever they are written."""
    monkeypatch.chdir(tmp_path)
    Path("flags").write_text("-O1\n")
    words = ["-x", "cuda", "--cuda-device-only", "--offload-arch=sm_80", "-nogpuinc", "-nogpulib"]
    command = [llvm("clang"), *words, *given.split(), "-S"]
    assert [*ptxas_flags(command, os.environ)] == CASES[given]
