"""Device code in separate kpack archives: ``OFFLOAD_KPACK``.

::

    a.hip --+-- a.gfx942.co ----+
            |                   +-- .kpack/GROUP_gfx942.kpack
    b.hip --+-- b.gfx942.co ----+
            |                             one archive for each target ID, group and folder
            |   a.kpackref -- a.fatbin.o -+
            +-- a.host.o ---- a.kpack.o --+-- program

The archives are prerequisites of the program, not dependencies: a changed code object, or a new
target, affects only one archive. Each source has its own key, so that neither the order of sources
nor the targets of others have an effect. Host objects of ``-flto`` cannot be modified; there the
link wraps a call, which makes the same change at startup.

The linked file has one more marker, for AMD's tools, which read the section `.rocm_kpack_ref`.

SCons leaves the outputs of removed nodes. Other code is then unused, but programs find an archive
by its name, with outdated code. Therefore the build reports archives that it no longer makes.
"""

from __future__ import annotations

import atexit
import glob
import json
import os
import posixpath
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import SCons.Util

from offload_tool import passes
from offload_tool.errors import UsageError
from offload_tool.formats.kpack.archive import SCHEMES, archive_name, kernel_key
from offload_tool.formats.kpack.marker import PLACEHOLDER
from offload_tool.scons import actions, compat, found_tools, offload_arch, settings
from offload_tool.scons.graph import containers
from offload_tool.scons.graph.aliases import add_aliases
from offload_tool.scons.graph.compile_nodes import device_nodes
from offload_tool.scons.graph.links import DeviceLink, HostLink, OffloadInputs, link_node
from offload_tool.scons.graph.units import Stem, Unit
from offload_tool.scons.state.node_info import PackedCode, Packing, code_of, info_of
from offload_tool.scons.types import Environment, Folder, Node

_DEFAULT_FOLDER = ".kpack"
WRAP_SOURCE = str(Path(passes.__file__).with_name("runtime") / "kpack_wrap.c")
WRAP_FLAG = "-Wl,--wrap=__hipRegisterFatBinary"


def packing_of(env: Environment, name: str, units: Iterable[Unit]) -> Packing | None:
    """Read the variables for the output `name`, None if off; raise UsageError if invalid."""
    given = env["OFFLOAD_KPACK"]
    if not given:
        return None
    group = name if given is True else given
    if "/" in group or "\\" in group or group.startswith("."):
        raise UsageError(f"OFFLOAD_KPACK: expected the name of a group, found {group!r}")
    default = posixpath.join(_DEFAULT_FOLDER, archive_name(group, PLACEHOLDER))
    items = SCons.Util.flatten([env["OFFLOAD_KPACK_PATHS"]])
    paths = tuple(env.subst(str(item)) for item in items if item) or (default,)
    if posixpath.isabs(paths[0]) or PLACEHOLDER not in paths[0]:
        raise UsageError(
            f"OFFLOAD_KPACK_PATHS: expected a path from the folder of the program or library on, "
            f"with {PLACEHOLDER} in it, to be the first, found {paths[0]!r}"
        )
    scheme = env.subst(str(env["OFFLOAD_KPACK_COMPRESS"]))
    if scheme not in SCHEMES:
        expected = " or ".join(map(repr, SCHEMES))
        raise UsageError(f"OFFLOAD_KPACK_COMPRESS: expected {expected}, found {scheme!r}")
    for unit in units:
        if unit.kind != "hip":
            raise UsageError(
                f"'{unit.source}': OFFLOAD_KPACK is for HIP; no runtime of {unit.kind.upper()} "
                "looks for device code outside of the program"
            )
    return Packing(group, paths, scheme, env["OFFLOAD_KPACK_INTERFACE"])


def uses_lto(env: Environment) -> bool:
    """Return True if host objects are bitcode."""
    args = settings.substituted(env, "$CXXFLAGS $CCFLAGS $OFFLOAD_HOST_FLAGS")
    given = [arg for arg in args if arg.startswith(("-flto", "-fno-lto"))]
    return bool(given) and given[-1] != "-fno-lto"


