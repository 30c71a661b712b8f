"""The device links of several sources, and the files of host links with device code.

When SConscripts are read, a link finds the objects and libraries whose code it has to link for each
device, however they are named: sources, ``LIBS``, ``OFFLOAD_LIBS``, ``-l`` and paths in the flags.
When it runs, it looks into all others: what a Command has made could not be read before.
"""

from __future__ import annotations

import atexit
import json
import os
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import SCons.Scanner
import SCons.Subst
import SCons.Util

from offload_tool.clang.argument_files import (
    files_read,
    link_folders,
    linked_files,
    linker_depfile,
    options_of,
)
from offload_tool.clang.driver import jobs_of, query_plan
from offload_tool.clang.job_plan import kind_of_job
from offload_tool.clang.options import PROGRAMS, ROOT, TRIPLE, with_values
from offload_tool.errors import UsageError
from offload_tool.formats.targets.compile_target import CompileTarget
from offload_tool.io.paths import sibling
from offload_tool.passes import hip, openmp
from offload_tool.passes.languages import LANGUAGES
from offload_tool.passes.source_kind import KINDS
from offload_tool.scons import actions, compat, found_tools, settings, spawn
from offload_tool.scons.graph.containers import package_node, wrap_node
from offload_tool.scons.graph.units import (
    Stem,
    Unit,
    add_identity,
    is_plain_source,
    label,
)
from offload_tool.scons.state.node_info import PackedCode, code_of, info_of
from offload_tool.scons.types import Environment, Node
from offload_tool.toolchain.disk_cache import cached_result
from offload_tool.toolchain.driver_cache import linker_writes_depfile

UNKNOWN = frozenset({""})
"""The kinds of a library with device code of the kind that its program selects."""
_SUFFIXES = (".a", ".o", ".os", ".lo")
"""Of outputs that pass on the code of their sources."""
_NAMES = {"hip": "HIP", "cuda": "CUDA", "openmp": "OpenMP"}
_NOTHING: frozenset[str] = frozenset()


@dataclass
class DeviceLink:
    """The inputs of a link: host files, and the device code of each."""

    hosts: list[Node] = field(default_factory=list)
    modules: list[dict[CompileTarget, list[Any]]] = field(default_factory=list)
    device_code: defaultdict[CompileTarget, list[Any]] = field(
        default_factory=partial(defaultdict, list)
    )
    """Device code without a host part."""
    sources: list[Node] = field(default_factory=list)
    """CUDA's fat binaries of sources whose host objects reserve no space for them."""
    registration_callers: list[Node] = field(default_factory=list)
    """Host files that may call a registration function of CUDA for their modules by name."""

    def add(self, host: Node, nodes: list[Node]) -> None:
        """Add a host file and its device code."""
        self.hosts.append(host)
        found: defaultdict[CompileTarget, list[Any]] = defaultdict(list)
        for node in nodes:
            found[code_of(node).device].append(node)
        self.modules.append(found)

    def add_existing(self, host: Node, nodes: list[Node]) -> None:
        """Add an object or library and its device code, possibly from another build."""
        self.add(host, nodes)
        sources = info_of(host).source_fatbins
        if sources is None:
            self.registration_callers.append(host)
        else:
            self.sources += sources

    def of(self, device: CompileTarget) -> list[Any]:
        """Return the inputs for one device; raise UsageError if a file has no code for it."""
        for host, found in zip(self.hosts, self.modules, strict=True):
            if device not in found:
                names = ", ".join(other.name for other in found)
                raise UsageError(
                    f"'{host}' has device code for {names}, not for {device.name}; "
                    "build it for this target, too"
                )
        if self.device_code and device not in self.device_code:
            given = ", ".join(str(node) for nodes in self.device_code.values() for node in nodes)
            raise UsageError(
                f"of the device code given ({given}), none is for {device.name}; "
                "build some for it, or take it out of OFFLOAD_ARCH"
            )
        own = [node for modules in self.modules for node in modules[device]]
        return list(dict.fromkeys([*own, *self.device_code.get(device, ())]))


