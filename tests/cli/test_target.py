"""``offload-tool target``: explains a target ID, without a file."""

from __future__ import annotations

import pytest

from offload_tool.cli import main
from tests.conftest import Capture


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (
            "gfx906:xnack+:sramecc-",
            ["target ID   gfx906:sramecc-:xnack+", "features    sramecc, xnack"],
        ),
        ("fiji", ["target ID   gfx803", "also known as fiji, polaris10, polaris11"]),
        ("gfx9-4-generic", ["covers      gfx942, gfx950"]),
        ("sm_90a", ["triple      nvptx64-nvidia-cuda-unknown"]),
        ("hipv4-amdgcn-amd-amdhsa--gfx90a:xnack+", ["target ID   gfx90a:xnack+"]),
    ],
)
def test_description(text: str, lines: list[str], capsys: Capture) -> None:
    """The command prints the canonical form, and facts about the processor."""
    assert main(["target", text]) == 0
    assert set(lines) <= {*capsys.readouterr().out.splitlines()}


@pytest.mark.parametrize(
    ("code", "device", "status"),
    [
        ("gfx90a:xnack+", "gfx90a:sramecc+:xnack+", 0),
        ("gfx90a:xnack+", "gfx90a:xnack-", 1),
        ("gfx906", "gfx90a", 1),
        ("gfx9-4-generic", "gfx942", 0),
        ("sm_80", "sm_86", 0),
        ("sm_80", "sm_90", 1),
    ],
)
def test_device(code: str, device: str, status: int, capsys: Capture) -> None:
    """The command prints whether a device loads code for a target ID, and why, as `match` does."""
    assert main(["target", code, device]) == status
    verdict = "does not load" if status else "loads"
    assert capsys.readouterr().out.startswith(f"{device} {verdict} code for {code}")


def test_no_target_id(capsys: Capture) -> None:
    assert main(["target", "gfx9060"]) == 1
    assert "unknown processor 'gfx9060'" in capsys.readouterr().err
