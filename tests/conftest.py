"""What all tests share: LLVM 22's own tools, required in CI and a clear skip elsewhere."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Under nohup, or in a script's background, every child would ignore one of these signals, and tests
# that send it would wait for ever.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)

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
    """Give the path of an LLVM 22 tool by its plain name, e.g. ``clang-offload-bundler``.

    OFFLOAD_TEST_LLVM names a folder with tools of another LLVM to be used in their place.
    """

    def find(tool: str) -> str:
        if folder := os.environ.get("OFFLOAD_TEST_LLVM"):
            other = shutil.which(f"{folder}/{tool}")
            if other is not None:
                return other
        # The folder first: there, the bundler finds the llvm-objcopy of the same version.
        found = shutil.which(f"/usr/lib/llvm-22/bin/{tool}") or shutil.which(f"{tool}-22")
        if found is None:
            missing(f"LLVM 22's {tool}")
            raise AssertionError  # missing() does not return
        return found

    return find


@pytest.fixture(scope="session")
def llvm23() -> Callable[[str], str]:
    """Give the path of an LLVM 23 tool: of Debian's package, or in the folder OFFLOAD_TEST_LLVM23.

    Few machines have any of them, and the wheel that CI installs has some, so what is missing
    is skipped; except for those that OFFLOAD_REQUIRE_LLVM23 lists.
    """

    def find(tool: str) -> str:
        for folder in (os.environ.get("OFFLOAD_TEST_LLVM23"), "/usr/lib/llvm-23/bin"):
            if folder and (found := shutil.which(f"{folder}/{tool}")):
                return found
        if tool in os.environ.get("OFFLOAD_REQUIRE_LLVM23", "").split():
            pytest.fail(f"LLVM 23's {tool} is missing, and OFFLOAD_REQUIRE_LLVM23 asks for it")
        pytest.skip(f"LLVM 23's {tool} is not installed")

    return find
