"""The compiler and the other tools of a build, each found once, and what depends on them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import SCons.Util

from offload_tool.clang.environment import OWN_INSTALLATIONS
from offload_tool.clang.options import relevant_flags, trial_flags
from offload_tool.errors import CompilerError
from offload_tool.formats.targets.compile_target import CompileTarget
from offload_tool.passes import openmp
from offload_tool.passes.capability_check import Job
from offload_tool.passes.choose_compiler import ADVICE, find_toolchain
from offload_tool.passes.cuda import Ptxas, find_ptxas
from offload_tool.run.validate_flags import check_flags
from offload_tool.scons import compat
from offload_tool.scons.graph.call_cache import KINDS, results_of
from offload_tool.scons.settings import (
    folder_path,
    known_targets,
    likely_kinds,
    machine_flags,
    shell_variables,
    substituted,
)
from offload_tool.scons.state.build_log import announce
from offload_tool.scons.types import Environment
from offload_tool.toolchain.disk_cache import cached_result
from offload_tool.toolchain.driver_cache import cached_triple
from offload_tool.toolchain.installations import (
    RuntimeLibrary,
    cuda_installations,
    find_runtime,
    rocm_installations,
)
from offload_tool.toolchain.probe import Toolchain
from offload_tool.util.frozen import replaced

if TYPE_CHECKING:
    from offload_tool.nvidia.nvlink import NvLinker


_NO_COMPILER = Toolchain(
    *(("clang",), ("clang++",), ("clang",), ("lld",), ()),
    version="22.0.0",
    identity="",
    origin="",
    host_triple="x86_64-unknown-linux-gnu",
)
"""Takes the place of the compiler where nothing is built: no name of a node depends on one."""


def toolchain(env: Environment, *, lenient: bool = True) -> Toolchain:
    """Return this environment's compiler, and print it once; raise CompilerError."""
    if lenient and not compat.is_build():
        return _NO_COMPILER
    results = results_of(env)
    if results is not None and results.compiler is not None:
        return results.compiler
    own = _own_installations(env)
    with compat.at_top(env):
        found = _find(env, own, lenient=lenient)
    _announce(env, found)
    if results is not None:
        results.compiler = found
    return found


def _own_installations(env: Environment) -> dict[str, str]:
    return {name: path for name in OWN_INSTALLATIONS if (path := folder_path(env, name))}


def _find(env: Environment, own: Mapping[str, str], *, lenient: bool) -> Toolchain:
    kinds = [kind for kind in env.get(KINDS, "").split(",") if kind]
    flags = relevant_flags(substituted(env, "$CFLAGS $CXXFLAGS $CCFLAGS $CPPFLAGS $OFFLOAD_FLAGS"))
    clang = env["OFFLOAD_CLANG"] or ""
    named = env.subst(clang) if isinstance(clang, str) else shlex.quote(str(clang))
    jobs = tuple(_job(env, kind, flags) for kind in kinds or likely_kinds(env))
    environ = {**os.environ, **shell_variables(env), **own}
    with suppress(CompilerError):
        return find_toolchain(environ, named, jobs)
    given = _device_args(env)
    jobs = tuple(replaced(job, all_flags=given, source="source.cpp") for job in jobs)
    # Without kinds, as for a link, the compiler of the sources is preferred.
    try:
        return find_toolchain(environ, named, jobs, lenient=lenient and bool(kinds))
    except CompilerError:
        if kinds or not lenient:
            raise
    return find_toolchain(environ, named)


def _announce(env: Environment, found: Toolchain) -> None:
    def show_if_new(text: str) -> None:
        """Show a text that this machine has not shown since the package changed."""
        cached_result(["told", str(found)], lambda: SCons.Util.display(text), lambda _: ())

    announce(env, f"offload: using {found.used}")
    if found.passed_over:
        skipped = "; ".join(found.passed_over)
        text = f"offload: skipped: {skipped} (once; 'offload-tool doctor' prints it again)"
        announce(env, text, show_if_new)
    for doubt in found.doubts:
        announce(env, f"offload: warning: {doubt}; used all the same")


