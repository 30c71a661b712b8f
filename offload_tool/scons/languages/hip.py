"""The one object of a source that has its host code and its device code."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from offload_tool.scons import actions, readers
from offload_tool.scons.graph.compile_nodes import device_nodes, uses_new_driver, with_host
from offload_tool.scons.graph.container_nodes import object_bundle, package_node
from offload_tool.scons.graph.declare import NodeBuilder, declared
from offload_tool.scons.graph.embed import embedded_bundle
from offload_tool.scons.graph.units import Unit, identified
from offload_tool.scons.languages.cuda import (
    RelocatableCuda,
    complete_object,
    cuda_object,
    relocatable_code,
)
from offload_tool.scons.languages.kpack import check_kind, packing_of
from offload_tool.scons.languages.kpack_programs import packed_object

if TYPE_CHECKING:
    from offload_tool.scons.types import Environment, Node

_EMBED_PACKAGE = NodeBuilder(actions.EMBED_PACKAGE)
_MERGE = NodeBuilder(actions.MERGE)


def object_node(
    env: Environment, unit: Unit, names: Iterable[Node], *, shared: bool = False, group: str = ""
) -> Node:
    """Declare the one object that has both host code and device code of a source.

    It gets the first of `names` that is free. `group` is what ``OFFLOAD_KPACK=True`` stands for.

    HIP and CUDA: a complete object. With relocatable device code, and with OpenMP, an
    object from which a later device link takes its part: an object bundle, or one with a
    section ``.llvm.offloading``.
    """
    packing = packing_of(env, group or unit.name)
    if packing is not None:
        check_kind(unit)
    if unit.kind == "cuda":
        if readers.is_relocatable(env, unit):
            return _relocatable_cuda_object(env, relocatable_code(env, unit, shared=shared), names)
        return cuda_object(env, unit, names, shared=shared)
    unit, host = with_host(env, unit, shared=shared)
    devices = device_nodes(env, unit)
    if unit.kind == "openmp":
        return _object_with_package(env, unit, names, devices, host)
    if packing is not None and not readers.is_relocatable(env, unit):
        return packed_object(env, packing, unit, names, host)
    if readers.is_relocatable(env, unit):
        if uses_new_driver(env, unit):
            return _object_with_package(env, unit, names, devices, host)
        return object_bundle(env, names, devices, host)
    variables = readers.toolchain_variables(env, readers.toolchain(env).lld)
    parts = [host, embedded_bundle(env, unit, devices)]
    made = declared(_MERGE, env, names, parts, **variables)
    return identified(env, [made])[0]


def _relocatable_cuda_object(
    env: Environment, code: RelocatableCuda, names: Iterable[Node]
) -> Node:
    """Declare the object of a CUDA source whose device code is yet to be linked.

    It has a section ``.llvm.offloading``, or ``__nv_relfatbin``.
    """
    if not code.has_entries:
        made = complete_object(env, names, code.host, code.whole_fatbin(env), relocatable=True)
        made.attributes.offload_device_nodes = code.modules
        return made
    made = _object_with_package(env, code.unit, names, code.modules, code.host)
    made.attributes.offload_source_fatbins = [code.ptx_fatbin(env)]
    return made


def openmp_member_node(env: Environment, unit: Unit, names: Iterable[Node]) -> Node:
    """Declare the object bundle of an OpenMP source, for an archive that is taken apart.

    It gets the first of `names` that is free.
    """
    unit, host = with_host(env, unit)
    return object_bundle(env, names, device_nodes(env, unit), host)


def _object_with_package(
    env: Environment, unit: Unit, names: Iterable[Node], devices: list[Node], host: Node
) -> Node:
    """Declare the object with relocatable code in a section, as the new offload driver has it."""
    package = package_node(env, unit.files(env, "$OFFLOADPACKAGESUFFIX"), devices)
    spec = readers.spec()
    made = declared(_EMBED_PACKAGE, env, names, [host, package], _OFFLOAD_SPEC=spec)
    made.attributes.offload_device_nodes = devices
    return made
