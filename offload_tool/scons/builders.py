"""The builders: methods of a construction environment that return ordinary SCons nodes.

What each node is made of and by which action is declared in `compiling` (compiler passes),
`images` (what becomes of device code) and `archives` (device libraries).
"""

from __future__ import annotations

import itertools
import os
from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import SCons.Errors
import SCons.Node
import SCons.Node.FS
import SCons.Util

from offload_tool.compiler import openmp
from offload_tool.compiler.compile_target import CompileTarget, parse_target
from offload_tool.compiler.passes import C_SUFFIXES
from offload_tool.errors import CompilerError, OffloadError, UsageError
from offload_tool.scons import actions, compat, settings
from offload_tool.scons.archives import (
    archive_node,
    bundle_kind,
    device_archive_nodes,
    device_of,
    entry_names,
    given_entries,
    kind_outside_bundles,
)
from offload_tool.scons.calls import for_kinds
from offload_tool.scons.common_builders import accept_offload_sources, builder_of_scons
from offload_tool.scons.compile_commands import database_node
from offload_tool.scons.compiling import device_nodes, host_node, with_host
from offload_tool.scons.declaring import NodeBuilder
from offload_tool.scons.images import (
    GivenCode,
    Linked,
    bundle_node,
    linkable_nodes,
    object_node,
    openmp_member_node,
    package_node,
    tools_marker,
    wrap_node,
)
from offload_tool.scons.kpack_nodes import (
    WRAP_FLAG,
    attach_archives,
    codes_of,
    given_archives,
)
from offload_tool.scons.nodes import (
    Owner,
    Unit,
    files_beside,
    given_ids,
    identified,
    is_plain_source,
    kind_of,
    named,
    placed,
    source_nodes,
    units,
)
from offload_tool.scons.outputs import PlainOutput
from offload_tool.scons.records import declared_passes
from offload_tool.scons.report_node import report_node
from offload_tool.scons.summary import offload_progress

if TYPE_CHECKING:
    from collections.abc import Iterable

    from offload_tool.scons.protocols import Environment, Node

__all__ = ["add_builders", "extend_builders"]

_LIBRARY_SUFFIXES = (".a", ".o")
_EXTRACT = NodeBuilder(actions.EXTRACT)
_UNBUNDLE = NodeBuilder(actions.UNBUNDLE)


def add_builders(env: Environment) -> None:
    """Add the builders to a construction environment, as methods."""
    for name, method in (
        ("OffloadDeviceObject", offload_device_object),
        ("OffloadHostObject", offload_host_object),
        ("OffloadBundle", offload_bundle),
        ("OffloadUnbundle", offload_unbundle),
        ("OffloadArchive", offload_archive),
        ("OffloadDeviceArchive", offload_device_archive),
        ("OffloadPackage", offload_package),
        ("OffloadExtract", offload_extract),
        ("OffloadWrapper", offload_wrapper),
        ("OffloadObject", offload_object),
        ("OffloadStaticLibrary", offload_static_library),
        ("OffloadSharedLibrary", offload_shared_library),
        ("OffloadProgram", offload_program),
        ("OffloadKpack", offload_kpack),
        ("OffloadReport", offload_report),
        ("OffloadCompilationDatabase", offload_compilation_database),
    ):
        env.AddMethod(_as_builder(name, method), name)
    env.AddMethod(_as_users_see_it(offload_device_runtime), "OffloadDeviceRuntime")
    env.AddMethod(_as_users_see_it(offload_host_runtime), "OffloadHostRuntime")
    env.AddMethod(_as_users_see_it(offload_cuda_toolkit), "OffloadCudaToolkit")
    env.AddMethod(offload_progress, "OffloadProgress")


def extend_builders(env: Environment) -> None:
    """Let SCons's own builders in a construction environment accept offload sources."""
    accept_offload_sources(
        env,
        {
            "Object": _as_builder("OffloadObject", offload_object),
            "StaticObject": _as_builder("OffloadObject", offload_object),
            "SharedObject": _as_builder("SharedObject", offload_shared_object),
            "StaticLibrary": _as_builder("OffloadStaticLibrary", offload_static_library),
            "Library": _as_builder("OffloadStaticLibrary", offload_static_library),
            "SharedLibrary": _as_builder("OffloadSharedLibrary", offload_shared_library),
            "LoadableModule": _as_builder("LoadableModule", offload_loadable_module),
            "Program": _as_builder("OffloadProgram", offload_program),
        },
    )


