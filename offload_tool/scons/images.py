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
once per device::

    a.hip -- a.gfx906.bc --+
                           +-- prog.gfx906.co --+
    b.hip -- b.gfx906.bc --+                    +-- prog.hipfb -- prog.fatbin.o -- program
                              prog.gfx90a.co ---+
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from offload_tool.compiler import device_link
from offload_tool.compiler.cuda import cubin_arguments, find_ptxas
from offload_tool.errors import UsageError
from offload_tool.formats.entry_id import BundleEntryID, check_composition
from offload_tool.scons import actions, settings
from offload_tool.scons.archives import device_archive_nodes
from offload_tool.scons.compiling import device_nodes, host_node
from offload_tool.scons.declaring import NodeBuilder
from offload_tool.scons.nodes import (
    add_aliases,
    entry_id,
    given_ids,
    identified,
    label,
)

if TYPE_CHECKING:
    from offload_tool.compiler.device import Device
    from offload_tool.scons.nodes import Unit

__all__ = [
    "GivenCode",
    "Linked",
    "bundle_node",
    "linkable_nodes",
    "object_node",
    "package_node",
    "wrap_node",
]

# The fat binary's host entry is empty and always has this name, as the driver writes it.
_EMPTY_HOST_ENTRY = BundleEntryID.parse("host-x86_64-unknown-linux-gnu-")

_BUNDLE = NodeBuilder(actions.BUNDLE)
_EMBED = NodeBuilder(actions.EMBED)
_EMBED_CUDA = NodeBuilder(actions.EMBED_CUDA)
_EMBED_PACKAGE = NodeBuilder(actions.EMBED_PACKAGE)
_FATBIN = NodeBuilder(actions.FATBIN)
_LINK = NodeBuilder(actions.LINK)
_MERGE = NodeBuilder(actions.MERGE)
_PACKAGE = NodeBuilder(actions.PACKAGE)
_PTXAS = NodeBuilder(actions.PTXAS)
_WRAP = NodeBuilder(actions.WRAP)


@dataclass
class Linked:
    """What a host link takes: objects, and whether they need OpenMP's runtimes."""

    objects: list[Any] = field(default_factory=list)
    needs_openmp: bool = False


@dataclass
class _Parts:
    """What is linked together: host files, and what each has for each device."""

    hosts: list[Any] = field(default_factory=list)
    modules: list[dict[Device, list[Any]]] = field(default_factory=list)
    device_code: dict[Device, list[Any]] = field(default_factory=dict)
    """What has no host part."""

    def add(self, host: Any, nodes: list[Any]) -> None:
        """Add a host file and its device code."""
        self.hosts.append(host)
        found: dict[Device, list[Any]] = {}
        for node in nodes:
            found.setdefault(node.attributes.offload_device, []).append(node)
        self.modules.append(found)

    def of(self, device: Device) -> list[Any]:
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
    objects: list[Any]
    """Those of OffloadObject whose device code is yet to be linked."""
    device_code: list[Any]
    """Bitcode, and device-specific archives, of one target each."""
    libraries: list[Any]
    """Heterogeneous device archives, and static libraries of OpenMP objects."""


def linkable_nodes(env: Any, stem: Any, given: GivenCode, *, shared: bool = False) -> Linked:
    """Declare what the link of one program or shared library needs of its offload code.

    `stem` is the File after which images of several sources are named.
    """
    linked = Linked()
    parts: dict[str, _Parts] = {}
    for unit in given.units:
        if unit.kind == "cuda":
            linked.objects.append(_cuda_object(env, unit, shared=shared))
        elif unit.kind == "openmp" or settings.is_relocatable(env, unit):
            host = host_node(env, unit, shared=shared)
            parts.setdefault(unit.kind, _Parts()).add(host, device_nodes(env, unit))
        else:
            linked.objects += [host_node(env, unit, shared=shared), _embedded_bundle(env, unit)]
    for node in given.objects:
        modules = node.attributes.offload_device_nodes
        kind = modules[0].attributes.offload_kind
        parts.setdefault(kind, _Parts()).add(node, modules)
    for library in given.libraries:
        nodes = _library_code(env, library)
        kind = nodes[0].attributes.offload_kind
        parts.setdefault(kind, _Parts()).add(library, nodes)
    for node in given.device_code:
        found = parts.setdefault(node.attributes.offload_kind, _Parts()).device_code
        found.setdefault(node.attributes.offload_device, []).append(node)
    for kind, part in parts.items():
        images = [
            _link_node(env, stem, kind, device, part.of(device))
            for device in settings.devices(env, kind)
        ]
        linked.objects += [node for node in part.hosts if node not in given.libraries]
        if kind == "hip":
            bundle = bundle_node(env, _beside(env, stem, "$OFFLOADBUNDLESUFFIX"), images)
            linked.objects.append(_embedded_for_all(env, stem, bundle, part.hosts))
        else:
            linked.objects.append(_registration(env, stem, images))
            linked.needs_openmp = True
    for node in linked.objects if shared else ():
        node.attributes.shared = True  # SCons links no other objects into a shared library
    return linked


