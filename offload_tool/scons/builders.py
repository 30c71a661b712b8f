"""The builders: they declare one node per job and return ordinary SCons nodes.

For one HIP source and two target IDs::

    saxpy.hip --+-- saxpy.gfx906.co ---+
                |                      +-- saxpy.hipfb -- saxpy.fatbin.o --+
                +-- saxpy.gfx90a.co ---+                                   +-- program
                |                                                          |
                +-- saxpy.host.o ------------------------------------------+

Each arrow is one action with one output. The host object is joined with the device
images at the very end, so neither side waits for, or is rebuilt because of, the other.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import SCons.Builder
import SCons.Errors
import SCons.Util

from offload_tool.compiler import hip
from offload_tool.errors import OffloadError, UsageError
from offload_tool.formats.entry_id import BundleEntryID, check_composition
from offload_tool.scons import actions, settings
from offload_tool.scons.dependencies import DEPENDENCY_SCANNER, depfile_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from offload_tool.formats.target_id import TargetID

__all__ = ["add_builders"]

# The fat binary's host entry is empty and always has this name, as the driver writes it.
_EMPTY_HOST_ENTRY = BundleEntryID.parse("host-x86_64-unknown-linux-gnu-")
_HIP_SUFFIXES = (".hip",)
_CUDA_SUFFIXES = (".cu",)
_CXX_SUFFIXES = (".cc", ".cpp", ".cxx", ".c++", ".C", ".CPP")
_C_SUFFIXES = (".c", ".s", ".S")

_DEVICE = SCons.Builder.Builder(action=actions.DEVICE, target_scanner=DEPENDENCY_SCANNER)
_HOST = SCons.Builder.Builder(action=actions.HOST, target_scanner=DEPENDENCY_SCANNER)
_BUNDLE = SCons.Builder.Builder(action=actions.BUNDLE)
_UNBUNDLE = SCons.Builder.Builder(action=actions.UNBUNDLE)
_EMBED = SCons.Builder.Builder(action=actions.EMBED)
_MERGE = SCons.Builder.Builder(action=actions.MERGE)


def add_builders(env: Any) -> None:
    """Add the builders to a construction environment, as methods."""
    for name, method in (
        ("OffloadDeviceObject", offload_device_object),
        ("OffloadHostObject", offload_host_object),
        ("OffloadBundle", offload_bundle),
        ("OffloadUnbundle", offload_unbundle),
        ("OffloadObject", offload_object),
        ("OffloadProgram", offload_program),
    ):
        env.AddMethod(_as_builder(method), name)


def _as_builder(method: Any) -> Any:
    """Call `method` as SCons calls builders: (env, source), or (env, target, source)."""

    def builder(env: Any, target: Any = None, source: Any = None, **overrides: Any) -> Any:
        if source is None:
            target, source = None, target
        try:
            if source is None:
                raise UsageError("no source given")
            local = env.Override(overrides) if overrides else env
            return SCons.Node.NodeList(method(local, _one_name(local, target), source))
        except OffloadError as error:
            raise SCons.Errors.UserError(str(error)) from None

    # SCons shows the deepest line that is not in its own files as the user's mistake.
    # With this function counted as SCons's, that is the line of the SConscript.
    place = str(PurePath(SCons.Errors.__file__).with_name("offload.py"))
    builder.__code__ = builder.__code__.replace(co_filename=place)
    builder.__doc__ = method.__doc__
    return builder


def offload_device_object(env: Any, target: str | None, source: Any) -> list[Any]:
    """Give one node per source and target ID: that target's code object."""
    return [node for unit in _units(env, target, source) for node in _device_nodes(env, unit)]


def offload_host_object(env: Any, target: str | None, source: Any) -> list[Any]:
    """Give the host object of each source; it does not depend on any device image."""
    named = env.File(target) if target and PurePath(target).suffix else None
    return [_host_node(env, unit, named) for unit in _units(env, target, source)]


