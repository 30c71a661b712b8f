"""Processors that are newer than our table or the compiler, and the GPUs of this machine.

A newer clang may know processors and features that the table lacks; an older clang may lack some
that the table has. The compiler in use decides, by the cheapest query: the plan (``-###``) of a
device compile. Processors that every LLVM from 22 on has need no query.

The compiler's own programs list the GPUs of this machine: ``offload-arch``, ``amdgpu-arch`` and
``nvptx-arch``. Those of LLVM 22.1.8 and 19.1.7 print one target ID on each line, without features
that are off. Without a GPU they print nothing, or fail with a message.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence

from offload_tool.clang.driver import output_of, query_plan
from offload_tool.errors import CompilerError, TargetIDError
from offload_tool.formats.targets.compile_target import CompileTarget, parse_targets
from offload_tool.formats.targets.processors import find_processor
from offload_tool.formats.targets.target_id import TargetID
from offload_tool.toolchain.probe import Toolchain
from offload_tool.util.memoize import memoized

_LANGUAGES = {"amdgcn": "hip", "nvptx64": "cuda"}
"""By the architecture of a GPU, a language that is compiled for it."""
NATIVE = "native"
_GPU_PROGRAMS = {
    "hip": ("amdgpu-arch", "offload-arch"),
    "cuda": ("nvptx-arch", "offload-arch"),
    "openmp": ("offload-arch", "amdgpu-arch", "nvptx-arch"),
}
_PROCESSORS = {"hip": ("gfx",), "cuda": ("sm_",), "openmp": ("gfx", "sm_")}


def targets_of_compiler(
    items: Iterable[str], kind: str, compiler: Callable[[], Toolchain]
) -> tuple[CompileTarget, ...]:
    """Parse devices; the compiler must support newer ones. Raise TargetIDError or CompilerError."""
    args = list(items)
    unknown: TargetIDError | None = None
    try:
        devices = parse_targets(args, kind)
    except TargetIDError as error:
        unknown = error
        try:
            devices = parse_targets(args, kind, allow_unknown=True)
        except TargetIDError:
            raise error from None  # the processor is not the only problem
    problems = []
    for device in devices:
        if _is_newer(device):
            found = compiler()
            if reason := refusal(found, device):
                problems.append(f"{found} does not compile for '{device.name}': {reason}")
    if problems:
        raise TargetIDError([*(unknown.problems if unknown else ()), *problems])
    return devices


def _is_newer(device: CompileTarget) -> bool:
    if device.target_id is None:
        return False
    processor = find_processor(device.target_id.processor)
    if processor is None:
        return True
    features = {name for name, _ in device.target_id.features}
    return processor.since > 22 or not features.isdisjoint(processor.newer_features)


def refusal(compiler: Toolchain, device: CompileTarget) -> str | None:
    """Return a compiler's error message for a device, or None if it accepts the device."""
    if device.arch not in _LANGUAGES:
        return None
    return _refusal(compiler.clang, dict(compiler.environment), device)


@memoized(64)  # by the program: toolchains differ in installations too
def _refusal(
    clang: Sequence[str], variables: Mapping[str, str], device: CompileTarget
) -> str | None:
    command = [
        *(*clang, "-x", _LANGUAGES[device.arch], "--cuda-device-only", "-nogpuinc"),
        *("-nogpulib", f"--offload-arch={device.name}", "-c", os.devnull),
    ]
    try:
        result = query_plan(command, {**os.environ, **variables})
    except CompilerError as error:
        return str(error)
    if result.status == 0:
        return None
    errors = [line for line in result.errors.splitlines() if "error: " in line]
    return errors[0].partition("error: ")[2] if errors else result.reason


@memoized(8)
def native_targets(toolchain: Toolchain, kind: str) -> list[str]:
    """Return the target IDs of this machine's GPUs for sources of `kind`; raise CompilerError."""
    reasons = []
    for name in _GPU_PROGRAMS[kind]:
        program = _program_of(toolchain, name)
        if program is None:
            reasons.append(f"{name} is not there")
            continue
        try:
            lines = output_of([program]).split()
        except CompilerError as error:
            reasons.append(str(error))
            continue
        found = _target_ids(lines, kind)
        if found:
            return found
        reasons.append(f"{program} names no GPU")
    raise CompilerError(
        f"OFFLOAD_ARCH: 'native' stands for the GPUs of this machine, and none was found for "
        f"{kind} ({'; '.join(reasons)}); give target IDs, such as gfx90a or sm_80"
    )


def _program_of(toolchain: Toolchain, name: str) -> str | None:
    try:
        found = output_of(toolchain.clang, f"-print-prog-name={name}").strip()
    except CompilerError:
        return None
    return found if os.path.isabs(found) and os.path.isfile(found) else None


def _target_ids(lines: Sequence[str], kind: str) -> list[str]:
    found = dict.fromkeys(line for line in lines if line.startswith(_PROCESSORS[kind]))
    for line in found:
        try:
            TargetID.parse(line, allow_unknown=True)
        except TargetIDError:
            return []
    return list(found)
