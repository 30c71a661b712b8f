"""Which device libraries clang links in by itself: what it says, and none where it says nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from offload_tool.errors import CompilerError
from offload_tool.toolchain.driver_cache import device_libraries
from offload_tool.toolchain.select import find_toolchain
from tests.conftest import missing

DEVICE = ["-x", "hip", "--cuda-device-only", "--no-gpu-bundle-output", "-nogpuinc", "-c"]
OPTIONS = ("daz_opt", "unsafe_math", "finite_only", "correctly_rounded_sqrt", "wavefrontsize64")


@pytest.fixture
def clang() -> list[str]:
    try:
        toolchain = find_toolchain()
    except CompilerError as error:
        missing(f"a compiler ({error})")
        raise AssertionError from None  # missing() does not return
    return [*toolchain.clang, *toolchain.local_flags, *DEVICE]


def library_folder(folder: Path) -> Path:
    """Make a folder that clang takes for ROCm's; it looks at the names alone."""
    libraries = folder / "rocm device libraries"
    libraries.mkdir()
    names = [f"oclc_{option}_{state}" for option in OPTIONS for state in ("on", "off")]
    names += ["ocml", "ockl", "opencl", "oclc_isa_version_906", "oclc_isa_version_90a"]
    for name in (*names, *(f"oclc_abi_version_{version}" for version in (400, 500, 600))):
        (libraries / f"{name}.bc").write_bytes(b"")
    return libraries


def test_libraries_of_a_processor(tmp_path: Path, clang: list[str]) -> None:
    """The answer holds the processor's own library, found by a flag or by a variable."""
    folder = library_folder(tmp_path)
    command = [*clang, "--offload-arch=gfx90a:xnack+"]
    found = device_libraries([*command, f"--rocm-device-lib-path={folder}"], os.environ)
    assert str(folder / "ocml.bc") in found
    assert str(folder / "oclc_isa_version_90a.bc") in found
    assert str(folder / "oclc_isa_version_906.bc") not in found
    variables = {**os.environ, "HIP_DEVICE_LIB_PATH": str(folder)}
    assert device_libraries(command, variables) == found


def test_no_libraries(tmp_path: Path, clang: list[str]) -> None:
    """There are none where a flag leaves them out, where none are found, or without a compiler."""
    folder = library_folder(tmp_path)
    command = [*clang, "--offload-arch=gfx906"]
    given = [*command, f"--rocm-device-lib-path={folder}", "-nogpulib"]
    assert device_libraries(given, os.environ) == ()
    assert device_libraries([*command, f"--rocm-path={tmp_path / 'none'}"], os.environ) == ()
    assert device_libraries([str(tmp_path / "no-clang"), *DEVICE], os.environ) == ()