_NOT_GIVEN = object()


def _as_builder(name: str, method: Any) -> Any:
    """Call `method` as SCons calls builders: (env, source), or (env, target, source)."""

    def builder(
        env: Environment, target: Any = None, source: Any = _NOT_GIVEN, **overrides: Any
    ) -> Any:
        call = settings.call(env, overrides)
        local = call.env
        if method is offload_compilation_database:
            return SCons.Node.NodeList(method(local, _one_name(local, target), []))
        if source is _NOT_GIVEN:
            target, source = None, target
        target = _one_name(local, target)
        try:
            nodes = source_nodes(local, source)
        except UsageError as error:
            what = name if target is None else f"{name} of '{target}'"
            raise UsageError(f"{what}: {error}") from None
        return SCons.Node.NodeList(method(call.for_kinds(_kinds(local, nodes)), target, nodes))

    builder.__doc__ = method.__doc__
    return _as_users_see_it(builder)


def _kinds(env: Environment, nodes: Iterable[Node]) -> set[str]:
    """Give the offload kinds of the sources that a builder is given."""
    return {kind for kind in (kind_of(env, node) for node in nodes) if kind is not None}


def _as_users_see_it(method: Any) -> Any:
    """Turn an error into SCons's, which is shown with the line of the SConscript."""

    def call(*arguments: Any, **overrides: Any) -> Any:
        try:
            return method(*arguments, **overrides)
        except (OffloadError, SCons.Errors.UserError) as error:
            raise SCons.Errors.UserError(str(error)) from None

    compat.blame_caller(call)
    call.__doc__ = method.__doc__
    return call


def offload_device_object(env: Environment, target: str | None, source: Any) -> list[Node]:
    """Give one node per source and target ID: that target's code object, bitcode or PTX."""
    return [node for unit in units(env, target, source) for node in device_nodes(env, unit)]


def offload_host_object(env: Environment, target: str | None, source: Any) -> list[Node]:
    """Give the host object of each source; it does not depend on any device image."""
    name = env.fs.File(target) if target and PurePath(target).suffix else None
    return [host_node(env, unit, name) for unit in units(env, target, source)]


def offload_bundle(env: Environment, target: str | None, source: Any) -> list[Node]:
    """Give the bundle of one HIP source, or of nodes and files.

    A source stands for its code objects, one per target ID. Nodes of this tool carry
    their bundle entry ID; for other files, ``OFFLOAD_TARGETS`` gives the IDs in order.
    """
    file_type = settings.bundle_type(env, "bc")
    if file_type == "a":
        raise UsageError("OFFLOAD_BUNDLE_TYPE: archives are not bundled; use OffloadArchive")
    suffix = f".{file_type}" if env["OFFLOAD_BUNDLE_TYPE"] else "$OFFLOADBUNDLESUFFIX"
    nodes = source_nodes(env, source)
    sources = [node for node in nodes if kind_of(env, node)]
    if len(sources) > 1:
        names = ", ".join(map(str, sources))
        raise UsageError(
            f"one bundle holds the code objects of one source, but {names} were given; "
            "give each its own bundle"
        )
    if not sources:
        if target is None:
            raise UsageError("OffloadBundle of nodes or files needs a target name")
        return [bundle_node(env, [named(env, target, suffix)], nodes, file_type)]
    unit = units(env, target, sources)[0]
    bundle = named(env, target, suffix) if target else unit.file(env, suffix)
    unit = replace(unit, owner=_owner(bundle, "bundle"))
    if unit.kind == "cuda":
        raise UsageError(f"'{unit.source}': bundles hold HIP and OpenMP code; use OffloadPackage")
    if env["OFFLOAD_BUNDLE_HOST"]:
        unit, host = with_host(env, unit)
    compiled = device_nodes(env, unit)
    if env["OFFLOAD_BUNDLE_HOST"]:
        compiled.insert(0, host)
    parts = [part for node in nodes for part in (compiled if node in sources else [node])]
    return [bundle_node(env, [bundle], parts, file_type)]


