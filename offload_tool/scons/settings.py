"""The construction variables of the tool: their defaults, and reading them.

What is wrong with a variable is an error where the SConscript is read, in the words of
`offload_tool.errors`, shown by SCons with the SConscript's line.
"""

from __future__ import annotations

import json
from typing import Any

import SCons.Script
import SCons.Util

from offload_tool.compiler.toolchain import Toolchain, find_toolchain
from offload_tool.errors import UsageError
from offload_tool.formats.target_id import TargetID, parse_target_ids

__all__ = [
    "FORMAT_VERSION",
    "arch_flags",
    "bundle_alignment",
    "compression",
    "hip_target_ids",
    "set_defaults",
    "spec",
    "toolchain",
    "toolchain_variables",
]

# Part of every in-process action's signature. Raise it when the bytes that we write for
# the same inputs change, and only then: it rebuilds every user's bundles.
FORMAT_VERSION = 1

_COMPILE = (
    "$( $OFFLOAD_LAUNCHER $_OFFLOAD_CLANG $_OFFLOAD_LOCAL_FLAGS $) $_OFFLOAD_PASS_FLAGS "
    "$CXXFLAGS $CCFLAGS $_CCCOMCOM {flags} $_OFFLOAD_DEPENDENCY_FLAGS -c -o $TARGET $SOURCE"
)

_DEFAULTS: dict[str, Any] = {
    "OFFLOAD_ARCH": [],
    "OFFLOAD_ALLOW_UNKNOWN_ARCH": False,
    "OFFLOAD_KIND": "",
    "OFFLOAD_CLANG": "",
    "OFFLOAD_FLAGS": [],
    "OFFLOAD_HOST_FLAGS": [],
    "OFFLOAD_ARCH_FLAGS": {},
    "OFFLOAD_BUNDLE_ALIGN": 4096,
    "OFFLOAD_BUNDLE_HOST": False,
    "OFFLOAD_COMPRESS": None,
    "OFFLOAD_COMPRESS_LEVEL": None,
    "OFFLOAD_CUID": "",
    "OFFLOAD_LAUNCHER": "",
    "OFFLOAD_TARGETS": [],
    # Commands and the messages shown in their place; an empty message shows the command.
    "OFFLOADDEVICECOM": _COMPILE.format(flags="$OFFLOAD_FLAGS $_OFFLOAD_ARCH_FLAGS"),
    "OFFLOADDEVICECOMSTR": "HIP [$_OFFLOAD_TARGET_ID] $SOURCE",
    "OFFLOADHOSTCOM": _COMPILE.format(flags="$OFFLOAD_HOST_FLAGS"),
    "OFFLOADHOSTCOMSTR": "HIP [host] $SOURCE",
    "OFFLOADMERGECOM": "$( $_OFFLOAD_LLD $) -r -o $TARGET $SOURCES",
    "OFFLOADMERGECOMSTR": "MERGE $TARGET",
    "OFFLOADBUNDLECOMSTR": "BUNDLE $TARGET",
    "OFFLOADUNBUNDLECOMSTR": "UNBUNDLE $TARGET",
    "OFFLOADEMBEDCOMSTR": "EMBED $TARGET",
    # File names: <stem>.<target ID><suffix>
    "OFFLOADDEVICESUFFIX": ".co",
    "OFFLOADHOSTSUFFIX": ".host.o",
    "OFFLOADBUNDLESUFFIX": ".hipfb",
    "OFFLOADEMBEDSUFFIX": ".fatbin.o",
    # What the compile commands above take from SCons's own C tools, where those are not loaded.
    "OBJSUFFIX": ".o",
    "INCPREFIX": "-I",
    "INCSUFFIX": "",
    "CPPDEFPREFIX": "-D",
    "CPPDEFSUFFIX": "",
}


def set_defaults(env: Any, overrides: dict[str, Any]) -> None:
    """Set every variable that the user has not set; `overrides` came with ``env.Tool``."""
    env.SetDefault(**_DEFAULTS)
    env.Replace(**overrides)


def spec(**values: Any) -> str:
    """Give the text that stands for an in-process action's options in its signature."""
    return json.dumps({"format": FORMAT_VERSION, **values}, sort_keys=True)


