"""Builders of containers of device code: bundles, offload binaries, wrapper modules.

Also builders that extract from them.
"""

from __future__ import annotations

from typing import Any

from offload_tool.errors import UsageError
from offload_tool.formats.targets.bundle_entry_id import (
    BundleEntryID,
    OffloadKind,
    kind_outside_bundles,
)
from offload_tool.formats.targets.compile_target import GPUS
from offload_tool.scons import actions, offload_arch, settings
from offload_tool.scons.builders.objects import offload_device_archive
from offload_tool.scons.graph import containers, units
from offload_tool.scons.graph.compile_nodes import device_nodes, with_host
from offload_tool.scons.state.node_info import info_of
from offload_tool.scons.types import Environment, Node

_ARCHIVE_SUFFIX = ".a"
_CURRENT_WRAPPER = 22


def offload_bundle(env: Environment, target: str | None, sources: list[Node]) -> list[Node]:
    """Return the bundle of one HIP source, or of nodes and files.

    A source stands for its code objects, one per target ID. Nodes of this tool carry their bundle
    entry ID; for other files, ``OFFLOAD_TARGETS`` lists the IDs in order.
    """
    file_type = settings.bundle_type(env, "bc")
    if file_type == "a":
        raise UsageError("OFFLOAD_BUNDLE_TYPE: archives are not bundled; use OffloadArchive")
    suffix = f".{file_type}" if env["OFFLOAD_BUNDLE_TYPE"] else "$OFFLOADBUNDLESUFFIX"
    compiled = [node for node in sources if units.kind_of(env, node)]
    if len(compiled) > 1:
        names = ", ".join(map(str, compiled))
        raise UsageError(
            f"one bundle holds the code objects of one source, but {names} were given; "
            "give each its own bundle"
        )
    if not compiled:
        if target is None:
            units.check_no_sources(sources)
            raise UsageError(
                "OffloadBundle of nodes or files needs a target name; "
                "write OffloadBundle('name', sources)"
            )
        return [containers.bundle_node(env, [units.named(env, target, suffix)], sources, file_type)]
    (unit,) = units.source_units(env, target, compiled)
    bundle = units.named(env, target, suffix) if target else unit.stem.file(env, suffix)
    unit = unit.owned_by(units.Owner.of(bundle, "bundle"))
    if unit.kind not in OffloadKind.ALL:
        raise UsageError(f"'{unit.source}': bundles hold HIP and OpenMP code; use OffloadPackage")
    hosts = []
    if env["OFFLOAD_BUNDLE_HOST"]:
        unit, host = with_host(env, unit)
        hosts.append(host)
    code = [*hosts, *device_nodes(env, unit)]
    parts = [part for node in sources for part in (code if node in compiled else [node])]
    return [containers.bundle_node(env, [bundle], parts, file_type)]


def offload_unbundle(env: Environment, target: str | None, sources: list[Node]) -> list[Node]:
    """Return one node per entry of a bundle: those of ``OFFLOAD_TARGETS``, or ``OFFLOAD_ARCH``.

    The files are called ``<name>.<target ID>.co``, or ``<name>.<offload kind>.co`` for entries
    without a target ID, with both if names would clash. If the bundle's file type is not the
    default, it is the suffix. For an archive (type ``a``), return the nodes of
    OffloadDeviceArchive.
    """
    file_type = settings.bundle_type(env, "o")
    if file_type == "a":
        return offload_device_archive(env, target, sources)
    bundle = units.only_source(sources, "OffloadUnbundle takes one bundle")
    ids = units.given_ids(env)
    if not ids:
        kind = containers.bundle_kind(env)
        ids = [device.entry_id(kind) for device in offload_arch.devices(env, kind)]
    stem = units.output_stem(env, target, bundle)
    suffix = f".{file_type}" if env["OFFLOAD_BUNDLE_TYPE"] else "$OFFLOADDEVICESUFFIX"
    options: dict[str, Any] = {**settings.unbundling(env), "file_type": file_type}
    nodes = []
    names = [entry.target_id.replace(":", "_") or entry.kind for entry in ids]
    for entry, file in containers.entry_files(env, stem, ids, names, suffix):
        nodes.append(actions.UNBUNDLE(env, file, [bundle], entry=str(entry), **options))
        containers.label_entry(file, entry)
    return nodes


def offload_package(env: Environment, target: str | None, sources: list[Node]) -> list[Node]:
    """Return the offload binary of one offload source, or of nodes of this tool.

    A source stands for its device code, one image per target ID. For other files,
    ``OFFLOAD_TARGETS`` lists a bundle entry ID for each. ``OFFLOAD_PACKAGE_KEYS`` adds keys to
    images. The images are appended to ``OFFLOAD_PACKAGE_BASE``.
    """
    name = target or units.path_from_top(units.Stem.of(sources[0]))
    package = units.named(env, name, "$OFFLOADPACKAGESUFFIX")
    owner = units.Owner.of(package, "package")
    images: list[Node] = []
    for node in sources:
        if units.kind_of(env, node):
            images += device_nodes(env, units.unit_of(env, node, units.Stem.of(node, owner)))
        else:
            images.append(node)
    plain = [node for node in images if info_of(node).code is None]
    ids = units.packaged_ids(env)
    containers.check_ids(package, plain, ids)
    given = dict(zip(plain, ids, strict=True))
    keys = _package_keys(env, images)
    base = None
    if env["OFFLOAD_PACKAGE_BASE"]:
        bases = units.source_nodes(env, env["OFFLOAD_PACKAGE_BASE"])
        base = units.only_source(bases, "OFFLOAD_PACKAGE_BASE names one file")
    return [containers.package_node(env, [package], images, given, keys, base)]


