"""Random constructs, flags and edits: what `launch` makes after each edit is the driver's."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.conftest import NvidiaFile, Tool
from tests.launch.compiles import ALWAYS_IN_STAGES
from tests.launch.edit_trials import Trial

STALE = (
    sys.executable,
    "-c",
    "import os, sys; os.path.exists(sys.argv[-1]) or os.execvp(sys.argv[1], sys.argv[1:])",
)
"""A launcher that compiles nothing twice."""

pytestmark = pytest.mark.llvm


@pytest.mark.parametrize("seed", [0, 1, 6, 12, 19, 123410])
def test_edits(seed: int, tmp_path: Path, llvm: Tool) -> None:
    """Object, depfile, other files, messages and status are the driver's after each edit.

    Among the edits of these seeds are all kinds: calls that are killed, two at once, damage,
    headers that appear, changes that are taken back. In the last one, the host's assembly reads a
    file behind ccache, whose script must leave no rule in the depfile.
    """
    trial = Trial([llvm("clang++")], seed, tmp_path / "trial")
    assert trial.judge() == []
    assert trial.count["compiles"] == 9


@pytest.mark.parametrize("seed", range(3))
def test_edits_of_cuda(seed: int, tmp_path: Path, llvm: Tool, nvidia: NvidiaFile) -> None:
    """So they are for CUDA, with NVIDIA's ptxas and fatbinary."""
    nvidia("fatbinary")
    command = [llvm("clang++"), f"--cuda-path={nvidia('ptxas').parent.parent}"]
    trial = Trial(command, seed, tmp_path / "trial", "cuda")
    assert trial.judge() == []
    assert trial.count["compiles"] == 9


def test_stale_object_is_found(tmp_path: Path, llvm: Tool) -> None:
    """An object that stays after an edit is a difference."""
    trial = Trial([llvm("clang++")], 0, tmp_path / "trial")
    assert trial.launch is ALWAYS_IN_STAGES
    trial.launch = STALE
    assert trial.judge() != []