def hip_target_ids(env: Any) -> tuple[TargetID, ...]:
    """Give ``OFFLOAD_ARCH`` in canonical form, sorted, so that its order means nothing.

    :raises TargetIDError: invalid or conflicting target IDs; all problems are listed.
    :raises UsageError: none is given, or one is no target of HIP.
    """
    given = [env.subst(item) for item in SCons.Util.flatten([env["OFFLOAD_ARCH"]])]
    targets = parse_target_ids(given, allow_unknown=bool(env["OFFLOAD_ALLOW_UNKNOWN_ARCH"]))
    if not targets:
        raise UsageError("OFFLOAD_ARCH is empty: set it to target IDs, such as ['gfx90a:xnack+']")
    foreign = [str(target) for target in targets if not str(target.triple).endswith("amdhsa-")]
    if foreign:
        raise UsageError(f"OFFLOAD_ARCH: {', '.join(foreign)} cannot be compiled from HIP sources")
    return tuple(sorted(targets))


def arch_flags(env: Any, target: TargetID) -> list[Any]:
    """Give the flags of ``OFFLOAD_ARCH_FLAGS`` for `target`: its processor's, then its own.

    :raises TargetIDError: a key is no target ID; all such keys are named.
    """
    given = env["OFFLOAD_ARCH_FLAGS"] or {}
    if not hasattr(given, "items"):
        raise UsageError(
            f"OFFLOAD_ARCH_FLAGS: expected a dictionary {{target ID: flags}}, found {given!r}"
        )
    allow_unknown = bool(env["OFFLOAD_ALLOW_UNKNOWN_ARCH"])
    flags: dict[str, list[Any]] = {}
    for key, value in given.items():
        canonical = str(TargetID.parse(str(key), allow_unknown=allow_unknown))
        flags.setdefault(canonical, []).extend(env.Split(value))
    names = dict.fromkeys((target.processor, str(target)))
    return [flag for name in names for flag in flags.get(name, ())]


def bundle_alignment(env: Any) -> int:
    """Give ``OFFLOAD_BUNDLE_ALIGN``, in bytes.

    :raises UsageError: it is no positive integer.
    """
    given = env.subst(str(env["OFFLOAD_BUNDLE_ALIGN"]))
    if not given.isdecimal() or int(given) < 1:
        raise UsageError(f"OFFLOAD_BUNDLE_ALIGN: expected a positive integer, found {given!r}")
    return int(given)


def compression(env: Any) -> tuple[str | None, int | None]:
    """Give ``OFFLOAD_COMPRESS`` and ``OFFLOAD_COMPRESS_LEVEL``: (method or None, level or None).

    :raises UsageError: an unknown method, or a level that is no integer.
    """
    method, level = env["OFFLOAD_COMPRESS"], env["OFFLOAD_COMPRESS_LEVEL"]
    if method not in (None, "", "zstd", "zlib"):
        raise UsageError(f"OFFLOAD_COMPRESS: expected None, 'zstd' or 'zlib', found {method!r}")
    if level is None:
        return method or None, None
    try:
        return method or None, int(level)
    except (TypeError, ValueError):
        raise UsageError(f"OFFLOAD_COMPRESS_LEVEL: expected an integer, found {level!r}") from None


_announced: set[str] = set()


def toolchain(env: Any) -> Toolchain:
    """Find the compiler for this environment, and say once which one it is.

    :raises CompilerError: no usable compiler.
    """
    found = find_toolchain(clang=env.subst("$OFFLOAD_CLANG"))
    if str(found) not in _announced:
        _announced.add(str(found))
        if not SCons.Script.GetOption("clean"):
            SCons.Util.display(f"offload: using {found}")
    return found


def toolchain_variables(env: Any) -> dict[str, Any]:
    """Give the variables through which command lines name the compiler and linkers."""
    found = toolchain(env)
    return {
        "_OFFLOAD_CLANG": list(found.clang),
        "_OFFLOAD_LOCAL_FLAGS": list(found.local_flags),
        "_OFFLOAD_LLD": list(found.lld),
        # The compiler is told apart by what it says of itself, not by its path or bytes.
        "IMPLICIT_COMMAND_DEPENDENCIES": False,
        "ENV": {**env["ENV"], **dict(found.environment)},
    }