def offload_unbundle(env: Environment, target: str | None, source: Any) -> list[Node]:
    """Give one node per entry of a bundle: those of ``OFFLOAD_TARGETS``, or ``OFFLOAD_ARCH``.

    The files are called ``<name>.<target ID>.co``, or ``<name>.<offload kind>.co`` for
    entries without a target ID; with both where two would have one name. Of a bundle of
    another file type than the default one, the suffix is that type. An archive (type ``a``)
    gives what OffloadDeviceArchive does.
    """
    file_type = settings.bundle_type(env, "o")
    if file_type == "a":
        return offload_device_archive(env, target, source)
    bundle = _one_source(env, source, "OffloadUnbundle takes one bundle")
    ids = given_ids(env)
    if not ids:
        kind = bundle_kind(env)
        ids = [device.entry_id(kind) for device in settings.devices(env, kind)]
    stem = _stem(env, target, bundle)
    suffix = f".{file_type}" if env["OFFLOAD_BUNDLE_TYPE"] else env.subst("$OFFLOADDEVICESUFFIX")
    options: dict[str, Any] = {**settings.unbundling(env)}
    if env["OFFLOAD_BUNDLE_TYPE"]:
        options["file_type"] = file_type
    nodes = []
    names = entry_names(ids, [entry.target_id.replace(":", "_") or entry.kind for entry in ids])
    for entry, name in zip(ids, names, strict=True):
        file = stem.dir.File(f"{stem.name}.{name}{suffix}")
        spec = settings.spec(entry=str(entry), **({"options": options} if options else {}))
        nodes += _UNBUNDLE(env, file, bundle, _OFFLOAD_SPEC=spec)
        if entry.kind != "host":
            file.attributes.offload_kind = kind_outside_bundles(entry)
            file.attributes.offload_device = device_of(entry)
        file.attributes.offload_entry_id = entry
    return nodes


def offload_archive(env: Environment, target: str | None, source: Any) -> list[Node]:
    """Give the heterogeneous device archive (HDA) of HIP or OpenMP sources, or of bundles.

    Each member is an object bundle: a host object, and relocatable device code of each
    target ID. A host linker takes the archive as any static library.
    """
    if target is None:
        raise UsageError("OffloadArchive needs a target name")
    library = _library_file(env, target)
    members = []
    kinds = set()
    relocatable = env.Override({"OFFLOAD_RDC": True})
    for node in source_nodes(env, source):
        if kind_of(env, node):
            unit = units(relocatable, None, node, owner=_owner(library, "library"))[0]
            kinds.add(unit.kind)
            declare = openmp_member_node if unit.kind == "openmp" else object_node
            members.append(declare(relocatable, unit, unit.files(env, "$OBJSUFFIX")))
        else:
            members.append(node)
    archive = archive_node(env, library, members)
    archive.attributes.offload_archive = True
    if len(kinds) > 1:
        raise UsageError(
            f"'{archive}' has sources of {' and '.join(sorted(kinds))}: one archive each"
        )
    told = kinds or {env.subst("$OFFLOAD_KIND").lower()}
    if not told.isdisjoint({"openmp", "cuda"}):
        archive.attributes.offload_library_kind = next(iter(told))
    _keep_source_fatbins(archive, members)
    return [archive]


def offload_device_archive(env: Environment, target: str | None, source: Any) -> list[Node]:
    """Give one device-specific archive (DSA) per target ID of a heterogeneous one.

    Of ``OFFLOAD_TARGETS``, or of ``OFFLOAD_ARCH`` for the archive's offload kind. The files
    are called ``<name>.<target ID>.a``, with the kind where two would have one name.
    """
    library = _one_source(env, source, "OffloadDeviceArchive takes one archive")
    return device_archive_nodes(env, library, _stem(env, target, library), given_entries(env))


def offload_package(env: Environment, target: str | None, source: Any) -> list[Node]:
    """Give the offload binary of one offload source, or of nodes of this tool.

    A source stands for its device code, one image per target ID. For files that are no
    nodes of this tool, ``OFFLOAD_TARGETS`` gives a bundle entry ID for each.
    """
    nodes = source_nodes(env, source)
    name = target or _path(nodes[0].dir.File(SCons.Util.splitext(nodes[0].name)[0]))
    package = named(env, name, "$OFFLOADPACKAGESUFFIX")
    images: list[Node] = []
    for node in nodes:
        if kind_of(env, node):
            unit = units(env, None, node, owner=_owner(package, "package"))[0]
            images += device_nodes(env, unit)
        else:
            images.append(node)
    given = _given_devices(
        env, [node for node in images if not hasattr(node.attributes, "offload_device")]
    )
    return [package_node(env, [package], images, given)]