@dataclass
class HostLink:
    """The inputs of a host link: objects, and what the link needs for them."""

    objects: list[Node] = field(default_factory=list)
    needs_openmp: bool = False
    registers_entries: bool = False
    """Whether it registers entries of device code, which only their section's start names."""
    codes: list[PackedCode] = field(default_factory=list)
    """Code objects in archives, separate from the link's output."""
    flags: list[str] = field(default_factory=list)
    """The flags of the link with which it wraps the call that registers wrappers."""
    marked: dict[Node, Node] = field(default_factory=dict)
    """For each library whose wrappers must be changed, the copy of it that is linked."""


@dataclass
class OffloadInputs:
    """The offload code that a user passes to one link."""

    units: list[Unit] = field(default_factory=list)
    files: list[Node] = field(default_factory=list)
    """Objects and libraries with unlinked device code."""
    placed: set[Node] = field(default_factory=set)
    """Those of the files for which the caller, or a flag of the user's, has a place in the link."""
    device_code: list[Node] = field(default_factory=list)
    """Bitcode, and device-specific archives, of one target each."""


def code_kinds(node: Node) -> frozenset[str]:
    """Return the kinds of relocatable code in a library, or its sources; raise ContentError."""
    info = info_of(node)
    if info.code_kinds is not None:
        return info.code_kinds
    if info.device_nodes is not None:
        return frozenset(code_of(each).kind for each in info.device_nodes)
    if info.code is not None or is_plain_source(node):
        return _NOTHING
    if node.is_derived():
        sources = node.sources if node.get_suffix() in _SUFFIXES else []
        return _NOTHING.union(*map(code_kinds, sources))
    file = next((each for each in (node.rfile(), node.srcnode().rfile()) if each.exists()), None)
    if file is None:
        return _NOTHING
    info.code_kinds = _kinds_of_file(file.get_abspath())
    return info.code_kinds


def _kinds_of_file(path: str) -> frozenset[str]:
    """Return `relocatable_kinds`; an archive is read once until it changes."""
    from offload_tool.containers.relocatable import kinds_and_files, relocatable_kinds

    if not path.endswith(".a"):
        return relocatable_kinds(path)
    files = [path]

    def read() -> list[str]:
        kinds, more = kinds_and_files(path)
        files.extend(more)
        return sorted(kinds)

    return frozenset(cached_result(["device code", path], read, lambda _: dict.fromkeys(files)))


def selected_kind(env: Environment, node: Node, likely: str = "hip") -> str:
    """Return the kind of a library's code: OFFLOAD_KIND, or `likely`; raise UsageError."""
    kinds, given = code_kinds(node) or UNKNOWN, settings.given_kind(env)
    is_served = env["OFFLOAD_HIP_OPENMP_COMPATIBLE"] and given in ("hip", "openmp")
    if (given and given in kinds) or is_served:
        return given
    if kinds == UNKNOWN:
        return given or likely
    return only_kind(node, kinds)


def only_kind(node: Node, kinds: frozenset[str]) -> str:
    """Return the only kind of a library's code; raise UsageError for another number."""
    kind = min(kinds)
    if len(kinds) > 1:
        raise UsageError(
            f"'{node}' has relocatable device code of {_listed(kinds)}; make one library of each"
        )
    if kind not in KINDS:
        raise UsageError(
            f"'{node}' has relocatable device code of {kind}, expected {', '.join(KINDS)}; link "
            "it with the compiler that made it"
        )
    return kind


def _listed(kinds: Iterable[str]) -> str:
    return " and ".join(_NAMES.get(kind, kind) for kind in sorted(kinds))


def files_of_flags(env: Environment, flags: str) -> tuple[list[Any], list[Any]]:
    """Return the files that a link finds by ``LIBS``, except in its own folders, and by `flags`."""
    items = SCons.Util.flatten([env.get("LIBS", [])])
    nodes = [item for item in items if hasattr(item, "attributes")]
    names = env.Override({"LIBS": [item for item in items if not hasattr(item, "attributes")]})
    named = SCons.Scanner.FindPathDirs("LIBPATH")(env, env.fs.getcwd())
    folders = [*(folder.get_abspath() for folder in named), *_variable_folders(env)]
    find = partial(compat.known_file, env.fs)
    with compat.at_top(env):
        there = settings.substituted(env, flags)
        folders = [*link_folders(there), *folders]
        libs = [*with_values(there, ROOT), *settings.substituted(names, "$_LIBFLAGS")]
        by_name = list(linked_files(libs, find, folders))
        return [*nodes, *by_name], list(linked_files(there, find, folders))


