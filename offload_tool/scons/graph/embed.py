"""The objects by which a host program has its bundle, and by which that is registered."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from offload_tool.passes import registration
from offload_tool.scons import actions, readers
from offload_tool.scons.graph.compile_nodes import device_nodes
from offload_tool.scons.graph.container_nodes import bundle_node
from offload_tool.scons.graph.declare import Names, NodeBuilder, declared
from offload_tool.scons.graph.units import Unit, identified

if TYPE_CHECKING:
    from offload_tool.scons.types import Environment, Node

_EMBED = NodeBuilder(actions.EMBED)
_REGISTER = NodeBuilder(actions.REGISTER)


def embedded_bundle(env: Environment, unit: Unit, devices: list[Node] | None = None) -> Node:
    """Declare the archive of the object that holds one source's bundle.

    It knows nothing of the host object, and is linked behind it: the linker takes the object out
    of it where the host object asks for the bundle.
    """
    nodes = device_nodes(env, unit) if devices is None else devices
    bundle = bundle_node(env, unit.files(env, "$OFFLOADBUNDLESUFFIX"), nodes)
    triple = readers.host_triple(env)
    spec = readers.spec(cuid=unit.cuid, host_triple=triple, registers_entries=False)
    names = unit.files(env, "$OFFLOADEMBEDSUFFIX")
    return declared(_EMBED, env, names, [bundle], _OFFLOAD_SPEC=spec)


def embedded_for_all(
    env: Environment,
    named: Names,
    bundle: Any,
    host_files: list[Node],
    *,
    is_marker: bool = False,
) -> Node:
    """Declare the object that holds a program's bundle, for all host files that ask for it."""
    triple = readers.host_triple(env)
    marker = {"marker": True} if is_marker else {}
    spec = readers.spec(cuid=None, host_triple=triple, registers_entries=True, **marker)
    names = named("$OFFLOADEMBEDSUFFIX")
    return declared(_EMBED, env, names, [bundle, *host_files], _OFFLOAD_SPEC=spec)


def registration_of_entries(env: Environment, named: Names, *, is_marker: bool = False) -> Node:
    """Declare the object that registers what host objects of the new offload driver list.

    Which driver made the host objects is not known before they are, so it is always there.
    """
    names = named(".registration$OBJSUFFIX")
    return compiled_c(env, names, registration.SOURCE, is_marker=is_marker)


def compiled_c(
    env: Environment, names: Iterable[Node], source: Any, *, is_marker: bool = False
) -> Node:
    """Declare the object of a C source of this package."""
    toolchain = readers.toolchain(env)
    made = declared(
        _REGISTER,
        env,
        names,
        [env.File(source)],
        **readers.toolchain_variables(env, toolchain.cc),
        _OFFLOAD_CC=list(toolchain.cc),
        _OFFLOAD_REGISTER_FLAGS=[
            *readers.machine_flags(env),
            *registration.compile_flags(is_marker=is_marker),
        ],
    )
    return identified(env, [made])[0]