def offload_bundle(env: Any, target: str | None, source: Any) -> list[Any]:
    """Give the bundle of one HIP source, or of nodes and files.

    A source stands for its code objects, one per target ID. Nodes of this tool carry
    their bundle entry ID; for other files, ``OFFLOAD_TARGETS`` gives the IDs in order.
    """
    nodes = _source_nodes(env, source)
    sources = [node for node in nodes if _is_offload_source(env, node)]
    if len(sources) > 1:
        names = ", ".join(map(str, sources))
        raise UsageError(
            f"one bundle holds the code objects of one source, but {names} were given; "
            "give each its own bundle"
        )
    if not sources:
        if target is None:
            raise UsageError("OffloadBundle of nodes or files needs a target name")
        return [_bundle_node(env, _named(env, target, "$OFFLOADBUNDLESUFFIX"), nodes)]
    unit = _unit(env, sources[0], target)
    compiled = _device_nodes(env, unit)
    if env["OFFLOAD_BUNDLE_HOST"]:
        compiled.insert(0, _host_node(env, unit))
    parts = [part for node in nodes for part in (compiled if node in sources else [node])]
    bundle = unit.file(env, "$OFFLOADBUNDLESUFFIX")
    if target:
        bundle = _named(env, target, "$OFFLOADBUNDLESUFFIX")
    return [_bundle_node(env, bundle, parts)]


def offload_unbundle(env: Any, target: str | None, source: Any) -> list[Any]:
    """Give one node per entry of a bundle: those of ``OFFLOAD_TARGETS``, or ``OFFLOAD_ARCH``.

    The files are called ``<name>.<target ID>.co``, or ``<name>.<offload kind>`` for entries
    without a target ID.
    """
    bundles = _source_nodes(env, source)
    if len(bundles) != 1:
        raise UsageError(f"OffloadUnbundle takes one bundle, not {len(bundles)}")
    ids = _given_ids(env) or [_device_entry_id(t) for t in settings.hip_target_ids(env)]
    stem = bundles[0].dir.File(SCons.Util.splitext(bundles[0].name)[0])
    if target is not None:
        stem = env.File(target)
    nodes = []
    for entry_id in ids:
        name = entry_id.target_id.replace(":", "_") or entry_id.kind
        file = stem.dir.File(f"{stem.name}.{name}{env.subst('$OFFLOADDEVICESUFFIX')}")
        spec = settings.spec(entry=str(entry_id))
        nodes += _UNBUNDLE(env, file, bundles, _OFFLOAD_UNBUNDLE_SPEC=spec)
        file.attributes.offload_entry_id = entry_id
    return nodes


def offload_object(env: Any, target: str | None, source: Any) -> list[Any]:
    """Give one linkable object per source: host code with all device images in it."""
    variables = settings.toolchain_variables(env)
    nodes = []
    for unit in _units(env, target, source, own_cuid=True):
        merged = unit.file(env, "$OBJSUFFIX")
        if target:
            merged = _named(env, target, "$OBJSUFFIX")
        nodes += _identified(env, _MERGE(env, merged, _linkable_nodes(env, unit), **variables))
    return nodes


def offload_program(env: Any, target: str | None, source: Any) -> list[Any]:
    """Give a program of offload sources, C and C++ sources, objects and libraries."""
    if "Program" not in env["BUILDERS"]:
        raise UsageError(
            "OffloadProgram needs SCons's linker tool: Environment(tools=['default', 'offload'])"
        )
    found = settings.toolchain(env)
    variables = settings.toolchain_variables(env)
    nodes = _source_nodes(env, source)
    objects = []
    for node in nodes:
        if _is_offload_source(env, node):
            objects += _linkable_nodes(env, _unit(env, node, None))
        elif node.get_suffix() in _C_SUFFIXES + _CXX_SUFFIXES:
            commands = {"CC": _placed(found.cc), "CXX": _placed(found.cxx)}
            objects += _identified(env, env.Object(node, **commands, **variables))
        else:
            objects.append(node)
    name = target or nodes[0].dir.File(SCons.Util.splitext(nodes[0].name)[0])
    program = env.Program(name, objects, LINK=_placed(found.cxx), **variables)
    return _identified(env, program)


