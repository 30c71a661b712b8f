"""The settings of a builder call: what users set, and what it means. Nothing here runs a tool.

Invalid settings raise errors of `offload_tool.errors` while the SConscript is read, and SCons
shows them with the SConscript's line.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import SCons.Node.FS
import SCons.Util

from offload_tool.clang.argument_files import all_args
from offload_tool.clang.environment import INSTALLATIONS, MACHINE_VARIABLES, RESULT_VARIABLES
from offload_tool.clang.options import LINKED, TRIPLE, is_one_of, with_values
from offload_tool.containers.entries import FILE_TYPES
from offload_tool.errors import TargetIDError, UsageError
from offload_tool.formats.targets.compile_target import CompileTarget, parse_targets
from offload_tool.formats.targets.processors import find_processor
from offload_tool.formats.targets.target_id import split_list
from offload_tool.passes import cuda
from offload_tool.run.launcher import launcher_args
from offload_tool.scons import compat
from offload_tool.scons.types import Environment
from offload_tool.toolchain.identity import LIBRARY_PATH
from offload_tool.toolchain.supported_processors import NATIVE

LINKER_CHOICE = ("-fuse-ld=", "--ld-path=")
_HOST_FLAGS = "$CFLAGS $CXXFLAGS $CCFLAGS $OFFLOAD_HOST_FLAGS"
OPENMP_DEVICES = ("-fopenmp-targets=", "--offload-arch=", "--offload-targets=")
"""Flags that name the devices of clang's driver for OpenMP."""
_DEVICE_LINK = ("-fgpu-rdc", "--offload-link", "--offload-new-driver")
"""Flags with which a link by clang's driver links device code, too, as with devices of OpenMP.

Source: clang 19.1.7 and 22.1.8, observed.
"""


def substituted(env: Environment, text: str, source: Any = None) -> list[str]:
    """Return the arguments of a text after substitution of variables."""
    return [str(arg) for line in env.subst_list(text, source=source) for arg in line]


def folder_path(env: Environment, name: str) -> str:
    """Return the absolute path of the folder in variable `name`; empty if it is not set.

    A name is relative to the SConscript being read, or to ``#``. With a variant folder, the path is
    in the source folder; if missing, it is in a Repository.
    """
    given = env[name]
    if not isinstance(given, SCons.Node.FS.Base):
        text = env.subst(str(given or ""))
        if not text:
            return ""
        given = env.Dir(text)
    candidates = [folder.rdir() for folder in (given.srcnode(), given)]
    found = next((folder for folder in candidates if folder.isdir()), given)
    return str(found.get_abspath())


def launcher(env: Environment, folder: str = "") -> list[str]:
    """Return the arguments of OFFLOAD_LAUNCHER; raise UsageError if it is none."""
    with compat.at_top(env):
        return launcher_args(env.subst("$OFFLOAD_LAUNCHER"), folder)


def given_kind(env: Environment) -> str:
    """Return ``OFFLOAD_KIND`` in lower case; users' flags and names have it as it was given."""
    return str(env.subst("$OFFLOAD_KIND")).lower()


def likely_kind(env: Environment) -> str:
    """Return the likely kind of a library's device code, by the targets of ``OFFLOAD_ARCH``."""
    return next(iter(likely_kinds(env)), "openmp" if _arch_items(env) else "hip")


def likely_kinds(env: Environment) -> list[str]:
    """Return the likely kinds of an environment's sources."""
    given = given_kind(env)
    return [kind for kind in ("hip", "cuda") if given in ("", kind) and known_targets(env, kind)]


def known_targets(env: Environment, kind: str) -> tuple[str, ...]:
    """Return the target IDs that the compiler must know; invalid ones are reported elsewhere."""
    given = [name for name in given_targets(env, kind) if name != NATIVE]
    try:
        found = parse_targets(given, kind, allow_unknown=env["OFFLOAD_ALLOW_UNKNOWN_ARCH"])
    except TargetIDError:
        return ()
    ids = [device.target_id for device in found if device.target_id is not None]
    return tuple(str(each) for each in ids if find_processor(each.processor) is not None)


def given_targets(env: Environment, kind: str) -> list[str]:
    """Return the items of ``OFFLOAD_ARCH``; those for CUDA as processors, without their images."""
    given = _arch_items(env)
    return given if kind != "cuda" else [cuda.requested_images(item)[0] for item in given]


def _arch_items(env: Environment) -> list[str]:
    items = SCons.Util.flatten([env["OFFLOAD_ARCH"] or []])
    return [arg for item in items for arg in split_list(env.subst(str(item)))]


def cuda_images(env: Environment, device: CompileTarget) -> frozenset[str]:
    """Return the images to embed for a CUDA device by all its items: CUBIN, PTX or both."""
    found = [cuda.requested_images(item) for item in _arch_items(env)]
    names = {device.name, NATIVE, *cuda.ALL}
    return frozenset(image for name, images in found if name in names for image in images)


