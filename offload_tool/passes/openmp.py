"""The passes over an OpenMP source: host IR first, then host object and devices from it.

::

    source --+--> host IR (bitcode) --+--> host object
             |                        |
             +------------------------+--> bitcode of each GPU, object of a CPU as device

The host IR gives the devices their target regions, the order of these, and the names of their
entries. Source: clang 22.1.8, observed: the IR is the same for all devices, and the module of a
device is the same as the driver's own.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from offload_tool.clang.driver import QueryResult, query
from offload_tool.clang.search_path import searched_folders
from offload_tool.errors import CompilerError, UsageError
from offload_tool.io import StrPath
from offload_tool.passes.compile_pass import CompilePass
from offload_tool.passes.cuda import ptx_flag
from offload_tool.passes.source_kind import language_flags, language_of, mode_flags
from offload_tool.util.memoize import memoized

if TYPE_CHECKING:
    from offload_tool.formats.target.compile_target import CompileTarget
    from offload_tool.toolchain.probe import Toolchain

_ANY_TARGET = "gfx906"
"""The driver needs some target for the host pass; the IR is the same for all."""
_HOST_RUNTIMES = ("libomptarget.so", "libomp.so")
"""Libraries of host programs; packages may have the first without the other."""
_LIBRARY_SINCE = 20
"""The first LLVM whose device runtimes for NVIDIA GPUs are not one per processor."""


class OpenMPPass(CompilePass):
    """A pass over an OpenMP source, in C or C++."""

    __slots__ = ()
    kind = "openmp"
    usual_suffix = relocatable_suffix = ".bc"
    has_host_ir = True
    has_headers = False

    def flags(self, toolchain: Toolchain, host_ir: str = "", source: str = "") -> list[str]:
        """See `CompilePass.flags`."""
        if self.device is not None:
            flags = device_flags(self.device, host_ir, toolchain.host_triple)
            return [*language_flags(source), *flags, "-c"]
        if self.compiles_source:  # the host IR must reach the devices unoptimised
            return [
                *(*language_flags(source), "-fopenmp", f"--offload-arch={_ANY_TARGET}"),
                *("--offload-host-only", "-nogpulib"),
                *("-Xclang", "-disable-llvm-passes", "-emit-llvm", "-c"),
            ]
        # The source's preprocessor flags have no effect on the host object, made of the IR.
        return [*mode_flags(source), "-x", "ir", "-Wno-unused-command-line-argument", "-c"]

    def last_flags(self, toolchain: Toolchain, archive_format: str = "") -> list[str]:
        """See `CompilePass.last_flags`: a device's target, after the host's of ``CCFLAGS``."""
        del toolchain, archive_format
        return [] if self.device is None else [f"--target={self.device.triple.rstrip('-')}"]

    def local_flags(self, toolchain: Toolchain, source: str) -> list[str]:
        """See `CompilePass.local_flags`."""
        language, flags = language_of(source) or "c++", [*toolchain.local_flags]
        if self.device is not None:
            flags += header_flags(toolchain, language, gpu=self.device.target_id is not None)
        if language == "c" and "-nostdinc++" in flags:  # the embedded compiler's; clang warns
            flags.remove("-nostdinc++")
        return flags

    def check(self, output: StrPath, host_ir: StrPath | None = None) -> None:
        """See `CompilePass.check`."""
        from offload_tool.passes import verify_output  # slow to import

        if self.device is not None:
            if host_ir is None:
                raise UsageError("the check of an OpenMP device pass needs the host IR")
            verify_output.check_entries(output, self.device, host_ir)
        elif self.compiles_source:
            verify_output.check_host_ir(output)


def device_flags(device: CompileTarget, host_ir: str, host_triple: str) -> list[str]:
    """Return the flags for a device's module; `host_ir` is the path of the host IR."""
    flags = ["-fopenmp", "-fvisibility=protected"]
    if device.target_id is not None:
        option = "-mcpu" if device.arch == "amdgcn" else "-march"
        flags += [f"{option}={device.target_id}", "-nogpulib", "-emit-llvm"]
        if device.arch != "amdgcn":
            flags.append(ptx_flag(device.name))
    else:
        flags += ["-fPIC"]
    args = ["-aux-triple", host_triple, "-fopenmp-is-target-device"]
    args += ["-fopenmp-host-ir-file-path", host_ir]
    return flags + [flag for arg in args for flag in ("-Xclang", arg)]


@memoized(16)
def header_flags(toolchain: Toolchain, language: str, *, gpu: bool) -> tuple[str, ...]:
    """Return the flags that give a device pass the host's headers, through OpenMP's wrappers.

    `language` is ``c`` or ``c++``. A device's own target has no system headers. The embedded
    compiler has no such wrappers: a GPU's variants of mathematical functions are missing then.

    :raises CompilerError: the compiler does not print its header search path.
    """
    resources = _query(toolchain, "-print-resource-dir").output.strip()
    wrappers = f"{resources}/include/openmp_wrappers"
    flags: list[str] = []
    if gpu and Path(wrappers).is_dir():
        flags = ["-isystem", wrappers, "-include", "__clang_openmp_device_functions.h"]
    mode = mode_flags(f"source.{language}")
    report = _query(toolchain, *mode, "-E", "-v", "-x", language, os.devnull).errors
    folders = searched_folders(report, toolchain.clang[0])
    return (*flags, *(arg for folder in folders for arg in ("-isystem", folder)))


def link_flags(toolchain: Toolchain) -> tuple[list[str], list[str]]:
    """Return the flags of a host link, and those that name the runtime's path on this machine."""
    runtime = host_runtime(toolchain)
    return ["-fopenmp"], [f"-L{Path(runtime).parent}"] if runtime else []


@memoized(16)
def host_runtime(toolchain: Toolchain) -> str | None:
    """Return the path of the library that host programs are linked with, as the compiler finds it.

    Some compilers lack it, or the OpenMP library that it needs; the result is then None.
    """
    outputs = [_query(toolchain, f"-print-file-name={name}").output for name in _HOST_RUNTIMES]
    found = [Path(output.strip()) for output in outputs]
    if not all(path.is_absolute() for path in found):
        return None
    return str(found[0].parent.resolve() / found[0].name)


def other_runtime(toolchain: Toolchain) -> str:
    """Return the warning about a host runtime of another LLVM than the compiler; "" for its own.

    The name of the library's file has the version: ``libomptarget.so.21.1``.
    """
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
    """Return the compiler's OpenMP device runtime, to link into images.

    It is a library since LLVM 21. Before, it is a bitcode file for each processor family or, up to
    LLVM 19, for each processor.
    """
    libraries = _library_folder(toolchain)
    for name in _device_runtime_names(device):
        if (libraries / name).is_file():
            return (str(libraries / name),)
    return ()


def _device_runtime_names(device: CompileTarget) -> tuple[str, ...]:
    if device.target_id is None:
        return ()
    library = f"{'-'.join(device.triple.split('-')[:3])}/libompdevice.a"
    if device.arch == "amdgcn":
        return (library, "libomptarget-amdgpu.bc")
    return (library, "libomptarget-nvptx.bc", f"libomptarget-nvptx-{device.target_id}.bc")


def no_device_runtime(toolchain: Toolchain, device: CompileTarget) -> str:
    """Return the error message for a GPU without a device runtime."""
    # Old versions use the last of the names.
    is_old = device.arch != "amdgcn" and toolchain.major < _LIBRARY_SINCE
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
