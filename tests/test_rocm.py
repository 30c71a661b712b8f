"""Readers of bundles that are not LLVM's: ROCm's code object manager and HIP runtime.

Debian's packages libamd-comgr2 and libamdhip64-5 (ROCm 5.2.3); no GPU is needed.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import shutil
from pathlib import Path

import pytest

from offload_tool import Device, list_images, match_images
from offload_tool.passes.choose_compiler import find_toolchain
from tests.conftest import ROOT, missing, run_tool
from tests.operations.fatbins import HOST, make_bundle
from tests.scons.conftest import Project, flagged_clang
from tests.toolchains.conftest import start_counted

FATBIN = 0x10  # AMD_COMGR_DATA_KIND_FATBIN


class Found(ctypes.Structure):
    """amd_comgr_code_object_info_t."""

    _fields_ = (("isa", ctypes.c_char_p), ("size", ctypes.c_size_t), ("offset", ctypes.c_uint64))


def library(name: str) -> str:
    found = ctypes.util.find_library(name)
    if found is None:
        missing(f"lib{name}")
    return found


def look_up(bundle: Path, isa: str) -> tuple[int, int]:
    """Ask the code object manager for the (offset, size) of the image for an ISA name."""
    comgr = ctypes.CDLL(library("amd_comgr"))
    content = bundle.read_bytes()
    data = ctypes.c_uint64()
    info = Found(isa.encode())
    for status in (
        comgr.amd_comgr_create_data(FATBIN, ctypes.byref(data)),
        comgr.amd_comgr_set_data(data, ctypes.c_size_t(len(content)), content),
        comgr.amd_comgr_lookup_code_object(data, ctypes.byref(info), ctypes.c_size_t(1)),
        comgr.amd_comgr_release_data(data),
    ):
        assert status == 0
    return info.offset, info.size


def load(bundle: Path, device: str, generic: str) -> int | None:
    """Return the offset of what ROCm's HIP runtime would load, in the order in which it asks."""
    spirv = [f"spirv64-amd-amdhsa-{environment}-amdgcnspirv" for environment in ("unknown", "")]
    wanted = [*(f"amdgcn-amd-amdhsa--{name}" for name in (device, generic) if name), *spirv]
    found = (look_up(bundle, isa) for isa in wanted)
    return next((offset for offset, size in found if size), None)


def knows_generic_processors() -> bool:
    comgr = ctypes.CDLL(library("amd_comgr"))
    major, minor = ctypes.c_size_t(), ctypes.c_size_t()
    comgr.amd_comgr_get_version(ctypes.byref(major), ctypes.byref(minor))
    return major.value >= 3


def test_code_object_manager_finds_the_images(tmp_path: Path) -> None:
    """ROCm's own reader finds each image of our bundle where we say it is, and no other."""
    targets = ("gfx906", "gfx90a", "gfx908:xnack-")
    images = {target: bytes(1000 + index) for index, target in enumerate(targets)}
    make_bundle(tmp_path / "bundle", {HOST: b"", **images})
    places = {
        image.target_id: (image.offset, image.size) for image in list_images(tmp_path / "bundle")
    }
    asked = ["gfx906", "gfx90a:xnack+", "gfx908:xnack-", "gfx1030"]
    assert {
        target: look_up(tmp_path / "bundle", f"amdgcn-amd-amdhsa--{target}") for target in asked
    } == {
        "gfx906": places["gfx906"],
        "gfx90a:xnack+": places["gfx90a"],
        "gfx908:xnack-": places["gfx908:xnack-"],
        "gfx1030": (0, 0),
    }


SPIRV = "hip-spirv64-amd-amdhsa--amdgcnspirv"
IMAGES = [
    *("gfx942:sramecc+:xnack-", "gfx942:sramecc+:xnack+", "gfx90a", "gfx11-generic"),
    *("gfx9-4-generic:sramecc+:xnack-", "gfx9-4-generic:sramecc+:xnack+", SPIRV),
]


@pytest.mark.parametrize("first", range(len(IMAGES)))
@pytest.mark.parametrize("step", [1, 2, -1, -2])
def test_match_is_what_the_runtime_asks_for(tmp_path: Path, first: int, step: int) -> None:
    """Of native, generic and SPIR-V images, match gives what ROCm's lookup gives, or nothing.

    The code object manager knows generic processors since version 3; an older one finds
    code for them by the very ID.
    """
    names = IMAGES[first::step]
    if knows_generic_processors():
        names = list(dict.fromkeys(name.replace("ric:sramecc+:xnack-", "ric") for name in names))
        names = [name for name in names if "generic:" not in name] or [SPIRV]
    images = {name: bytes(100 + index) for index, name in enumerate(names)}
    bundle = make_bundle(tmp_path / "bundle", images)
    offsets = {image.id: image.offset for image in list_images(bundle)}
    for device, generic in (
        ("gfx942:sramecc+:xnack-", "gfx9-4-generic:sramecc+:xnack-"),
        ("gfx90a:sramecc+:xnack+", ""),
        ("gfx1103", "gfx11-generic"),
    ):
        (match,) = match_images(bundle, Device.parse(device))
        expected = load(bundle, device, generic)
        assert [offsets[found] for found in match.ids] == ([] if expected is None else [expected])


def rocm_folder(folder: Path) -> Path:
    """Make a folder like ROCm's of the runtime that the system has."""
    runtime = Path("/usr/lib/x86_64-linux-gnu", library("amdhip64"))
    rocm = folder / "rocm"
    (rocm / "lib").mkdir(parents=True)
    (rocm / "lib" / "libamdhip64.so").symlink_to(runtime)
    return rocm


@pytest.mark.parametrize("driver", ["old", "new"])
def test_hip_runtime_registers_relocatable_code(tmp_path: Path, driver: str) -> None:
    """The real HIP runtime takes each kernel and variable of a program of either offload driver."""
    rocm = rocm_folder(tmp_path)
    project = Project(tmp_path / "rdc_library", os.environ | {"PYTHONPATH": str(ROOT)})
    shutil.copytree(ROOT / "examples/rdc_library", project.folder)
    project.environment["ROCM_PATH"] = str(rocm)
    if driver == "new":
        project.environment["OFFLOAD_CLANG"] = str(flagged_clang(tmp_path))
    project.done("-Q")
    source, counter = ROOT / "tests/toolchains/count_registrations.c", tmp_path / "counter.so"
    run_tool(*find_toolchain().cc, "-shared", "-fPIC", source, "-o", counter, "-ldl")
    _, registered = start_counted(counter, project.folder / "app/app")
    assert [words[0] for words in registered] == ["binary", "function", "variable"]
    assert registered[1][2] == "_Z7measurePKfPf"
    assert registered[2][2].startswith("_ZL13scaled_value")


def test_hip_runtime_takes_the_program(tmp_path: Path) -> None:
    """A program of our host object and bundle starts with the real HIP runtime."""
    rocm = rocm_folder(tmp_path)

    project = Project(tmp_path / "saxpy", os.environ | {"PYTHONPATH": str(ROOT)})
    shutil.copytree(ROOT / "examples/saxpy", project.folder)
    project.environment["ROCM_PATH"] = str(rocm)
    project.done("-Q")
    ran = "\n".join(project.start("saxpy"))
    assert "stand-in" not in ran
    assert "no HIP device (" in ran or "0 of 100000 values wrong" in ran
