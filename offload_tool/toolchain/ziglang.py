"""The embedded compiler: clang, lld, libc++ and glibc from the ``ziglang`` wheel.

``zig clang`` is a plain clang without headers of the host, and its HIP device link runs a
program called ``lld``. This module supplies both:

- every pass gets the directories and defines of ``zig c++ -target <machine>-linux-gnu.2.28 -E -v``,
  so that ``<cstdio>`` is found without a system compiler;
- a two-line script ``lld`` in a cache directory runs ``zig ld.lld``; ``-B`` points clang to it.

The target is glibc 2.28, so that programs run on every distribution since 2018.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import itertools
import os
import platform
import re
import shlex
from pathlib import Path

from offload_tool.clang.driver import query
from offload_tool.clang.environment import searched_folders
from offload_tool.errors import CompilerError, OffloadError
from offload_tool.toolchain.disk_cache import cache_folder, cached_script
from offload_tool.toolchain.identity import identity_text
from offload_tool.toolchain.probe import EMBEDDED, Toolchain, version_of

_GLIBC = "2.28"
_MACHINES = {"x86_64": "x86_64", "aarch64": "aarch64", "ppc64le": "powerpc64le"}


@functools.cache
def probe_embedded() -> Toolchain:
    """Return the compiler of the ``ziglang`` wheel, prepared; raise CompilerError."""
    spec = importlib.util.find_spec("ziglang")
    if spec is None or not spec.submodule_search_locations:
        raise CompilerError("the embedded compiler (PyPI's ziglang) is not installed")
    machine = _MACHINES.get(platform.machine())
    if machine is None or platform.system() != "Linux":
        raise CompilerError(f"the embedded compiler is not set up for {platform.platform()}")
    zig = str(Path(spec.submodule_search_locations[0], "zig"))
    zig_target = f"{machine}-linux-gnu.{_GLIBC}"
    triple = f"{machine}-unknown-linux-gnu"
    release = f"ziglang {importlib.metadata.version('ziglang')}"
    version = version_of((zig, "clang"))
    for_host = ("-target", zig_target, "-fno-sanitize=undefined")
    return Toolchain(
        clang=(zig, "clang"),
        cxx=(zig, "c++", *for_host),
        cc=(zig, "cc", *for_host),
        lld=(zig, "ld.lld"),
        local_flags=(
            f"--target={triple}",
            f"-B{_lld_folder(zig)}",
            *_header_flags(zig, zig_target),
        ),
        version=version["version"],
        identity=identity_text([version["line"].strip(), triple, release]),
        origin=f"{EMBEDDED}{release}",
        host_triple=triple,
        environment=tuple(environment().items()),
    )


def _lld_folder(zig: str) -> str:
    script = f'#!/bin/sh\nshift 2\nexec {shlex.quote(zig)} ld.lld "$@"\n'.encode()
    name = re.sub(r"[^A-Za-z0-9]+", "_", zig)[-80:]
    try:
        return os.path.dirname(cached_script(f"lld-{name}/lld", script))
    except (OSError, OffloadError) as error:
        raise CompilerError(f"cannot set up the embedded compiler: {error}") from error


def _header_flags(zig: str, zig_target: str) -> tuple[str, ...]:
    """Return the header directories and defines of the host, from ``zig c++ -E -v``."""
    command = [zig, "c++", "-target", zig_target, "-x", "c++", "-E", "-v", os.devnull]
    result = query(command, os.environ | environment())
    if result.status:
        raise CompilerError(f"the embedded compiler does not work: {result.reason}")
    report = result.errors
    frontend = next((line for line in report.splitlines() if " -cc1 " in line), "")
    args = shlex.split(frontend)
    defines = [f"-D{value}" for flag, value in itertools.pairwise(args) if flag == "-D"]
    # zig prints paths below the working directory as relative ones.
    paths = map(os.path.abspath, searched_folders(report, "the embedded compiler"))
    includes = [arg for path in paths for arg in ("-isystem", path)]
    return ("-nostdinc", "-nostdinc++", *defines, *includes)


def environment() -> dict[str, str]:
    """Return the variables that zig needs, beside a cache that the user has chosen."""
    cache = os.environ.get("ZIG_GLOBAL_CACHE_DIR") or f"{cache_folder()}/zig"
    return {"ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache}
