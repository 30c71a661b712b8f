"""The passes over a HIP source: device (once per target ID) and host.

Each pass is one job of the compiler with one output, so that each can be a node of a build graph:
nothing of one target is an input of another.

Clang has two offload drivers (see `offload_tool.formats.host_symbols`). With relocatable device
code, the user's flags and the compiler's default select one, and the result suits that driver's
links. Without, both compile the same host code, and a flag selects the old one where the new one's
result differs, observed with

    clang 19, 20   the CUID reaches host code alone, with relocatable device code, too
    clang 21       host code has entries, as with relocatable device code
    clang 22       a device pass writes a bundle, despite --no-gpu-bundle-output
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from offload_tool.clang.driver import query_front_end
from offload_tool.errors import UsageError
from offload_tool.formats.targets.compile_target import CompileTarget
from offload_tool.formats.targets.target_id import TargetID
from offload_tool.passes.compile_pass import CompilePass
from offload_tool.passes.source_kind import CXX_MODE
from offload_tool.toolchain.probe import Toolchain

_LEVELS = {"": "1", "g": "1", "s": "2", "z": "2", "4": "3", "fast": "3"}
"""lld's levels for those that only the compiler has."""
_NEW_DRIVER = "--offload-new-driver"
_OLD_DRIVER = "--no-offload-new-driver"
_NEW_DRIVER_SINCE = 23
"""The first clang whose new driver does everything needed here."""
_NEW_DRIVER_RELOCATABLE_SINCE = 21


class HipPass(CompilePass):
    """A pass over a HIP source."""

    __slots__ = ()
    kind = "hip"
    usual_suffix, relocatable_suffix = ".co", ".bc"
    can_bypass_driver = is_distributed = True

    def flags(self, toolchain: Toolchain) -> list[str]:
        """See `CompilePass.flags`."""
        del toolchain
        cuid = f"-cuid={self.cuid}"
        if self.device is None:
            # The driver of clang 19 does not pass the CUID to the front end in a host-only pass.
            own = ["--offload-host-only", cuid, "-Xclang", cuid]
        else:
            own = ["--cuda-device-only", f"--offload-arch={self.device.name}"]
            own += ["--no-gpu-bundle-output", cuid]
        return [CXX_MODE, "-x", "hip", *own, *(["-fgpu-rdc"] if self.rdc else []), "-c"]

    def last_flags(self, toolchain: Toolchain, archive_format: str = "") -> list[str]:
        """See `CompilePass.last_flags`; for `archive_format` see `driver_flags`."""
        return driver_flags(toolchain.major, rdc=self.rdc, archive_format=archive_format)

    def local_flags(self, toolchain: Toolchain) -> list[str]:
        """See `CompilePass.local_flags`."""
        return [*toolchain.local_flags, *toolchain.rocm_flags]


def driver_flags(major: int, *, rdc: bool = False, archive_format: str = "") -> list[str]:
    """Return the flags that choose clang `major`'s driver, or the one of an archive's format."""
    if major < (_NEW_DRIVER_RELOCATABLE_SINCE if rdc else _NEW_DRIVER_SINCE):
        return [_OLD_DRIVER]
    if rdc and archive_format:
        return [_NEW_DRIVER if archive_format == "offload-binary" else _OLD_DRIVER]
    return []


def uses_new_driver(command: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Return whether a host pass without input uses the new offload driver, by a query."""
    return any(_NEW_DRIVER in job for job in query_front_end(command, environment).jobs)


# -- the link of relocatable device code --------------------------------------------------
#
# lld with link-time optimisation, as clang's driver calls it for -fgpu-rdc (22.1.8, observed with
# -###). For NVIDIA GPUs see `nvlink`, for OpenMP `run.openmp_jobs`.


def linker(device: CompileTarget, toolchain: Toolchain) -> tuple[TargetID, tuple[str, ...]]:
    """Return the target ID, and HIP's link command; raise UsageError for other devices."""
    if device.arch == "amdgcn" and device.target_id is not None:
        return device.target_id, toolchain.lld
    raise UsageError(f"lld links no device code for {device.name}; expected AMD GPUs")


def link_arguments(target_id: TargetID) -> list[str]:
    """Return the arguments for the target of the image, which exports kernels and variables."""
    arguments = ["-m", "elf64_amdgpu", "--no-undefined", "-shared"]
    arguments.append("-plugin-opt=-amdgpu-internalize-symbols")
    arguments.append(f"-plugin-opt=mcpu={target_id.processor}")
    if target_id.features:
        features = (f"{'-+'[on]}{name}" for name, on in target_id.features)
        arguments.append(f"-plugin-opt=-mattr={','.join(features)}")
    return arguments


def level_arguments(args: Sequence[str]) -> list[str]:
    """Return lld's arguments for the last ``-O`` of a program's link, as clang's driver does."""
    levels = [arg[2:] for arg in args if re.fullmatch(r"-O\w*", arg)]
    level = _LEVELS.get(levels[-1], levels[-1]) if levels else ""
    return [f"-plugin-opt=O{level}", f"--lto-CGO{level}"] if level else []
