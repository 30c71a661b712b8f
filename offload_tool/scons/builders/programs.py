"""Builders of programs and shared libraries, and the placement of device images in them.

`images` declares the device links of the inputs; the final link is SCons's own. Large images go
after ``.bss``::

    as linkers do    .hip_fatbin  .rodata  .text  .data  .bss      more than 2 GB: text cannot
                                                                   reach sections on the other side
    large images     .rodata  .text  .data  .bss  .hip_fatbin      no reference crosses the images

Host code reaches its data by offsets of 32 bits; a larger distance is a link error (``relocation
truncated to fit``). The pointer to the images has 64 bits. Below `LARGE`, nothing changes.

Source: GNU ld 2.40 and lld 22 link and run with the script; gold reads no INSERT.
"""

from __future__ import annotations

import shlex
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import SCons.Errors
import SCons.Util

from offload_tool import passes
from offload_tool.clang.options import LINKER_SCRIPT, does
from offload_tool.errors import UsageError
from offload_tool.passes import openmp
from offload_tool.scons import compat, found_tools, settings, spawn
from offload_tool.scons.builders.objects import link_inputs
from offload_tool.scons.builders.standard import LINKS, builder_of_scons
from offload_tool.scons.graph import units
from offload_tool.scons.graph.images import linkable_nodes
from offload_tool.scons.graph.kpack import attach_archives, codes_of, tools_marker
from offload_tool.scons.graph.links import HostLink, code_kinds, files_of_flags, look_into
from offload_tool.scons.state import build_log
from offload_tool.scons.state.node_classes import adopt_plain
from offload_tool.scons.state.node_info import code_of, info_of
from offload_tool.scons.types import Environment, Node


def offload_shared_library(env: Environment, target: str | None, sources: list[Node]) -> list[Node]:
    """Return a shared library; its sources are as of OffloadProgram."""
    return host_link_nodes(env, target, sources, "SharedLibrary")


def offload_program(env: Environment, target: str | None, sources: list[Node]) -> list[Node]:
    """Return a program of offload sources, C and C++ sources, objects and libraries.

    Heterogeneous device archives among the sources, or in ``OFFLOAD_LIBS``, take part in both
    links: their device code in each target's, their host code in the program's. Device-specific
    archives, and bitcode, take part in the link of their target.
    """
    return host_link_nodes(env, target, sources, "Program")


def host_link_nodes(
    env: Environment, target: str | None, sources: list[Node], builder: str
) -> list[Node]:
    """Return what SCons's builder of a name links of these sources."""
    shared = builder != "Program"
    if builder not in env["BUILDERS"]:
        raise UsageError(
            f"Offload{builder} needs SCons's linker tool; "
            "write Environment(tools=['default', 'offload'])"
        )
    first = sources[0]
    if target is None and not first.get_suffix() and not first.is_derived():
        raise UsageError(
            f"Offload{builder}('{first}'): no source was given; write "
            f"Offload{builder}('{first}', ['k.hip', ...])"
        )
    stem = units.output_stem(env, target, first)
    owner = units.Owner.of(stem, "shared" if shared else "program")
    stem = replace(stem, owner=owner)
    link = LINKS[builder]
    by_libs, by_flags = files_of_flags(env, f"${link}FLAGS")
    by_name = list(filter(code_kinds, (*by_libs, *by_flags)))
    given, others = link_inputs(env, sources, owner, env)
    given.device_code = [_linkable(node) for node in others if info_of(node).code is not None]
    objects = [node for node in others if info_of(node).code is None]
    files = given.files
    if env["OFFLOAD_LIBS"]:
        files += units.source_nodes(env, env["OFFLOAD_LIBS"])
    given.files = list(dict.fromkeys([*files, *by_name]))
    archives = [node for node in files if node.get_suffix() == env.subst("$LIBSUFFIX")]
    given.placed.update([*by_name, *archives])
    linked = linkable_nodes(env, stem, given)
    variables = _link_variables(env, linked, "SHLINK" if shared else "LINK")
    codes = [*linked.codes, *codes_of([*objects, *by_libs])]
    if codes:
        linked.objects.insert(0, tools_marker(env, stem, codes))
    if shared:
        compat.mark_shared(linked.objects)
    libraries = [linked.marked.get(node, node) for node in dict.fromkeys(archives)]
    libraries += _marked_by_name(linked, [node for node in by_name if node not in archives])
    inputs = [*linked.objects, *objects, *libraries]
    name = (target or units.path_from_top(stem)).replace("$", "$$")
    nodes = builder_of_scons(env, builder)(env, [name], inputs, **variables)
    made = list(map(partial(units.add_identity, env), nodes))
    adopt_plain(made, f"${link}FLAGS $_LIBDIRFLAGS $_LIBFLAGS")
    attach_archives(env, made[0], codes)
    look_into(env, made[0], link, [*linked.objects, *given.files, *linked.marked.values()])
    return made


