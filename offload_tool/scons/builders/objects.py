"""Builders of objects and static libraries from offload sources, and from C and C++."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePath
from typing import Any

import SCons.Errors

from offload_tool.errors import UsageError
from offload_tool.formats.hip_fatbin import cuid_hash
from offload_tool.passes.source_kind import C_SUFFIXES
from offload_tool.scons import compat, found_tools, settings, spawn
from offload_tool.scons.builders.standard import builder_of_scons
from offload_tool.scons.graph import units
from offload_tool.scons.graph.compile_nodes import device_nodes, host_node
from offload_tool.scons.graph.containers import archive_node, device_archive_nodes, linked_library
from offload_tool.scons.graph.images import linkable_nodes, member_node, object_node
from offload_tool.scons.graph.kpack import attach_archives, codes_of
from offload_tool.scons.graph.links import (
    UNKNOWN,
    OffloadInputs,
    code_kinds,
    only_kind,
    selected_kind,
)
from offload_tool.scons.state.build_log import declared_passes
from offload_tool.scons.state.node_classes import adopt_plain
from offload_tool.scons.state.node_info import info_of
from offload_tool.scons.types import Environment, Node


def offload_device_object(env: Environment, target: str | None, sources: list[Node]) -> list[Node]:
    """Return one node per source and target ID: that target's code object, bitcode or PTX."""
    found = units.source_units(env, target, sources)
    return [node for unit in found for node in device_nodes(env, unit)]


def offload_host_object(env: Environment, target: str | None, sources: list[Node]) -> list[Node]:
    """Return the host object of each source; it does not depend on any device image."""
    name = env.fs.File(target) if target and PurePath(target).suffix else None
    return [host_node(env, unit, name) for unit in units.source_units(env, target, sources)]


def offload_object(
    env: Environment, target: str | None, sources: list[Node], *, shared: bool = False
) -> list[Node]:
    """Return one linkable object per source: host code that embeds all device images.

    With ``OFFLOAD_RDC``, and for OpenMP sources, it holds unlinked device code: pass it to
    OffloadProgram, or to clang.
    """
    suffix = settings.shared_suffix(env) if shared else "$OBJSUFFIX"
    nodes = []
    for unit in units.source_units(env, target, sources, own_cuid=True):
        node = units.named(env, target, suffix) if target else unit.stem.file(env, suffix)
        owner = units.Owner.of(node, "shared" if shared else "object")
        owned = unit.owned_by(owner)
        made = object_node(env, owned, [node], group=owner.name)
        attach_archives(env, made, codes_of([made]))
        nodes.append(made)
    if shared:
        compat.mark_shared(nodes)
    return nodes


def plain_objects(env: Environment, node: Node, owner: units.Owner) -> list[Any]:
    """Return the objects of a C or C++ source; return anything else unchanged, for the linker."""
    if not units.is_plain_source(node):
        return [node]
    found = found_tools.toolchain(env)
    commands: dict[str, Any] = {
        "CC": units.unsigned_program(found.cc),
        "CXX": units.unsigned_program(found.cxx),
    }
    if owner.is_shared:
        commands = {f"SH{name}": command for name, command in commands.items()}
        commands["SHOBJSUFFIX"] = settings.shared_suffix(env)
    language = "CC" if node.get_suffix() in C_SUFFIXES else "CXX"
    command = f"${'SH' if owner.is_shared else ''}{language}COM"
    # Several programs may share a source; SCons warns of objects that are declared twice.
    known = info_of(node).plain_objects
    shown = {**commands, "TEMPFILE": lambda text, *_: text}  # SCons's own writes a file each time
    key = env.Override(shown).subst(command, target=[], source=[node])
    if key not in known:
        variables = {**commands, **spawn.toolchain_variables(env)}
        variables["_CPPINCFLAGS"] = "$( $_OFFLOAD_INCLUDES $)"
        taken = {item for made in known.values() for item in made}
        made = _plain_object(env, node, owner, variables, taken)
        adopt_plain(made, command)
        for item in made:
            declared_passes(env).add(item, node, command, "host")
            units.add_identity(env, item)
        known[key] = made
    return list(known[key])


def _plain_object(
    env: Environment, node: Node, owner: units.Owner, variables: dict[str, Any], taken: set[Node]
) -> Any:
    """Declare the object of a C or C++ source, named after `owner` if the plain name is taken.

    SCons's builder tells that only after it has called emitters, one of which may record a command:
    that of the tool ``compilation_db``. It is not tried for names that our objects have `taken`.
    """
    builder = builder_of_scons(env, "SharedObject" if owner.is_shared else "StaticObject")
    suffix = env.Override(variables).subst("$SHOBJSUFFIX" if owner.is_shared else "$OBJSUFFIX")
    plain, *others = units.Stem.of(node, owner).files(env, suffix)
    errors = []
    for name in [each for each in (plain, *others) if each not in taken] or [plain]:
        try:
            return builder(env, None if name is plain else name, node, **variables)
        except SCons.Errors.UserError as error:
            errors.append(error)
    raise errors[0]