def _library_code(env: Any, library: Any) -> list[Any]:
    """Give a library's device code: modules of OpenMP, or one archive per target ID of HIP."""
    modules: list[Any] = getattr(library.attributes, "offload_device_nodes", [])
    return modules or device_archive_nodes(env, library)


def object_node(env: Any, unit: Unit, node: Any) -> Any:
    """Declare the one object that has both host code and device code of a source.

    HIP and CUDA: a complete object. With relocatable device code, and with OpenMP, an
    object from which a later device link takes its part: an object bundle, or one with a
    section ``.llvm.offloading``.
    """
    if unit.kind == "cuda":
        return _cuda_object(env, unit, node)
    host = host_node(env, unit)
    devices = device_nodes(env, unit)
    if unit.kind == "openmp":
        package = package_node(env, unit.file(env, "$OFFLOADPACKAGESUFFIX"), devices)
        made = _EMBED_PACKAGE(env, node, [host, package], _OFFLOAD_SPEC=settings.spec())[0]
        made.attributes.offload_device_nodes = devices
        return made
    if settings.is_relocatable(env, unit):
        return _object_bundle(env, node, devices, host)
    variables = settings.toolchain_variables(env)
    parts = [host, _embedded_bundle(env, unit, devices)]
    return identified(env, _MERGE(env, node, parts, **variables))[0]


def bundle_node(env: Any, bundle: Any, nodes: list[Any]) -> Any:
    """Declare the bundle of nodes that carry entry IDs, and of files that are given them."""
    plain = [node for node in nodes if entry_id(node) is None]
    given = given_ids(env)
    if len(plain) != len(given):
        raise UsageError(
            f"OFFLOAD_TARGETS gives {len(given)} bundle entry IDs for the {len(plain)} files of "
            f"'{bundle}' that carry none ({', '.join(map(str, plain)) or 'no file'}); "
            "expected one for each, in order"
        )
    remaining = iter(given)
    ids = [entry_id(node) or next(remaining) for node in nodes]
    check_composition(ids)
    entries: list[tuple[str, int | None]] = [(str(i), at) for at, i in enumerate(ids)]
    # A fat binary begins with an empty host entry; a list of IDs says itself what it wants.
    if not given and not any(entry_id.kind == "host" for entry_id in ids):
        entries.insert(0, (str(_EMPTY_HOST_ENTRY), None))
    spec = settings.spec(
        alignment=settings.bundle_alignment(env),
        compression=settings.compression(env),
        entries=entries,
        file_type="bc",
    )
    return _BUNDLE(env, bundle, nodes, _OFFLOAD_SPEC=spec)[0]


def package_node(
    env: Any, package: Any, nodes: list[Any], given: dict[Any, tuple[str, Device]] | None = None
) -> Any:
    """Declare the offload binary of nodes that know their kind and device, or are `given` them."""
    images = []
    for node in nodes:
        told = (given or {}).get(node)
        known = told or (node.attributes.offload_kind, node.attributes.offload_device)
        images.append(_described(*known))
    return _PACKAGE(env, package, nodes, _OFFLOAD_SPEC=settings.spec(images=images))[0]


def wrap_node(env: Any, node: Any, images: list[Any], kind: str) -> Any:
    """Declare the module that registers images (or packages of them) in a host program."""
    spec = settings.spec(kind=kind, triple=settings.toolchain(env).host_triple)
    return _WRAP(env, node, images, _OFFLOAD_SPEC=spec)[0]


def _described(kind: str, device: Device) -> dict[str, str]:
    """Say of an image in an offload binary what it is, as the driver does."""
    arch = str(device.target_id) if device.target_id is not None else ""
    return {"kind": kind, "triple": device.triple.rstrip("-"), "arch": arch}


def _beside(env: Any, stem: Any, suffix: str) -> Any:
    return stem.dir.File(f"{stem.name}{env.subst(suffix)}")


# -- HIP -----------------------------------------------------------------------------


def _embedded_bundle(env: Any, unit: Unit, devices: list[Any] | None = None) -> Any:
    """Declare the object that holds one source's bundle; it knows nothing of the host's."""
    nodes = device_nodes(env, unit) if devices is None else devices
    bundle = bundle_node(env, unit.file(env, "$OFFLOADBUNDLESUFFIX"), nodes)
    spec = settings.spec(cuid=unit.cuid, host_triple=settings.toolchain(env).host_triple)
    return _EMBED(env, unit.file(env, "$OFFLOADEMBEDSUFFIX"), bundle, _OFFLOAD_SPEC=spec)[0]