def shared_suffix(env: Environment) -> str:
    """Return the suffix of shared objects; the embedded compiler rules out SCons's ``.os``."""
    given = str(env.subst("$SHOBJSUFFIX"))
    return ".pic.o" if given == ".os" else given


def machine_flags(env: Environment) -> list[str]:
    """Return the flags of host passes that may set the target machine."""
    return [*with_values(substituted(env, _HOST_FLAGS), TRIPLE)]


def link_flags(env: Environment) -> list[str]:
    """Return the flags of host compiles that the link needs; raise UsageError for a device link."""
    there = host_link_flags(env)
    args = dict.fromkeys(substituted(env, _HOST_FLAGS))
    added = [arg for arg in args if is_one_of(arg, LINKED) and arg not in there]
    is_openmp = any(arg.startswith("-fopenmp") for arg in (*there, *added))
    device_links = (*_DEVICE_LINK, *OPENMP_DEVICES) if is_openmp else _DEVICE_LINK
    if found := next((arg for arg in there if arg.startswith(device_links)), None):
        raise UsageError(
            f"'{found}' in LINKFLAGS would link device code twice: OFFLOAD_RDC=True does so for "
            "HIP and CUDA, OFFLOAD_ARCH for OpenMP; remove it from LINKFLAGS"
        )
    return added


def host_link_flags(env: Environment) -> list[str]:
    """Return the user's flags for links of host code, response files expanded."""
    with compat.at_top(env):
        return list(all_args(substituted(env, "$LINKFLAGS $SHLINKFLAGS")))


def bundle_type(env: Environment, default: str) -> str:
    """Return OFFLOAD_BUNDLE_TYPE, or `default`; raise UsageError if there is no such type."""
    given = env.subst(env["OFFLOAD_BUNDLE_TYPE"] or "") or default
    if given not in (*FILE_TYPES, "a"):
        types = ", ".join((*FILE_TYPES, "a"))
        raise UsageError(f"OFFLOAD_BUNDLE_TYPE: expected one of {types}, found {given!r}")
    return str(given)


def unbundling(env: Environment, *, archive: bool = False) -> dict[str, bool]:
    """Return the options that are set for unbundling, also of archives."""
    variables = {
        "allow_missing": "OFFLOAD_ALLOW_MISSING_BUNDLES",
        "hip_openmp": "OFFLOAD_HIP_OPENMP_COMPATIBLE",
        **({"check": "OFFLOAD_CHECK_INPUT_ARCHIVE"} if archive else {}),
    }
    return {option: True for option, variable in variables.items() if env[variable]}


def compression(env: Environment) -> tuple[str | int | None, ...]:
    """Return the compression of bundles: (method or None, level or None), and a version unless 3.

    They come from ``OFFLOAD_COMPRESS``, ``OFFLOAD_COMPRESS_LEVEL`` and
    ``OFFLOAD_COMPRESS_VERSION``, or clang's variable for the version in the environment of
    commands (UsageError unless 2 or 3). Omitting the usual version keeps older builds up to date.
    """
    method, level = env["OFFLOAD_COMPRESS"], env["OFFLOAD_COMPRESS_LEVEL"]
    if method is None:
        return method, level
    version = env["OFFLOAD_COMPRESS_VERSION"]
    if version is None:
        name = "COMPRESSED_BUNDLE_FORMAT_VERSION"
        given = str(env["ENV"].get(name, 3))
        if given not in ("2", "3"):
            raise UsageError(f"{name}: expected 2 or 3, found {given!r}")
        version = int(given)
    return (method, level) if version == 3 else (method, level, version)


def shell_variables(env: Environment) -> dict[str, str]:
    """Return the variables that locate programs: the commands', or the shell's."""
    given = env["ENV"]
    return {
        name: str(given[name]) if name in given else os.environ.get(name, "")
        for name in sorted({*INSTALLATIONS, *MACHINE_VARIABLES})
    } | {"PATH": _search_path(env), LIBRARY_PATH: str(given.get(LIBRARY_PATH, ""))}


def _search_path(env: Environment) -> str:
    """Return PATH for searches: what the user added to that of commands, then the shell's."""
    given = env["ENV"].get("PATH", "")
    folders = given if SCons.Util.is_List(given) else str(given).split(os.pathsep)
    usual = compat.usual_path().split(os.pathsep)
    added = [str(folder) for folder in folders if folder and str(folder) not in usual]
    shell = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(dict.fromkeys([*added, *shell]))


def result_variables(given: Mapping[str, Any]) -> dict[str, str]:
    """Return those environment variables that affect compiles' outputs."""
    return {name: str(given[name]) for name in RESULT_VARIABLES if name in given}
