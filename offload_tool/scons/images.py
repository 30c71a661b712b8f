"""What becomes of device code: bundles, linked images, packages, and objects that hold them.

For one HIP source and two target IDs::

    saxpy.hip --+-- saxpy.gfx906.co ---+
                |                      +-- saxpy.hipfb -- saxpy.fatbin.o --+
                +-- saxpy.gfx90a.co ---+                                   +-- program
                |                                                          |
                +-- saxpy.host.o ------------------------------------------+

Each arrow is one action with one output. The host object is joined with the device
images at the very end, so neither side waits for, or is rebuilt because of, the other.
With relocatable device code, and with OpenMP, what is made of all sources is linked first,
once per device (`cuda_images` has CUDA)::

    a.hip -- a.gfx906.bc --+
                           +-- prog.gfx906.co --+
    b.hip -- b.gfx906.bc --+                    +-- prog.hipfb -- prog.fatbin.o --+-- program
                              prog.gfx90a.co ---+          prog.registration.o ---+

`kpack_nodes` has what ``OFFLOAD_KPACK`` makes in the place of bundles.

`prog.registration.o` registers what host objects of clang's new offload driver only list.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import SCons.Util

from offload_tool.compiler import device_link, hip_registration
from offload_tool.compiler.named_files import possible_files
from offload_tool.errors import UsageError
from offload_tool.formats.names.entry_id import BundleEntryID, check_composition
from offload_tool.scons import actions, settings
from offload_tool.scons.aliases import add_aliases
from offload_tool.scons.archives import device_archive_nodes
from offload_tool.scons.compiling import device_nodes, uses_new_driver, with_host
from offload_tool.scons.cuda_images import (
    LinkedCuda,
    RelocatableCuda,
    complete_object,
    cuda_object,
    linked_objects,
    relocatable_code,
)
from offload_tool.scons.cuda_openmp import openmp_image
from offload_tool.scons.declaring import NodeBuilder, declared
from offload_tool.scons.kpack_nodes import (
    WRAP_SOURCE,
    PackedCode,
    check_kind,
    kernel_name_of,
    marked_host,
    marker_node,
    packing_of,
    uses_lto,
)
from offload_tool.scons.nodes import (
    entry_id,
    files_beside,
    given_ids,
    identified,
    label,
)
from offload_tool.scons.summary import watch_kernels

if TYPE_CHECKING:
    from collections.abc import Iterable

    from offload_tool.compiler.compile_target import CompileTarget
    from offload_tool.scons.declaring import Names
    from offload_tool.scons.kpack_nodes import Packing
    from offload_tool.scons.nodes import Owner, Unit
    from offload_tool.scons.protocols import Environment, Node

__all__ = [
    "GivenCode",
    "Linked",
    "bundle_node",
    "linkable_nodes",
    "object_node",
    "openmp_member_node",
    "package_node",
    "tools_marker",
    "wrap_node",
]

# The fat binary's host entry is empty and always has this name, as the driver writes it.
_EMPTY_HOST_ENTRY = BundleEntryID.parse("host-x86_64-unknown-linux-gnu-")

_NO_ENVIRONMENT = "-unknown"
"""Ends the triple of NVIDIA GPUs in bundle entry IDs alone."""

_BUNDLE = NodeBuilder(actions.BUNDLE)
_EMBED = NodeBuilder(actions.EMBED)
_EMBED_PACKAGE = NodeBuilder(actions.EMBED_PACKAGE)
_LINK = NodeBuilder(actions.LINK)
_MERGE = NodeBuilder(actions.MERGE)
_PACKAGE = NodeBuilder(actions.PACKAGE)
_REGISTER = NodeBuilder(actions.REGISTER)
_WRAP = NodeBuilder(actions.WRAP)


@dataclass
class Linked:
    """What a host link takes: objects, and whether they need OpenMP's runtimes."""

    objects: list[Node] = field(default_factory=list)
    needs_openmp: bool = False
    codes: list[PackedCode] = field(default_factory=list)
    """Code objects that are in archives apart from the link's result."""
    wraps: bool = False
    """Whether the call that registers wrappers is to be wrapped."""
    marked: dict[Node, Node] = field(default_factory=dict)
    """For each library whose wrappers must be changed, the copy of it that is linked."""


