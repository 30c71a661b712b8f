"""Which image of CUDA a device loads."""

from __future__ import annotations

import random
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from offload_tool.formats.target.cuda_compatibility import (
    CudaTarget,
    cuda_fit,
    why_no_cuda_fit,
)


@pytest.mark.parametrize(
    ("device", "loaded", "others"),
    [
        ("sm_86", "sm_86", "sm_80 compute_80"),
        ("sm_89", "sm_86", "sm_80 sm_90 compute_86 compute_90"),
        ("sm_90", "sm_90a", "sm_90 sm_89 compute_90a compute_90"),
        ("sm_90a", "sm_90", "compute_90 sm_80"),
        ("sm_100", "sm_100a", "sm_100f sm_100"),
        ("sm_103", "sm_103f", "sm_103 sm_100f sm_100 sm_100a"),
        ("sm_103", "sm_100f", "sm_100 sm_100a compute_103"),
        ("sm_121", "sm_120f", "sm_120 sm_100f compute_120a"),
        ("sm_101", "sm_101", "sm_100 sm_100f"),
        ("sm_120", "compute_100", "sm_100 sm_100f compute_100f compute_90 lto_120"),
        ("sm_90", "compute_90a", "compute_90 sm_80 sm_100"),
        ("sm_70", "compute_61", "compute_60 sm_61 compute_75"),
        ("sm_87", "sm_80", "compute_87"),
    ],
)
def test_loaded(device: str, loaded: str, others: str) -> None:
    """Of several images, the one that is nearest is loaded, in whatever order they are."""
    names = [loaded, *others.split()]
    fits = {name: cuda_fit(name, device) for name in names}
    serving = [
        (("exact", "compatible", "ptx").index(f.rule), f.rank, n) for n, f in fits.items() if f
    ]
    assert min(serving)[2] == loaded
    for name, fit in fits.items():
        if fit is None:
            assert why_no_cuda_fit(name, device)


@pytest.mark.parametrize(
    ("code", "device", "reason"),
    [
        ("sm_90a", "sm_100", "sm_90a runs on sm_90 alone"),
        ("sm_100f", "sm_101", "sm_100f runs on sm_100 and later ones of its family"),
        ("sm_86", "sm_80", "sm_86 runs on 8.6 and later 8.x, not on sm_80"),
        ("sm_86", "sm_90", "sm_86 runs on 8.6 and later 8.x, not on sm_90"),
        ("compute_90", "sm_80", "compute_90 is PTX for sm_90 and later ones"),
        ("lto_80", "sm_80", "lto_80 is for a linker or compiler, not for a device"),
        ("sm_80", "gfx906", "'gfx906' names no NVIDIA device, such as sm_90"),
    ],
)
def test_why_not(code: str, device: str, reason: str) -> None:
    """What does not serve a device has a reason."""
    assert cuda_fit(code, device) is None
    assert why_no_cuda_fit(code, device) == reason


@pytest.mark.parametrize("seed", range(8))
def test_rules_of_ptx(seed: int, nvidia: Callable[[str], Path], tmp_path: Path) -> None:
    """NVIDIA's assembler takes PTX for exactly the processors that we say can run it."""
    ptxas = nvidia("ptxas")
    said = subprocess.run([ptxas, "--help"], check=True, capture_output=True, text=True).stdout
    known = sorted(set(re.findall(r"'(sm_\d+[af]?)'", said)))
    rng = random.Random(seed)
    for _ in range(12):
        target, processor = rng.choice(known), rng.choice(known)
        if rng.random() < 0.5:  # of the same major number, where more can happen
            processor = rng.choice([name for name in known if name[:5] == target[:5]])
        text = f".version 9.5\n.target {target}\n.address_size 64\n.visible .entry k(){{ret;}}\n"
        (tmp_path / "k.ptx").write_text(text)
        command = [ptxas, "-m64", f"--gpu-name={processor}", "k.ptx", "-o", "k.cubin"]
        taken = subprocess.run(command, cwd=tmp_path, capture_output=True).returncode == 0
        ours = cuda_fit(target.replace("sm", "compute"), processor) is not None
        if target[-1] == "a" and CudaTarget.parse(processor) != CudaTarget.parse(target):
            # The assembler compiles for a name, where a device has all of its number.
            ours = False
        assert taken == ours, (target, processor)