def _embedded_for_all(env: Any, stem: Any, bundle: Any, host_files: list[Any]) -> Any:
    """Declare the object that holds a program's bundle, for all host files that ask for it."""
    spec = settings.spec(cuid=None, host_triple=settings.toolchain(env).host_triple)
    node = _beside(env, stem, "$OFFLOADEMBEDSUFFIX")
    return _EMBED(env, node, [bundle, *host_files], _OFFLOAD_SPEC=spec)[0]


def _object_bundle(env: Any, node: Any, devices: list[Any], host: Any) -> Any:
    """Declare the object bundle of relocatable device code; the host is last, as in LLVM."""
    entries = [(str(_in_library(device)), at) for at, device in enumerate(devices)]
    entries.append((str(entry_id(host)), len(devices)))
    spec = settings.spec(alignment=1, compression=(None, None), entries=entries, file_type="o")
    made = _BUNDLE(env, node, [*devices, host], _OFFLOAD_SPEC=spec)[0]
    made.attributes.offload_device_nodes = devices
    return made


def _in_library(node: Any) -> BundleEntryID:
    """Give the entry ID of relocatable code: the driver calls it ``hip``, not ``hipv4``."""
    device = node.attributes.offload_device
    return BundleEntryID.parse(f"hip-{device.triple}-{device.target_id}")


# -- device links ----------------------------------------------------------------------


def _link_node(env: Any, stem: Any, kind: str, device: Device, inputs: list[Any]) -> Any:
    toolchain = settings.toolchain(env)
    gpu = device.target_id is not None
    suffix = "$OFFLOADDEVICESUFFIX" if gpu else "$SHLIBSUFFIX"
    node = _beside(env, stem, f".{device.filename}{suffix}")
    runtimes = settings.device_runtimes(env, device) if kind == "openmp" else []
    made = _LINK(
        env,
        node,
        inputs,
        **settings.toolchain_variables(env),
        _OFFLOAD_LINKER=list(device_link.linker(device, toolchain)),
        _OFFLOAD_LINK_ARGUMENTS=device_link.link_arguments(device, kind),
        _OFFLOAD_LINK_INPUTS=_link_inputs(gpu=gpu, runtimes=runtimes),
        _OFFLOAD_TARGET_ID=device.name,
        **({} if gpu else {"OFFLOAD_LINK_FLAGS": []}),
    )
    env.Depends(made, [env.File(name) for name in runtimes])
    identified(env, made)
    label(node, kind, device)
    add_aliases(env, node, device)
    return node


def _link_inputs(*, gpu: bool, runtimes: list[str]) -> list[str]:
    if not gpu:
        return ["$SOURCES"]
    return ["--whole-archive", "$SOURCES", "--no-whole-archive", *runtimes]


# -- CUDA ------------------------------------------------------------------------------


def _cuda_object(env: Any, unit: Unit, node: Any = None, *, shared: bool = False) -> Any:
    """Declare the host object of a CUDA source with its fat binary in it."""
    images = [image for ptx in device_nodes(env, unit) for image in (*_cubin(env, unit, ptx), ptx)]
    processors = [str(image.attributes.offload_device.target_id) for image in images]
    spec = settings.spec(processors=processors)
    fatbin = _FATBIN(env, unit.file(env, ".fatbin"), images, _OFFLOAD_SPEC=spec)
    host = host_node(env, unit, shared=shared)
    node = node or unit.file(env, settings.shared_suffix(env) if shared else "$OBJSUFFIX")
    return _EMBED_CUDA(env, node, [host, *fatbin], _OFFLOAD_SPEC=settings.spec())[0]


def _cubin(env: Any, unit: Unit, ptx: Any) -> list[Any]:
    """Declare the cubin of a PTX module, where there is a ptxas."""
    ptxas = find_ptxas(env.subst("$OFFLOAD_PTXAS"))
    if ptxas is None:
        return []
    device = ptx.attributes.offload_device
    node = unit.file(env, f".{device.filename}.cubin")
    made = _PTXAS(
        env,
        node,
        ptx,
        _OFFLOAD_PTXAS=list(ptxas.command),
        _OFFLOAD_PTXAS_ARGUMENTS=cubin_arguments(device.target_id),
        _OFFLOAD_TARGET_ID=device.name,
        IMPLICIT_COMMAND_DEPENDENCIES=False,
    )
    env.Depends(made, env.Value(ptxas.identity))
    label(node, unit.kind, device)
    add_aliases(env, node, device)
    return list(made)


# -- OpenMP ----------------------------------------------------------------------------


def _registration(env: Any, stem: Any, images: list[Any]) -> Any:
    """Declare the object that registers a program's images, each in a package of its own.

    The runtime learns from the package what an image is for; it reads one per package.
    """
    packages = [
        package_node(env, _beside(env, image, "$OFFLOADPACKAGESUFFIX"), [image]) for image in images
    ]
    return wrap_node(env, _beside(env, stem, ".registration$OBJSUFFIX"), packages, "openmp")
