"""``offload-tool doctor``: the compilers found, the one in use, and missing parts."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator

from offload_tool.cli.arguments import Commands
from offload_tool.cli.printing import print_lines
from offload_tool.errors import OffloadError

_KINDS = {"hip": ("HIP", "gfx906"), "cuda": ("CUDA", "sm_80"), "openmp": ("OpenMP", "gfx906")}
_WITHOUT = {
    "hip": ("-nogpuinc", "-nogpulib"),
    "cuda": ("-nocudainc", "-nocudalib"),
    "openmp": ("-nogpulib",),
}
"""The flags of sources that use neither the vendor's headers nor its libraries."""


def add_doctor(commands: Commands) -> None:
    """Add the command to the parser of ``offload-tool``."""
    commands.add_parser(
        "doctor",
        help="print which compiler each language uses, and what is missing",
        description="For HIP, CUDA and OpenMP, print the compiler and the installation that "
        "builds use, the compilers that were rejected and why, and how to install "
        "what is missing. Environment variables have the same effect as in builds; "
        "construction variables of a SConstruct are not read.",
        epilog="The exit status is 1 if there is no compiler for any of them.",
    )


def run_doctor(_: argparse.Namespace) -> int:
    """Print the report; return 1 if no language has a compiler."""
    usable: list[str] = []
    print_lines(list(_lines(usable)), sys.stdout)
    return int(not usable)


def _lines(usable: list[str]) -> Iterator[str]:
    """Yield the report; append each language that has a compiler to `usable`."""
    import importlib.metadata
    import platform

    from offload_tool.clang.environment import INSTALLATIONS, MACHINE_VARIABLES, unread_variables
    from offload_tool.passes.capability_check import Job
    from offload_tool.passes.choose_compiler import find_toolchain
    from offload_tool.passes.cuda import find_ptxas
    from offload_tool.toolchain.disk_cache import cache_folder

    versions = [f"Python {platform.python_version()}"]
    for name in ("offload-tool", "SCons"):
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            versions.append(f"no {name}")
    yield ", ".join(versions)
    for kind, (name, target) in _KINDS.items():
        try:
            found = find_toolchain(jobs=(Job(kind, (target,)),))
        except OffloadError as error:
            yield from f"{name}: {error}".split("\n")
            flags = _WITHOUT[kind]
            try:
                found = find_toolchain(jobs=(Job(kind, (target,), flags),))
            except OffloadError:
                continue
            yield f"  {name} with {' '.join(flags)}: {found.used}"
        else:
            yield f"{name}: {found.used}"
            yield from (f"  skipped: {reason}" for reason in found.passed_over)
        usable.append(name)
        if found.is_embedded:
            yield "  C and C++ headers and libraries are its own; --gcc-toolchain has no effect"
    try:
        toolkit = os.environ.get("OFFLOAD_CUDA_PATH", "")
        ptxas = find_ptxas(os.environ.get("OFFLOAD_PTXAS", ""), toolkit)
        yield f"ptxas: {ptxas.command[0] if ptxas else 'none; PTX alone is embedded'}"
    except OffloadError as error:
        yield f"ptxas: {error}"
    has_memory = os.environ.get("OFFLOAD_LAUNCH_MEMORY") != "0"
    yield f"launch: {'a manifest per object' if has_memory else 'OFFLOAD_LAUNCH_MEMORY=0'}"
    named = dict.fromkeys((*MACHINE_VARIABLES, *INSTALLATIONS))
    given = [f"{name}={os.environ[name]}" for name in named if name in os.environ]
    given += [f"{name} (has no effect)" for name in unread_variables(os.environ)]
    yield f"environment: {', '.join(given) or 'no variable of ours is set'}"
    yield f"cached results: {cache_folder()}"
