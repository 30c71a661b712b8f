"""The passes over an OpenMP source: host IR first, then host object and devices from it.

::

    source --+--> host IR (bitcode) --+--> host object
             |                        |
             +------------------------+--> bitcode of each AMD GPU, cubin of each NVIDIA GPU,
                                           object of a CPU as device

The host IR gives the devices their target regions, the order of these, and the names of their
entries. The commands are the driver's, for one target each, and their jobs those of a compile for
all targets together. (Observed: plans of clang 19 and 22, bytes of clang 19, 21 and 22.)
A device's makes the host IR first: `run.openmp_jobs` runs its other jobs, with the IR that is
there.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from offload_tool.clang.driver import QueryResult, query
from offload_tool.clang.options import HOST_IR, takes_next
from offload_tool.errors import CompilerError
from offload_tool.formats.targets.compile_target import CompileTarget
from offload_tool.passes.compile_pass import CompilePass
from offload_tool.passes.cuda import Ptxas, find_ptxas, ptx_flag
from offload_tool.passes.source_kind import language_flags, language_of, mode_flags
from offload_tool.toolchain.probe import CUDA_PATH, Toolchain
from offload_tool.util.memoize import memoized

_HOST_RUNTIMES = ("libomptarget.so", "libomp.so")
"""Libraries of host programs; packages may have the first without the other."""
_LIBRARY_SINCE = 20
"""The first LLVM whose device runtimes are not one per processor."""
_LINKED_SINCE = 21
"""The first LLVM that links the device runtime into images; others link it into each module."""
_GENERIC_SINCE = 21
"""The first LLVM that packages images of CPUs for the processor ``generic``."""

_ASKED_FOR_BITCODE_SINCE = 23
"""The first clang that writes an object for an AMD GPU with ``--offload-device-only``, where its
whole compile makes bitcode. Source: clang 23.1.4, observed."""


class OpenMPPass(CompilePass):
    """A pass over an OpenMP source, in C or C++."""

    __slots__ = ()
    kind = "openmp"
    usual_suffix = relocatable_suffix = ".bc"
    has_host_ir = True

    @property
    def suffix(self) -> str:
        """See `CompilePass.suffix`."""
        return ".bc" if self.device is not None and self.device.arch == "amdgcn" else ".o"

    def flags(self, toolchain: Toolchain) -> list[str]:
        """See `CompilePass.flags`."""
        if self.device is not None:
            flags = [*target_flags(self.device), "--offload-device-only"]
            if self.device.arch == "nvptx64" and not _cuda_flags(toolchain):
                flags.append(ptx_flag(self.device.name))
            if self.device.arch == "amdgcn" and toolchain.major >= _ASKED_FOR_BITCODE_SINCE:
                flags.append("-foffload-lto")
            return [*language_flags(self.source), *flags, *_front_end(HOST_IR, self.host_ir), "-c"]
        # The driver needs some target, and prints no message about this one.
        flags = ["-fopenmp", f"-fopenmp-targets={toolchain.host_triple}", "--offload-host-only"]
        if self.compiles_source:  # the host IR must reach the devices unoptimised
            flags += _front_end("-disable-llvm-passes", "-emit-llvm-uselists")
            return [*language_flags(self.source), *flags, "-emit-llvm", "-c"]
        return [*mode_flags(self.source), *flags, "-c"]

    def last_flags(self, toolchain: Toolchain, archive_format: str = "") -> list[str]:
        """See `CompilePass.last_flags`: the user's ``-x`` is for the source, not for the IR."""
        del toolchain, archive_format
        return [] if self.compiles_source else ["-x", "ir"]

    def local_flags(self, toolchain: Toolchain) -> list[str]:
        """See `CompilePass.local_flags`."""
        flags = [*toolchain.local_flags]
        if self.device is not None:
            flags += gpu_flags(self.device, toolchain)
        if language_of(self.source) == "c" and "-nostdinc++" in flags:  # the embedded compiler's
            flags.remove("-nostdinc++")  # clang warns
        return flags

    def own_flags(self, flags: Sequence[Any]) -> list[Any]:
        """See `CompilePass.own_flags`: the driver keeps machine flags to the host otherwise."""
        if self.device is None:
            return [*flags]
        return [*_for_target(flags)]