def _marked_by_name(linked: HostLink, by_name: list[Node]) -> list[Node]:
    """Return changed copies of libraries found by name; raise UsageError for an object."""
    found = [node for node in by_name if node in linked.marked]
    for node in found:
        if node.get_suffix() != ".a":
            raise UsageError(
                f"'{node}': OFFLOAD_KPACK links a copy of it; give it as a source, not in LIBS"
            )
    return [linked.marked[node] for node in found]


def _link_variables(env: Environment, linked: HostLink, link: str) -> dict[str, Any]:
    found = found_tools.toolchain(env)
    variables = {**spawn.toolchain_variables(env), link: units.unsigned_program(found.cxx)}
    flags = settings.link_flags(env)
    if linked.needs_openmp:
        # Both have some functions. In the driver's order libomp, which clang adds, is the first.
        runtimes = ("omp", "omptarget")
        variables["LIBS"] = [*SCons.Util.flatten([env.get("LIBS", [])]), *runtimes]
        own, folder = openmp.link_flags(found) if compat.is_build() else ([], [])
        if compat.is_build() and (text := openmp.other_runtime(found)):
            build_log.warn(env, text)
        flags = [*dict.fromkeys([*flags, *own]), "$(", *folder, "$)"]
    variables["_OFFLOAD_PLACEMENT"] = placement_flags
    flags += linked.flags
    if linked.registers_entries:
        flags += _retention_flags(env)
    variables[f"{link}FLAGS"] = [f"${link}FLAGS", *flags, "$(", "$_OFFLOAD_PLACEMENT", "$)"]
    return variables


def _linkable(node: Node) -> Any:
    code = code_of(node)
    if not code.relocatable:
        raise UsageError(
            f"'{node}' is a complete device image, which no program is linked of; give the "
            "program its source, or embed its bundle with OffloadWrapper"
        )
    if code.kind == "cuda":
        raise UsageError(f"'{node}' takes part in no link without its host code; give its source")
    return node


SCRIPT = str(Path(passes.__file__).with_name("runtime") / "images_behind_bss.ld")
LARGE = 1 << 30
"""Bytes of linked files above which the images move; host code may need the other GB."""
_WARN = 3 << 29
"""Bytes of linked files above which a warning suggests options that reduce them."""
_LINKERS = ("bfd", "ld", "lld", "ld.bfd", "ld.lld")
"""Values of ``-fuse-ld=`` whose linker reads the script."""


def _retention_flags(env: Environment) -> list[str]:
    """Return the flags with which a link of ``--gc-sections`` keeps the entries of device code.

    Only the start and end of their section are named. GNU ld, gold and mold keep such sections; lld
    does on request. Zig's drops them by default, and knows no such request.
    """
    if found_tools.toolchain(env).is_embedded:
        return ["-Wl,--no-gc-sections"]
    is_known = _linker_name(settings.host_link_flags(env)) in _LINKERS
    return ["-Wl,-z,nostart-stop-gc"] if is_known else []


def _linker_name(args: list[str]) -> str:
    chosen = [arg.partition("=")[2] for arg in args if arg.startswith(settings.LINKER_CHOICE)]
    return Path(chosen[-1]).name if chosen else "ld"


def placement_flags(
    target: list[Any], source: list[Any], env: Environment, for_signature: bool
) -> list[str]:
    """Return the flags by which a large link puts images after ``.bss``, unless it has a script."""
    if not target:
        return []
    libraries = (node for node in compat.implicit_of(target[0]) if node.get_suffix() == ".a")
    # A slice: SCons makes its list of sources anew for each item.
    linked = {node for node in (*source[:], *libraries) if node.get_suffix() != ".so"}
    size = sum(node.get_size() for node in linked)
    if size < LARGE:
        return []
    args = settings.host_link_flags(env)
    if any(does(part, LINKER_SCRIPT) for arg in args for part in arg.split(",")):
        return []
    linker = _linker_name(args)
    if linker not in _LINKERS:
        raise SCons.Errors.UserError(
            f"{target[0]}: {size:,} bytes are linked, and -fuse-ld={linker} cannot put device "
            "images behind .bss, so that host code may not reach its data; link with "
            "-fuse-ld=lld or GNU ld, set OFFLOAD_COMPRESS, or set OFFLOAD_KPACK"
        )
    if size >= _WARN and not for_signature:
        build_log.warn(
            env,
            f"{target[0]}: {size:,} bytes are linked; OFFLOAD_COMPRESS makes device images "
            "smaller, OFFLOAD_KPACK keeps them in files of their own",
        )
    return [f"-Wl,-T,{shlex.quote(SCRIPT)}"]
