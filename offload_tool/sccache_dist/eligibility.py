"""Decide which compiles may leave this machine, and in which form.

The engine sends preprocessed text. A server lacks the files that the driver finds on this machine:
the headers of the HIP runtime, which it includes by default, and the device libraries. This module
queries the driver for both and names them in the command and its environment. The local
preprocessor then includes the headers, and the engine ships and hashes the libraries.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import PurePath

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

# Options with further outputs, which would stay on the server, and other jobs.
_WRITES_FILES = SIBLING | ELSEWHERE | LINKER | OTHER_JOB
_DEVICE_LIBRARIES = "HIP_DEVICE_LIB_PATH"
_HIP_WRAPPER = "__clang_hip_runtime_wrapper.h"
_PATH_VARIABLES = ("ROCM_PATH", "HIP_PATH", _DEVICE_LIBRARIES, "PATH")


def why_local(command: Sequence[str]) -> str:
    """Return why this compile must run on this machine; empty if it may be distributed.

    `command` is the compiler and its options.

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
    """Return a compile that `why_local` allows in a form for any machine, and variables to add.

    Its output and depfile are byte for byte those of a local run of `command`.
    """
    options = tuple(arg for arg in command if does(arg, INSTALLED | TARGETS) or arg == "-fgpu-rdc")
    headers, libraries = _query_driver(
        command[0],
        options,
        tuple((name, environment[name]) for name in _PATH_VARIABLES if name in environment),
    )
    args = [*command]
    if headers:
        # First, as the driver does: before the user's ``-include`` options.
        args[1:1] = ["-include", _HIP_WRAPPER]
        args += ["-nogpuinc", *headers]
    return args, {_DEVICE_LIBRARIES: libraries} if libraries else {}


@functools.lru_cache(maxsize=256)
def _query_driver(
    clang: str, options: tuple[str, ...], variables: tuple[tuple[str, str], ...]
) -> tuple[Sequence[str], str]:
    """Return options for the header folders of the driver, and its library folder."""
    names = [arg.split("=", 1)[0] for arg in options]
    if "-nogpuinc" in names and "-nogpulib" in names:
        return (), ""  # a query takes as long as half a compile
    command = [clang, "-x", "hip", "--cuda-device-only", *options, "-c"]
    jobs = query_front_end(command, dict(variables)).jobs
    job = jobs[0] if jobs else []
    libraries = list(option_values(job, "-mlink-builtin-bitcode"))
    headers: list[str] = []
    for index, arg in enumerate(job[:-1]):
        if arg == "-include" and job[index + 1] == _HIP_WRAPPER:
            wrappers = [
                folder
                for folder in option_values(job, "-internal-isystem")
                if PurePath(folder).name == "cuda_wrappers"
            ]
            headers = [option for folder in wrappers for option in ("-isystem", folder)]
            if index >= 2 and job[index - 2] == "-idirafter":
                headers += job[index - 2 : index]
    folder = str(PurePath(libraries[0]).parent) if libraries else ""
    return headers, folder