def kernel_name_of(unit: Unit, codes: Sequence[Any]) -> str:
    """Return the name of a source's code objects in archives: its outputs', or a unique one."""
    stem = unit.stem
    plain = {f"{stem.name}.{code_of(code).device.filename}" for code in codes}
    if any(SCons.Util.splitext(code.name)[0] not in plain for code in codes):
        *_, unique = stem.other_names()
        stem = replace(stem, name=unique)
    return stem.get_internal_path()


def marked_host(env: Environment, host: Node, folder: Folder | None = None) -> Node:
    """Declare the copy of a host file whose wrappers refer to markers; bitcode stays."""
    if uses_lto(env):
        return host
    stem, suffix = SCons.Util.splitext(host.name)
    output_folder = host.dir if folder is None or host.is_under(env.fs.Top) else folder
    return actions.MARK(env, output_folder.File(f"{stem}.kpack{suffix}"), [host])


def marker_node(
    env: Environment, names: Iterable[Node], packing: Packing, kernel_name: str, codes: list[Node]
) -> Node:
    """Declare the file with a marker, which depends on no more than the kernels' interface."""
    return actions.MARKER.first_free(
        env,
        names,
        codes if packing.interface else [],
        kernel_name=kernel_name,
        paths=packing.paths,
        interface=packing.interface,
    )


def codes_of(nodes: Iterable[Node]) -> list[PackedCode]:
    """Return the separate code of objects and static libraries that a link takes."""
    return [code for node in nodes for code in info_of(node).packed]


def attach_archives(env: Environment, node: Node, codes: Iterable[PackedCode]) -> None:
    """Make archives prerequisites of what loads them; raise UsageError for equal keys."""
    found = list(dict.fromkeys(codes))
    if not found:
        return
    archives = dict.fromkeys(_archive_node(env, node.dir, code) for code in found)
    info_of(node).kpack_archives = list(archives)
    node.add_prerequisite(list(archives))


def _archive_node(env: Environment, folder: Folder, code: PackedCode) -> Node:
    path, device = code.packing.paths[0], code_of(code.node).device
    node = folder.File(path.replace(PLACEHOLDER, device.name, 1))
    compat.of_build(env, _Leftovers).watch(folder, path, node)
    codes = info_of(node).archive_codes
    if codes:
        _check_equal(node, codes, code)
        codes[code.kernel_name] = code
        compat.add_source(node, code.node)
    else:
        codes[code.kernel_name] = code
        variables = {"_OFFLOAD_SPEC": _spec_of, "_OFFLOAD_TARGET_ID": device.name}
        actions.KPACK(env, node, [code.node], **variables)
        add_aliases(env, node, device)
    return node


def _check_equal(node: Node, codes: Mapping[str, PackedCode], code: PackedCode) -> None:
    ours, theirs = next(iter(codes.values())).packing, code.packing
    for name in ("group", "scheme", "interface"):
        if getattr(ours, name) != getattr(theirs, name):
            found = f"{getattr(ours, name)!r} and {getattr(theirs, name)!r}"
            raise UsageError(
                f"the archive '{node}' is given two values for its {name}: {found}; "
                "set one, or use another OFFLOAD_KPACK_PATHS for one of them"
            )
    other = codes.get(code.kernel_name, code).node
    if other is not code.node:
        raise UsageError(
            f"'{other}' and '{code.node}' would have the key '{kernel_key(code.kernel_name)}' in "
            f"'{node}'; give one of them a group of its own (OFFLOAD_KPACK)"
        )


def _spec_of(target: list[Any], source: list[Any], env: Environment, for_signature: bool) -> str:
    """Return the archive's content, which is complete after all SConscripts were read."""
    codes = info_of(target[0]).archive_codes
    first = next(iter(codes.values()))
    rows = sorted((name, code.node.get_internal_path()) for name, code in codes.items())
    packing = first.packing
    content = (packing.group, packing.scheme, packing.interface, code_of(first.node).device.name)
    return json.dumps([*content, rows]).replace("$", "$$")


