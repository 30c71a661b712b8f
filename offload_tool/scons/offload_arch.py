"""``OFFLOAD_ARCH``: the devices for which a source is compiled, and the flags of each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from offload_tool.errors import CompilerError, OffloadError, TargetIDError, UsageError
from offload_tool.formats.targets.compile_target import CompileTarget, parse_target, parse_targets
from offload_tool.formats.targets.target_id import TargetID
from offload_tool.passes import cuda
from offload_tool.passes.capability_check import supported_targets
from offload_tool.scons import compat
from offload_tool.scons.found_tools import ptxas, toolchain
from offload_tool.scons.graph.call_cache import cached
from offload_tool.scons.settings import given_targets
from offload_tool.scons.state.build_log import warn
from offload_tool.scons.types import Environment
from offload_tool.toolchain.supported_processors import (
    NATIVE,
    native_targets,
    refusal,
    targets_of_compiler,
)


def devices(env: Environment, kind: str) -> tuple[CompileTarget, ...]:
    """Return ``OFFLOAD_ARCH``, canonical and sorted; raise TargetIDError or UsageError."""
    try:
        return _devices(env, kind)
    except TargetIDError as error:
        raise error.of("OFFLOAD_ARCH") from None


def _devices(env: Environment, kind: str) -> tuple[CompileTarget, ...]:
    given = given_targets(env, kind)
    if not compat.is_build():
        known = [item for item in given if item not in (NATIVE, *cuda.ALL)]
        return parse_targets(known, kind, allow_unknown=True)
    if NATIVE in given:
        here = native_targets(toolchain(env), kind)
        given = [name for item in given for name in (here if item == NATIVE else [item])]
    given = [name for item in given for name in _all_processors(env, kind, item)]
    if env["OFFLOAD_ALLOW_UNKNOWN_ARCH"]:
        found = parse_targets(given, kind, allow_unknown=True)
    else:
        found = targets_of_compiler(given, kind, lambda: toolchain(env))
    if not found:
        raise UsageError("OFFLOAD_ARCH is empty; set it to target IDs, such as ['gfx90a:xnack+']")
    _check_arch_flags(env, found)
    return found


def _all_processors(env: Environment, kind: str, item: str) -> list[str]:
    if item not in cuda.ALL:
        return [item]
    found = ptxas(env) if kind == "cuda" else None
    if found is None:
        raise UsageError(
            f"OFFLOAD_ARCH: '{item}' is for CUDA with a ptxas, which lists its processors; give "
            "target IDs, such as gfx90a or sm_80"
        )
    names, compiler = cuda.all_processors(found), toolchain(env)
    environment = {**env["ENV"], **dict(compiler.environment)}
    with compat.at_top(env):
        made = supported_targets(compiler, kind, names, environment)
    if omitted := [name for name in names if name not in made]:
        warn(
            env,
            f"OFFLOAD_ARCH: '{item}' leaves out {', '.join(omitted)}, for which clang "
            f"{compiler.version} makes no code",
        )
    return made if item == "all" else cuda.first_of_majors(made)


def knows_processor(env: Environment, target_id: TargetID) -> bool:
    """Return True if a processor missing in the table is allowed: the compiler decides."""
    if env["OFFLOAD_ALLOW_UNKNOWN_ARCH"] or not compat.is_build():
        return True
    try:
        device = CompileTarget(str(target_id), target_id.triple, target_id)
        return refusal(toolchain(env), device) is None
    except (CompilerError, TargetIDError):
        return False


def _check_arch_flags(env: Environment, found: Iterable[CompileTarget]) -> None:
    built = {name for device in found for name in names_of(device)}
    try:
        unused = sorted(_flags_by_name(env).keys() - built)
        if not env["OFFLOAD_ALLOW_UNKNOWN_ARCH"]:
            for name in unused:
                parse_target(name)
    except TargetIDError as error:
        raise UsageError(f"OFFLOAD_ARCH_FLAGS: {error}") from None
    if unused:
        raise UsageError(
            f"OFFLOAD_ARCH_FLAGS has flags for {', '.join(unused)}, but OFFLOAD_ARCH builds "
            f"{', '.join(device.name for device in found)} only; "
            "remove them, or add the target"
        )


def arch_flags(env: Environment, device: CompileTarget) -> list[Any]:
    """Return the flags of ``OFFLOAD_ARCH_FLAGS`` for a device: its processor's, then its own."""

    def find() -> list[Any]:
        flags = _flags_by_name(env)
        return [flag for name in names_of(device) for flag in flags.get(name, ())]

    return cached(env, f"flags of {device.name}", find)


def device_named(name: str, *, allow_unknown: bool = True) -> CompileTarget | None:
    """Return the device of a target ID in any spelling; None if it is none."""
    try:
        return parse_target(name, allow_unknown=allow_unknown)
    except OffloadError:
        return None


def names_of(device: CompileTarget) -> tuple[str, ...]:
    """Return the names that select a device: its processor's, then its own."""
    if device.target_id is None:
        return (device.name,)
    return tuple(dict.fromkeys((device.target_id.processor, device.name)))


def _flags_by_name(env: Environment) -> dict[str, list[Any]]:
    flags: dict[str, list[Any]] = {}
    for key, value in (env["OFFLOAD_ARCH_FLAGS"] or {}).items():
        name = parse_target(str(key), allow_unknown=True).name
        flags.setdefault(name, []).extend(env.Split(value))
    return flags