def _job(env: Environment, kind: str, flags: tuple[str, ...]) -> Job:
    named = env.subst("$OFFLOAD_PTXAS")
    if kind == "openmp" and named and (ptxas := find_ptxas(named)) is not None:
        flags += (openmp.ptxas_flag(ptxas),)
    return Job(kind, known_targets(env, kind), flags)


def _device_args(env: Environment) -> tuple[str, ...]:
    text = "$CXXFLAGS $CCFLAGS $CPPFLAGS $_CPPDEFFLAGS $_OFFLOAD_INCLUDES $OFFLOAD_FLAGS"
    args = [arg for arg in substituted(env, text) if arg not in ("$(", "$)")]
    check_flags(args, rdc=env["OFFLOAD_RDC"])
    return trial_flags(args)


def host_triple(env: Environment) -> str:
    """Return the triple of host code, queried from the driver with the flags of host passes."""
    found, flags = toolchain(env), machine_flags(env)
    if not flags or not compat.is_build():
        return found.host_triple
    environment = {**env["ENV"], **dict(found.environment)}
    with compat.at_top(env):
        return cached_triple([*found.clang, *flags], environment) or found.host_triple


def runtime_library(env: Environment, kind: str) -> RuntimeLibrary:
    """Return the runtime of ``hip`` or ``cuda``, first of its sources'; raise CompilerError."""
    used = ""
    with suppress(CompilerError):
        found = toolchain(env.Override({KINDS: kind}))
        used = found.cuda if kind == "cuda" else found.rocm
    own = _own_installations(env)
    with compat.at_top(env):
        if not used:
            search = rocm_installations if kind == "hip" else cuda_installations
            used = next((one.path for one in search({**shell_variables(env), **own})), "")
        if not used:
            name = "ROCm" if kind == "hip" else "CUDA toolkit"
            raise CompilerError(f"no {name} is installed; {ADVICE[kind]}")
        return find_runtime(kind, os.path.abspath(used))


def ptxas(env: Environment, kind: str = "cuda") -> Ptxas | None:
    """Return NVIDIA's assembler: OFFLOAD_PTXAS, that of `kind`, or any; raise CompilerError."""
    if not compat.is_build():
        return Ptxas(("ptxas",), "")
    toolkit = _toolkit(env) if kind == "cuda" else openmp.toolkit_of(toolchain(env))
    with compat.at_top(env):
        return find_ptxas(env.subst("$OFFLOAD_PTXAS"), toolkit, shell_variables(env))


def _toolkit(env: Environment) -> str:
    return toolchain(env).cuda or folder_path(env, "OFFLOAD_CUDA_PATH")


def nvlink(env: Environment) -> NvLinker:
    """Return NVIDIA's linker: OFFLOAD_NVLINK, the toolkit's, any. Raise CompilerError."""
    from offload_tool.nvidia.nvlink import NvLinker, find_nvlink

    if not compat.is_build():
        return NvLinker(("nvlink",), "")
    assembler, toolkit = ptxas(env), _toolkit(env)
    sibling = assembler.command[0] if assembler is not None else ""
    with compat.at_top(env):
        return find_nvlink(env.subst("$OFFLOAD_NVLINK"), toolkit, sibling, shell_variables(env))


def device_runtimes(env: Environment, device: CompileTarget) -> list[str]:
    """Return the libraries for OpenMP images: OFFLOAD_DEVICE_RUNTIME, or the compiler's."""
    given = env["OFFLOAD_DEVICE_RUNTIME"]
    if not compat.is_build():
        return []
    if given is not None:
        nodes = [env.File(name) for name in env.Split(given)]
        with compat.at_top(env):
            return [str(node) for node in nodes]
    return list(openmp.device_runtimes(toolchain(env), device))


def needed_runtimes(env: Environment, device: CompileTarget) -> list[str]:
    """Return `device_runtimes`; raise CompilerError if a GPU's link lacks them."""
    found = device_runtimes(env, device)
    is_other = env["OFFLOAD_DEVICE_RUNTIME"] is not None or device.target_id is None
    excused = is_other or not compat.is_build()
    if found or excused or "--unresolved-symbols" in env.subst("$OFFLOAD_LINK_FLAGS"):
        return found
    raise CompilerError(openmp.no_device_runtime(toolchain(env), device))
