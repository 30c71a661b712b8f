"""Builders of objects: of offload sources, and of the C and C++ sources beside them."""

from __future__ import annotations

import itertools
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import SCons.Errors

from offload_tool.passes.source_kind import C_SUFFIXES
from offload_tool.scons import readers
from offload_tool.scons.builders.standard import builder_of_scons
from offload_tool.scons.graph.compile_nodes import device_nodes, host_node
from offload_tool.scons.graph.units import (
    Owner,
    Stem,
    files_beside,
    identified,
    is_plain_source,
    named,
    placed,
    units,
)
from offload_tool.scons.languages.hip import object_node
from offload_tool.scons.languages.kpack import attach_archives, codes_of
from offload_tool.scons.state.build_log import declared_passes
from offload_tool.scons.state.node_classes import adopt_plain
from offload_tool.util.frozen import replaced

if TYPE_CHECKING:
    from offload_tool.scons.types import Environment, Node


def offload_device_object(env: Environment, target: str | None, source: Any) -> list[Node]:
    """Return one node per source and target ID: that target's code object, bitcode or PTX."""
    return [node for unit in units(env, target, source) for node in device_nodes(env, unit)]


def offload_host_object(env: Environment, target: str | None, source: Any) -> list[Node]:
    """Return the host object of each source; it does not depend on any device image."""
    name = env.fs.File(target) if target and PurePath(target).suffix else None
    return [host_node(env, unit, name) for unit in units(env, target, source)]


def offload_object(env: Environment, target: str | None, source: Any) -> list[Node]:
    """Return one linkable object per source: host code with all device images in it.

    With ``OFFLOAD_RDC``, and of OpenMP sources, it holds device code that is yet to be
    linked: give it to OffloadProgram, or to clang.
    """
    return _objects(env, target, source, "$OBJSUFFIX")


def offload_shared_object(env: Environment, target: str | None, source: Any) -> list[Node]:
    """Return the objects of OffloadObject for shared libraries."""
    nodes = _objects(env, target, source, readers.shared_suffix(env), shared=True)
    for node in nodes:
        node.attributes.shared = True  # SCons links no other objects into a shared library
    return nodes


def _objects(
    env: Environment, target: str | None, source: Any, suffix: str, *, shared: bool = False
) -> list[Any]:
    nodes = []
    for unit in units(env, target, source, own_cuid=True):
        node = named(env, target, suffix) if target else unit.file(env, suffix)
        owned = replaced(unit, owner=Owner.of(node, "shared" if shared else "object"))
        made = object_node(env, owned, [node], shared=shared, group=Owner.of(node, "").name)
        attach_archives(env, made, codes_of([made]))
        nodes.append(made)
    return nodes


def plain_objects(env: Environment, node: Node, owner: Owner, *, shared: bool) -> list[Any]:
    """Return the objects of a C or C++ source; anything else is given to the linker as it is."""
    if not is_plain_source(node):
        return [node]
    found = readers.toolchain(env)
    commands: dict[str, Any] = {"CC": placed(found.cc), "CXX": placed(found.cxx)}
    if shared:
        commands = {f"SH{name}": command for name, command in commands.items()}
        commands["SHOBJSUFFIX"] = readers.shared_suffix(env)
    language = "CC" if node.get_suffix() in C_SUFFIXES else "CXX"
    command = f"${'SH' if shared else ''}{language}COM"
    # Several programs may share a source; SCons warns of objects that are declared twice.
    known = getattr(node.attributes, "offload_objects", {})
    key = env.Override(commands).subst(command, target=[], source=[node])
    if key not in known:
        variables = {**commands, **readers.toolchain_variables(env)}
        variables["_CPPINCFLAGS"] = "$( $_OFFLOAD_INCLUDES $)"
        made = _plain_object(env, node, owner, variables, shared=shared)
        adopt_plain(made)
        for item in made:
            declared_passes(env).add(item, node, command, "host")
        node.attributes.offload_objects = known | {key: identified(env, made)}
    return list(node.attributes.offload_objects[key])


def _plain_object(
    env: Environment, node: Node, owner: Owner, variables: dict[str, Any], *, shared: bool
) -> Any:
    """Declare the object of a C or C++ source, named after `owner` if another one is there."""
    builder = builder_of_scons(env, "SharedObject" if shared else "StaticObject")
    try:
        return builder(env, None, node, **variables)
    except SCons.Errors.UserError:
        stem = Stem.of(node)
        suffix = env.Override(variables).subst("$SHOBJSUFFIX" if shared else "$OBJSUFFIX")
        for name in itertools.islice(files_beside(env, stem, suffix, owner), 1, None):
            try:
                return builder(env, name, node, **variables)
            except SCons.Errors.UserError:
                continue
        raise