def _variable_folders(env: Environment) -> list[str]:
    return [
        folder for folder in str(env["ENV"].get("LIBRARY_PATH", "")).split(os.pathsep) if folder
    ]


def look_into(env: Environment, made: Node, link: str, taken: Iterable[Node] = ()) -> None:
    """Make a link (by its variables' prefix) check what it links, except the files `taken`."""
    info_of(made).checked_link = (link, tuple(taken))
    env.AddPreAction(made, _CHECK_LINK)
    env.AddPostAction(made, _CHECK_READ)


def depfile_flags(
    target: list[Any], source: list[Any], env: Environment, for_signature: bool
) -> list[Any]:
    """Return the flags by which the linker of a checked link writes a depfile, if it can."""
    link = info_of(target[0]).checked_link[0] if target and not for_signature else ""
    if not link:
        return []
    words = settings.substituted(env, f"${link} ${link}FLAGS", source)
    options = options_of(words)
    command = [*words[: len(words) - len(options)], *with_values(options, PROGRAMS | TRIPLE)]
    command += (arg for arg in options if arg.startswith(settings.LINKER_CHOICE))
    variables = compat.variables_of(env, target, source)
    environment = {**variables, **settings.shell_variables(env)}
    if linker_depfile(options) or not linker_writes_depfile(command, environment):
        return []
    return ["-Xlinker", SCons.Subst.Literal(f"--dependency-file={_depfile_of(target[0])}")]


def _depfile_of(made: Any) -> str:
    return sibling(str(made), ".link.d")


def _link_args(given: actions.Operands) -> list[str]:
    env, made = given.env, given.node
    link = info_of(made).checked_link[0]
    command = env.get(f"{link}COM")
    if not isinstance(command, str):
        command = f"${link} ${link}FLAGS $SOURCES $_LIBDIRFLAGS $_LIBFLAGS"
    lines = env.subst_list(command, target=[made], source=given.sources)
    return [str(arg) for line in lines for arg in line]


def _check_link(given: actions.Operands) -> None:
    nodes = info_of(given.node).checked_link[1]
    taken = {os.path.realpath(str(each)) for node in nodes for each in (node, node.rfile())}
    info_of(given.node).checked_files = taken
    _unread.add(os.path.abspath(_depfile_of(given.node)))

    def find(path: str) -> str | None:
        return path if os.path.isfile(path) else None

    _check_files(given, linked_files(_link_args(given), find, _variable_folders(given.env)))


def _check_read(given: actions.Operands) -> None:
    own = os.path.abspath(_depfile_of(given.node))
    depfile = linker_depfile(_link_args(given))
    try:
        if os.path.isfile(depfile):
            _check_files(given, files_read(depfile))
    finally:
        Path(own).unlink(missing_ok=True)
        _unread.discard(own)


def _check_files(given: actions.Operands, files: Iterable[str]) -> None:
    made, checked = given.node, info_of(given.node).checked_files
    for path in files:
        real = os.path.realpath(path)
        kinds = _NOTHING if real in checked else _kinds_of_file(os.path.abspath(path))
        if kinds and real not in _members_of(checked):
            jobs = jobs_of(query_plan(_link_args(given), given.variables))
            if any(kind_of_job(job) in ("bundler", "linker-wrapper") for job in jobs):
                return  # clang's driver links device code, too
            raise UsageError(
                f"'{os.path.relpath(path)}' has relocatable {_listed(kinds)} code, which '{made}' "
                "is linked without: no kernel of it would be found; link with OffloadProgram or "
                "OffloadSharedLibrary, and give it in OFFLOAD_LIBS"
            )
        checked.add(real)


def _members_of(files: Iterable[str]) -> set[str]:
    """Return the files of thin archives, which gold's depfile names, too."""
    from offload_tool.containers.relocatable import kinds_and_files

    archives = [name for name in files if name.endswith(".a") and os.path.isfile(name)]
    return {os.path.realpath(each) for name in archives for each in kinds_and_files(name)[1]}


_CHECK_LINK = actions.check("check link", _check_link)
_CHECK_READ = actions.check("check what was linked", _check_read)
_unread = set[str]()
"""Depfiles of links that run, or have failed."""


