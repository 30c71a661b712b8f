"""The files of a host link, and the relocatable device code in them.

When SConscripts are read, a link finds the objects and libraries whose code it has to link for each
device, however they are named: sources, ``LIBS``, ``OFFLOAD_LIBS``, ``-l`` and paths in the flags.
When it runs, it looks into all others: what a Command has made could not be read before.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import partial
from typing import Any

import SCons.Util

from offload_tool.clang.link_inputs import linked_files
from offload_tool.errors import UsageError
from offload_tool.passes.source_kind import KINDS
from offload_tool.scons import actions, compat, settings
from offload_tool.scons.graph.units import is_plain_source
from offload_tool.scons.state.node_info import code_of, info_of
from offload_tool.scons.types import Environment, Node
from offload_tool.toolchain.disk_cache import cached_result

UNKNOWN = frozenset({""})
"""The kinds of a library with device code of the kind that its program selects."""
_SUFFIXES = (".a", ".o", ".os", ".lo")
"""Of outputs that pass on the code of their sources."""
_NAMES = {"hip": "HIP", "cuda": "CUDA", "openmp": "OpenMP"}
_NOTHING: frozenset[str] = frozenset()


def code_kinds(node: Node) -> frozenset[str]:
    """Return the offload kinds of relocatable code in a library: its content, or its sources'.

    :raises ContentError: the device code in a file is broken, or not supported.
    """
    info = info_of(node)
    if info.code_kinds is not None:
        return info.code_kinds
    if info.device_nodes is not None:
        return frozenset(code_of(each).kind for each in info.device_nodes)
    if info.code is not None or is_plain_source(node):
        return _NOTHING
    if node.is_derived():
        sources = node.sources if node.get_suffix() in _SUFFIXES else []
        return _NOTHING.union(*map(code_kinds, sources))
    file = next((each for each in (node.rfile(), node.srcnode().rfile()) if each.exists()), None)
    if file is None:
        return _NOTHING
    info.code_kinds = _kinds_of_file(file.get_abspath())
    return info.code_kinds


def _kinds_of_file(path: str) -> frozenset[str]:
    """Return `relocatable_kinds`; an archive is read once until it changes."""
    from offload_tool.containers.relocatable import kinds_and_files, relocatable_kinds

    if not path.endswith(".a"):
        return relocatable_kinds(path)
    files = [path]

    def read() -> list[str]:
        kinds, more = kinds_and_files(path)
        files.extend(more)
        return sorted(kinds)

    return frozenset(cached_result(["device code", path], read, lambda _: dict.fromkeys(files)))


def selected_kind(env: Environment, node: Node, likely: str = "hip") -> str:
    """Return the kind of a library's code in a link: ``OFFLOAD_KIND`` of several, or `likely`.

    :raises UsageError: the library has several kinds, or one that is not linked.
    """
    kinds, given = code_kinds(node) or UNKNOWN, settings.given_kind(env)
    is_served = env["OFFLOAD_HIP_OPENMP_COMPATIBLE"] and given in ("hip", "openmp")
    if (given and given in kinds) or is_served:
        return given
    if kinds == UNKNOWN:
        return given or likely
    return only_kind(node, kinds)


def only_kind(node: Node, kinds: frozenset[str]) -> str:
    """Return the only kind of a library's code; raise UsageError for another number."""
    kind = min(kinds)
    if len(kinds) > 1:
        raise UsageError(
            f"'{node}' has relocatable device code of {_listed(kinds)}; make one library of each"
        )
    if kind not in KINDS:
        raise UsageError(
            f"'{node}' has relocatable device code of {kind}, expected {', '.join(KINDS)}; link "
            "it with the compiler that made it"
        )
    return kind


def _listed(kinds: Iterable[str]) -> str:
    return " and ".join(_NAMES.get(kind, kind) for kind in sorted(kinds))


def files_of_flags(env: Environment, flags: str) -> tuple[list[Any], list[Any]]:
    """Return the files that a link finds by ``LIBS``, except in its own folders, and by `flags`."""
    items = SCons.Util.flatten([env.get("LIBS", [])])
    nodes = [item for item in items if hasattr(item, "attributes")]
    names = env.Override({"LIBS": [item for item in items if not hasattr(item, "attributes")]})
    folders = [*compat.library_folders(env), *_variable_folders(env)]
    find = partial(compat.known_file, env.fs)
    there = settings.substituted(env, flags)
    own_folders = [arg for arg in there if arg.startswith(("-L", "-Wl,-L"))]
    by_name = linked_files(
        [*own_folders, *settings.substituted(names, "$_LIBFLAGS")], find, folders
    )
    return [*nodes, *by_name], [*linked_files(there, find, folders)]


def _variable_folders(env: Environment) -> list[str]:
    return [
        folder for folder in str(env["ENV"].get("LIBRARY_PATH", "")).split(os.pathsep) if folder
    ]


def look_into(env: Environment, made: Node, link: str, taken: Iterable[Node] = ()) -> None:
    """Make a link (by its variables' prefix) check what it links, except the files `taken`."""
    info_of(made).checked_link = (link, tuple(taken))
    env.AddPreAction(made, _CHECK_LINK)


def _check_link(given: actions.Operands) -> None:
    """Check that a link takes all device code of its files; raise UsageError or ContentError."""
    env, made = given.env, given.node
    link, nodes = info_of(made).checked_link
    command = env.get(f"{link}COM")
    if not isinstance(command, str):
        command = f"${link}FLAGS $SOURCES $_LIBDIRFLAGS $_LIBFLAGS"
    lines = env.subst_list(command, target=[made], source=given.sources)
    args = [str(arg) for line in lines for arg in line]
    taken = {os.path.abspath(str(each)) for node in nodes for each in (node, node.rfile())}

    def find(path: str) -> str | None:
        return os.path.abspath(path) if os.path.isfile(path) else None

    for path in dict.fromkeys(linked_files(args, find, _variable_folders(env))):
        kinds = _NOTHING if path in taken else _kinds_of_file(path)
        if kinds:
            raise UsageError(
                f"'{os.path.relpath(path)}' has relocatable {_listed(kinds)} code, which '{made}' "
                "is linked without: no kernel of it would be found; link with OffloadProgram or "
                "OffloadSharedLibrary, and give it in OFFLOAD_LIBS"
            )


_CHECK_LINK = actions.check("check link", _check_link)