@dataclass
class _Parts:
    """What is linked together: host files, and what each has for each device."""

    hosts: list[Node] = field(default_factory=list)
    modules: list[dict[CompileTarget, list[Any]]] = field(default_factory=list)
    device_code: dict[CompileTarget, list[Any]] = field(default_factory=dict)
    """What has no host part."""
    cuda: LinkedCuda = field(default_factory=LinkedCuda)

    def add(self, host: Node, nodes: list[Node]) -> None:
        """Add a host file and its device code."""
        self.hosts.append(host)
        found: dict[CompileTarget, list[Any]] = {}
        for node in nodes:
            found.setdefault(node.attributes.offload_device, []).append(node)
        self.modules.append(found)

    def of(self, device: CompileTarget) -> list[Any]:
        """Give the inputs of the link for one device.

        :raises UsageError: one of the files has no code for it.
        """
        for host, found in zip(self.hosts, self.modules, strict=True):
            if device not in found:
                names = ", ".join(other.name for other in found)
                raise UsageError(f"'{host}' has device code for {names}, not for {device.name}")
        if self.device_code and device not in self.device_code:
            given = ", ".join(str(node) for nodes in self.device_code.values() for node in nodes)
            raise UsageError(f"of the device code given ({given}), none is for {device.name}")
        own = [node for modules in self.modules for node in modules[device]]
        return list(dict.fromkeys([*own, *self.device_code.get(device, ())]))


@dataclass
class GivenCode:
    """The offload code that a user gives to one link."""

    units: list[Unit]
    objects: list[Node]
    """Those of OffloadObject whose device code is yet to be linked."""
    device_code: list[Node]
    """Bitcode, and device-specific archives, of one target each."""
    libraries: list[Node]
    """Heterogeneous device archives, and static libraries of OpenMP objects."""


def linkable_nodes(
    env: Environment, stem: Node, owner: Owner, given: GivenCode, *, shared: bool = False
) -> Linked:
    """Declare what the link of one program or shared library needs of its offload code.

    `stem` is the File after which images of several sources are named.
    """
    linked = Linked()
    packing = packing_of(env, stem.name)
    named = partial(files_beside, env, stem, owner=owner)
    parts: dict[str, _Parts] = {}
    for unit in given.units:
        if packing is not None:
            check_kind(unit)
        if unit.kind == "cuda":
            _add_cuda_unit(env, linked, parts, unit, shared=shared)
            continue
        unit, host = with_host(env, unit, shared=shared)
        if unit.kind == "openmp" or settings.is_relocatable(env, unit):
            parts.setdefault(unit.kind, _Parts()).add(host, device_nodes(env, unit))
        elif packing is not None:
            _add_packed(env, linked, packing, unit, host)
        else:
            linked.objects += [host, _embedded_bundle(env, unit)]
    _add_given_code(env, parts, stem, given)
    for kind, part in parts.items():
        linked.needs_openmp |= kind == "openmp"
        if packing is not None and kind == "hip":
            linked.objects += _packed_links(env, named, packing, stem, part, linked, given)
            continue
        linked.objects += [node for node in part.hosts if node not in given.libraries]
        linked.objects += _device_links(env, named, kind, part)
    if linked.wraps:
        linked.objects.append(_wrapped_call(env, named))
    for node in linked.objects if shared else ():
        node.attributes.shared = True  # SCons links no other objects into a shared library
    return linked


def _add_cuda_unit(
    env: Environment, linked: Linked, parts: dict[str, _Parts], unit: Unit, *, shared: bool
) -> None:
    """Add a source of CUDA code to what is linked."""
    if settings.is_relocatable(env, unit):
        _add_cuda(env, parts.setdefault("cuda", _Parts()), unit, shared=shared)
        return
    suffix = settings.shared_suffix(env) if shared else "$OBJSUFFIX"
    linked.objects.append(cuda_object(env, unit, unit.files(env, suffix), shared=shared))


