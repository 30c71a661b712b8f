"""What all tests share: LLVM 22's own tools, required in CI and a clear skip elsewhere."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent

# Reproducible in CI: the same examples in every run, no deadline on a shared machine.
settings.register_profile(
    "offload", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("offload")


def missing(what: str) -> None:
    """Fail in CI, where everything is installed; skip with a reason on a user's machine."""
    if os.environ.get("CI"):
        pytest.fail(f"{what} is missing, and CI must have it")
    pytest.skip(f"{what} is not installed")


@pytest.fixture(scope="session")
def llvm() -> Callable[[str], str]:
    """Give the path of an LLVM 22 tool by its plain name, e.g. ``clang-offload-bundler``."""

    def find(tool: str) -> str:
        # The folder first: there, the bundler finds the llvm-objcopy of the same version.
        found = shutil.which(f"/usr/lib/llvm-22/bin/{tool}") or shutil.which(f"{tool}-22")
        if found is None:
            missing(f"LLVM 22's {tool}")
            raise AssertionError  # missing() does not return
        return found

    return find
