"""The nodes of compiler passes: one per source and device, one or two for the host.

::

    HIP, CUDA    source ---> device 1, device 2, ..., host object     (all independent)
    OpenMP       source ---> host IR ---> device 1, device 2, ..., host object
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import SCons.Script
from SCons.Subst import Literal

from offload_tool.clang.argument_files import all_words, options_of
from offload_tool.clang.job_plan import keeps_temporaries
from offload_tool.formats.target.bundle_entry_id import BundleEntryID
from offload_tool.formats.target.compile_target import CompileTarget
from offload_tool.manifest import manifest_path
from offload_tool.passes import cuda, hip
from offload_tool.passes.compile_pass import CompilePass, dependency_flags
from offload_tool.passes.languages import compile_pass
from offload_tool.run.validate_flags import check_flags
from offload_tool.scons import actions, compat, readers
from offload_tool.scons.extras.summary import ask_for_summary, timed
from offload_tool.scons.graph.call_cache import once
from offload_tool.scons.graph.declare import DeclaredOtherwiseError, NodeBuilder, declare_free
from offload_tool.scons.graph.units import Unit, identified, label
from offload_tool.scons.spawn import (
    device_spawn,
    host_spawn,
    toolchain_variables,
    with_cut_off,
    without_leftovers,
)
from offload_tool.scons.state.build_log import declared_passes
from offload_tool.scons.state.node_classes import PassOutput, records_of
from offload_tool.scons.state.pass_state import PassRecords, depfile_of
from offload_tool.scons.state.scanner import DEPENDENCY_SCANNER, NO_SCANNER
from offload_tool.toolchain.driver_cache import device_libraries
from offload_tool.util.frozen import replaced

if TYPE_CHECKING:
    from offload_tool.scons.types import Environment, Node

T = TypeVar("T")
_SCANNERS = {"source_scanner": NO_SCANNER, "target_scanner": DEPENDENCY_SCANNER}
_DEVICE = NodeBuilder(actions.DEVICE, PassOutput, **_SCANNERS)
_HOST = NodeBuilder(actions.HOST, PassOutput, **_SCANNERS)
_HOST_FROM_IR = NodeBuilder(actions.HOST_FROM_IR, PassOutput, source_scanner=NO_SCANNER)
_HOST_IR_SUFFIX = ".host.bc"
_NO_CUID = "-cuid=0"


def device_nodes(env: Environment, unit: Unit) -> list[Node]:
    """Return the nodes of a source's device passes, one per device."""
    made = []
    devices = partial(readers.devices, env, unit.kind)
    for device in once(env, f"devices of {unit.kind}", devices):
        job = _pass(env, unit, "device", device)
        suffix = "$OFFLOADDEVICESUFFIX" if job.suffix == ".co" else job.suffix
        names = unit.files(env, f".{device.filename}{suffix}")
        node = declare_free(names, partial(_device_node, env, unit, job, device))
        is_relocatable = job.rdc or job.has_host_ir
        label(env, node, unit.kind, device, relocatable=is_relocatable)
        made.append(node)
    return made


def _device_node(
    env: Environment, unit: Unit, job: CompilePass, device: CompileTarget, node: Node
) -> Node:
    _compile(
        *(env, _DEVICE, node, unit, job),
        _OFFLOAD_TARGET_ID=device.name,
        _OFFLOAD_ARCH_FLAGS=readers.arch_flags(env, device),
    )
    return node


def with_host(env: Environment, unit: Unit, *, shared: bool = False) -> tuple[Unit, Any]:
    """Return a source's host object, and the unit of all its nodes.

    If a host object compiled in another way has the usual name, the unit has another name and CUID.
    """
    try:
        return unit, host_node(env, unit, shared=shared)
    except DeclaredOtherwiseError as error:
        problem = error
    attributes = unit.source.attributes
    if not hasattr(attributes, "offload_units"):
        attributes.offload_units = {}
    equal: list[Unit] = attributes.offload_units.setdefault(problem.declaration, [])
    known = [replaced(other, owner=unit.owner) for other in equal if other.kind == unit.kind]
    for candidate in dict.fromkeys([*known, *unit.others(env)]):
        with suppress(DeclaredOtherwiseError):
            node = host_node(env, candidate, shared=shared)
            if candidate not in known:
                equal.append(candidate)
            return candidate, node
    raise problem


