"""The nodes that hold device images: bundles, offload binaries, archives, objects with them.

A device link takes static libraries with device code, heterogeneous device archives (HDA), as one
archive for each device (DSA)::

    a.hip, b.hip --> a.o, b.o --> libgeometry.a --+--> libgeometry.gfx906.a    (DSA)
                     (object       (HDA)          +--> libgeometry.gfx90a.a    (DSA)
                      bundles)

An action keeps a DSA whose bytes are equal, and nothing that depends on it runs. ``OFFLOAD_KIND``
or ``OFFLOAD_TARGETS`` select OpenMP's entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from offload_tool.errors import UsageError
from offload_tool.formats.target.bundle_entry_id import (
    BundleEntryID,
    OffloadKind,
    check_composition,
    check_hosts,
)
from offload_tool.formats.target.compile_target import CompileTarget
from offload_tool.formats.target.target_id import TargetID
from offload_tool.passes import registration
from offload_tool.scons import actions, readers
from offload_tool.scons.graph.compile_nodes import device_nodes
from offload_tool.scons.graph.declare import Names, NodeBuilder, declared
from offload_tool.scons.graph.units import (
    Stem,
    Unit,
    entry_id,
    given_ids,
    identified,
    kind_outside_bundles,
    label,
)
from offload_tool.scons.spawn import toolchain_variables

if TYPE_CHECKING:
    from offload_tool.scons.types import Environment, Node


# The fat binary's host entry is empty and always has this name, as the driver writes it.
_EMPTY_HOST_ENTRY = BundleEntryID.parse("host-x86_64-unknown-linux-gnu-")

_BUNDLE = NodeBuilder(actions.BUNDLE)
_PACKAGE = NodeBuilder(actions.PACKAGE)
_WRAP = NodeBuilder(actions.WRAP)


def bundle_node(
    env: Environment, names: Iterable[Node], nodes: list[Node], file_type: str = "bc"
) -> Node:
    """Declare the bundle of nodes with entry IDs, and of files with given ones.

    It gets the first free name of `names`.
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
    if given:
        check_hosts(ids, bundling=True)
    entries: list[tuple[str, int | None]] = [(str(i), at) for at, i in enumerate(ids)]
    # A fat binary begins with an empty host entry; a list of IDs is complete.
    is_fat_binary = not given and file_type == "bc"
    if is_fat_binary and not any(entry_id.kind == "host" for entry_id in ids):
        entries.insert(0, (str(_EMPTY_HOST_ENTRY), None))
    spec = readers.spec(
        alignment=env["OFFLOAD_BUNDLE_ALIGN"],
        compression=readers.compression(env),
        entries=entries,
        file_type=file_type,
    )
    return declared(_BUNDLE, env, names, nodes, _OFFLOAD_SPEC=spec)


def object_bundle(env: Environment, names: Iterable[Node], devices: list[Node], host: Node) -> Node:
    """Declare the object bundle of relocatable device code; the host is last, as in LLVM."""
    entries = [(str(_in_library(device)), at) for at, device in enumerate(devices)]
    entries.append((str(entry_id(host)), len(devices)))
    spec = readers.spec(alignment=1, compression=(None, None), entries=entries, file_type="o")
    made = declared(_BUNDLE, env, names, [*devices, host], _OFFLOAD_SPEC=spec)
    made.attributes.offload_device_nodes = devices
    return made


def _bundled_id(node: Node, file_type: str) -> BundleEntryID | None:
    """Return the entry ID of a node in a bundle; libraries consist of object bundles."""
    is_module = getattr(node.attributes, "offload_relocatable", False)
    return _in_library(node) if file_type == "o" and is_module else entry_id(node)


def _in_library(node: Node) -> BundleEntryID:
    """Return the entry ID of relocatable code: the driver calls it ``hip``, not ``hipv4``."""
    device, kind = node.attributes.offload_device, node.attributes.offload_kind
    return BundleEntryID.parse(f"{kind}-{device.triple}-{device.target_id or ''}")