def _add_given_code(
    env: Environment, parts: dict[str, _Parts], stem: Node, given: GivenCode
) -> None:
    """Add what is given as objects, libraries and device code, not as sources."""
    for node in given.objects:
        modules = node.attributes.offload_device_nodes
        _add_given(parts, modules[0].attributes.offload_kind, node, modules)
    for library in given.libraries:
        nodes = _library_code(env, library, stem)
        _add_given(parts, nodes[0].attributes.offload_kind, library, nodes)
    for node in given.device_code:
        found = parts.setdefault(node.attributes.offload_kind, _Parts()).device_code
        found.setdefault(node.attributes.offload_device, []).append(node)


def _device_links(env: Environment, named: Names, kind: str, part: _Parts) -> list[Node]:
    """Declare the link of each device, and the objects by which a program has what they give."""
    devices = settings.devices(env, kind)
    if kind == "cuda":
        return linked_objects(env, named, part.cuda, devices, part.of)
    images = []
    for device in devices:
        link = openmp_image if device.arch == "nvptx64" else _link_node
        images.append(link(env, named, kind, device, part.of(device)))
    if kind == "openmp":
        return [_registration(env, named, images)]
    bundle = bundle_node(env, named("$OFFLOADBUNDLESUFFIX"), images)
    embedded = _embedded_for_all(env, named, bundle, part.hosts)
    return [embedded, _registration_of_entries(env, named)]


def _add_cuda(env: Environment, part: _Parts, unit: Unit, *, shared: bool) -> None:
    """Add a source of relocatable CUDA code to what is linked together."""
    code = relocatable_code(env, unit, shared=shared)
    fatbin = code.ptx_fatbin(env)
    if code.has_entries:
        part.add(code.host, code.modules)
        part.cuda.sources.append(fatbin)
        return
    suffix = settings.shared_suffix(env) if shared else "$OBJSUFFIX"
    whole = complete_object(
        env, code.unit.files(env, f".rdc{suffix}"), code.host, fatbin, relocatable=True
    )
    part.add(whole, code.modules)
    part.cuda.asking.append(whole)


def _add_given(parts: dict[str, _Parts], kind: str, node: Node, modules: list[Node]) -> None:
    """Add an object or library and its device code; it may be of another build."""
    part = parts.setdefault(kind, _Parts())
    part.add(node, modules)
    if kind != "cuda":
        return
    sources = getattr(node.attributes, "offload_source_fatbins", None)
    if sources is None:
        part.cuda.asking.append(node)
    else:
        part.cuda.sources += sources


def _library_code(env: Environment, library: Node, stem: Node) -> list[Any]:
    """Give a library's device code: modules, or one archive per target ID.

    Of a library from elsewhere it goes to the program's folder.
    """
    modules: list[Node] = getattr(library.attributes, "offload_device_nodes", [])
    if modules:
        return modules
    outside = not library.is_under(env.fs.Top)
    name = SCons.Util.splitext(library.name)[0]
    return device_archive_nodes(env, library, stem.dir.File(name) if outside else None)


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
        if settings.is_relocatable(env, unit):
            return _relocatable_cuda_object(env, relocatable_code(env, unit, shared=shared), names)
        return cuda_object(env, unit, names, shared=shared)
    unit, host = with_host(env, unit, shared=shared)
    devices = device_nodes(env, unit)
    if unit.kind == "openmp":
        return _object_with_package(env, unit, names, devices, host)
    if packing is not None and not settings.is_relocatable(env, unit):
        return _packed_object(env, packing, unit, names, host)
    if settings.is_relocatable(env, unit):
        if uses_new_driver(env, unit):
            return _object_with_package(env, unit, names, devices, host)
        return _object_bundle(env, names, devices, host)
    variables = settings.toolchain_variables(env, settings.toolchain(env).lld)
    parts = [host, _embedded_bundle(env, unit, devices)]
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
    return _object_bundle(env, names, device_nodes(env, unit), host)


def _object_with_package(
    env: Environment, unit: Unit, names: Iterable[Node], devices: list[Node], host: Node
) -> Node:
    """Declare the object with relocatable code in a section, as the new offload driver has it."""
    package = package_node(env, unit.files(env, "$OFFLOADPACKAGESUFFIX"), devices)
    spec = settings.spec()
    made = declared(_EMBED_PACKAGE, env, names, [host, package], _OFFLOAD_SPEC=spec)
    made.attributes.offload_device_nodes = devices
    return made


