"""Decide which compiles may leave this machine, and in which form.

The engine sends preprocessed text. A server lacks the files that the driver finds on this machine:
the headers of the HIP runtime, which it includes by default, and the device libraries. This module
queries the driver for both and names them in the command and its environment. The local
preprocessor then includes the headers, and the engine ships and hashes the libraries.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from offload_tool.clang.driver import option_values, query_front_end
from offload_tool.clang.options import (
    DEVICE_ALONE,
    ELSEWHERE,
    HEADERS,
    INSTALLED,
    JOB_DEPFILE,
    LINKER,
    OPENMP,
    OTHER_JOB,
    READS,
    SIBLING,
    TARGETS,
    does,
    prefixes,
)
from offload_tool.util.memoize import memoized

# Options with further outputs, which would stay on the server, and other jobs.
_WRITES_FILES = SIBLING | ELSEWHERE | LINKER | OTHER_JOB
_DEVICE_LIBRARIES = "HIP_DEVICE_LIB_PATH"
_HIP_WRAPPER = "__clang_hip_runtime_wrapper.h"
_PATH_VARIABLES = ("ROCM_PATH", "HIP_PATH", _DEVICE_LIBRARIES, "PATH")


def why_local(command: Sequence[str]) -> str:
    """Return why this compile must run on this machine; empty if it may be distributed.

    Only a device pass over one HIP source, for one target, may be distributed. OpenMP passes must
    not, since their entry names hold the source's inode and their device passes need the host's IR.
    sccache never distributes CUDA. Host passes and links gain nothing.
    """
    if not any(does(arg, DEVICE_ALONE) for arg in command):
        return "only device compiles are distributed"
    if "-c" not in command or "hip" not in option_values(command, "-x"):
        return "only compiles (-x hip -c) are distributed"
    if any(does(arg, OPENMP) for arg in command):
        return "OpenMP compiles are not distributed"
    for arg in command[1:]:
        if does(arg, READS | HEADERS):
            return f"{arg} names a file that would not be on the server"
        # The engine returns the front end's depfile.
        if does(arg, _WRITES_FILES) and arg not in prefixes(JOB_DEPFILE):
            return f"{arg} writes a file that would stay on the server"
    return ""


def remote_form(
    command: Sequence[str], environment: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """Return a compile in a form for any machine, of equal bytes, and variables to add."""
    options = [arg for arg in command if does(arg, INSTALLED | TARGETS) or arg == "-fgpu-rdc"]
    variables = {name: environment[name] for name in _PATH_VARIABLES if name in environment}
    headers, libraries = _query_driver(command[0], options, variables)
    args = [*command]
    if headers:
        # First, as the driver does: before the user's ``-include`` options.
        args[1:1] = ["-include", _HIP_WRAPPER]
        args += ["-nogpuinc", *headers]
    return args, {_DEVICE_LIBRARIES: libraries} if libraries else {}


@memoized(256)
def _query_driver(
    clang: str, options: Sequence[str], variables: Mapping[str, str]
) -> tuple[Sequence[str], str]:
    """Return options for the header folders of the driver, and its library folder."""
    names = [arg.split("=", 1)[0] for arg in options]
    if "-nogpuinc" in names and "-nogpulib" in names:
        return (), ""  # a query takes as long as half a compile
    command = [clang, "-x", "hip", "--cuda-device-only", *options, "-c"]
    jobs = query_front_end(command, variables).jobs
    job = jobs[0] if jobs else []
    libraries = next(option_values(job, "-mlink-builtin-bitcode"), "")
    headers: list[str] = []
    if _HIP_WRAPPER in option_values(job, "-include"):
        for folder in option_values(job, "-internal-isystem"):
            if os.path.basename(folder) == "cuda_wrappers":
                headers += ["-isystem", folder]
        at = job.index(_HIP_WRAPPER)
        if job[at - 3] == "-idirafter":
            headers += job[at - 3 : at - 1]
    return headers, os.path.dirname(libraries)