def packed_parts(env: Environment, packing: Packing, unit: Unit) -> tuple[list[PackedCode], Node]:
    """Declare a source's code objects, and the archive of the object with its marker."""
    devices = device_nodes(env, unit)
    name = kernel_name_of(unit, devices)
    codes = [PackedCode(packing, name, device) for device in devices]
    marker = marker_node(env, unit.stem.files(env, "$OFFLOADMARKERSUFFIX"), packing, name, devices)
    return codes, containers.embedded(env, unit.stem, [marker], unit.cuid, is_marker=True)


def packed_object(
    env: Environment, packing: Packing, unit: Unit, names: Iterable[Node], host: Node
) -> Node:
    """Declare an object with separate code objects; raise UsageError for bitcode."""
    if uses_lto(env):
        raise UsageError(
            f"'{unit.source}': an object of -flto cannot have its device code apart "
            "(OFFLOAD_KPACK); give the source to the program, or compile it without -flto"
        )
    codes, marker = packed_parts(env, packing, unit)
    made = containers.merged_object(env, names, [marked_host(env, host), marker])
    info_of(made).packed = codes
    return made


def packed_links(
    env: Environment,
    packing: Packing,
    stem: Stem,
    part: DeviceLink,
    linked: HostLink,
    given: OffloadInputs,
) -> list[Node]:
    """Declare the link of each device, and the objects through which a program finds them."""
    images = [
        link_node(env, stem, "hip", device, part.of(device))
        for device in offload_arch.devices(env, "hip")
    ]
    name = stem.get_internal_path()
    linked.codes += [PackedCode(packing, name, image) for image in images]
    hosts = []
    for host in part.hosts:
        marked = marked_host(env, host, stem.dir)
        if host in given.placed:
            linked.marked[host] = marked
        else:
            hosts.append(marked)
    marker = marker_node(env, stem.files(env, "$OFFLOADMARKERSUFFIX"), packing, name, images)
    return [
        *hosts,
        containers.embedded(env, stem, [marker, *part.hosts], is_marker=True),
        containers.registration_of_entries(env, stem, is_marker=True),
    ]


def tools_marker(env: Environment, stem: Stem, codes: list[PackedCode]) -> Node:
    """Declare the object with a program's marker for tools: the paths of its archives."""
    paths = tuple(dict.fromkeys(path for code in codes for path in code.packing.paths))
    packing = replace(codes[0].packing, paths=paths, interface=False)
    names = stem.files(env, ".linked$OFFLOADMARKERSUFFIX")
    marker = marker_node(env, names, packing, stem.get_internal_path(), [])
    names = stem.files(env, ".linked$OFFLOADEMBEDSUFFIX")
    triple = found_tools.host_triple(env)
    return actions.EMBED_FOR_TOOLS.first_free(env, names, [marker], host_triple=triple)


class _Leftovers:
    """The archives of this build, and their folders; it prints those of other targets."""

    def __init__(self) -> None:
        self._patterns: dict[tuple[str, str], None] = {}
        self._made: set[str] = set()

    def watch(self, folder: Folder, path: str, archive: Node) -> None:
        """Add an archive; `path` is that of all targets', with a placeholder, in `folder`."""
        if not self._made:
            atexit.register(self._report)
        self._patterns[folder.get_abspath(), path] = None
        self._made.add(archive.get_abspath())

    def _report(self) -> None:
        if not compat.has_read_all():  # the list of outputs is not complete
            return
        leftovers = set()
        for folder, path in self._patterns:
            begin, _, end = os.path.normpath(os.path.join(folder, path)).partition(PLACEHOLDER)
            for file in glob.glob(f"{glob.escape(begin)}*{glob.escape(end)}"):
                name = file[len(begin) : len(file) - len(end)]
                device = offload_arch.device_named(name)
                # ``demo_x_gfx906`` is not of ``demo``.
                is_one = device is not None and str(device.target_id) == name
                if file not in self._made and is_one and not {"_", "."} & {*name}:
                    leftovers.add(file)
        for file in sorted(leftovers):
            print(  # noqa: T201 - as SCons reports its steps
                f"offload: '{os.path.relpath(file)}' is of no target that this build makes, and "
                "would be found by what looks for such archives; remove it",
                file=sys.stderr,
            )