@dataclass(frozen=True)
class _Unit:
    """One offload source and what all nodes made of it share."""

    source: Any
    folder: Any
    """Where its outputs go, an SCons Dir."""
    name: str
    """The beginning of its outputs' file names."""
    cuid: str

    def file(self, env: Any, suffix: str) -> Any:
        """Give the node of the output with this suffix, in which variables are replaced."""
        return self.folder.File(f"{self.name}{env.subst(suffix)}")


def _units(env: Any, target: str | None, source: Any, *, own_cuid: bool = False) -> list[_Unit]:
    nodes = _source_nodes(env, source)
    if target is not None and len(nodes) > 1:
        raise UsageError(f"one target name ('{target}') cannot serve {len(nodes)} sources")
    for node in nodes:
        if not _is_offload_source(env, node):
            raise UsageError(
                f"'{node}': expected a HIP source ({', '.join(_HIP_SUFFIXES)}); "
                "set OFFLOAD_KIND='hip' for one with another suffix"
            )
    return [_unit(env, node, target, own_cuid=own_cuid) for node in nodes]


def _unit(env: Any, source: Any, target: str | None, *, own_cuid: bool = False) -> _Unit:
    """Name a source's outputs after `target`, or else after the source.

    All passes of a source have one CUID, derived from its path. With `own_cuid`, the
    outputs' name is part of it where it is not the source's: one source can then be
    compiled twice, with other flags, for the same program.
    """
    folder, name = source.dir, SCons.Util.splitext(source.name)[0]
    extra = ""
    if target is not None:
        head, tail = os.path.split(target)
        given = (env.Dir(head or "."), SCons.Util.splitext(tail)[0])
        if own_cuid and given != (folder, name):
            extra = f"{given[0].get_internal_path()}/{given[1]}"
        folder, name = given
    cuid = env.subst("$OFFLOAD_CUID") or hip.derive_cuid(source.get_internal_path(), extra)
    return _Unit(source, folder, name, cuid)


def _device_nodes(env: Any, unit: _Unit) -> list[Any]:
    return [_device_node(env, unit, target_id) for target_id in settings.hip_target_ids(env)]


def _device_node(env: Any, unit: _Unit, target_id: TargetID) -> Any:
    node = unit.file(env, f".{target_id.filename}$OFFLOADDEVICESUFFIX")
    _compile(
        *(env, _DEVICE, node, unit, hip.device_flags(target_id, unit.cuid)),
        _OFFLOAD_TARGET_ID=str(target_id),
        _OFFLOAD_ARCH_FLAGS=settings.arch_flags(env, target_id),
    )
    node.attributes.offload_entry_id = _device_entry_id(target_id)
    for alias in dict.fromkeys((str(target_id), target_id.processor)):
        env.Alias(alias, node)
    return node


def _device_entry_id(target_id: TargetID) -> BundleEntryID:
    # The driver writes hipv4 for AMD GPUs and plain hip for SPIR-V.
    kind = "hipv4" if target_id.triple.startswith("amdgcn") else "hip"
    return BundleEntryID(kind, target_id.triple, str(target_id))


def _host_node(env: Any, unit: _Unit, named: Any = None) -> Any:
    node = named or unit.file(env, "$OFFLOADHOSTSUFFIX")
    _compile(env, _HOST, node, unit, hip.host_flags(unit.cuid))
    triple = settings.toolchain(env).host_triple
    node.attributes.offload_entry_id = BundleEntryID.parse(f"host-{triple}-")
    return node


def _compile(
    env: Any, builder: Any, node: Any, unit: _Unit, flags: list[str], **variables: Any
) -> None:
    depfile = depfile_of(node)
    env.Clean(node, depfile)  # there only after a compile that failed
    made = builder(
        env,
        node,
        unit.source,
        **settings.toolchain_variables(env),
        **variables,
        _OFFLOAD_PASS_FLAGS=flags,
        _OFFLOAD_DEPENDENCY_FLAGS=hip.dependency_flags(depfile),
        _OFFLOAD_CUID=unit.cuid,
    )
    _identified(env, made)


