"""What ``OFFLOAD_KPACK`` makes of HIP sources: code objects apart from the host, and markers.

`kpack` has the archives that the code objects go into.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from offload_tool.errors import UsageError
from offload_tool.scons import actions, readers
from offload_tool.scons.graph.compile_nodes import device_nodes
from offload_tool.scons.graph.declare import Names, NodeBuilder, declared
from offload_tool.scons.graph.device_link import Parts, link_node
from offload_tool.scons.graph.embed import compiled_c, embedded_for_all, registration_of_entries
from offload_tool.scons.graph.units import Owner, Stem, Unit, files_beside, identified
from offload_tool.scons.languages.kpack import (
    WRAP_SOURCE,
    PackedCode,
    Packing,
    kernel_name_of,
    marked_host,
    marker_node,
    uses_lto,
)
from offload_tool.util.frozen import replaced

if TYPE_CHECKING:
    from offload_tool.scons.languages.images import GivenCode, Linked
    from offload_tool.scons.types import Environment, Node

_EMBED = NodeBuilder(actions.EMBED)
_MERGE = NodeBuilder(actions.MERGE)


def _packed_parts(env: Environment, packing: Packing, unit: Unit) -> tuple[list[PackedCode], Node]:
    """Declare a source's code objects, and the archive of the object with its marker."""
    devices = device_nodes(env, unit)
    name = kernel_name_of(unit, devices)
    codes = [
        PackedCode(packing, name, device.attributes.offload_device, device) for device in devices
    ]
    marker = marker_node(env, unit.files(env, "$OFFLOADMARKERSUFFIX"), packing, name, devices)
    triple = readers.host_triple(env)
    spec = readers.spec(cuid=unit.cuid, host_triple=triple, registers_entries=False, marker=True)
    names = unit.files(env, "$OFFLOADEMBEDSUFFIX")
    return codes, declared(_EMBED, env, names, [marker], _OFFLOAD_SPEC=spec)


def add_packed(env: Environment, linked: Linked, packing: Packing, unit: Unit, host: Node) -> None:
    """Add a source whose code objects are apart to a link."""
    codes, marker = _packed_parts(env, packing, unit)
    linked.codes += codes
    linked.wraps |= uses_lto(env)
    linked.objects += [host if uses_lto(env) else marked_host(env, host), marker]


def packed_object(
    env: Environment, packing: Packing, unit: Unit, names: Iterable[Node], host: Node
) -> Node:
    """Declare the object of a source whose code objects are apart.

    :raises UsageError: it would be bitcode.
    """
    if uses_lto(env):
        raise UsageError(
            f"'{unit.source}': an object of -flto cannot have its device code apart "
            "(OFFLOAD_KPACK); give the source to the program, or compile it without -flto"
        )
    codes, marker = _packed_parts(env, packing, unit)
    variables = readers.toolchain_variables(env, readers.toolchain(env).lld)
    parts = [marked_host(env, host), marker]
    made = identified(env, [declared(_MERGE, env, names, parts, **variables)])[0]
    made.attributes.offload_kpack = codes
    return made


def packed_links(
    env: Environment,
    named: Names,
    packing: Packing,
    stem: Stem,
    part: Parts,
    linked: Linked,
    given: GivenCode,
) -> list[Node]:
    """Declare the link of each device, and what makes a program look for its result."""
    images = [
        link_node(env, named, "hip", device, part.of(device))
        for device in readers.devices(env, "hip")
    ]
    name = stem.get_internal_path()
    linked.codes += [
        PackedCode(packing, name, image.attributes.offload_device, image) for image in images
    ]
    linked.wraps |= uses_lto(env)
    hosts = []
    for host in part.hosts:
        marked = host if uses_lto(env) else marked_host(env, host, stem.dir)
        if host in given.libraries:
            linked.marked[host] = marked
        else:
            hosts.append(marked)
    marker = marker_node(env, named("$OFFLOADMARKERSUFFIX"), packing, name, images)
    embedded = embedded_for_all(env, named, marker, part.hosts, is_marker=True)
    return [*hosts, embedded, registration_of_entries(env, named, is_marker=True)]


def tools_marker(
    env: Environment, stem: Stem, owner: Owner, codes: list[PackedCode], *, shared: bool
) -> Node:
    """Declare the object with the marker of a program or library, which tools look for.

    It says where archives are, and knows of no code object.
    """
    named = partial(files_beside, env, stem, owner=owner)
    paths = tuple(dict.fromkeys(path for code in codes for path in code.packing.paths))
    packing = replaced(codes[0].packing, paths=paths, interface=False)
    names = named(".linked$OFFLOADMARKERSUFFIX")
    marker = marker_node(env, names, packing, stem.get_internal_path(), [])
    spec = readers.spec(host_triple=readers.host_triple(env), for_tools=True)
    made = declared(_EMBED, env, named(".linked$OFFLOADEMBEDSUFFIX"), [marker], _OFFLOAD_SPEC=spec)
    if shared:
        made.attributes.shared = True
    return made


def wrapped_call(env: Environment, named: Names) -> Node:
    """Declare the object with the call that is wrapped around the one that registers."""
    return compiled_c(env, named(".wrapped$OBJSUFFIX"), WRAP_SOURCE)