def offload_extract(env: Environment, target: str | None, sources: list[Node]) -> list[Node]:
    """Return one node per image of an offload binary, for ``OFFLOAD_ARCH`` or ``OFFLOAD_TARGETS``.

    The package may be inside an object, a program, an archive or bitcode. The files are called
    ``<name>.<target ID>.co``. With ``OFFLOAD_EXTRACT_ARCHIVE``, or a target name that ends in
    ``.a``, each is an archive of all images for its target ID.
    """
    package = units.only_source(sources, "OffloadExtract takes one file")
    entries = list(dict.fromkeys(units.packaged_ids(env)))
    if not entries:
        kind = settings.given_kind(env) or "hip"
        entries = [device.entry_id(kind) for device in offload_arch.devices(env, kind)]
    stem = units.output_stem(env, target, package)
    is_archive = env["OFFLOAD_EXTRACT_ARCHIVE"] or (target or "").endswith(_ARCHIVE_SUFFIX)
    suffix = _ARCHIVE_SUFFIX if is_archive else "$OFFLOADDEVICESUFFIX"
    names = [containers.device_of(entry).filename for entry in entries]
    nodes = []
    for entry, file in containers.entry_files(env, stem, entries, names, suffix):
        device = containers.device_of(entry)
        made = actions.EXTRACT(
            env,
            file,
            [package],
            kind=kind_outside_bundles(entry.kind),
            triple=device.packaged_triple,
            arch=str(device.target_id or "") if device.arch in GPUS else None,
            archive=is_archive,
        )
        nodes.append(made)
        containers.label_entry(file, entry)
    return nodes


def offload_repack(env: Environment, target: str | None, sources: list[Node]) -> list[Node]:
    """Return a copy of a bundle, compressed and aligned as variables specify.

    Its targets need not be known. ``OFFLOAD_COMPRESS`` and its like, and ``OFFLOAD_BUNDLE_ALIGN``,
    work as for OffloadBundle.
    """
    bundle = units.only_source(sources, "OffloadRepack takes one file")
    if target is None:
        raise UsageError("OffloadRepack needs a target name; write OffloadRepack('name', bundle)")
    compression, alignment = settings.compression(env), env["OFFLOAD_BUNDLE_ALIGN"]
    name = units.named(env, target, "$OFFLOADBUNDLESUFFIX")
    return [actions.REPACK(env, name, [bundle], alignment=alignment, compression=compression)]


def offload_wrapper(env: Environment, target: str | None, sources: list[Node]) -> list[Node]:
    """Return the module that registers device images in a host program: ``.o``, or ``.bc``.

    OpenMP (``OFFLOAD_KIND="openmp"``) takes images or offload binaries of one each, HIP one bundle,
    CUDA one fat binary. ``OFFLOAD_TARGETS`` lists a target ID or bundle entry ID for each image,
    for runtimes that read them. ``OFFLOAD_WRAPPER_LLVM`` is the version of LLVM whose module this
    is.
    """
    if target is None:
        raise UsageError(
            "OffloadWrapper needs a target name; write OffloadWrapper('name.o', bundle)"
        )
    if target.endswith(".ll"):
        raise UsageError(f"OffloadWrapper of '{target}': LLVM IR text is not written; name it .bc")
    kind = settings.given_kind(env) or "hip"
    options: dict[str, Any] = {}
    if env["OFFLOAD_TARGETS"]:
        options["target_ids"] = [_registered_id(env, text) for text in units.target_texts(env)]
    if env["OFFLOAD_WRAPPER_LLVM"] not in (None, _CURRENT_WRAPPER):
        options["generation"] = env["OFFLOAD_WRAPPER_LLVM"]
    name = units.named(env, target, "$OBJSUFFIX")
    return [containers.wrap_node(env, [name], sources, kind, **options)]


def _registered_id(env: Environment, text: str) -> str:
    from offload_tool.operations.wrap import registered_id

    if text.count("-") > 1:
        found = BundleEntryID.parse_any_kind(text).target_id
        if found is None:
            raise UsageError(
                f"OFFLOAD_TARGETS: '{text}' has no target ID; "
                "write it as in 'hip-amdgcn-amd-amdhsa--gfx90a'"
            )
        text = str(found)
    return registered_id(text, allow_unknown=env["OFFLOAD_ALLOW_UNKNOWN_ARCH"])


def _package_keys(env: Environment, images: list[Node]) -> dict[Node, dict[str, str]]:
    of_all: dict[str, str] = {}
    of_file: dict[Node, dict[str, str]] = {}
    for key, value in (env["OFFLOAD_PACKAGE_KEYS"] or {}).items():
        if not hasattr(value, "items"):
            of_all.update(_pair(env, key, value))
            continue
        (node,) = env.arg2nodes([key], env.fs.File)
        if node not in images:
            raise UsageError(
                f"OFFLOAD_PACKAGE_KEYS: '{node}' is not in the package; expected one of "
                f"{', '.join(map(str, images))}"
            )
        for name, text in value.items():
            of_file.setdefault(node, {}).update(_pair(env, name, text))
    keys = {node: {**of_all, **of_file.get(node, {})} for node in images}
    return {node: found for node, found in keys.items() if found}


def _pair(env: Environment, key: Any, value: Any) -> dict[str, str]:
    if key in ("file", "kind", "triple", "arch"):
        raise UsageError(
            f"OFFLOAD_PACKAGE_KEYS: '{key}' is what nodes set by themselves; use OFFLOAD_TARGETS "
            "for files"
        )
    if not (isinstance(key, str) and key and isinstance(value, str)):
        raise UsageError(
            f"OFFLOAD_PACKAGE_KEYS: expected texts for a key and its value, found {key!r}: "
            f"{value!r}"
        )
    return {key: env.subst(value)}
