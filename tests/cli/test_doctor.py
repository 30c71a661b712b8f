"""`offload-tool doctor`: the compilers found, the one in use, and missing parts."""

from __future__ import annotations

import pytest

from offload_tool.cli import main
from tests.conftest import Capture, Tool


def test_what_is_used(llvm: Tool, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setenv("OFFLOAD_CLANG", llvm("clang++"))
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 14
    assert any(line.startswith("OpenMP: clang 22") for line in lines)
    assert f"environment: OFFLOAD_CLANG={llvm('clang++')}" in "\n".join(lines)
    for name in ("HIP", "CUDA"):
        (line,) = (line for line in lines if line.startswith(f"{name}: "))
        assert "clang 22" in line


def test_embedded(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    """With the embedded compiler, it names what has no effect."""
    pytest.importorskip("ziglang")
    monkeypatch.setenv("OFFLOAD_CLANG", "embedded")
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.endswith("--gcc-toolchain has no effect") for line in lines) == 3
    # Without the flag where ROCm's device libraries are.
    assert any(
        line.startswith(("  OpenMP with -nogpulib: clang 22", "OpenMP: clang 22")) for line in lines
    )
