"""Processors that are newer than our table, or than the compiler: the compiler decides.

A processor that the table lacks is one that a newer clang may know, with features that it
takes; one that the table has may be too new for an older clang. Both are asked of the
compiler in use, by what costs least: the plan (``-###``) of a device compile. Processors
that every LLVM from 22 on has are asked of nobody.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from offload_tool.clang.driver import plan_of
from offload_tool.errors import CompilerError, TargetIDError
from offload_tool.formats.target.compile_target import CompileTarget, parse_targets
from offload_tool.formats.target.processors import find_processor
from offload_tool.util.memoize import remembered

if TYPE_CHECKING:
    from offload_tool.toolchain.probe import Toolchain

_PLANS = {
    "amdgcn": ("-x", "hip", "-nogpuinc", "-nogpulib"),
    "nvptx64": ("-x", "cuda", "-nocudainc", "-nocudalib"),
}


def targets_of_compiler(
    items: Iterable[str], kind: str, compiler: Callable[[], Toolchain]
) -> tuple[CompileTarget, ...]:
    """Read a list of devices as `parse_targets` does; what is newer must be the compiler's.

    :raises TargetIDError: invalid or conflicting ones, or some that the compiler does not
        know; its own words are told.
    :raises CompilerError: there is no compiler to ask.
    """
    words = list(items)
    unknown: TargetIDError | None = None
    try:
        devices = parse_targets(words, kind)
    except TargetIDError as error:
        unknown = error
        try:
            devices = parse_targets(words, kind, allow_unknown=True)
        except TargetIDError:
            raise error from None  # there is more to it than a processor
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
    """Ask a compiler for a device; give why it refuses, in its words, or None."""
    plan = _PLANS.get(device.arch)
    if plan is None:
        return None
    return _ask(compiler.clang, compiler.environment, (*plan, f"--offload-arch={device.name}"))


@remembered(64)
def _ask(
    clang: tuple[str, ...], environment: tuple[tuple[str, str], ...], plan: tuple[str, ...]
) -> str | None:
    command = [*clang, "--cuda-device-only", *plan, "-c", os.devnull]
    try:
        answer = plan_of(command, {**os.environ, **dict(environment)})
    except CompilerError as error:
        return str(error)
    if answer.status == 0:
        return None
    errors = [line for line in answer.errors.splitlines() if "error: " in line]
    return errors[0].partition("error: ")[2] if errors else answer.reason
