"""The nodes of device code: bundles, linked images, packages, and objects that hold them.

For one HIP source and two target IDs::

    saxpy.hip --+-- saxpy.gfx906.co ---+
                |                      +-- saxpy.hipfb -- saxpy.fatbin.o --+
                +-- saxpy.gfx90a.co ---+                                   +-- program
                |                                                          |
                +-- saxpy.host.o ------------------------------------------+

Each arrow is one action with one output. The host object is joined with the device images at the
very end, so neither side waits for, or is rebuilt because of, the other. ``saxpy.fatbin.o`` is an
archive of one object, which the linker extracts if the host object refers to it: a source without
kernels and device variables has no bundle in the program, as with clang.

With relocatable device code, and with OpenMP, the code of all sources is linked first, once per
device (see `cuda` for CUDA)::

    a.hip -- a.gfx906.bc --+
                           +-- prog.gfx906.co --+
    b.hip -- b.gfx906.bc --+                    +-- prog.hipfb -- prog.fatbin.o --+-- program
                              prog.gfx90a.co ---+          prog.registration.o ---+

`kpack` declares the archives of ``OFFLOAD_KPACK``, which replace bundles. `prog.registration.o`
registers the entries that host objects of clang's new offload driver only list.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from offload_tool.scons import actions, offload_arch, settings
from offload_tool.scons.graph import containers, cuda, kpack
from offload_tool.scons.graph.compile_nodes import device_nodes, uses_new_driver, with_host
from offload_tool.scons.graph.links import (
    DeviceLink,
    HostLink,
    OffloadInputs,
    link_node,
    openmp_registration,
    selected_kind,
)
from offload_tool.scons.graph.units import Stem, Unit
from offload_tool.scons.state.node_info import code_of, info_of
from offload_tool.scons.types import Environment, Node


def linkable_nodes(
    env: Environment, stem: Stem, given: OffloadInputs, library: str = ""
) -> HostLink:
    """Declare the inputs of a link from its offload code; images have the name of `stem`."""
    linked = HostLink()
    packing = kpack.packing_of(env, stem.name, given.units)
    parts: defaultdict[str, DeviceLink] = defaultdict(DeviceLink)
    for given_unit in given.units:
        if given_unit.kind == "cuda":
            _add_cuda(env, linked, parts, given_unit)
            continue
        unit, host = with_host(env, given_unit)
        if unit.kind == "openmp" or unit.rdc:
            parts[unit.kind].add(host, device_nodes(env, unit))
        elif packing is not None:
            codes, marker = kpack.packed_parts(env, packing, unit)
            linked.codes += codes
            linked.objects += [kpack.marked_host(env, host), marker]
        else:
            linked.objects += [host, containers.embedded_bundle(env, unit, device_nodes(env, unit))]
    _add_linked_inputs(env, parts, stem, given)
    linked.needs_openmp, linked.registers_entries = "openmp" in parts, bool(parts)
    for kind, part in parts.items():
        if packing is not None and kind == "hip":
            linked.objects += kpack.packed_links(env, packing, stem, part, linked, given)
            continue
        linked.objects += [node for node in part.hosts if node not in given.placed]
        linked.objects += _device_links(env, stem, kind, part, library)
    if linked.codes and kpack.uses_lto(env):
        linked.flags.append(kpack.WRAP_FLAG)
        names = stem.files(env, ".wrapped$OBJSUFFIX")
        linked.objects.append(containers.compiled_c(env, names, kpack.WRAP_SOURCE))
    return linked


def _add_cuda(
    env: Environment, linked: HostLink, parts: Mapping[str, DeviceLink], unit: Unit
) -> None:
    suffix = settings.shared_suffix(env) if unit.is_shared else "$OBJSUFFIX"
    if not unit.rdc:
        linked.objects.append(cuda.cuda_object(env, unit, unit.stem.files(env, suffix)))
        return
    part = parts["cuda"]
    code = cuda.relocatable_code(env, unit)
    fatbin = code.ptx_fatbin(env)
    if code.has_entries:
        part.add(code.host, code.modules)
        part.sources += [fatbin] if fatbin.sources else []
        return
    names = code.unit.stem.files(env, f".rdc{suffix}")
    whole = actions.EMBED_CUDA.first_free(env, names, [code.host, fatbin], relocatable=True)
    part.add(whole, code.modules)
    part.registration_callers.append(whole)


def _add_linked_inputs(
    env: Environment, parts: Mapping[str, DeviceLink], stem: Stem, given: OffloadInputs
) -> None:
    kinds = {unit.kind for unit in given.units if unit.kind == "openmp" or unit.rdc}
    likely = kinds.pop() if len(kinds) == 1 else settings.likely_kind(env)
    # NVIDIA's device runtime serves other CUDA code; alone it is linked as any library.
    for file in sorted(given.files, key=cuda.is_device_runtime):
        if cuda.is_device_runtime(file) and "cuda" not in parts:
            continue
        nodes = _library_code(env, file, stem, likely)
        parts[code_of(nodes[0]).kind].add_existing(file, nodes)
    for node in given.device_code:
        code = code_of(node)
        parts[code.kind].device_code[code.device].append(node)


def _device_links(
    env: Environment, stem: Stem, kind: str, part: DeviceLink, library: str
) -> list[Node]:
    devices = offload_arch.devices(env, kind)
    if kind == "cuda":
        return cuda.linked_objects(env, stem, devices, part, library)
    images = [link_node(env, stem, kind, device, part.of(device)) for device in devices]
    if kind == "openmp":
        return [openmp_registration(env, stem, images)]
    bundle = containers.bundle_node(env, stem.files(env, "$OFFLOADBUNDLESUFFIX"), images)
    return [
        containers.embedded(env, stem, [bundle, *part.hosts], library=library),
        containers.registration_of_entries(env, stem, library=library),
    ]


def _library_code(env: Environment, library: Node, stem: Stem, likely: str) -> list[Any]:
    """Return the device code of an object or library: modules, or an archive per target ID."""
    if modules := info_of(library).device_nodes:
        return modules
    outside = not library.is_under(env.fs.Top)
    own = Stem.of(library)
    kind = selected_kind(env, library, likely)
    names = Stem(stem.dir, own.name) if outside else own
    return containers.device_archive_nodes(env, library, names, kind)


def object_node(env: Environment, unit: Unit, names: Iterable[Node], *, group: str = "") -> Node:
    """Declare a source's object under the first free of `names`; a `group` is OFFLOAD_KPACK=True's.

    HIP and CUDA: a complete object. With relocatable device code, and with OpenMP, an object from
    which a later device link takes its part: an object bundle, or one with a section
    ``.llvm.offloading``.
    """
    packing = kpack.packing_of(env, group or unit.stem.name, [unit])
    if unit.kind == "cuda":
        if unit.rdc:
            return _relocatable_cuda_object(env, cuda.relocatable_code(env, unit), names)
        return cuda.cuda_object(env, unit, names)
    unit, host = with_host(env, unit)
    devices = device_nodes(env, unit)
    if unit.kind == "openmp" or (unit.rdc and uses_new_driver(env, unit)):
        return _object_with_package(env, unit, names, devices, host)
    if unit.rdc:
        return containers.object_bundle(env, names, devices, host)
    if packing is not None:
        return kpack.packed_object(env, packing, unit, names, host)
    return containers.merged_object(
        env, names, [host, containers.embedded_bundle(env, unit, devices)]
    )


def _relocatable_cuda_object(
    env: Environment, code: cuda.RelocatableCuda, names: Iterable[Node]
) -> Node:
    if not code.has_entries:
        parts = [code.host, code.whole_fatbin(env)]
        made = actions.EMBED_CUDA.first_free(env, names, parts, relocatable=True)
        info_of(made).device_nodes = code.modules
        return made
    made = _object_with_package(env, code.unit, names, code.modules, code.host)
    fatbin = code.ptx_fatbin(env)
    info_of(made).source_fatbins = [fatbin] if fatbin.sources else []
    return made


def member_node(env: Environment, unit: Unit, names: Iterable[Node]) -> Node:
    """Declare a source's object for a heterogeneous archive; OpenMP's is a bundle."""
    if unit.kind != "openmp":
        return object_node(env, unit, names)
    unit, host = with_host(env, unit)
    return containers.object_bundle(env, names, device_nodes(env, unit), host)


def _object_with_package(
    env: Environment, unit: Unit, names: Iterable[Node], devices: list[Node], host: Node
) -> Node:
    files = unit.stem.files(env, "$OFFLOADPACKAGESUFFIX")
    package = containers.package_node(env, files, devices, in_object=True)
    made = actions.EMBED_PACKAGE.first_free(env, names, [host, package])
    info_of(made).device_nodes = devices
    return made
