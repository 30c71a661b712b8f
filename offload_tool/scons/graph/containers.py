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

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from offload_tool.errors import UsageError
from offload_tool.formats.targets.bundle_entry_id import (
    BundleEntryID,
    OffloadKind,
    check_composition,
    check_hosts,
    kind_outside_bundles,
)
from offload_tool.formats.targets.compile_target import CompileTarget
from offload_tool.formats.targets.target_id import TargetID
from offload_tool.passes import registration
from offload_tool.scons import actions, compat, found_tools, offload_arch, settings, spawn
from offload_tool.scons.graph import units
from offload_tool.scons.state.node_info import DeviceCode, code_of, info_of
from offload_tool.scons.types import Environment, Node

# The fat binary's host entry is empty and always has this name, as the driver writes it.
_EMPTY_HOST_ENTRY = BundleEntryID.parse("host-x86_64-unknown-linux-gnu-")


def bundle_node(
    env: Environment, names: Iterable[Node], nodes: list[Node], file_type: str = "bc"
) -> Node:
    """Declare the bundle of nodes and files, under the first free name of `names`."""
    plain = [node for node in nodes if info_of(node).entry_id is None]
    given = units.given_ids(env)
    names = list(names)
    check_ids(names[0], plain, given)
    remaining = iter(given)
    ids = [_bundled_id(node, file_type) or next(remaining) for node in nodes]
    check_composition(ids)
    if given:
        check_hosts(ids, bundling=True)
    entries: list[tuple[str, int | None]] = [(str(i), at) for at, i in enumerate(ids)]
    # A fat binary begins with an empty host entry; a list of IDs is complete.
    is_fat_binary = not given and file_type == "bc"
    if is_fat_binary and not any(entry.kind == "host" for entry in ids):
        entries.insert(0, (str(_EMPTY_HOST_ENTRY), None))
    return actions.BUNDLE.first_free(
        env,
        names,
        nodes,
        alignment=env["OFFLOAD_BUNDLE_ALIGN"],
        compression=settings.compression(env),
        entries=entries,
        file_type=file_type,
    )


def check_ids(made: Node, plain: list[Node], ids: list[BundleEntryID]) -> None:
    """Raise UsageError unless `ids` has one for each file of `made` without an ID of its own."""
    if len(plain) != len(ids):
        units.check_no_sources(plain)
        raise UsageError(
            f"OFFLOAD_TARGETS gives {len(ids)} bundle entry IDs for the {len(plain)} files of "
            f"'{made}' that carry none ({', '.join(map(str, plain)) or 'no file'}); "
            "expected one for each, in order"
        )


def object_bundle(env: Environment, names: Iterable[Node], devices: list[Node], host: Node) -> Node:
    """Declare the object bundle of relocatable device code; the host is last, as in LLVM."""
    entries = [(str(_bundled_id(device, "o")), at) for at, device in enumerate(devices)]
    entries.append((str(info_of(host).entry_id), len(devices)))
    options = {"alignment": 1, "compression": (None,), "entries": entries, "file_type": "o"}
    made = actions.BUNDLE.first_free(env, names, [*devices, host], **options)
    info_of(made).device_nodes = devices
    return made


def _bundled_id(node: Node, file_type: str) -> BundleEntryID | None:
    """Return the entry ID of a node in a bundle; libraries consist of object bundles."""
    info = info_of(node)
    if file_type == "o" and info.code is not None and info.code.relocatable:
        return _in_library(info.code.kind, info.code.device)
    return info.entry_id


def _in_library(kind: str, device: CompileTarget) -> BundleEntryID:
    """Return the entry ID of relocatable code: the driver calls it ``hip``, not ``hipv4``."""
    return BundleEntryID.parse(f"{kind}-{device.triple}-{device.target_id or ''}")