def target_flags(device: CompileTarget) -> list[str]:
    """Return the driver's flags for a compile, or a link, for one target."""
    if device.target_id is None:
        return ["-fopenmp", f"-fopenmp-targets={device.triple.rstrip('-')}"]
    return ["-fopenmp", f"--offload-arch={device.name}"]


def gpu_flags(device: CompileTarget, toolchain: Toolchain) -> list[str]:
    """Return the flags that name the installation for a GPU on this machine."""
    cuda = _cuda_flags(toolchain)
    if device.arch == "nvptx64":
        ptxas = find_ptxas("", toolkit_of(toolchain))
        return [*cuda, *([ptxas_flag(ptxas)] if ptxas is not None else [])]
    return [flag for flag in toolchain.openmp_flags if flag not in cuda and device.target_id]


def ptxas_flag(ptxas: Ptxas) -> str:
    """Return the driver's flag that names ptxas; the last one counts."""
    return f"--ptxas-path={ptxas.command[0]}"


def toolkit_of(toolchain: Toolchain) -> str:
    """Return the CUDA toolkit of OpenMP passes; empty if none is used."""
    named = (flag.partition("=") for flag in toolchain.openmp_flags)
    return next((path for name, _, path in named if name == CUDA_PATH), "")


def _cuda_flags(toolchain: Toolchain) -> list[str]:
    return [flag for flag in toolchain.openmp_flags if "cuda" in flag.partition("=")[0]]


def runtime_flags(
    device: CompileTarget, toolchain: Toolchain, runtimes: Iterable[str]
) -> list[str]:
    """Return the flags of a device pass for device runtimes other than the compiler's."""
    if device.target_id is None or toolchain.major >= _LINKED_SINCE:
        return []
    arch = "amdgpu" if device.arch == "amdgcn" else "nvptx"
    return [f"--libomptarget-{arch}-bc-path={name}" for name in runtimes]


def image_link_flags(
    device: CompileTarget,
    toolchain: Toolchain,
    flags: Iterable[str],
    runtimes: Iterable[str] | None = None,
) -> tuple[list[str], list[str]]:
    """Return the driver's flags for an image's link, and those that pass on the linker's `flags`.

    `runtimes` replace the compiler's own device runtime.
    """
    own = target_flags(device)
    split = (flag.split(",")[1:] if flag.startswith("-Wl,") else [flag] for flag in flags)
    given = [*itertools.chain(*split)]
    if runtimes is not None and device.target_id and toolchain.major >= _LINKED_SINCE:
        own.append("-nogpulib")
        given += runtimes
    if toolchain.major >= _LINKED_SINCE:
        return own, [arg for flag in given for arg in ("-Xoffload-linker", flag)]
    # Older wrappers give them to clang, and drop those with "=" unless they are for one triple.
    option = f"-Xoffload-linker-{device.triple.rstrip('-')}"
    return own, [arg for flag in given for arg in (option, f"-Wl,{flag}")]


def packaged_arch(device: CompileTarget, toolchain: Toolchain, args: Iterable[str] = ()) -> str:
    """Return the processor for which clang's driver packages an image, or a compile's result."""
    if device.target_id is None:
        if given := [arg.partition("=")[2] for arg in args if arg.startswith("-march=")]:
            return given[-1]
        return "generic" if toolchain.major >= _GENERIC_SINCE else ""
    return str(device.target_id)


def _front_end(*args: str) -> list[str]:
    return [each for arg in args for each in ("-Xclang", arg)]


