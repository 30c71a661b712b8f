"""What nodes of this tool know of themselves, and how sources and outputs are named."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import SCons.Util

from offload_tool.compiler.passes import C_SUFFIXES, KINDS, derive_cuid, source_kind
from offload_tool.errors import UsageError
from offload_tool.formats.entry_id import BundleEntryID
from offload_tool.scons import settings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from offload_tool.compiler.device import Device

__all__ = [
    "Unit",
    "add_aliases",
    "entry_id",
    "given_ids",
    "identified",
    "is_plain_source",
    "kind_of",
    "label",
    "named",
    "placed",
    "source_nodes",
    "units",
]

_CXX_SUFFIXES = (".cc", ".cpp", ".cxx", ".c++", ".C", ".CPP")
_PLAIN_SUFFIXES = (*C_SUFFIXES, *_CXX_SUFFIXES, ".s", ".S")


@dataclass(frozen=True)
class Unit:
    """One offload source and what all nodes made of it share."""

    source: Any
    kind: str
    folder: Any
    """Where its outputs go, an SCons Dir."""
    name: str
    """The beginning of its outputs' file names."""
    cuid: str

    def file(self, env: Any, suffix: str) -> Any:
        """Give the node of the output with this suffix, in which variables are replaced."""
        return self.folder.File(f"{self.name}{env.subst(suffix)}")

    @property
    def language_flags(self) -> str:
        """The variable with the flags of the source's language."""
        return "$CFLAGS" if self.source.get_suffix() in C_SUFFIXES else "$CXXFLAGS"


def units(env: Any, target: str | None, source: Any, *, own_cuid: bool = False) -> list[Unit]:
    """Give the units of offload sources; one may be named after `target`.

    All passes of a source have one CUID, derived from its path. With `own_cuid`, the
    outputs' name is part of it where it is not the source's: one source can then be
    compiled twice, with other flags, for the same program.
    """
    nodes = source_nodes(env, source)
    if target is not None and len(nodes) > 1:
        raise UsageError(f"one target name ('{target}') cannot serve {len(nodes)} sources")
    return [_unit(env, node, target, own_cuid=own_cuid) for node in nodes]


def _unit(env: Any, source: Any, target: str | None, *, own_cuid: bool) -> Unit:
    kind = kind_of(env, source)
    if kind is None:
        raise UsageError(
            f"'{source}': expected an offload source (.hip, .cu); set OFFLOAD_KIND to one of "
            f"{', '.join(KINDS)} for one with another suffix"
        )
    folder, name = source.dir, SCons.Util.splitext(source.name)[0]
    extra = ""
    if target is not None:
        head, tail = os.path.split(target)
        given = (env.Dir(head or "."), SCons.Util.splitext(tail)[0])
        if own_cuid and given != (folder, name):
            extra = f"{given[0].get_internal_path()}/{given[1]}"
        folder, name = given
    cuid = env.subst("$OFFLOAD_CUID") or derive_cuid(source.get_internal_path(), extra)
    return Unit(source, kind, folder, name, cuid)


def kind_of(env: Any, node: Any) -> str | None:
    """Tell of which offload kind a source is, by its suffix or OFFLOAD_KIND; None if of none.

    :raises UsageError: OFFLOAD_KIND is none of the kinds.
    """
    given = env.subst("$OFFLOAD_KIND").lower()
    if given not in ("", *KINDS):
        raise UsageError(f"OFFLOAD_KIND: expected one of {', '.join(KINDS)}, found {given!r}")
    by_suffix = source_kind(node.name)
    if by_suffix is not None:
        # The suffix says the language; only HIP can be compiled from another one's source.
        return "hip" if given == "hip" else by_suffix
    if node.get_suffix() in (*C_SUFFIXES, *_CXX_SUFFIXES):
        return given or ("openmp" if _has_openmp_flags(env) else None)
    return None


def _has_openmp_flags(env: Any) -> bool:
    """Tell whether OpenMP sources are to be offloaded: ``-fopenmp``, and devices for it."""
    words = [env.subst(f"${name}") for name in ("CCFLAGS", "CFLAGS", "CXXFLAGS")]
    return bool(env["OFFLOAD_ARCH"]) and "-fopenmp" in " ".join(words).split()


def is_plain_source(node: Any) -> bool:
    """Tell whether a node is C, C++ or assembler."""
    return node.get_suffix() in _PLAIN_SUFFIXES


def source_nodes(env: Any, source: Any) -> list[Any]:
    """Give the nodes of what a user passed as source."""
    return list(env.arg2nodes(SCons.Util.flatten([source]), env.fs.Entry))


def named(env: Any, name: str, suffix: str) -> Any:
    """Give the node of a user's target name, with the suffix if it has none."""
    return env.File(name if PurePath(name).suffix else name + env.subst(suffix))


def label(node: Any, kind: str, device: Device) -> None:
    """Write on a node which device's image it is."""
    node.attributes.offload_kind = kind
    node.attributes.offload_device = device
    if kind != "cuda":  # bundles have no such kind
        node.attributes.offload_entry_id = device.entry_id(kind)


def entry_id(node: Any) -> BundleEntryID | None:
    """Give the bundle entry ID that a node carries."""
    found: BundleEntryID | None = getattr(node.attributes, "offload_entry_id", None)
    return found


def given_ids(env: Any) -> list[BundleEntryID]:
    """Give the bundle entry IDs of ``OFFLOAD_TARGETS``."""
    return [BundleEntryID.parse(env.subst(text)) for text in env.Split(env["OFFLOAD_TARGETS"])]


def add_aliases(env: Any, node: Any, device: Device) -> None:
    """Let ``scons <target ID>``, and ``scons <processor>``, build a node."""
    names = [device.name]
    if device.target_id is not None:
        names.append(device.target_id.processor)
    for name in dict.fromkeys(names):
        env.Alias(name, node)


def identified(env: Any, nodes: Any) -> list[Any]:
    """Make nodes depend on what the compiler says of itself; give them back."""
    identity = env.Value(settings.toolchain(env).identity)
    for node in nodes:
        env.Depends(node, identity)
    return list(nodes)


def placed(command: Iterable[str]) -> list[str]:
    """Keep the place of a program out of signatures; its options stay in them."""
    program, *options = command
    return ["$(", program, "$)", *options]
