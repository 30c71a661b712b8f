"""Which device libraries clang links in by itself: what it says, and none where it says nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from offload_tool.toolchain.driver_cache import device_libraries
from offload_tool.toolchain.probe import Toolchain
from tests.toolchain.installed import write_device_libraries

DEVICE = ["-x", "hip", "--cuda-device-only", "--no-gpu-bundle-output", "-nogpuinc", "-c"]


@pytest.fixture
def clang(compiler: Toolchain) -> list[str]:
    return [*compiler.clang, *compiler.local_flags, *DEVICE]


def test_libraries_of_a_processor(tmp_path: Path, compiler: Toolchain, clang: list[str]) -> None:
    """The answer holds the processor's own library, found by a flag or by a variable."""
    folder = write_device_libraries(tmp_path / "rocm device libraries", compiler.clang)
    command = [*clang, "--offload-arch=gfx90a:xnack+"]
    found = device_libraries([*command, f"--rocm-device-lib-path={folder}"], os.environ)
    assert str(folder / "ocml.bc") in found
    assert str(folder / "oclc_isa_version_90a.bc") in found
    assert str(folder / "oclc_isa_version_906.bc") not in found
    variables = {**os.environ, "HIP_DEVICE_LIB_PATH": str(folder)}
    assert device_libraries(command, variables) == found


def test_no_libraries(tmp_path: Path, compiler: Toolchain, clang: list[str]) -> None:
    """There are none where a flag leaves them out, where none are found, or without a compiler."""
    folder = write_device_libraries(tmp_path / "libraries", compiler.clang)
    command = [*clang, "--offload-arch=gfx906"]
    given = [*command, f"--rocm-device-lib-path={folder}", "-nogpulib"]
    assert device_libraries(given, os.environ) == ()
    assert device_libraries([*command, f"--rocm-path={tmp_path / 'none'}"], os.environ) == ()
    assert device_libraries([str(tmp_path / "no-clang"), *DEVICE], os.environ) == ()