def _for_target(flags: Iterable[Any]) -> Iterator[Any]:
    """Yield flags, machine flags after ``-Xopenmp-target``."""
    rest = iter(flags)
    for flag in rest:
        text = str(flag)
        if text.startswith("-m") and not takes_next(text):
            yield "-Xopenmp-target"
        yield flag
        yield from itertools.islice(rest, takes_next(text))


def link_flags(toolchain: Toolchain) -> tuple[list[str], list[str]]:
    """Return the flags of a host link, and those that name the runtime's path on this machine."""
    runtime = host_runtime(toolchain)
    return ["-fopenmp"], [f"-L{Path(runtime).parent}"] if runtime else []


@memoized(16)
def host_runtime(toolchain: Toolchain) -> str | None:
    """Return the host programs' library, as the compiler finds it; None if it lacks it."""
    outputs = [_query(toolchain, f"-print-file-name={name}").output for name in _HOST_RUNTIMES]
    found = [Path(output.strip()) for output in outputs]
    if not all(path.is_absolute() for path in found):
        return None
    return os.path.join(os.path.realpath(found[0].parent), found[0].name)


def other_runtime(toolchain: Toolchain) -> str:
    """Return the warning about a host runtime of another LLVM, by its file's name; or ""."""
    path = os.path.realpath(host_runtime(toolchain) or "")
    found = re.search(r"\.so\.(\d+)", os.path.basename(path))
    if found is None or int(found[1]) == toolchain.major:
        return ""
    return (
        f"OpenMP programs of clang {toolchain.version} get the runtime of LLVM {found[1]} "
        f"('{path}'), with which they may crash; install that of LLVM {toolchain.major} "
        f"(Debian: libomp-{toolchain.major}-dev), or use clang {found[1]}"
    )


def _library_folder(toolchain: Toolchain) -> Path:
    return Path(_query(toolchain, "-print-resource-dir").output.strip()).parent.parent


@memoized(64)
def device_runtimes(toolchain: Toolchain, device: CompileTarget) -> tuple[str, ...]:
    """Return the compiler's device runtime: a library since LLVM 21, bitcode files before."""
    libraries = _library_folder(toolchain)
    for name in _device_runtime_names(device):
        if os.path.isfile(libraries / name):
            return (str(libraries / name),)
    return ()


def _device_runtime_names(device: CompileTarget) -> tuple[str, ...]:
    if device.target_id is None:
        return ()
    library = f"{'-'.join(device.triple.split('-')[:3])}/libompdevice.a"
    if device.arch == "amdgcn":
        own = f"libomptarget-amdgpu-{device.target_id.processor}.bc"
        return (library, "libomptarget-amdgpu.bc", own)
    return (library, "libomptarget-nvptx.bc", f"libomptarget-nvptx-{device.target_id}.bc")


def no_device_runtime(toolchain: Toolchain, device: CompileTarget) -> str:
    """Return the error message for a GPU without a device runtime."""
    is_old = toolchain.major < _LIBRARY_SINCE  # they use the last of the names
    name = _device_runtime_names(device)[-1 if is_old else 0]
    of_rocm = "of ROCm, or " if device.arch == "amdgcn" else ""
    return (
        f"OpenMP code for {device.name} cannot be linked: clang {toolchain.version} comes without "
        f"OpenMP's device runtime ('{_library_folder(toolchain) / name}' is not there); install "
        f"one built for {device.arch} ({of_rocm}LLVM's libompdevice of the same version), or "
        "name it with OFFLOAD_DEVICE_RUNTIME"
    )


def _query(toolchain: Toolchain, *arguments: str) -> QueryResult:
    command = [*toolchain.clang, *toolchain.local_flags, *arguments]
    result = query(command, os.environ | dict(toolchain.environment))
    if result.status:
        raise CompilerError(f"{command[0]} {arguments[0]} failed: {result.reason}")
    return result
