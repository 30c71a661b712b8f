"""Random constructs in headers of `launch` with OFFLOAD_PCH: after edits, all is the driver's."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from offload_tool.pch import pch
from tests.pch_constructs.compositions import alone, composed
from tests.pch_constructs.constructs import CONSTRUCTS
from tests.pch_constructs.launched import DRIVERS, EDITS, MAP, LaunchTrial

pytestmark = pytest.mark.llvm


@pytest.mark.parametrize("seed", range(10))
def test_constructs(seed: int, tmp_path: Path, llvm: Callable[[str], str]) -> None:
    """Object, depfile, messages and status are the driver's, for two sources that begin alike."""
    rng = random.Random(f"launch {seed}")
    flags = [rng.choice(DRIVERS), *[MAP] * (rng.random() < 0.3)]
    choice = flags, rng.sample([*EDITS], 2)
    trial = LaunchTrial(tmp_path, [llvm("clang++")], lambda: choice)
    outcome = trial.judge(composed(rng, [*CONSTRUCTS], "hip"))
    assert outcome.what in ("same", "refused", "broken", "random"), outcome


def test_another_output_is_seen(
    tmp_path: Path, llvm: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A PCH with which something else comes out is found out."""
    args = pch.UsablePch.args
    composition = alone("standard: inline function", "hip", "host")
    composition.files["k.hip"] += "#ifdef NUMBER\nint more;\n#endif\n"
    trial = LaunchTrial(tmp_path, [llvm("clang++")], lambda: ([DRIVERS[0]], []))
    assert trial.judge(composition).what == "same"
    monkeypatch.setattr(pch.UsablePch, "args", lambda usable: [*args(usable), "-DNUMBER=2"])
    assert trial.judge(composition).what == "different"