def package_node(
    env: Environment,
    names: Iterable[Node],
    nodes: list[Node],
    given: Mapping[Node, BundleEntryID] = MappingProxyType({}),
    keys: Mapping[Node, dict[str, str]] = MappingProxyType({}),
    base: Node | None = None,
    *,
    in_object: bool = False,
) -> Node:
    """Declare the offload binary of nodes, or of files with `given` IDs; it follows `base`.

    It names processors as the driver's objects do if it is for one (`in_object`).
    """
    images = []
    for node in nodes:
        code = _code_of_entry(given[node]) if node in given else code_of(node)
        image: dict[str, Any] = {
            "kind": code.kind,
            "triple": code.device.packaged_triple,
            "arch": str(
                code.device.target_id or (info_of(node).packaged_arch if in_object else "")
            ),
        }
        if node.get_suffix() == ".cubin" and node not in given and code.relocatable:
            image["image_kind"] = "OBJECT"  # as clang's link expects; the suffix implies "CUBIN"
        if node in keys:
            image["keys"] = keys[node]
        images.append(image)
    sources = nodes if base is None else [*nodes, base]
    return actions.PACKAGE.first_free(env, names, sources, images=images, base=base is not None)


def wrap_node(
    env: Environment, names: Iterable[Node], images: list[Node], kind: str, **options: Any
) -> Node:
    """Declare the module that registers images, under the first free name of `names`."""
    options |= {"kind": kind, "triple": found_tools.host_triple(env)}
    variables = spawn.toolchain_variables(env)
    made = actions.WRAP.first_free(env, names, images, variables=variables, **options)
    return units.add_identity(env, made)


def archive_node(env: Environment, archive: Any, members: list[Node]) -> Node:
    """Declare the archive of bundles; raise UsageError if two members have one name."""
    by_name: dict[str, Any] = {}
    for member in members:
        other = by_name.setdefault(member.name, member)
        if other is not member:
            raise UsageError(
                f"'{archive}': '{other}' and '{member}' would both be its member '{member.name}'; "
                "give one of their sources another name"
            )
    return actions.ARCHIVE(env, archive, members)


def device_archive_nodes(
    env: Environment,
    library: Node,
    stem: units.Stem,
    kind: str,
    entries: Sequence[BundleEntryID] = (),
) -> list[Node]:
    """Declare a library's device-specific archives: one per entry, or per OFFLOAD_ARCH."""
    nodes = []
    if kind not in OffloadKind.ALL:
        if entries:
            raise UsageError(
                f"'{library}': OFFLOAD_TARGETS names entries of bundles, which CUDA's libraries do "
                "not have; set OFFLOAD_ARCH"
            )
        missing = env["OFFLOAD_ALLOW_MISSING_BUNDLES"]
        for device in offload_arch.devices(env, kind):
            node = stem.file(env, f".{device.filename}$LIBSUFFIX")
            options = {"processor": str(device.target_id), "allow_missing": missing}
            _archive_for(env, actions.CUDA_ARCHIVE, node, library, options, kind, device)
            nodes.append(node)
        return nodes
    if not entries:
        entries = [_in_library(kind, device) for device in offload_arch.devices(env, kind)]
    names = [device_of(entry).filename for entry in entries]
    options = settings.unbundling(env, archive=True)
    for entry, node in entry_files(env, stem, entries, names, "$LIBSUFFIX"):
        own = {"entry": str(entry), **options}
        kind = "" if entry.kind == OffloadKind.HOST else kind_outside_bundles(entry.kind)
        _archive_for(env, actions.DEVICE_ARCHIVE, node, library, own, kind, device_of(entry))
        nodes.append(node)
    return nodes


def _archive_for(
    env: Environment,
    builder: actions.Operation,
    node: Node,
    library: Node,
    options: dict[str, Any],
    kind: str,
    device: CompileTarget,
) -> None:
    info = info_of(node)
    if node.has_builder() and info.unbundled == (options, library):
        return  # several programs use the library
    builder(env, node, [library], variables={"_OFFLOAD_TARGET_ID": device.name}, **options)
    env.Precious(node)  # the action keeps an equal file
    info.unbundled = (options, library)
    if kind:
        units.label(env, node, kind, device, relocatable=True)