def bundle_node(
    env: Environment, names: Iterable[Node], nodes: list[Node], file_type: str = "bc"
) -> Node:
    """Declare the bundle of nodes that carry entry IDs, and of files that are given them.

    It gets the first of `names` that is free.
    """
    plain = [node for node in nodes if entry_id(node) is None]
    given = given_ids(env)
    if len(plain) != len(given):
        raise UsageError(
            f"OFFLOAD_TARGETS gives {len(given)} bundle entry IDs for the {len(plain)} files of "
            f"'{next(iter(names))}' that carry none ({', '.join(map(str, plain)) or 'no file'}); "
            "expected one for each, in order"
        )
    remaining = iter(given)
    ids = [_bundled_id(node, file_type) or next(remaining) for node in nodes]
    check_composition(ids)
    entries: list[tuple[str, int | None]] = [(str(i), at) for at, i in enumerate(ids)]
    # A fat binary begins with an empty host entry; a list of IDs says itself what it wants.
    is_fat_binary = not given and file_type == "bc"
    if is_fat_binary and not any(entry_id.kind == "host" for entry_id in ids):
        entries.insert(0, (str(_EMPTY_HOST_ENTRY), None))
    spec = settings.spec(
        alignment=settings.bundle_alignment(env),
        compression=settings.compression(env),
        entries=entries,
        file_type=file_type,
    )
    return declared(_BUNDLE, env, names, nodes, _OFFLOAD_SPEC=spec)


def _bundled_id(node: Node, file_type: str) -> BundleEntryID | None:
    """Give the entry ID of a node in a bundle; object bundles are what libraries are made of."""
    is_module = getattr(node.attributes, "offload_relocatable", False)
    return _in_library(node) if file_type == "o" and is_module else entry_id(node)


def package_node(
    env: Environment,
    names: Iterable[Node],
    nodes: list[Node],
    given: dict[Any, tuple[str, CompileTarget]] | None = None,
) -> Node:
    """Declare the offload binary of nodes that know their kind and device, or are `given` them.

    It gets the first of `names` that is free.
    """
    images = []
    for node in nodes:
        told = (given or {}).get(node)
        known = told or (node.attributes.offload_kind, node.attributes.offload_device)
        images.append(_described(*known) | _image_kind(node))
    return declared(_PACKAGE, env, names, nodes, _OFFLOAD_SPEC=settings.spec(images=images))


def wrap_node(env: Environment, names: Iterable[Node], images: list[Node], kind: str) -> Node:
    """Declare the module that registers images (or packages of them) in a host program.

    It gets the first of `names` that is free.
    """
    spec = settings.spec(kind=kind, triple=settings.toolchain(env).host_triple)
    variables = settings.toolchain_variables(env)
    return identified(env, [declared(_WRAP, env, names, images, **variables, _OFFLOAD_SPEC=spec)])[
        0
    ]


def _described(kind: str, device: CompileTarget) -> dict[str, str]:
    """Say of an image in an offload binary what it is, as the driver does."""
    arch = str(device.target_id) if device.target_id is not None else ""
    triple = device.triple.rstrip("-").removesuffix(_NO_ENVIRONMENT)
    return {"kind": kind, "triple": triple, "arch": arch}


def _image_kind(node: Node) -> dict[str, str]:
    """Say what the content is, where its name tells something else than clang's link expects."""
    is_cubin = node.get_suffix() == ".cubin"
    return {"image_kind": "OBJECT"} if is_cubin and node.attributes.offload_relocatable else {}


# -- HIP -----------------------------------------------------------------------------


def _embedded_bundle(env: Environment, unit: Unit, devices: list[Node] | None = None) -> Node:
    """Declare the object that holds one source's bundle; it knows nothing of the host's."""
    nodes = device_nodes(env, unit) if devices is None else devices
    bundle = bundle_node(env, unit.files(env, "$OFFLOADBUNDLESUFFIX"), nodes)
    triple = settings.toolchain(env).host_triple
    spec = settings.spec(cuid=unit.cuid, host_triple=triple, registers_entries=False)
    names = unit.files(env, "$OFFLOADEMBEDSUFFIX")
    return declared(_EMBED, env, names, [bundle], _OFFLOAD_SPEC=spec)