def package_node(
    env: Environment,
    names: Iterable[Node],
    nodes: list[Node],
    given: dict[Any, tuple[str, CompileTarget]] | None = None,
    keys: Callable[[Node], dict[str, str]] = lambda _: {},
    base: Node | None = None,
) -> Node:
    """Declare the offload binary of nodes with known or `given` kind and device.

    `keys` returns further keys of an image. The images are appended to the offload binary `base`,
    if any. The node gets the first free name of `names`.
    """
    images = []
    for node in nodes:
        told = (given or {}).get(node)
        known = told or (node.attributes.offload_kind, node.attributes.offload_device)
        others = {"keys": told_keys} if (told_keys := keys(node)) else {}
        images.append(_described(*known) | _image_kind(node) | others)
    has_base: dict[str, Any] = {} if base is None else {"base": True}
    spec = readers.spec(images=images, **has_base)
    sources = nodes if base is None else [*nodes, base]
    return declared(_PACKAGE, env, names, sources, _OFFLOAD_SPEC=spec)


def _described(kind: str, device: CompileTarget) -> dict[str, Any]:
    """Return the driver's keys of an image in an offload binary."""
    arch = str(device.target_id) if device.target_id is not None else ""
    return {"kind": kind, "triple": device.packaged_triple, "arch": arch}


def _image_kind(node: Node) -> dict[str, str]:
    """Return the image kind if the suffix does not imply the kind that clang's link expects."""
    is_cubin = node.get_suffix() == ".cubin"
    return {"image_kind": "OBJECT"} if is_cubin and node.attributes.offload_relocatable else {}


def wrap_node(
    env: Environment, names: Iterable[Node], images: list[Node], kind: str, **options: Any
) -> Node:
    """Declare the module that registers images (or packages of them) in a host program.

    It gets the first free name of `names`.
    """
    spec = readers.spec(kind=kind, triple=readers.host_triple(env), **options)
    variables = toolchain_variables(env)
    return identified(env, [declared(_WRAP, env, names, images, **variables, _OFFLOAD_SPEC=spec)])[
        0
    ]


_ARCHIVE = NodeBuilder(actions.ARCHIVE)
_CUDA_ARCHIVE = NodeBuilder(actions.CUDA_ARCHIVE)
_DEVICE_ARCHIVE = NodeBuilder(actions.DEVICE_ARCHIVE)


def archive_node(env: Environment, archive: Any, members: list[Node]) -> Node:
    """Declare the archive of bundles; each member has the name of its file.

    :raises UsageError: two members would have one name.
    """
    by_name: dict[str, Any] = {}
    for member in members:
        other = by_name.setdefault(member.name, member)
        if other is not member:
            raise UsageError(
                f"'{archive}': '{other}' and '{member}' would both be its member '{member.name}'; "
                "give one of their sources another name"
            )
    return _ARCHIVE(env, archive, members, _OFFLOAD_SPEC=readers.spec())[0]


def device_archive_nodes(
    env: Environment,
    library: Node,
    stem: Stem | None = None,
    entries: Sequence[BundleEntryID] = (),
) -> list[Node]:
    """Declare the device-specific archives of a library: one per entry, or per device.

    Devices are those of ``OFFLOAD_ARCH``; a library of this build may record its kind.
    """
    stem = stem or Stem.of(library)
    given = env.subst("$OFFLOAD_KIND").lower()
    kind = getattr(library.attributes, "offload_library_kind", None) or given
    if kind and kind not in OffloadKind.ALL:
        if entries:
            raise UsageError(
                f"'{library}': OFFLOAD_TARGETS names entries of bundles, which CUDA's libraries do "
                "not have; set OFFLOAD_ARCH"
            )
        devices = readers.devices(env, kind)
        return [_cuda_archive_node(env, library, device, stem) for device in devices]
    if not entries:
        kind = kind or bundle_kind(env)
        entries = [
            BundleEntryID.parse(f"{kind}-{device.triple}-{device.target_id or ''}")
            for device in readers.devices(env, kind)
        ]
    names = entry_names(entries, [device_of(entry).filename for entry in entries])
    pairs = zip(entries, names, strict=True)
    return [_device_archive_node(env, library, entry, stem, name) for entry, name in pairs]


def _cuda_archive_node(env: Environment, library: Node, device: CompileTarget, stem: Stem) -> Node:
    """Declare the archive of a library's relocatable CUDA code for one processor."""
    missing = env["OFFLOAD_ALLOW_MISSING_BUNDLES"]
    spec = readers.spec(processor=str(device.target_id), allow_missing=missing)
    node = stem.dir.File(f"{stem.name}.{device.filename}{env.subst('$LIBSUFFIX')}")
    return _archive_for(env, _CUDA_ARCHIVE, node, library, spec, "cuda", device)