def _bundle_node(env: Any, bundle: Any, nodes: list[Any]) -> Any:
    """Declare the bundle of nodes that carry entry IDs, and of files that are given them."""
    plain = [node for node in nodes if _entry_id(node) is None]
    given = _given_ids(env)
    if len(plain) != len(given):
        raise UsageError(
            f"OFFLOAD_TARGETS gives {len(given)} bundle entry IDs for the {len(plain)} files of "
            f"'{bundle}' that carry none ({', '.join(map(str, plain)) or 'no file'}); "
            "expected one for each, in order"
        )
    remaining = iter(given)
    ids = [_entry_id(node) or next(remaining) for node in nodes]
    check_composition(ids)
    entries: list[tuple[str, int | None]] = [(str(i), at) for at, i in enumerate(ids)]
    # A fat binary begins with an empty host entry; a list of IDs says itself what it wants.
    if not given and not any(entry_id.kind == "host" for entry_id in ids):
        entries.insert(0, (str(_EMPTY_HOST_ENTRY), None))
    spec = settings.spec(
        alignment=settings.bundle_alignment(env),
        compression=settings.compression(env),
        entries=entries,
    )
    return _BUNDLE(env, bundle, nodes, _OFFLOAD_BUNDLE_SPEC=spec)[0]


def _linkable_nodes(env: Any, unit: _Unit) -> list[Any]:
    """Declare what a link needs of one source: its host object and its embedded bundle."""
    bundle = _bundle_node(env, unit.file(env, "$OFFLOADBUNDLESUFFIX"), _device_nodes(env, unit))
    spec = settings.spec(cuid=unit.cuid, host_triple=settings.toolchain(env).host_triple)
    embedded = unit.file(env, "$OFFLOADEMBEDSUFFIX")
    return [_host_node(env, unit), *_EMBED(env, embedded, bundle, _OFFLOAD_EMBED_SPEC=spec)]


def _identified(env: Any, nodes: Any) -> list[Any]:
    """Make nodes depend on what the compiler says of itself; give them back."""
    identity = env.Value(settings.toolchain(env).identity)
    for node in nodes:
        env.Depends(node, identity)
    return list(nodes)


def _placed(command: Iterable[str]) -> list[str]:
    """Keep the place of a program out of signatures; its options stay in them."""
    program, *options = command
    return ["$(", program, "$)", *options]


def _named(env: Any, name: str, suffix: str) -> Any:
    """Give the node of a user's target name, with the suffix if it has none."""
    return env.File(name if PurePath(name).suffix else name + env.subst(suffix))


def _given_ids(env: Any) -> list[BundleEntryID]:
    """Give the bundle entry IDs of ``OFFLOAD_TARGETS``."""
    return [BundleEntryID.parse(env.subst(text)) for text in env.Split(env["OFFLOAD_TARGETS"])]


def _entry_id(node: Any) -> BundleEntryID | None:
    found: BundleEntryID | None = getattr(node.attributes, "offload_entry_id", None)
    return found


def _source_nodes(env: Any, source: Any) -> list[Any]:
    return list(env.arg2nodes(SCons.Util.flatten([source]), env.fs.Entry))


def _is_offload_source(env: Any, node: Any) -> bool:
    """Tell whether a node is a source with device code, by OFFLOAD_KIND or its suffix.

    :raises UsageError: it is one of a kind that cannot be built yet.
    """
    suffix = node.get_suffix()
    kind = env.subst("$OFFLOAD_KIND").lower()
    if kind not in ("", "hip"):
        raise UsageError(f"OFFLOAD_KIND={kind!r}: only 'hip' can be built so far")
    if suffix in _CUDA_SUFFIXES and not kind:
        raise UsageError(f"'{node}': CUDA sources cannot be built yet; only HIP sources can")
    if suffix in _HIP_SUFFIXES:
        return True
    return bool(kind) and suffix in _CXX_SUFFIXES + _CUDA_SUFFIXES


def _one_name(env: Any, target: Any) -> str | None:
    """Give the one target name that a user may pass, as text."""
    names = SCons.Util.flatten([target]) if target is not None else []
    if len(names) > 1:
        raise UsageError(f"expected one target name, found {len(names)}")
    return env.subst(str(names[0])) if names else None
