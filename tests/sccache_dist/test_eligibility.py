"""Which compiles may leave this machine, and in which form."""

from __future__ import annotations

from pathlib import Path

import pytest

from offload_tool.passes.command import dependency_flags
from offload_tool.sccache_dist.cluster import remote_form, why_local
from tests.toolchain.installed import Rocm

FLAGS = ["-O2", "-c", "-o", "out", "in.hip"]
DEVICE = ["clang", "-x", "hip", "--cuda-device-only", "--offload-arch=gfx906", *FLAGS]


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ([*DEVICE, *dependency_flags("out.d")], ""),
        ([*DEVICE, "-fopenmp"], "OpenMP"),
        ([*DEVICE, "-fopenmp-targets=x86_64-pc-linux-gnu"], "OpenMP"),
        (["clang", "-x", "hip", "--offload-host-only", *FLAGS], "only device"),
        (["clang", "-x", "hip", *FLAGS], "only device"),
        (["clang", "-x", "cuda", "--cuda-device-only", *FLAGS], "-x hip"),
        (["clang", "--cuda-device-only", "a.o", "-o", "b"], "only compiles"),
        ([*DEVICE, "@flags"], "@flags names a file"),
        ([*DEVICE, "-fprofile-use=p"], "names a file"),
        ([*DEVICE, "-Xclang", "-load", "-Xclang", "p.so"], "names a file"),
        ([*DEVICE, "-save-temps=obj"], "stay on the server"),
        ([*DEVICE, "-ftime-trace"], "stay on the server"),
        ([*DEVICE, "-Xoffload-linker", "--dependency-file=d"], "--dependency-file=d writes a file"),
    ],
)
def test_others_stay(command: list[str], reason: str) -> None:
    """All but a HIP device pass stay here, and so do passes with files of their own."""
    found = why_local(command)
    assert reason in found
    assert bool(reason) == bool(found)


def test_named_headers_and_libraries(rocm: Rocm) -> None:
    """What the driver would find by itself is named: headers first, and the library folder.

    What a build excludes is not added; ROCM_PATH counts as --rocm-path does.
    """
    plain = [rocm.clang, *DEVICE[1:]]
    named = [*plain, f"--rocm-path={rocm.folder}"]
    args, variables = remote_form(named, {})
    libraries = {"HIP_DEVICE_LIB_PATH": str(rocm.libraries)}
    assert variables == libraries
    size = len(named) + 2
    assert args[:size] == [rocm.clang, "-include", "__clang_hip_runtime_wrapper.h", *named[1:]]
    assert args[size : size + 2] == ["-nogpuinc", "-isystem"]
    assert Path(args[size + 2]).name == "cuda_wrappers"
    assert args[size + 3 :] == ["-idirafter", str(rocm.folder / "include")]

    assert remote_form([*named, "-nogpuinc"], {}) == ([*named, "-nogpuinc"], libraries)
    args, variables = remote_form([*named, "-nogpulib"], {})
    assert ("-include" in args, variables) == (True, {})
    assert remote_form(plain, {"ROCM_PATH": str(rocm.folder)})[1] == libraries
    alone = ["/nowhere/clang", *DEVICE[1:], "-nogpulib", "-nogpuinc"]
    assert remote_form(alone, {}) == (alone, {})
