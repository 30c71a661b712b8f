"""The construction variables of the tool: their defaults, and reading them.

What is wrong with a variable is an error where the SConscript is read, in the words of
`offload_tool.errors`, shown by SCons with the SConscript's line.
"""

from __future__ import annotations

import difflib
import json
from typing import TYPE_CHECKING, Any

import SCons.Script
import SCons.Util

from offload_tool.compiler import openmp
from offload_tool.compiler.device import Device, parse_device, parse_devices
from offload_tool.compiler.toolchain import Toolchain, find_toolchain
from offload_tool.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from offload_tool.scons.nodes import Unit

__all__ = [
    "FORMAT_VERSION",
    "add_environment",
    "arch_flags",
    "bundle_alignment",
    "check_names",
    "compression",
    "device_runtimes",
    "devices",
    "is_relocatable",
    "set_defaults",
    "shared_suffix",
    "spec",
    "toolchain",
    "toolchain_variables",
]

# Part of every in-process action's signature. Raise it when the bytes that we write for
# the same inputs change, and only then: it rebuilds every user's bundles.
FORMAT_VERSION = 1

_COMPILE = (
    "$( $OFFLOAD_LAUNCHER $_OFFLOAD_CLANG $_OFFLOAD_LOCAL_FLAGS $) $_OFFLOAD_PASS_FLAGS "
    "$_OFFLOAD_LANGUAGE_FLAGS $CCFLAGS $_CCCOMCOM {flags} $_OFFLOAD_DEPENDENCY_FLAGS "
    "-o $TARGET $SOURCE"
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
    "OFFLOAD_DEVICE_RUNTIME": None,
    "OFFLOAD_DIST": "",
    "OFFLOAD_LAUNCHER": "",
    "OFFLOAD_LIBS": [],
    "OFFLOAD_LINK_FLAGS": [],
    "OFFLOAD_PTXAS": "",
    "OFFLOAD_PTXAS_FLAGS": [],
    "OFFLOAD_RDC": False,
    "OFFLOAD_SUMMARY": False,
    "OFFLOAD_TARGETS": [],
    # Commands and the messages shown in their place; an empty message shows the command.
    "OFFLOADDEVICECOM": _COMPILE.format(flags="$OFFLOAD_FLAGS $_OFFLOAD_ARCH_FLAGS"),
    "OFFLOADDEVICECOMSTR": "$_OFFLOAD_LANGUAGE [$_OFFLOAD_TARGET_ID] $SOURCE",
    "OFFLOADHOSTCOM": _COMPILE.format(flags="$_OFFLOAD_PIC_FLAGS $OFFLOAD_HOST_FLAGS"),
    "OFFLOADHOSTCOMSTR": "$_OFFLOAD_LANGUAGE [host] $SOURCE",
    "OFFLOADHOSTIRCOM": (
        "$( $OFFLOAD_LAUNCHER $_OFFLOAD_CLANG $_OFFLOAD_LOCAL_FLAGS $) $_OFFLOAD_PASS_FLAGS "
        "$_OFFLOAD_LANGUAGE_FLAGS $CCFLAGS $_OFFLOAD_PIC_FLAGS $OFFLOAD_HOST_FLAGS "
        "-o $TARGET $SOURCE"
    ),
    "OFFLOADHOSTIRCOMSTR": "$_OFFLOAD_LANGUAGE [host code] $SOURCE",
    "OFFLOADLINKCOM": (
        "$( $_OFFLOAD_LINKER $) $_OFFLOAD_LINK_ARGUMENTS $OFFLOAD_LINK_FLAGS -o $TARGET "
        "$_OFFLOAD_LINK_INPUTS"
    ),
    "OFFLOADLINKCOMSTR": "LINK [$_OFFLOAD_TARGET_ID] $TARGET",
    "OFFLOADPTXASCOM": (
        "$( $_OFFLOAD_PTXAS $) $_OFFLOAD_PTXAS_ARGUMENTS $OFFLOAD_PTXAS_FLAGS -o $TARGET $SOURCE"
    ),
    "OFFLOADPTXASCOMSTR": "PTXAS [$_OFFLOAD_TARGET_ID] $TARGET",
    "OFFLOADMERGECOM": "$( $_OFFLOAD_LLD $) -r -o $TARGET $SOURCES",
    "OFFLOADMERGECOMSTR": "MERGE $TARGET",
    "OFFLOADARCHIVECOMSTR": "ARCHIVE $TARGET",
    "OFFLOADBUNDLECOMSTR": "BUNDLE $TARGET",
    "OFFLOADCOMPILECOMMANDSCOMSTR": "COMMANDS $TARGET",
    "OFFLOADDEVICEARCHIVECOMSTR": "ARCHIVE [$_OFFLOAD_TARGET_ID] $TARGET",
    "OFFLOADEMBEDCOMSTR": "EMBED $TARGET",
    "OFFLOADEXTRACTCOMSTR": "EXTRACT $TARGET",
    "OFFLOADFATBINCOMSTR": "FATBIN $TARGET",
    "OFFLOADPACKAGECOMSTR": "PACKAGE $TARGET",
    "OFFLOADUNBUNDLECOMSTR": "UNBUNDLE $TARGET",
    "OFFLOADWRAPCOMSTR": "WRAP $TARGET",
    # File names: <stem>.<target ID><suffix>
    "OFFLOADDEVICESUFFIX": ".co",
    "OFFLOADHOSTSUFFIX": ".host.o",
    "OFFLOADSHHOSTSUFFIX": ".host.pic.o",
    "OFFLOADBUNDLESUFFIX": ".hipfb",
    "OFFLOADEMBEDSUFFIX": ".fatbin.o",
    "OFFLOADPACKAGESUFFIX": ".offload",
    # What the compile commands above take from SCons's own C tools, where those are not loaded.
    "CFLAGS": [],
    "LIBPREFIX": "lib",
    "LIBSUFFIX": ".a",
    "OBJSUFFIX": ".o",
    "SHLIBSUFFIX": ".so",
    "SHOBJSUFFIX": ".os",
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


def check_names(names: Iterable[str]) -> None:
    """Refuse variables that begin as ours do and are not.

    :raises UsageError: there is one; the message says which one may be meant.
    """
    for name in sorted(names):
        if name.startswith("OFFLOAD") and name not in _DEFAULTS:
            near = difflib.get_close_matches(name, _DEFAULTS, n=1)
            hint = f"did you mean {near[0]}?" if near else "see the list of variables"
            raise UsageError(f"unknown construction variable {name}; {hint}")


def devices(env: Any, kind: str) -> tuple[Device, ...]:
    """Give ``OFFLOAD_ARCH`` in canonical form, sorted, so that its order means nothing.

    :raises TargetIDError: invalid or conflicting target IDs; all problems are listed.
    :raises UsageError: none is given, or OFFLOAD_ARCH_FLAGS names one that is not built.
    """
    given = [env.subst(str(item)) for item in SCons.Util.flatten([env["OFFLOAD_ARCH"]])]
    allow_unknown = bool(env["OFFLOAD_ALLOW_UNKNOWN_ARCH"])
    found = parse_devices(given, kind, allow_unknown=allow_unknown)
    if not found:
        raise UsageError("OFFLOAD_ARCH is empty: set it to target IDs, such as ['gfx90a:xnack+']")
    built = {name for device in found for name in _flag_keys(device)}
    unused = sorted(set(_flags_by_name(env)) - built)
    if unused:
        raise UsageError(
            f"OFFLOAD_ARCH_FLAGS has flags for {', '.join(unused)}, but OFFLOAD_ARCH builds "
            f"{', '.join(device.name for device in found)} only"
        )
    return found


def shared_suffix(env: Any) -> str:
    """Give the suffix of objects for shared libraries.

    The embedded compiler's link takes a file for an object by ``.o``, so not SCons's ``.os``.
    """
    given = str(env.subst("$SHOBJSUFFIX"))
    return ".pic.o" if given == ".os" and toolchain(env).is_embedded else given


def is_relocatable(env: Any, unit: Unit) -> bool:
    """Tell whether ``OFFLOAD_RDC`` asks for relocatable device code of a source.

    :raises UsageError: it does, of a CUDA source. OpenMP's device code always is.
    """
    wanted = bool(env["OFFLOAD_RDC"])
    if wanted and unit.kind == "cuda":
        raise UsageError(
            f"OFFLOAD_RDC: relocatable device code of CUDA cannot be built ('{unit.source}'); "
            "give this source an environment with OFFLOAD_RDC=False"
        )
    return wanted and unit.kind == "hip"


def arch_flags(env: Any, device: Device) -> list[Any]:
    """Give the flags of ``OFFLOAD_ARCH_FLAGS`` for a device: its processor's, then its own."""
    flags = _flags_by_name(env)
    return [flag for name in _flag_keys(device) for flag in flags.get(name, ())]


def _flag_keys(device: Device) -> tuple[str, ...]:
    if device.target_id is None:
        return (device.name,)
    return tuple(dict.fromkeys((device.target_id.processor, device.name)))


def _flags_by_name(env: Any) -> dict[str, list[Any]]:
    """Read ``OFFLOAD_ARCH_FLAGS``; its keys become canonical.

    :raises TargetIDError: a key is no target ID.
    """
    given = env["OFFLOAD_ARCH_FLAGS"] or {}
    if not hasattr(given, "items"):
        raise UsageError(
            f"OFFLOAD_ARCH_FLAGS: expected a dictionary {{target ID: flags}}, found {given!r}"
        )
    allow_unknown = bool(env["OFFLOAD_ALLOW_UNKNOWN_ARCH"])
    flags: dict[str, list[Any]] = {}
    for key, value in given.items():
        name = parse_device(str(key), allow_unknown=allow_unknown).name
        flags.setdefault(name, []).extend(env.Split(value))
    return flags


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


_announced: set[Toolchain] = set()


def toolchain(env: Any) -> Toolchain:
    """Find the compiler for this environment, and say once which one it is.

    :raises CompilerError: no usable compiler.
    """
    named = env["OFFLOAD_CLANG"]
    found = find_toolchain(clang=env.subst(named) if named else "")
    if found not in _announced:
        _announced.add(found)
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


_RESULT_VARIABLES = (
    *("CCC_OVERRIDE_OPTIONS", "COMPILER_PATH", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH"),
    *("CUDA_PATH", "HIP_DEVICE_LIB_PATH", "HIP_PATH", "ROCM_PATH", "SOURCE_DATE_EPOCH"),
)
"""Variables of the commands' environment that change what clang makes of a source."""


def add_environment(env: Any, nodes: Any) -> None:
    """Make compiles depend on the variables in ``env['ENV']`` that change their result."""
    found = {name: env["ENV"][name] for name in _RESULT_VARIABLES if name in env["ENV"]}
    if found:
        for node in nodes:
            env.Depends(node, env.Value(json.dumps(found, sort_keys=True)))


def device_runtimes(env: Any, device: Device) -> list[str]:
    """Give the libraries that are linked into OpenMP images: ``OFFLOAD_DEVICE_RUNTIME``.

    By default those that the compiler brings for such a device; none if it brings none.
    """
    given = env["OFFLOAD_DEVICE_RUNTIME"]
    if given is not None:
        return [str(env.File(name)) for name in env.Split(given)]
    return list(openmp.device_runtimes(toolchain(env), device))