@atexit.register
def _remove_depfiles() -> None:
    for name in _unread:
        with suppress(OSError):
            Path(name).unlink(missing_ok=True)


def link_node(
    env: Environment, stem: Stem, kind: str, device: CompileTarget, inputs: list[Node]
) -> Node:
    """Declare the link of `inputs` for one device; raise CompilerError without a runtime."""
    suffix = "$OFFLOADDEVICESUFFIX" if device.target_id is not None else "$SHLIBSUFFIX"
    names = stem.files(env, f".{device.filename}{suffix}")
    if LANGUAGES[kind].has_host_ir:
        node = _openmp_link(env, stem, names, device, inputs)
    else:
        node = _hip_link(env, names, device, inputs)
    env.Depends(node, compat.LateValue("variables", lambda: _variables(node)))
    add_identity(env, node)
    label(env, node, kind, device)
    return node


def _variables(node: Node) -> str:
    """Return the environment variables that affect the output of a link."""
    found = compat.variables_of(node.get_build_env(), [node], node.sources)
    return json.dumps(settings.result_variables(found), sort_keys=True)


def _hip_link(
    env: Environment, names: Iterable[Node], device: CompileTarget, inputs: list[Node]
) -> Node:
    target_id, linker = hip.linker(device, found_tools.toolchain(env))
    level = hip.level_arguments(settings.host_link_flags(env))
    return actions.LINK.first_free(
        env,
        names,
        inputs,
        **spawn.toolchain_variables(env, linker),
        _OFFLOAD_LINKER=list(linker),
        _OFFLOAD_LINK_ARGUMENTS=[*hip.link_arguments(target_id), *level],
        # The link includes all members of archives.
        _OFFLOAD_LINK_INPUTS=["--whole-archive", "$SOURCES", "--no-whole-archive"],
        _OFFLOAD_TARGET_ID=device.name,
    )


def _openmp_link(
    env: Environment, stem: Stem, names: Iterable[Node], device: CompileTarget, inputs: list[Node]
) -> Node:
    """Declare the driver's link of an image; a CPU's takes the program's libraries, too."""
    toolchain = found_tools.toolchain(env)
    runtimes = found_tools.needed_runtimes(env, device)
    own, for_linker = openmp.image_link_flags(
        device,
        toolchain,
        settings.substituted(env, "$OFFLOAD_LINK_FLAGS"),
        runtimes if env["OFFLOAD_DEVICE_RUNTIME"] is not None or not runtimes else None,
    )
    is_shared = stem.owner is not None and stem.owner.is_shared
    own_flags = "$SHLINKFLAGS" if is_shared else "$LINKFLAGS"
    libraries = ["$__RPATH", "$_LIBDIRFLAGS", "$_LIBFLAGS"] if device.target_id is None else []
    variables = spawn.toolchain_variables(env)
    target = device, openmp.packaged_arch(device, toolchain)
    variables[compat.OWN_SPAWN] = spawn.pass_spawn(spawn.openmp_linker(inputs, target))
    node = actions.OPENMP_LINK.first_free(
        env,
        names,
        inputs,
        **variables,
        _OFFLOAD_LINKER=[*toolchain.cxx, *openmp.gpu_flags(device, toolchain)],
        _OFFLOAD_LINK_ARGUMENTS=[*(*own, *settings.link_flags(env), own_flags)],
        OFFLOAD_LINK_FLAGS=for_linker,
        _OFFLOAD_LINK_INPUTS=["$SOURCES", *libraries],
        _OFFLOAD_TARGET_ID=device.name,
    )
    env.Depends(node, [compat.exact_file(env.fs, name) for name in runtimes])
    if libraries:
        info_of(node).flags = f"{own_flags} $_LIBDIRFLAGS $_LIBFLAGS"
    return node


def openmp_registration(env: Environment, stem: Stem, images: list[Node]) -> Node:
    """Declare the object that registers images, each in a package, of which it reads the target."""
    packages = []
    for image in images:
        names = Stem(image.dir, image.name).files(env, "$OFFLOADPACKAGESUFFIX")
        packages.append(package_node(env, names, [image]))
    names = stem.files(env, ".registration$OBJSUFFIX")
    return wrap_node(env, names, packages, "openmp", finds_entries=True)
