"""Device libraries: heterogeneous device archives (HDA) and what a device link takes of them.

::

    a.hip, b.hip --> a.o, b.o --> libgeometry.a --+--> libgeometry.gfx906.a    (DSA)
                     (object       (HDA)          +--> libgeometry.gfx90a.a    (DSA)
                      bundles)

A DSA whose bytes come out the same is left as it is, and nothing behind it runs. OpenMP's
entries are asked for where ``OFFLOAD_KIND`` says so, and those of ``OFFLOAD_TARGETS``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from offload_tool.errors import UsageError
from offload_tool.formats.target.bundle_entry_id import BundleEntryID, OffloadKind
from offload_tool.formats.target.compile_target import CompileTarget
from offload_tool.formats.target.target_id import TargetID
from offload_tool.scons import actions, readers
from offload_tool.scons.graph.aliases import add_aliases
from offload_tool.scons.graph.declare import NodeBuilder
from offload_tool.scons.graph.units import Stem, kind_outside_bundles, label

if TYPE_CHECKING:
    from offload_tool.scons.types import Environment, Node

_ARCHIVE = NodeBuilder(actions.ARCHIVE)
_CUDA_ARCHIVE = NodeBuilder(actions.CUDA_ARCHIVE)
_DEVICE_ARCHIVE = NodeBuilder(actions.DEVICE_ARCHIVE)


def archive_node(env: Environment, archive: Any, members: list[Node]) -> Node:
    """Declare the archive of bundles; each member is called as its file.

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

    Devices are those of ``OFFLOAD_ARCH``; the library itself may know of which kind it is.
    """
    stem = stem or Stem.of(library)
    given = env.subst("$OFFLOAD_KIND").lower()
    kind = getattr(library.attributes, "offload_library_kind", None) or given
    if kind == "cuda":
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
    node = stem.dir.File(f"{stem.name}.{device.filename}{env.subst('$LIBSUFFIX')}")
    missing = env["OFFLOAD_ALLOW_MISSING_BUNDLES"]
    spec = readers.spec(processor=str(device.target_id), allow_missing=missing)
    if node.has_builder() and getattr(node.attributes, "offload_spec", None) == (spec, library):
        return node  # several programs use the library
    _CUDA_ARCHIVE(env, node, library, _OFFLOAD_SPEC=spec, _OFFLOAD_TARGET_ID=device.name)
    env.Precious(node)  # the action leaves an equal one as it is
    node.attributes.offload_spec = (spec, library)
    label(node, "cuda", device)
    node.attributes.offload_relocatable = True
    add_aliases(env, node, device)
    return node


def _device_archive_node(
    env: Environment, library: Node, entry: BundleEntryID, stem: Stem, name: str
) -> Node:
    device, kind = device_of(entry), kind_outside_bundles(entry)
    node = stem.dir.File(f"{stem.name}.{name}{env.subst('$LIBSUFFIX')}")
    options = readers.unbundling(env, archive=True)
    spec = readers.spec(entry=str(entry), **({"options": options} if options else {}))
    if node.has_builder() and getattr(node.attributes, "offload_spec", None) == (spec, library):
        return node  # several programs use the library
    _DEVICE_ARCHIVE(env, node, library, _OFFLOAD_SPEC=spec, _OFFLOAD_TARGET_ID=device.name)
    env.Precious(node)  # the action leaves an equal one as it is
    node.attributes.offload_spec = (spec, library)
    if entry.kind != OffloadKind.HOST:
        label(node, kind, device)
        node.attributes.offload_relocatable = True
        add_aliases(env, node, device)
    return node


def bundle_kind(env: Environment) -> str:
    """Return the offload kind of entries that are asked for by target ID: HIP's, or OpenMP's.

    :raises UsageError: ``OFFLOAD_KIND`` is one that bundles have no entries of.
    """
    kind = env.subst("$OFFLOAD_KIND").lower() or OffloadKind.HIP
    if kind not in (OffloadKind.HIP, OffloadKind.OPENMP):
        raise UsageError(
            f"OFFLOAD_KIND: bundles hold code of hip and openmp, not of {kind!r}; "
            "set it to 'hip' or 'openmp'"
        )
    return str(kind)


def device_of(entry: BundleEntryID) -> CompileTarget:
    """Return the device of an entry, which has the triple for a name where it has no target ID."""
    target_id = TargetID.parse(entry.target_id, allow_unknown=True) if entry.target_id else None
    return CompileTarget(entry.target_id or entry.triple.rstrip("-"), entry.triple, target_id)


def entry_names(entries: Sequence[BundleEntryID], names: list[str]) -> list[str]:
    """Return a name for the file of each entry: of `names`, behind the kind where two are equal."""
    return [
        f"{entry.kind}-{name}" if names.count(name) > 1 else name
        for entry, name in zip(entries, names, strict=True)
    ]