def offload_extract(env: Environment, target: str | None, source: Any) -> list[Node]:
    """Give one node per image of an offload binary, for ``OFFLOAD_ARCH`` or ``OFFLOAD_TARGETS``.

    The package may be inside of an object, a program, an archive or bitcode. The files are
    called ``<name>.<target ID>.co``.
    """
    package = _one_source(env, source, "OffloadExtract takes one file")
    kind = env.subst("$OFFLOAD_KIND").lower() or "hip"
    wanted = [(kind_outside_bundles(entry), device_of(entry), entry) for entry in given_ids(env)]
    if not wanted:
        devices = settings.devices(env, kind)
        wanted = [(kind, device, device.entry_id(kind)) for device in devices]
    stem = _stem(env, target, package)
    nodes = []
    for kind, device, entry in wanted:
        file = stem.dir.File(f"{stem.name}.{device.filename}{env.subst('$OFFLOADDEVICESUFFIX')}")
        strings = {"triple": device.triple.rstrip("-"), "arch": str(device.target_id or "")}
        spec = settings.spec(kind=kind, strings=strings)
        nodes += _EXTRACT(env, file, package, _OFFLOAD_SPEC=spec)
        file.attributes.offload_kind, file.attributes.offload_device = kind, device
        if kind != "cuda":  # bundles have no such kind
            file.attributes.offload_entry_id = entry
    return nodes


def offload_wrapper(env: Environment, target: str | None, source: Any) -> list[Node]:
    """Give the module that registers device images in a host program: ``.o``, or ``.bc``.

    OpenMP (``OFFLOAD_KIND="openmp"``) takes images or offload binaries of one each, HIP one
    bundle, CUDA one fat binary.
    """
    images = source_nodes(env, source)
    if target is None:
        raise UsageError("OffloadWrapper needs a target name, ending in .o or .bc")
    kind = env.subst("$OFFLOAD_KIND").lower() or "hip"
    return [wrap_node(env, [named(env, target, "$OBJSUFFIX")], images, kind)]


def offload_object(env: Environment, target: str | None, source: Any) -> list[Node]:
    """Give one linkable object per source: host code with all device images in it.

    With ``OFFLOAD_RDC``, and of OpenMP sources, it holds device code that is yet to be
    linked: give it to OffloadProgram, or to clang.
    """
    return _objects(env, target, source, "$OBJSUFFIX")


def offload_shared_object(env: Environment, target: str | None, source: Any) -> list[Node]:
    """Give the objects of OffloadObject for shared libraries."""
    nodes = _objects(env, target, source, settings.shared_suffix(env), shared=True)
    for node in nodes:
        node.attributes.shared = True  # SCons links no other objects into a shared library
    return nodes


def _objects(
    env: Environment, target: str | None, source: Any, suffix: str, *, shared: bool = False
) -> list[Any]:
    nodes = []
    for unit in units(env, target, source, own_cuid=True):
        node = named(env, target, suffix) if target else unit.file(env, suffix)
        owned = replace(unit, owner=_owner(node, "shared" if shared else "object"))
        made = object_node(env, owned, [node], shared=shared, group=_owner(node, "").name)
        attach_archives(env, made, codes_of([made]))
        nodes.append(made)
    return nodes


def offload_static_library(env: Environment, target: str | None, source: Any) -> list[Node]:
    """Give a static library of offload sources, C and C++ sources, and objects.

    With ``OFFLOAD_RDC`` it is a heterogeneous device archive: see OffloadArchive. OpenMP
    regions in it are linked into the images of the programs that take the library.
    """
    if target is None:
        raise UsageError("OffloadStaticLibrary needs a target name")
    library = _library_file(env, target)
    owner = _owner(library, "library")
    members = []
    for node in source_nodes(env, source):
        if kind_of(env, node):
            unit = units(env, None, node, owner=owner)[0]
            group = owner.name.removeprefix(env.subst("$LIBPREFIX"))
            names = unit.files(env, "$OBJSUFFIX")
            members.append(object_node(env, unit, names, group=group))
        else:
            members += _plain_objects(env, node, owner, shared=False)
    archive = archive_node(env, library, members)
    attach_archives(env, archive, codes_of(members))
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
            f"'{archive}' has relocatable device code of {' and '.join(sorted(kinds))}: one "
            "library each"
        )
    if kinds == {"cuda"}:
        archive.attributes.offload_library_kind = "cuda"
    _keep_source_fatbins(archive, members)
    return [archive]