def _embedded_for_all(
    env: Environment,
    named: Names,
    bundle: Any,
    host_files: list[Node],
    *,
    is_marker: bool = False,
) -> Node:
    """Declare the object that holds a program's bundle, for all host files that ask for it."""
    triple = settings.toolchain(env).host_triple
    marker = {"marker": True} if is_marker else {}
    spec = settings.spec(cuid=None, host_triple=triple, registers_entries=True, **marker)
    names = named("$OFFLOADEMBEDSUFFIX")
    return declared(_EMBED, env, names, [bundle, *host_files], _OFFLOAD_SPEC=spec)


def _registration_of_entries(env: Environment, named: Names, *, is_marker: bool = False) -> Node:
    """Declare the object that registers what host objects of the new offload driver list.

    Which driver made the host objects is not known before they are, so it is always there.
    """
    names = named(".registration$OBJSUFFIX")
    return _compiled_c(env, names, hip_registration.SOURCE, is_marker=is_marker)


def _compiled_c(
    env: Environment, names: Iterable[Node], source: Any, *, is_marker: bool = False
) -> Node:
    """Declare the object of a C source of this package."""
    toolchain = settings.toolchain(env)
    made = declared(
        _REGISTER,
        env,
        names,
        [env.File(source)],
        **settings.toolchain_variables(env, toolchain.cc),
        _OFFLOAD_CC=list(toolchain.cc),
        _OFFLOAD_REGISTER_FLAGS=hip_registration.compile_flags(is_marker=is_marker),
    )
    return identified(env, [made])[0]


def _object_bundle(
    env: Environment, names: Iterable[Node], devices: list[Node], host: Node
) -> Node:
    """Declare the object bundle of relocatable device code; the host is last, as in LLVM."""
    entries = [(str(_in_library(device)), at) for at, device in enumerate(devices)]
    entries.append((str(entry_id(host)), len(devices)))
    spec = settings.spec(alignment=1, compression=(None, None), entries=entries, file_type="o")
    made = declared(_BUNDLE, env, names, [*devices, host], _OFFLOAD_SPEC=spec)
    made.attributes.offload_device_nodes = devices
    return made


def _in_library(node: Node) -> BundleEntryID:
    """Give the entry ID of relocatable code: the driver calls it ``hip``, not ``hipv4``."""
    device, kind = node.attributes.offload_device, node.attributes.offload_kind
    return BundleEntryID.parse(f"{kind}-{device.triple}-{device.target_id or ''}")


# -- HIP, apart from the host ----------------------------------------------------------


def _packed_parts(env: Environment, packing: Packing, unit: Unit) -> tuple[list[PackedCode], Node]:
    """Declare a source's code objects, and the object with its marker."""
    devices = device_nodes(env, unit)
    name = kernel_name_of(unit, devices)
    codes = [
        PackedCode(packing, name, device.attributes.offload_device, device) for device in devices
    ]
    marker = marker_node(env, unit.files(env, "$OFFLOADMARKERSUFFIX"), packing, name, devices)
    triple = settings.toolchain(env).host_triple
    spec = settings.spec(cuid=unit.cuid, host_triple=triple, registers_entries=False, marker=True)
    names = unit.files(env, "$OFFLOADEMBEDSUFFIX")
    return codes, declared(_EMBED, env, names, [marker], _OFFLOAD_SPEC=spec)


def _add_packed(env: Environment, linked: Linked, packing: Packing, unit: Unit, host: Node) -> None:
    """Add a source whose code objects are apart to a link."""
    codes, marker = _packed_parts(env, packing, unit)
    linked.codes += codes
    linked.wraps |= uses_lto(env)
    linked.objects += [host if uses_lto(env) else marked_host(env, host), marker]