def _device_archive_node(
    env: Environment, library: Node, entry: BundleEntryID, stem: Stem, name: str
) -> Node:
    options = readers.unbundling(env, archive=True)
    spec = readers.spec(entry=str(entry), **({"options": options} if options else {}))
    node = stem.dir.File(f"{stem.name}.{name}{env.subst('$LIBSUFFIX')}")
    kind = "" if entry.kind == OffloadKind.HOST else kind_outside_bundles(entry)
    return _archive_for(env, _DEVICE_ARCHIVE, node, library, spec, kind, device_of(entry))


def _archive_for(
    env: Environment,
    builder: NodeBuilder,
    node: Node,
    library: Node,
    spec: str,
    kind: str,
    device: CompileTarget,
) -> Node:
    """Declare the part of a library for one device; `kind` is empty for the host's part."""
    if node.has_builder() and getattr(node.attributes, "offload_spec", None) == (spec, library):
        return node  # several programs use the library
    builder(env, node, library, _OFFLOAD_SPEC=spec, _OFFLOAD_TARGET_ID=device.name)
    env.Precious(node)  # the action keeps an equal file
    node.attributes.offload_spec = (spec, library)
    if kind:
        label(env, node, kind, device, relocatable=True)
    return node


def bundle_kind(env: Environment) -> str:
    """Return the offload kind of entries that a target ID selects: HIP's, or OpenMP's.

    :raises UsageError: bundles have no entries of ``OFFLOAD_KIND``.
    """
    kind = env.subst("$OFFLOAD_KIND").lower() or OffloadKind.HIP
    if kind not in (OffloadKind.HIP, OffloadKind.OPENMP):
        raise UsageError(
            f"OFFLOAD_KIND: bundles hold code of hip and openmp, not of {kind!r}; "
            "set it to 'hip' or 'openmp'"
        )
    return str(kind)


def device_of(entry: BundleEntryID) -> CompileTarget:
    """Return an entry's device, named after its triple if it has no target ID."""
    target_id = TargetID.parse(entry.target_id, allow_unknown=True) if entry.target_id else None
    return CompileTarget(entry.target_id or entry.triple.rstrip("-"), entry.triple, target_id)


def entry_names(entries: Sequence[BundleEntryID], names: list[str]) -> list[str]:
    """Return a file name for each entry: from `names`, prefixed by the kind if not unique."""
    return [
        f"{entry.kind}-{name}" if names.count(name) > 1 else name
        for entry, name in zip(entries, names, strict=True)
    ]


_EMBED = NodeBuilder(actions.EMBED)
_MERGE = NodeBuilder(actions.MERGE)
_REGISTER = NodeBuilder(actions.REGISTER)


def embedded_bundle(env: Environment, unit: Unit, devices: list[Node] | None = None) -> Node:
    """Declare the archive of the object that holds one source's bundle.

    It is independent of the host object, and linked after it: the linker extracts the object if the
    host object refers to the bundle.
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
    """Declare the object that holds a program's bundle, for all host files that refer to it."""
    triple = readers.host_triple(env)
    marker = {"marker": True} if is_marker else {}
    spec = readers.spec(cuid=None, host_triple=triple, registers_entries=True, **marker)
    names = named("$OFFLOADEMBEDSUFFIX")
    return declared(_EMBED, env, names, [bundle, *host_files], _OFFLOAD_SPEC=spec)


def registration_of_entries(env: Environment, named: Names, *, is_marker: bool = False) -> Node:
    """Declare the object that registers the entries of the new offload driver's host objects.

    It is always linked, since the driver that makes the host objects is unknown at this point.
    """
    names = named(".registration$OBJSUFFIX")
    return compiled_c(env, names, registration.SOURCE, is_marker=is_marker)


def merged_object(env: Environment, names: Iterable[Node], parts: list[Node]) -> Node:
    """Declare the object merged from objects, and from members of archives that they refer to."""
    variables = toolchain_variables(env, readers.toolchain(env).lld)
    return identified(env, [declared(_MERGE, env, names, parts, **variables)])[0]


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
        **toolchain_variables(env, toolchain.cc),
        _OFFLOAD_CC=list(toolchain.cc),
        _OFFLOAD_REGISTER_FLAGS=[
            *readers.machine_flags(env),
            *registration.compile_flags(is_marker=is_marker),
        ],
    )
    return identified(env, [made])[0]