def _relocatable_kinds(members: list[Node]) -> set[str]:
    """Give the offload kinds of objects whose device code is yet to be linked."""
    return {
        module.attributes.offload_kind
        for member in members
        for module in getattr(member.attributes, "offload_device_nodes", ())
    }


def _keep_source_fatbins(library: Node, members: list[Node]) -> None:
    """Let a link know the PTX of a library's CUDA sources, if no member has its own.

    It is for devices that have no linked image.
    """
    found = [getattr(member.attributes, "offload_source_fatbins", None) for member in members]
    if found and None not in found:
        library.attributes.offload_source_fatbins = [
            node for nodes in found if nodes is not None for node in nodes
        ]


def offload_shared_library(env: Environment, target: str | None, source: Any) -> list[Node]:
    """Give a shared library; its sources are as of OffloadProgram."""
    return _link(env, target, source, "SharedLibrary")


def offload_loadable_module(env: Environment, target: str | None, source: Any) -> list[Node]:
    """Give a library that programs load when they run; its sources are as of OffloadProgram."""
    return _link(env, target, source, "LoadableModule")


def offload_program(env: Environment, target: str | None, source: Any) -> list[Node]:
    """Give a program of offload sources, C and C++ sources, objects and libraries.

    Heterogeneous device archives among the sources, or in ``OFFLOAD_LIBS``, take part in
    both links: their device code in each target's, their host code in the program's.
    Device-specific archives, and bitcode, take part in the link of their target.
    """
    return _link(env, target, source, "Program")


def offload_kpack(env: Environment, target: str | None, source: Any) -> list[Node]:  # noqa: ARG001
    """Give the kpack archives that programs, libraries and objects look for, to be installed."""
    return given_archives(source_nodes(env, source))


def offload_report(env: Environment, target: str | None, source: Any) -> list[Node]:
    """Give the page of ``offload-tool report`` about files with device images."""
    return [report_node(env, target, source_nodes(env, source))]


def offload_compilation_database(env: Environment, target: str | None, source: Any) -> list[Node]:  # noqa: ARG001
    """Give ``compile_commands.json``: one entry per source and target, the host's first."""
    return [database_node(env, target)]


def offload_device_runtime(env: Environment, target_id: str) -> list[str]:
    """Give the OpenMP device runtime that is linked into images for `target_id`; [] for none."""
    found = settings.device_runtimes(env, parse_target(target_id))
    return [str(env.File(name, env.fs.Top)) for name in found]


def offload_host_runtime(env: Environment) -> str | None:
    """Give the OpenMP runtime that came with the compiler; without one, no program links."""
    return openmp.host_runtime(settings.toolchain(env))


def offload_cuda_toolkit(env: Environment) -> str | None:
    """Give the folder of the CUDA toolkit that sources are compiled with; None if there is none."""
    try:
        found = settings.toolchain(for_kinds(env, ["cuda"]))
    except CompilerError:
        return None
    return found.cuda or None


def _link(env: Environment, target: str | None, source: Any, builder: str) -> list[Any]:
    shared = builder != "Program"
    if builder not in env["BUILDERS"]:
        raise UsageError(
            f"Offload{builder} needs SCons's linker tool: Environment(tools=['default', 'offload'])"
        )
    nodes = source_nodes(env, source)
    stem = _stem(env, target, nodes[0])
    owner = _owner(stem, "shared" if shared else "program")
    given_libraries = [*filter(_is_device_archive, nodes), *_given_libraries(env)]
    libraries = list(dict.fromkeys(given_libraries))
    offload: list[Unit] = []
    relocatable: list[Node] = []
    device_code: list[Node] = []
    objects: list[Node] = []
    unseen: list[Node] = []
    for node in nodes:
        if kind_of(env, node):
            offload += units(env, None, node, owner=owner)
        elif hasattr(node.attributes, "offload_device_nodes") and node not in libraries:
            relocatable.append(node)
        elif hasattr(node.attributes, "offload_device"):
            device_code.append(_linkable(node))
        elif node not in libraries:
            objects += _plain_objects(env, node, owner, shared=shared)
            unseen += [] if is_plain_source(node) else [node]
    given = GivenCode(offload, relocatable, device_code, libraries)
    linked = linkable_nodes(env, stem, owner, given, shared=shared)
    variables = _link_variables(env, linked, "SHLINK" if shared else "LINK")
    libraries = [linked.marked.get(library, library) for library in libraries]
    inputs = [*linked.objects, *objects, *libraries]
    others = SCons.Util.flatten([env.get("LIBS", [])])
    codes = [*linked.codes, *codes_of([*objects, *others])]
    if codes:
        inputs.insert(0, tools_marker(env, stem, owner, codes, shared=shared))
    name = (target or _path(stem)).replace("$", "$$")
    made = identified(env, builder_of_scons(env, builder)(env, [name], inputs, **variables))
    _check(made)
    attach_archives(env, made[0], codes)
    if unseen:
        made[0].attributes.offload_unseen = unseen
        env.AddPreAction(made[0], actions.CHECK_UNSEEN)
    return made