def host_node(
    env: Environment, unit: Unit, name: Node | None = None, *, shared: bool = False
) -> Node:
    """Return the host object of a source; it depends on no device image."""
    node = name or unit.file(env, "$OFFLOADSHHOSTSUFFIX" if shared else "$OFFLOADHOSTSUFFIX")
    variables = {"_OFFLOAD_PIC_FLAGS": ["-fPIC"] if shared else []}
    job = _pass(env, unit, "host")
    if not job.compiles_source:
        _from_host_ir(env, node, unit, job, variables)
    else:
        _compile(env, _HOST, node, unit, job, **variables)
    triple = readers.host_triple(env)
    node.attributes.offload_entry_id = BundleEntryID.parse(f"host-{triple}-")
    return node


def _host_ir_node(env: Environment, unit: Unit) -> Node:
    """Return the node of the host IR, which is rebuilt when a source file is replaced."""
    node = unit.file(env, _HOST_IR_SUFFIX)
    _compile(env, _HOST, node, unit, _pass(env, unit, "host-ir"))
    return node


def _from_host_ir(
    env: Environment, node: Node, unit: Unit, job: CompilePass, variables: dict[str, Any]
) -> None:
    toolchain = readers.toolchain(env)
    _keep_records(env, node, unit, job, "$OFFLOADHOSTIRCOM")
    made = _HOST_FROM_IR(
        env,
        node,
        _host_ir_node(env, unit),
        **{**toolchain_variables(env), "SPAWN": host_spawn(env), **variables},
        _OFFLOAD_PASS_FLAGS=job.flags(toolchain),
        _OFFLOAD_LANGUAGE="OPENMP",
        _OFFLOAD_LANGUAGE_FLAGS=unit.language_flags,
    )
    readers.add_environment(env, made)
    identified(env, made)


def _pass(
    env: Environment, unit: Unit, stage: Any, device: CompileTarget | None = None
) -> CompilePass:
    return compile_pass(unit.kind, stage, unit.cuid, device, rdc=readers.is_relocatable(env, unit))


def _compile(
    env: Environment, builder: Any, node: Node, unit: Unit, job: CompilePass, **variables: Any
) -> None:
    """Declare a node that the compiler makes from a source, with exact dependencies."""
    toolchain = readers.toolchain(env)
    sources = [unit.source]
    if job.needs_host_ir:
        sources.append(_host_ir_node(env, unit))
    command = "$OFFLOADDEVICECOM" if job.device is not None else "$OFFLOADHOSTCOM"
    declared = declared_passes(env).add(
        node, unit.source, command, job.device.name if job.device else "host"
    )
    machine = job.device.triple if job.device is not None else "host"
    like = f"{job.kind} {job.stage} {job.rdc} {machine} {unit.language_flags}"
    common = once(env, like, lambda: _common_to_passes(env, unit, job))
    spawn = common["SPAWN"]

    def accelerated(spawn: Any) -> Any:
        if not env["OFFLOAD_PCH"]:
            return spawn
        from offload_tool.scons.pch import pch_spawn  # few builds need it

        own = (variables.get(name) for name in ("_OFFLOAD_TARGET_ID", "_OFFLOAD_PIC_FLAGS"))
        return pch_spawn(env, node, job, (common, *map(str, own)), spawn)

    if env["OFFLOAD_CUTOFF"] and job.is_direct and job.stage == "device" and not job.rdc:
        spawn = with_cut_off(spawn, node, accelerated)
    else:
        spawn = accelerated(spawn)
    variables["SPAWN"] = spawn = without_leftovers(spawn, node)
    if env["OFFLOAD_SUMMARY"] and declared is not None:
        ask_for_summary(env)
        variables["SPAWN"] = timed(spawn, declared)
    _keep_records(env, node, unit, job, command)
    libraries = _device_libraries(env, unit, job)
    if libraries and env["OFFLOAD_LAUNCHER"]:
        with compat.at_top(env):
            variables["ENV"] = _shown_to_ccache(libraries, common["ENV"])
    made = builder(
        common,
        node,
        sources,
        **variables,
        _OFFLOAD_PASS_FLAGS=job.flags(toolchain, "${SOURCES[1]}", unit.source.name),
    )
    readers.add_environment(env, made)
    for library in libraries:
        node.add_dependency([library])
    identified(env, made)


