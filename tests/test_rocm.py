"""Readers of bundles that are not LLVM's: ROCm's code object manager and HIP runtime.

Debian's packages libamd-comgr2 and libamdhip64-5 (ROCm 5.2.3); no GPU is needed.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import subprocess
import sys
from pathlib import Path

from offload_tool import BundleEntryID, bundle_files, list_images
from tests.conftest import ROOT, missing

FATBIN = 0x10  # AMD_COMGR_DATA_KIND_FATBIN
NO_DEVICE = "no HIP device (hipErrorNoDevice)"


class Found(ctypes.Structure):
    """amd_comgr_code_object_info_t."""

    _fields_ = (
        ("isa", ctypes.c_char_p),
        ("size", ctypes.c_size_t),
        ("offset", ctypes.c_uint64),
    )


def library(name: str) -> str:
    found = ctypes.util.find_library(name)
    if found is None:
        missing(f"lib{name}")
        raise AssertionError
    return found


def look_up(bundle: Path, target: str) -> tuple[int, int]:
    """Ask the code object manager for the (offset, size) of the image for a target ID."""
    comgr = ctypes.CDLL(library("amd_comgr"))
    content = bundle.read_bytes()
    data = ctypes.c_uint64()
    info = Found(f"amdgcn-amd-amdhsa--{target}".encode())
    for status in (
        comgr.amd_comgr_create_data(FATBIN, ctypes.byref(data)),
        comgr.amd_comgr_set_data(data, ctypes.c_size_t(len(content)), content),
        comgr.amd_comgr_lookup_code_object(data, ctypes.byref(info), ctypes.c_size_t(1)),
        comgr.amd_comgr_release_data(data),
    ):
        assert status == 0
    return info.offset, info.size


def test_code_object_manager_finds_the_images(tmp_path: Path) -> None:
    """ROCm's own reader finds each image of our bundle where we say it is, and no other."""
    code = tmp_path / "code"
    items: list[tuple[BundleEntryID, Path | None]] = [
        (BundleEntryID.parse("host-x86_64-unknown-linux-gnu-"), None)
    ]
    for index, target in enumerate(["gfx906", "gfx90a", "gfx908:xnack-"]):
        path = code.with_suffix(f".{index}")
        path.write_bytes(bytes(1000 + index))
        items.append((BundleEntryID.parse(f"hipv4-amdgcn-amd-amdhsa--{target}"), path))
    bundle_files(tmp_path / "bundle", items, alignment=4096)

    places = {
        image.target_id: (image.offset, image.size) for image in list_images(tmp_path / "bundle")
    }
    asked = ["gfx906", "gfx90a:xnack+", "gfx908:xnack-", "gfx1030"]
    assert {target: look_up(tmp_path / "bundle", target) for target in asked} == {
        "gfx906": places["gfx906"],
        "gfx90a:xnack+": places["gfx90a"],
        "gfx908:xnack-": places["gfx908:xnack-"],
        "gfx1030": (0, 0),
    }


def test_hip_runtime_takes_the_program(tmp_path: Path) -> None:
    """A program of our host object and bundle starts with the real HIP runtime."""
    runtime = Path("/usr/lib/x86_64-linux-gnu", library("amdhip64"))
    rocm = tmp_path / "rocm"
    (rocm / "lib").mkdir(parents=True)
    (rocm / "lib" / "libamdhip64.so").symlink_to(runtime)
    (tmp_path / "saxpy").mkdir()
    for path in (ROOT / "examples" / "saxpy").iterdir():
        (tmp_path / "saxpy" / path.name).write_bytes(path.read_bytes())
    environment = os.environ | {"ROCM_PATH": str(rocm), "PYTHONPATH": str(ROOT)}
    subprocess.run(
        [sys.executable, "-m", "SCons", "-Q"],
        cwd=tmp_path / "saxpy",
        env=environment,
        check=True,
        capture_output=True,
    )
    ran = subprocess.run(
        [tmp_path / "saxpy" / "saxpy"], capture_output=True, text=True, check=True, timeout=60
    )
    assert "stand-in" not in ran.stdout
    assert NO_DEVICE in ran.stdout or "0 of 100000 values wrong" in ran.stdout