def bundle_kind(env: Environment) -> str:
    """Return the offload kind of selected entries; raise UsageError for other kinds."""
    kind = settings.given_kind(env) or OffloadKind.HIP
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


def label_entry(node: Node, entry: BundleEntryID) -> None:
    """Record on a node which entry of a container it is."""
    info = info_of(node)
    if entry.kind != OffloadKind.HOST:
        info.code = _code_of_entry(entry)
    if entry.kind in OffloadKind.ALL:  # bundles have no other kinds
        info.entry_id = entry


def _code_of_entry(entry: BundleEntryID) -> DeviceCode:
    return DeviceCode(kind_outside_bundles(entry.kind), device_of(entry))


def entry_files(
    env: Environment,
    stem: units.Stem,
    entries: Sequence[BundleEntryID],
    names: list[str],
    suffix: str,
) -> Iterator[tuple[BundleEntryID, Node]]:
    """Yield each entry's file: called as in `names`, prefixed by the kind if not unique."""
    for entry, name in zip(entries, names, strict=True):
        own = f"{entry.kind}-{name}" if names.count(name) > 1 else name
        yield entry, stem.file(env, f".{own}{suffix}")


def embedded(
    env: Environment, stem: units.Stem, files: list[Node], cuid: str | None = None, **options: Any
) -> Node:
    """Declare the object with a bundle or a marker, the first of `files`.

    With a `cuid`, it is an archive for one source, else for the host objects that follow. The
    option `library` is the ID of a library with a device link of its own.
    """
    options |= {"cuid": cuid, "registers_entries": cuid is None}
    names, triple = stem.files(env, "$OFFLOADEMBEDSUFFIX"), found_tools.host_triple(env)
    return actions.EMBED.first_free(env, names, files, host_triple=triple, **options)


def embedded_bundle(env: Environment, unit: units.Unit, devices: list[Node]) -> Node:
    """Declare the archive of one source's bundle, which the linker takes for its host object."""
    bundle = bundle_node(env, unit.stem.files(env, "$OFFLOADBUNDLESUFFIX"), devices)
    return embedded(env, unit.stem, [bundle], unit.cuid)


def registration_of_entries(
    env: Environment, stem: units.Stem, *, is_marker: bool = False, library: str = ""
) -> Node:
    """Declare the object that registers the new offload driver's entries, if there are any."""
    names = stem.files(env, ".registration$OBJSUFFIX")
    return compiled_c(env, names, registration.SOURCE, is_marker=is_marker, library=library)


def merged_object(env: Environment, names: Iterable[Node], parts: list[Node]) -> Node:
    """Declare the object merged from objects, and from members of archives that they refer to."""
    variables = spawn.toolchain_variables(env, found_tools.toolchain(env).lld)
    return units.add_identity(env, actions.MERGE.first_free(env, names, parts, **variables))


def linked_library(
    env: Environment, names: Iterable[Node], files: list[Node], libraries: list[Node], library: str
) -> Node:
    """Declare the object of a library with a device link of its own, with all of `libraries`."""
    lld = found_tools.toolchain(env).lld
    made = actions.MERGE_LIBRARY.first_free(
        env,
        names,
        [*files, *libraries],
        variables=spawn.toolchain_variables(env, lld),
        library=library,
        libraries=len(libraries),
    )
    return units.add_identity(env, made)


def compiled_c(
    env: Environment,
    names: Iterable[Node],
    source: Any,
    *,
    is_marker: bool = False,
    library: str = "",
) -> Node:
    """Declare the object of a C source of this package."""
    own = registration.compile_flags(is_marker=is_marker, library=library)
    flags = [*settings.machine_flags(env), *own]
    made = actions.REGISTER.first_free(
        env,
        names,
        [compat.exact_file(env.fs, source)],
        **spawn.toolchain_variables(env, found_tools.toolchain(env).cc),
        _OFFLOAD_REGISTER_FLAGS=flags,
    )
    return units.add_identity(env, made)