def _link_variables(env: Environment, linked: Linked, link: str) -> dict[str, Any]:
    """Give the variables with which SCons links; `link` is the variable of the linker."""
    found = settings.toolchain(env)
    variables = {**settings.toolchain_variables(env), link: placed(found.cxx)}
    flags = settings.link_flags(env)
    if linked.needs_openmp:
        variables["LIBS"] = [*SCons.Util.flatten([env.get("LIBS", [])]), "omptarget"]
        own, folder = openmp.link_flags(found)
        flags = [*dict.fromkeys([*flags, *own]), "$(", *folder, "$)"]
    if linked.wraps:
        flags = [*flags, WRAP_FLAG]
    if flags:
        variables[f"{link}FLAGS"] = [f"${link}FLAGS", *flags]
    return variables


def _check(nodes: Iterable[Node]) -> None:
    """Let what SCons's own builders make be made again where it is not what was made."""
    for node in nodes:
        compat.adopt(node, PlainOutput)


def _owner(node: Node, sort: str) -> Owner:
    """Describe what a user has named, for the names of what is made for it."""
    return Owner(SCons.Util.splitext(node.name)[0], sort, node.get_internal_path())


def _plain_objects(env: Environment, node: Node, owner: Owner, *, shared: bool) -> list[Any]:
    """Give the objects of a C or C++ source; anything else is given to the linker as it is."""
    if not is_plain_source(node):
        return [node]
    found = settings.toolchain(env)
    commands: dict[str, Any] = {"CC": placed(found.cc), "CXX": placed(found.cxx)}
    if shared:
        commands = {f"SH{name}": command for name, command in commands.items()}
        commands["SHOBJSUFFIX"] = settings.shared_suffix(env)
    language = "CC" if node.get_suffix() in C_SUFFIXES else "CXX"
    command = f"${'SH' if shared else ''}{language}COM"
    # Several programs may share a source; SCons warns of objects that are declared twice.
    known = getattr(node.attributes, "offload_objects", {})
    key = env.Override(commands).subst(command, target=[], source=[node])
    if key not in known:
        variables = {**commands, **settings.toolchain_variables(env)}
        variables["_CPPINCFLAGS"] = "$( $_OFFLOAD_INCLUDES $)"
        made = _plain_object(env, node, owner, variables, shared=shared)
        _check(made)
        for item in made:
            declared_passes(env).add(item, node, command, "host")
        node.attributes.offload_objects = known | {key: identified(env, made)}
    return list(node.attributes.offload_objects[key])


def _plain_object(
    env: Environment, node: Node, owner: Owner, variables: dict[str, Any], *, shared: bool
) -> Any:
    """Declare the object of a C or C++ source, named after `owner` if another one is there."""
    builder = builder_of_scons(env, "SharedObject" if shared else "StaticObject")
    try:
        return builder(env, None, node, **variables)
    except SCons.Errors.UserError:
        stem = node.dir.File(SCons.Util.splitext(node.name)[0])
        suffix = env.Override(variables).subst("$SHOBJSUFFIX" if shared else "$OBJSUFFIX")
        for name in itertools.islice(files_beside(env, stem, suffix, owner), 1, None):
            try:
                return builder(env, name, node, **variables)
            except SCons.Errors.UserError:
                continue
        raise


