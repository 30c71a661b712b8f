"""Which compiles may leave this machine, and in which form."""

from __future__ import annotations

from pathlib import Path

import pytest

from offload_tool.passes import hip
from offload_tool.passes.command import dependency_flags
from offload_tool.sccache_dist.eligibility import remote_form, why_local
from tests.sccache_dist.conftest import Rocm

FLAGS = ["-O2", "-c", "-o", "out", "in.hip"]
DEVICE = ["clang", "-x", "hip", "--cuda-device-only", "--offload-arch=gfx906", *FLAGS]


def test_device_compiles_may_leave() -> None:
    """The command of a HIP device pass, with its depfile, may be distributed."""
    flags = hip.device_flags("gfx90a:xnack+", "1")
    command = ["clang", *flags, *dependency_flags("out.d"), *FLAGS]
    assert why_local(command) == ""
    assert why_local(DEVICE) == ""


@pytest.mark.parametrize(
    ("command", "reason"),
    [
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
    ],
)
def test_others_stay(command: list[str], reason: str) -> None:
    """Host passes, OpenMP, CUDA, links, and compiles with files of their own stay here."""
    assert reason in why_local(command)


def test_plain_compile_is_sent_as_it_is() -> None:
    """Without headers and libraries of ROCm, nothing is asked of the driver or added."""
    command = ["/nowhere/clang", *DEVICE[1:], "-nogpulib", "-nogpuinc"]
    assert remote_form(command, {}) == (command, {})


def test_implied_headers_and_libraries_are_named(rocm: Rocm) -> None:
    """What the driver would look up by itself is named: headers first, the library folder."""
    command = [rocm.clang, *DEVICE[1:], f"--rocm-path={rocm.folder}"]
    words, variables = remote_form(command, {})
    assert words[:3] == [rocm.clang, "-include", "__clang_hip_runtime_wrapper.h"]
    assert words[3 : len(command) + 2] == command[1:]
    assert words[-5] == "-nogpuinc"
    assert words[-4:-2][0] == "-isystem"
    assert Path(words[-3]).name == "cuda_wrappers"
    assert words[-2:] == ["-idirafter", str(rocm.folder / "include")]
    assert variables == {"HIP_DEVICE_LIB_PATH": str(rocm.libraries)}


def test_each_may_be_left_out(rocm: Rocm) -> None:
    """A build with its own headers or without device libraries gets only the other."""
    base = [rocm.clang, *DEVICE[1:], f"--rocm-path={rocm.folder}"]
    words, variables = remote_form([*base, "-nogpuinc"], {})
    assert words == [*base, "-nogpuinc"]
    assert variables
    words, variables = remote_form([*base, "-nogpulib"], {})
    assert "-include" in words
    assert variables == {}


def test_rocm_in_the_environment(rocm: Rocm) -> None:
    """ROCM_PATH in the compile's environment counts as --rocm-path does."""
    _, variables = remote_form([rocm.clang, *DEVICE[1:]], {"ROCM_PATH": str(rocm.folder)})
    assert variables == {"HIP_DEVICE_LIB_PATH": str(rocm.libraries)}


def test_depfile_of_a_linker() -> None:
    """A linker's depfile would stay on the server; the engine returns the front end's."""
    command = ["clang", "-x", "hip", "--offload-device-only", "-c", "s.hip"]
    assert not why_local([*command, "-Xclang", "-dependency-file", "-Xclang", "d"])
    reason = why_local([*command, "-Xoffload-linker", "--dependency-file=/tmp/d"])
    assert reason == "--dependency-file=/tmp/d writes a file that would stay on the server"
