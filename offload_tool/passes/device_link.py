"""The link of HIP's relocatable device code: bitcode of all sources to one image per target ID.

AMD GPUs: lld with link-time optimisation, as clang's driver calls it for ``-fgpu-rdc`` (22.1.8,
observed with ``-###``). For NVIDIA GPUs see `nvlink`, for OpenMP `run.openmp_jobs`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from offload_tool.errors import UsageError

if TYPE_CHECKING:
    from offload_tool.formats.targets.compile_target import CompileTarget
    from offload_tool.formats.targets.target_id import TargetID
    from offload_tool.toolchain.probe import Toolchain

_LEVELS = {"": "1", "g": "1", "s": "2", "z": "2", "4": "3", "fast": "3"}
"""lld's levels for those that only the compiler has."""


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