def _common_to_passes(env: Environment, unit: Unit, job: CompilePass) -> Any:
    """Return the environment that all similar passes share."""
    local: list[Any] = job.local_flags(readers.toolchain(env), unit.source.name)
    variables = toolchain_variables(env)
    if job.has_host_ir and env["OFFLOAD_LAUNCHER"]:
        variables["_OFFLOAD_CACHE_KEY"] = _cache_key
        local.append("$_OFFLOAD_CACHE_KEY")
    is_device = job.device is not None
    variables["SPAWN"] = device_spawn(env, unit.kind) if is_device else host_spawn(env)
    return env.Override(
        {
            **variables,
            "_OFFLOAD_LOCAL_FLAGS": local,
            "_OFFLOAD_LAST_FLAGS": last_flags(env, job),
            "_OFFLOAD_DEPENDENCY_FLAGS": _dependency_flags,
            "_OFFLOAD_LANGUAGE": unit.kind.upper(),
            "_OFFLOAD_LANGUAGE_FLAGS": unit.language_flags,
            "_OFFLOAD_SHOWN": _shown_source,
        }
    )


def _shown_source(
    target: list[Any],
    source: list[Any],
    env: Environment,
    for_signature: bool,
) -> str:
    """Return a source's name in messages: in its variant folder if it is in several."""
    if not target or not source:
        return ""
    node, file = target[0].get(), source[0].get()  # SCons passes proxies of nodes
    passes = declared_passes(env)
    made = passes.get(node)
    is_variant = node.dir is not file.dir and node.dir.srcnode() is file.dir
    if made is not None and is_variant and passes.is_ambiguous(made):
        return f"{node.dir.get_internal_path()}/{file.name}"
    return str(file)


def _dependency_flags(
    target: list[Node],
    source: list[Node],
    env: Environment,
    for_signature: bool,
) -> list[Any]:
    """Return the flags that write the depfile; no signature contains them."""
    if for_signature:
        return []
    return [Literal(word) for word in dependency_flags(depfile_of(target[0]))]


def _keep_records(env: Environment, node: Node, unit: Unit, job: CompilePass, command: str) -> None:
    """Connect a node with its manifest; make ``scons -c`` remove manifest and depfile."""
    words = (*options_of(readers.toolchain(env).clang), *_flag_words(env, unit, job))
    if not hasattr(node.attributes, "offload_records"):
        node.attributes.offload_records = PassRecords(node, job, command, words)
        if keeps_temporaries(all_words(words)):
            _run_alone(env, node, unit)
    if SCons.Script.GetOption("clean"):  # the depfile exists only after a failed compile
        names = (depfile_of(node), manifest_path(node.get_internal_path()))
        env.Clean(node, [env.File(name, env.fs.Top) for name in names])


def _run_alone(env: Environment, node: Node, unit: Unit) -> None:
    """Serialize compiles that keep temporaries named after the same source."""
    stem = os.path.splitext(unit.source.name)[0]
    env.SideEffect(env.File(f".{stem}.temporaries", env.fs.Top), node)


def _flag_words(env: Environment, unit: Unit, job: CompilePass) -> tuple[str, ...]:
    """Return the user's flags of a pass, one argument each."""
    own = "$OFFLOAD_HOST_FLAGS" if job.device is None else "$OFFLOAD_FLAGS"
    text = f"{unit.language_flags} $CCFLAGS $CPPFLAGS $_CPPDEFFLAGS {own}"
    device = job.device

    def find() -> tuple[str, ...]:
        of_device = readers.arch_flags(env, device) if device is not None else ()
        found = (*_substituted(env, text, unit), *map(str, of_device))
        check_flags(found, rdc=job.rdc)
        return found

    words: tuple[str, ...] = once(env, f"{text} of {device.name if device else 'host'}", find)
    return words