def _packed_object(
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
    variables = settings.toolchain_variables(env, settings.toolchain(env).lld)
    parts = [marked_host(env, host), marker]
    made = identified(env, [declared(_MERGE, env, names, parts, **variables)])[0]
    made.attributes.offload_kpack = codes
    return made


def _packed_links(
    env: Environment,
    named: Names,
    packing: Packing,
    stem: Node,
    part: _Parts,
    linked: Linked,
    given: GivenCode,
) -> list[Node]:
    """Declare the link of each device, and what makes a program look for its result."""
    images = [
        _link_node(env, named, "hip", device, part.of(device))
        for device in settings.devices(env, "hip")
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
    embedded = _embedded_for_all(env, named, marker, part.hosts, is_marker=True)
    return [*hosts, embedded, _registration_of_entries(env, named, is_marker=True)]


def tools_marker(
    env: Environment, stem: Node, owner: Owner, codes: list[PackedCode], *, shared: bool
) -> Node:
    """Declare the object with the marker of a program or library, which tools look for.

    It says where archives are, and knows of no code object.
    """
    named = partial(files_beside, env, stem, owner=owner)
    paths = tuple(dict.fromkeys(path for code in codes for path in code.packing.paths))
    packing = replace(codes[0].packing, paths=paths, interface=False)
    names = named(".linked$OFFLOADMARKERSUFFIX")
    marker = marker_node(env, names, packing, stem.get_internal_path(), [])
    spec = settings.spec(host_triple=settings.toolchain(env).host_triple, for_tools=True)
    made = declared(_EMBED, env, named(".linked$OFFLOADEMBEDSUFFIX"), [marker], _OFFLOAD_SPEC=spec)
    if shared:
        made.attributes.shared = True
    return made


def _wrapped_call(env: Environment, named: Names) -> Node:
    """Declare the object with the call that is wrapped around the one that registers."""
    return _compiled_c(env, named(".wrapped$OBJSUFFIX"), WRAP_SOURCE)


# -- device links ----------------------------------------------------------------------


def _link_node(
    env: Environment, named: Names, kind: str, device: CompileTarget, inputs: list[Node]
) -> Node:
    toolchain = settings.toolchain(env)
    gpu = device.target_id is not None
    suffix = "$OFFLOADDEVICESUFFIX" if gpu else "$SHLIBSUFFIX"
    runtimes = settings.needed_runtimes(env, device) if kind == "openmp" else []
    node = declared(
        _LINK,
        env,
        named(f".{device.filename}{suffix}"),
        inputs,
        **settings.toolchain_variables(env, device_link.linker(device, toolchain)),
        _OFFLOAD_LINKER=list(device_link.linker(device, toolchain)),
        _OFFLOAD_LINK_ARGUMENTS=device_link.link_arguments(device, kind),
        _OFFLOAD_LINK_INPUTS=_link_inputs(env, inputs, gpu=gpu, runtimes=runtimes),
        _OFFLOAD_TARGET_ID=device.name,
        **({} if gpu else {"OFFLOAD_LINK_FLAGS": []}),
    )
    flags = settings.device_link_flags(env)
    given = [name for name in possible_files(flags) if env.File(name, env.fs.Top).rexists()]
    env.Depends(node, [env.File(name, env.fs.Top) for name in runtimes])
    env.Depends(node, [env.File(name, env.fs.Top) for name in given])
    settings.add_environment(env, [node])
    identified(env, [node])
    label(node, kind, device)
    add_aliases(env, node, device)
    watch_kernels(env, node, device.name)
    return node


def _link_inputs(
    env: Environment, inputs: list[Node], *, gpu: bool, runtimes: list[str]
) -> list[str]:
    """Give the inputs as the linker wants them: archives with all members, as all are for it."""
    if not gpu and any(node.get_suffix() == env.subst("$LIBSUFFIX") for node in inputs):
        return ["-Wl,--whole-archive", "$SOURCES", "-Wl,--no-whole-archive"]
    if not gpu:
        return ["$SOURCES"]
    return ["--whole-archive", "$SOURCES", "--no-whole-archive", *runtimes]


# -- OpenMP ----------------------------------------------------------------------------


def _registration(env: Environment, named: Names, images: list[Node]) -> Node:
    """Declare the object that registers a program's images, each in a package of its own.

    The runtime learns from the package what an image is for; it reads one per package.
    """
    packages = [
        package_node(env, files_beside(env, image, "$OFFLOADPACKAGESUFFIX", None), [image])
        for image in images
    ]
    return wrap_node(env, named(".registration$OBJSUFFIX"), packages, "openmp")