def _linkable(node: Node) -> Any:
    """Give back a node of device code that takes part in a device link.

    :raises UsageError: it is an image already.
    """
    if not getattr(node.attributes, "offload_relocatable", False):
        raise UsageError(
            f"'{node}' is a complete device image, which no program is linked of; give the "
            "program its source, or embed its bundle with OffloadWrapper"
        )
    if node.attributes.offload_kind == "cuda":
        raise UsageError(f"'{node}' takes part in no link without its host code: give its source")
    return node


def _is_device_archive(node: Node) -> bool:
    """Tell whether a library's device code is linked, too: of ours, or of clang's drivers."""
    attributes = getattr(node, "attributes", None)
    if attributes is None:
        return False
    if not hasattr(attributes, "offload_archive"):
        attributes.offload_archive = _is_given_library(node)
    return bool(attributes.offload_archive)


def _is_given_library(node: Node) -> bool:
    """Tell whether a file that no one builds is an object or archive with relocatable code."""
    if node.is_derived() or node.get_suffix() not in _LIBRARY_SUFFIXES:
        return False
    found = next((file for file in (node.rfile(), node.srcnode().rfile()) if file.exists()), None)
    from offload_tool.operations.relocatable import relocatable_kinds

    kinds = relocatable_kinds(found.get_abspath()) if found is not None else frozenset()
    if len(kinds) > 1:
        raise UsageError(f"'{node}' has relocatable device code of HIP and CUDA: one library each")
    if kinds == {"cuda"}:
        node.attributes.offload_library_kind = "cuda"
    return bool(kinds)


def _given_libraries(env: Environment) -> list[Any]:
    """Give the archives of ``OFFLOAD_LIBS``, and those that ``LIBS`` has as nodes."""
    given = source_nodes(env, env["OFFLOAD_LIBS"]) if env["OFFLOAD_LIBS"] else []
    for node in given:
        _is_device_archive(node)  # of which offload kind it is, where it is there to be read
    others = SCons.Util.flatten([env.get("LIBS", [])])
    return given + [node for node in others if _is_device_archive(node)]


def _library_file(env: Environment, target: str) -> Any:
    """Give the node of a library: ``geometry`` is called ``libgeometry.a``."""
    path = PurePath(target)
    suffix = env.subst("$LIBSUFFIX")
    name = path.name if path.suffix == suffix else path.name + suffix
    prefix = env.subst("$LIBPREFIX")
    return env.fs.File(str(path.with_name(name if name.startswith(prefix) else prefix + name)))


def _given_devices(env: Environment, nodes: list[Node]) -> dict[Any, tuple[str, CompileTarget]]:
    """Give the offload kinds and devices of plain files, which ``OFFLOAD_TARGETS`` tells."""
    given = given_ids(env)
    if len(nodes) != len(given):
        raise UsageError(
            f"OFFLOAD_TARGETS gives {len(given)} bundle entry IDs for {len(nodes)} files that "
            f"carry no target ID ({', '.join(map(str, nodes)) or 'no file'}); "
            "expected one for each, in order"
        )
    pairs = zip(nodes, given, strict=True)
    return {node: (kind_outside_bundles(entry), device_of(entry)) for node, entry in pairs}


def _stem(env: Environment, target: str | None, source: Any) -> Any:
    """Give the file after which several outputs are named: `target`, or the source."""
    if target is not None:
        return env.fs.File(SCons.Util.splitext(target)[0])
    return source.dir.File(SCons.Util.splitext(source.name)[0])


def _one_source(env: Environment, source: Any, problem: str) -> Any:
    nodes = source_nodes(env, source)
    if len(nodes) != 1:
        raise UsageError(f"{problem}, not {len(nodes)}")
    return nodes[0]


def _one_name(env: Environment, target: Any) -> str | None:
    """Give the one target name that a user may pass, as text in which nothing is replaced."""
    names = SCons.Util.flatten([target]) if target is not None else []
    if len(names) > 1:
        raise UsageError(f"expected one target name, found {len(names)}")
    if not names:
        return None
    if isinstance(names[0], SCons.Node.FS.Base):
        return _path(names[0])
    return str(env.subst(os.fspath(names[0])))


def _path(node: Node) -> str:
    """Give the name by which SCons finds a node from any folder."""
    path: str = node.get_internal_path()
    return path if PurePath(path).is_absolute() else f"#{path}"
