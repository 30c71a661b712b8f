"""Builders of static libraries with device code, and of one device's part of them."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from offload_tool.errors import UsageError
from offload_tool.scons.builders.objects import plain_objects
from offload_tool.scons.graph.device_archives import archive_node, device_archive_nodes
from offload_tool.scons.graph.units import (
    Owner,
    given_ids,
    kind_of,
    only_source,
    output_stem,
    source_nodes,
    units,
)
from offload_tool.scons.languages.hip import object_node, openmp_member_node
from offload_tool.scons.languages.kpack import attach_archives, codes_of

if TYPE_CHECKING:
    from offload_tool.scons.types import Environment, Node


def offload_archive(env: Environment, target: str | None, source: Any) -> list[Node]:
    """Return the heterogeneous device archive (HDA) of HIP or OpenMP sources, or of bundles.

    Each member is an object bundle: a host object, and relocatable device code of each
    target ID. A host linker takes the archive as any static library.
    """
    if target is None:
        raise UsageError(
            "OffloadArchive needs a target name; write OffloadArchive('name', sources)"
        )
    library = _library_file(env, target)
    members = []
    kinds = set()
    relocatable = env.Override({"OFFLOAD_RDC": True})
    for node in source_nodes(env, source):
        if kind_of(env, node):
            unit = units(relocatable, None, node, owner=Owner.of(library, "library"))[0]
            kinds.add(unit.kind)
            declare = openmp_member_node if unit.kind == "openmp" else object_node
            members.append(declare(relocatable, unit, unit.files(env, "$OBJSUFFIX")))
        else:
            members.append(node)
    archive = archive_node(env, library, members)
    archive.attributes.offload_archive = True
    if len(kinds) > 1:
        raise UsageError(
            f"'{archive}' has sources of {' and '.join(sorted(kinds))}; make one archive of each"
        )
    told = kinds or {env.subst("$OFFLOAD_KIND").lower()}
    if not told.isdisjoint({"openmp", "cuda"}):
        archive.attributes.offload_library_kind = next(iter(told))
    _keep_source_fatbins(archive, members)
    return [archive]


def offload_device_archive(env: Environment, target: str | None, source: Any) -> list[Node]:
    """Return one device-specific archive (DSA) per target ID of a heterogeneous one.

    Of ``OFFLOAD_TARGETS``, or of ``OFFLOAD_ARCH`` for the archive's offload kind. The files
    are called ``<name>.<target ID>.a``, with the kind where two would have one name.
    """
    library = only_source(env, source, "OffloadDeviceArchive takes one archive")
    return device_archive_nodes(env, library, output_stem(env, target, library), given_ids(env))


def offload_static_library(env: Environment, target: str | None, source: Any) -> list[Node]:
    """Return a static library of offload sources, C and C++ sources, and objects.

    With ``OFFLOAD_RDC`` it is a heterogeneous device archive: see OffloadArchive. OpenMP
    regions in it are linked into the images of the programs that take the library.
    """
    if target is None:
        raise UsageError(
            "OffloadStaticLibrary needs a target name; write OffloadStaticLibrary('name', sources)"
        )
    library = _library_file(env, target)
    owner = Owner.of(library, "library")
    members = []
    for node in source_nodes(env, source):
        if kind_of(env, node):
            unit = units(env, None, node, owner=owner)[0]
            group = owner.name.removeprefix(env.subst("$LIBPREFIX"))
            names = unit.files(env, "$OBJSUFFIX")
            members.append(object_node(env, unit, names, group=group))
        else:
            members += plain_objects(env, node, owner, shared=False)
    archive = archive_node(env, library, members)
    archive.attributes.offload_kpack = codes_of(members)
    attach_archives(env, archive, archive.attributes.offload_kpack)
    modules = [
        module
        for member in members
        for module in getattr(member.attributes, "offload_device_nodes", ())
        if module.attributes.offload_kind == "openmp"
    ]
    if modules:  # the link of a program takes them from there
        archive.attributes.offload_device_nodes = modules
    archive.attributes.offload_archive = bool(env["OFFLOAD_RDC"] or modules)
    kinds = _relocatable_kinds(members)
    if len(kinds) > 1:
        raise UsageError(
            f"'{archive}' has relocatable device code of {' and '.join(sorted(kinds))}; make "
            "one library of each"
        )
    if kinds == {"cuda"}:
        archive.attributes.offload_library_kind = "cuda"
    _keep_source_fatbins(archive, members)
    return [archive]


def _relocatable_kinds(members: list[Node]) -> set[str]:
    """Return the offload kinds of objects whose device code is yet to be linked."""
    return {
        module.attributes.offload_kind
        for member in members
        for module in getattr(member.attributes, "offload_device_nodes", ())
    }


def _keep_source_fatbins(library: Node, members: list[Node]) -> None:
    """Add the PTX of a library's CUDA sources to a link, if no member has its own.

    It is for devices that have no linked image.
    """
    found = [getattr(member.attributes, "offload_source_fatbins", None) for member in members]
    if found and None not in found:
        library.attributes.offload_source_fatbins = [
            node for nodes in found if nodes is not None for node in nodes
        ]


def _library_file(env: Environment, target: str) -> Any:
    """Return the node of a library: ``geometry`` is called ``libgeometry.a``."""
    path = PurePath(target)
    suffix = env.subst("$LIBSUFFIX")
    name = path.name if path.suffix == suffix else path.name + suffix
    prefix = env.subst("$LIBPREFIX")
    return env.fs.File(str(path.with_name(name if name.startswith(prefix) else prefix + name)))
