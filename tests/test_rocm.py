"""Readers of bundles that are not LLVM's: ROCm's code object manager and HIP runtime.

Debian's packages libamd-comgr2 and libamdhip64-5 (ROCm 5.2.3); no GPU is needed.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import shutil
import sys
from pathlib import Path

import pytest

from offload_tool import Device, list_images, match_images
from offload_tool.toolchain.select import find_toolchain
from tests.conftest import ROOT, missing, run_tool, try_tool
from tests.operations.fatbins import HOST, make_bundle
from tests.scons.conftest import flagged_clang

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


WATCHED = ("loaded", "kernel", "variable")
COUNTER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
void **__hipRegisterFatBinary(const void *data) {
  void **(*next)(const void *) = dlsym(RTLD_NEXT, "__hipRegisterFatBinary");
  void **handle = next(data);
  fprintf(stderr, "loaded %d\n", handle != 0);
  return handle;
}
void __hipRegisterFunction(void **h, const void *f, char *d, const char *name, unsigned t,
                           void *a, void *b, void *c, void *e, int *w) {
  void (*next)(void **, const void *, char *, const char *, unsigned, void *, void *, void *,
               void *, int *) = dlsym(RTLD_NEXT, "__hipRegisterFunction");
  next(h, f, d, name, t, a, b, c, e, w);
  fprintf(stderr, "kernel %s\n", name);
}
void __hipRegisterVar(void **h, void *v, char *d, char *name, int external, size_t size,
                      int constant, int global) {
  void (*next)(void **, void *, char *, char *, int, size_t, int, int) =
      dlsym(RTLD_NEXT, "__hipRegisterVar");
  next(h, v, d, name, external, size, constant, global);
  fprintf(stderr, "variable %.17s\n", name);
}
"""


@pytest.mark.parametrize("driver", ["old", "new"])
def test_hip_runtime_registers_relocatable_code(tmp_path: Path, driver: str) -> None:
    """The real HIP runtime takes each kernel and variable of a program of either offload driver."""
    rocm = rocm_folder(tmp_path)
    for name in ("saxpy", "rdc_library"):
        shutil.copytree(ROOT / "examples" / name, tmp_path / name)
    environment = os.environ | {"ROCM_PATH": str(rocm), "PYTHONPATH": str(ROOT)}
    if driver == "new":
        environment["OFFLOAD_CLANG"] = str(flagged_clang(tmp_path))
    (tmp_path / "counter.c").write_text(COUNTER)
    counter = [*find_toolchain().cc, "-shared", "-fPIC", "counter.c", "-o", "counter.so", "-ldl"]
    run_tool(*counter, cwd=tmp_path)
    folder = tmp_path / "rdc_library"
    run_tool(sys.executable, "-m", "SCons", "-Q", cwd=folder, env=environment)
    ran = try_tool(
        folder / "app" / "app", env=os.environ | {"LD_PRELOAD": str(tmp_path / "counter.so")}
    )
    assert ran.returncode == 0
    lines = [line for line in ran.stderr.splitlines() if line.startswith(WATCHED)]
    assert lines == ["loaded 1", "kernel _Z7measurePKfPf", "variable _ZL13scaled_value"]


def test_hip_runtime_takes_the_program(tmp_path: Path) -> None:
    """A program of our host object and bundle starts with the real HIP runtime."""
    rocm = rocm_folder(tmp_path)
    (tmp_path / "saxpy").mkdir()
    for path in (ROOT / "examples" / "saxpy").iterdir():
        (tmp_path / "saxpy" / path.name).write_bytes(path.read_bytes())
    environment = os.environ | {"ROCM_PATH": str(rocm), "PYTHONPATH": str(ROOT)}
    run_tool(sys.executable, "-m", "SCons", "-Q", cwd=tmp_path / "saxpy", env=environment)
    ran = run_tool(tmp_path / "saxpy" / "saxpy")
    assert "stand-in" not in ran
    assert "no HIP device (" in ran or "0 of 100000 values wrong" in ran