def offload_archive(env: Environment, target: str | None, sources: list[Node]) -> list[Node]:
    """Return the heterogeneous device archive (HDA) of HIP or OpenMP sources, or of bundles.

    Each member is an object bundle: a host object, and relocatable device code of each target ID. A
    host linker takes the archive as any static library.
    """
    library = _library_file(env, target, "OffloadArchive")
    owner = units.Owner.of(library, "library")
    members = []
    kinds = set()
    relocatable = env.Override({"OFFLOAD_RDC": True})
    for node in sources:
        if units.kind_of(env, node):
            unit = units.unit_of(relocatable, node, units.Stem.of(node, owner))
            kinds.add(unit.kind)
            members.append(member_node(relocatable, unit, unit.stem.files(env, "$OBJSUFFIX")))
        else:
            members.append(node)
    archive = archive_node(env, library, members)
    if len(kinds) > 1:
        raise UsageError(
            f"'{archive}' has sources of {' and '.join(sorted(kinds))}; make one archive of each"
        )
    info_of(archive).code_kinds = frozenset(kinds or UNKNOWN)
    info_of(archive).source_fatbins = _all_nodes([info_of(each).source_fatbins for each in members])
    return [archive]


def offload_device_archive(env: Environment, target: str | None, sources: list[Node]) -> list[Node]:
    """Return one device-specific archive (DSA) per target ID of a heterogeneous one.

    The IDs are those of ``OFFLOAD_TARGETS``, or of ``OFFLOAD_ARCH`` for the archive's kind. The
    files are called ``<name>.<target ID>.a``, with the kind if names would clash.
    """
    library = units.only_source(sources, "OffloadDeviceArchive takes one archive")
    stem = units.output_stem(env, target, library)
    kind = selected_kind(env, library)
    return device_archive_nodes(env, library, stem, kind, units.given_ids(env))


def offload_static_library(env: Environment, target: str | None, sources: list[Node]) -> list[Node]:
    """Return a static library of offload sources, C and C++ sources, and objects.

    With ``OFFLOAD_RDC`` it is a heterogeneous device archive: see OffloadArchive. Programs that use
    the library link its OpenMP regions into their images. With ``OFFLOAD_DEVICE_LINK``, the
    relocatable HIP and CUDA code of its sources is linked in the library, which any linker takes.
    """
    library = _library_file(env, target, "OffloadStaticLibrary")
    owner = units.Owner.of(library, "library")
    if env["OFFLOAD_DEVICE_LINK"]:
        return [_device_linked_library(env, library, owner, sources)]
    members = []
    for node in sources:
        if units.kind_of(env, node):
            unit = units.unit_of(env, node, units.Stem.of(node, owner))
            group = owner.name.removeprefix(env.subst("$LIBPREFIX"))
            names = unit.stem.files(env, "$OBJSUFFIX")
            members.append(object_node(env, unit, names, group=group))
        else:
            members += plain_objects(env, node, owner)
    archive = archive_node(env, library, members)
    info_of(archive).packed = codes = codes_of(members)
    attach_archives(env, archive, codes)
    kinds = frozenset[str]().union(*map(code_kinds, members))
    info_of(archive).code_kinds = kinds
    if kinds and only_kind(archive, kinds) == "openmp":  # whose device code a program links
        found = [info_of(member).device_nodes for member in members if code_kinds(member)]
        info_of(archive).device_nodes = _all_nodes(found)
    info_of(archive).source_fatbins = _all_nodes([info_of(each).source_fatbins for each in members])
    return [archive]


def link_inputs(
    env: Environment, sources: list[Node], owner: units.Owner, of_units: Environment
) -> tuple[OffloadInputs, list[Any]]:
    """Return the offload code among a link's sources, and the rest, with C and C++ compiled."""
    given, others = OffloadInputs(), list[Any]()
    for node in sources:
        if units.kind_of(env, node):
            given.units.append(units.unit_of(of_units, node, units.Stem.of(node, owner)))
        elif code_kinds(node):
            given.files.append(node)
        else:
            others += plain_objects(env, node, owner)
    return given, others


def _device_linked_library(
    env: Environment, library: Any, owner: units.Owner, sources: list[Node]
) -> Node:
    if env["OFFLOAD_KPACK"]:
        raise UsageError(
            f"'{library}': OFFLOAD_DEVICE_LINK links device code into the library, OFFLOAD_KPACK "
            "keeps it apart; set one of them"
        )
    relocatable = env.Override({"OFFLOAD_RDC": True})
    given, plain = link_inputs(env, sources, owner, relocatable)
    suffix = env.subst("$LIBSUFFIX")
    archives = [node for node in given.files if node.get_suffix() == suffix]
    given.placed.update(archives)
    stem = replace(units.Stem.of(library), owner=owner)
    library_id = cuid_hash(library.get_internal_path())
    linked = linkable_nodes(relocatable, stem, given, library_id)
    if linked.needs_openmp or not linked.registers_entries:
        raise UsageError(
            f"'{library}': OFFLOAD_DEVICE_LINK is for HIP and CUDA sources; a program links "
            "OpenMP's code itself"
        )
    # NVIDIA's device runtime stays a library of its own.
    files = [node for node in linked.objects if node.get_suffix() != suffix]
    names = stem.files(env, ".linked$OBJSUFFIX")
    merged = linked_library(relocatable, names, files, archives, library_id)
    archive = archive_node(env, library, [merged, *plain])
    info_of(archive).code_kinds = frozenset()
    return archive


def _all_nodes(found: list[list[Node] | None]) -> list[Node] | None:
    """Return the nodes that are recorded of all members of a library; None if some have none."""
    if not found or None in found:
        return None
    return [node for nodes in found for node in nodes or ()]


def _library_file(env: Environment, target: str | None, builder: str) -> Any:
    if target is None:
        raise UsageError(f"{builder} needs a target name; write {builder}('name', sources)")
    path = PurePath(target)
    suffix = env.subst("$LIBSUFFIX")
    name = path.name if path.suffix == suffix else path.name + suffix
    prefix = env.subst("$LIBPREFIX")
    return env.fs.File(str(path.with_name(name if name.startswith(prefix) else prefix + name)))