def last_flags(env: Environment, job: CompilePass) -> list[str]:
    """Return the flags of a pass that follow the user's."""
    wanted = readers.archive_format(env, job.kind) if job.rdc else ""
    flags = job.last_flags(readers.toolchain(env), wanted)
    return [*flags, *_arch_list_flags(env)] if job.lists_targets else flags


def _arch_list_flags(env: Environment) -> list[str]:
    """Return the flags that list all targets for each CUDA pass, as the driver's do."""
    found = readers.toolchain(env)
    given = env.subst("$CCFLAGS $CPPFLAGS $_CPPDEFFLAGS $OFFLOAD_FLAGS $OFFLOAD_HOST_FLAGS")
    if found.major < cuda.ARCH_LIST_SINCE or cuda.ARCH_LIST in given:
        return []
    return cuda.arch_list_flags(device.name for device in readers.devices(env, "cuda"))


def uses_new_driver(env: Environment, unit: Unit) -> bool:
    """Return True if clang's new offload driver compiles a source's relocatable code."""
    job = _pass(env, unit, "host")
    return _ask_driver(env, unit, job, last_flags(env, job), hip.uses_new_driver)


def _ask_driver(
    env: Environment, unit: Unit, job: CompilePass, more: Iterable[str], ask: Callable[..., T]
) -> T:
    """Query the driver about the command of a pass, with `more` flags at its end."""
    toolchain = readers.toolchain(env)
    own = "$OFFLOAD_HOST_FLAGS" if job.device is None else "$OFFLOAD_FLAGS"
    given = _substituted(env, f"{unit.language_flags} $CCFLAGS {own}", unit)
    words = [*job.flags(toolchain), *given, *more]
    # Flags that differ between sources without effect here would repeat the query for each.
    flags = [_NO_CUID if word.startswith("-cuid=") else word for word in words]
    flags = [word for word in flags if not word.startswith(("-D", "-I"))]
    local = [word for word in job.local_flags(toolchain, unit.source.name) if word]
    environment = {**env["ENV"], **dict(toolchain.environment)}
    with compat.at_top(env):
        return ask([*toolchain.clang, *local, *flags], environment)


def _substituted(env: Environment, text: str, unit: Unit) -> list[str]:
    with compat.at_top(env):
        return readers.substituted(env, text, unit.source)


def _cache_key(
    target: list[Node], source: list[Node], env: Environment, for_signature: bool
) -> list[str]:
    """Return an option without effect that separates OpenMP compiles in a launcher's cache.

    Their outputs depend on inode numbers: of the files read, or of those in the host IR.
    """
    if for_signature or not env["OFFLOAD_LAUNCHER"]:  # the compilation database has none
        return []
    records = records_of(target[0])
    key = records.identity() if records.job.stage == "host-ir" else source[1].get_csig()
    return ["-Xclang", f"-cuid={key}"]


def _shown_to_ccache(files: list[Node], variables: dict[str, str]) -> dict[str, str]:
    """Return a command's environment, with inputs that ccache misses in CCACHE_EXTRAFILES."""
    name = "CCACHE_EXTRAFILES"
    given = [variables[name]] if variables.get(name) else []
    return {**variables, name: os.pathsep.join([*given, *map(str, files)])}


def _device_libraries(env: Environment, unit: Unit, job: CompilePass) -> list[Any]:
    """Return the libraries that the compiler links into device code on its own."""
    device = job.device
    if device is None or not job.has_headers:
        return []
    like = f"libraries of {job.kind} {job.rdc} {device.name} {unit.language_flags}"

    def find() -> list[Any]:
        more = map(str, readers.arch_flags(env, device))
        names = _ask_driver(env, unit, job, more, device_libraries)
        with compat.at_top(env):
            return [env.File(name) for name in names]

    found: list[Any] = once(env, like, find)
    return found
