"""The nodes of compiler passes: one per source and device, one or two for the host.

::

    HIP, CUDA    source ---> device 1, device 2, ..., host object     (all independent)
    OpenMP       source ---> host IR ---> device 1, device 2, ..., host object
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable
from functools import partial
from typing import Any

from SCons.Subst import Literal

from offload_tool.clang.argument_files import all_args, options_of
from offload_tool.clang.job_plan import keeps_temporaries
from offload_tool.errors import TargetIDError, UsageError
from offload_tool.formats.targets.bundle_entry_id import BundleEntryID
from offload_tool.formats.targets.compile_target import CompileTarget
from offload_tool.manifest import manifest_path
from offload_tool.manifest.cut_off import Stages
from offload_tool.manifest.inputs import general_args
from offload_tool.passes import cuda, hip, openmp
from offload_tool.passes.command import dependency_flags
from offload_tool.passes.compile_pass import CompilePass
from offload_tool.run.diagnostics import whole_command
from offload_tool.run.validate_flags import check_flags
from offload_tool.scons import (
    actions,
    compat,
    found_tools,
    offload_arch,
    settings,
    signature,
    spawn,
)
from offload_tool.scons.compat import OWN_SPAWN
from offload_tool.scons.graph.call_cache import cached
from offload_tool.scons.graph.declare import first_free
from offload_tool.scons.graph.units import Unit, add_identity, label
from offload_tool.scons.state.build_log import declared_passes, request_summary
from offload_tool.scons.state.node_info import info_of, records_of
from offload_tool.scons.state.node_resolver import FlagArgs, depfile_of
from offload_tool.scons.state.pass_state import PassRecords
from offload_tool.scons.types import Environment, Node
from offload_tool.scons.values import reads
from offload_tool.toolchain.driver_cache import device_libraries
from offload_tool.util.frozen import replaced

_ARCHIVE_FORMATS = {"hip": ("object-bundle", "offload-binary"), "cuda": tuple(cuda.ARCHIVE_FORMATS)}


def device_nodes(env: Environment, unit: Unit) -> list[Node]:
    """Return the nodes of a source's device passes, one per device."""
    made = []
    try:
        find = partial(offload_arch.devices, env, unit.kind)
        devices = cached(env, f"devices of {unit.kind}", find)
    except TargetIDError as error:
        raise error.of(f"'{unit.source}'") from None
    for device in devices:
        job = unit.job("device", device)
        suffix = "$OFFLOADDEVICESUFFIX" if job.suffix == ".co" else job.suffix
        names = unit.stem.files(env, f".{device.filename}{suffix}")
        node = first_free(names, partial(_compile, env, unit, job))
        is_relocatable = job.rdc or job.has_host_ir
        label(env, node, unit.kind, device, relocatable=is_relocatable)
        if job.has_host_ir and device.target_id is None:
            args, found = all_args(_flag_args(env, unit, job).declared), found_tools.toolchain(env)
            info_of(node).packaged_arch = openmp.packaged_arch(device, found, args)
        made.append(node)
    return made


def with_host(env: Environment, unit: Unit) -> tuple[Unit, Node]:
    """Return a source's host object, and the unit of all its nodes (another if it is taken)."""

    def declare(name: str) -> tuple[Unit, Node]:
        made = unit.renamed(env, name)
        return made, host_node(env, made)

    names = itertools.chain([unit.stem.name], unit.stem.other_names())
    return first_free(names, declare, unit.source)


def host_node(env: Environment, unit: Unit, name: Node | None = None) -> Node:
    """Return the host object of a source; it depends on no device image."""
    suffix = "$OFFLOADSHHOSTSUFFIX" if unit.is_shared else "$OFFLOADHOSTSUFFIX"
    node = name or unit.stem.file(env, suffix)
    job = unit.job("host")
    if job.compiles_source:
        _compile(env, unit, job, node, is_shared=unit.is_shared)
    else:
        _add_records(env, node, unit, job, "$OFFLOADHOSTIRCOM")
        variables = spawn.toolchain_variables(env)
        variables[OWN_SPAWN] = spawn.pass_spawn(spawn.runner_of(env, job))
        actions.HOST_FROM_IR(
            env,
            node,
            [_host_ir_node(env, unit)],
            **variables,
            _OFFLOAD_PIC_FLAGS=["-fPIC"] if unit.is_shared else [],
            _OFFLOAD_PASS_FLAGS=job.flags(found_tools.toolchain(env)),
            _OFFLOAD_LAST_FLAGS=last_flags(env, job),
            _OFFLOAD_LANGUAGE="OPENMP",
            _OFFLOAD_LANGUAGE_FLAGS=unit.language_flags,
        )
        add_identity(env, node)
    triple = found_tools.host_triple(env)
    info_of(node).entry_id = BundleEntryID.parse(f"host-{triple}-")
    return node


def _host_ir_node(env: Environment, unit: Unit, device_node: Node | None = None) -> Node:
    """Return the host IR, which a device's node has in common for programs and libraries."""
    files = [unit.stem.file(env, suffix) for suffix in (".host.bc", ".host.pic.bc")]
    is_shared = unit.is_shared
    if device_node is not None and device_node.has_explicit_builder():
        is_shared ^= files[not is_shared] in device_node.sources
    return _compile(env, unit, unit.job("host-ir"), files[is_shared], is_shared=is_shared)


def _compile(
    env: Environment, unit: Unit, job: CompilePass, node: Node, *, is_shared: bool = False
) -> Node:
    toolchain, device = found_tools.toolchain(env), job.device
    sources = [unit.source]
    if job.needs_host_ir:
        sources.append(_host_ir_node(env, unit, node))
    variables: dict[str, Any]
    if device is None:
        builder, command, machine = actions.HOST, "$OFFLOADHOSTCOM", "host"
        variables = {"_OFFLOAD_PIC_FLAGS": ["-fPIC"] if is_shared else []}
    else:
        builder, command, machine = actions.DEVICE, "$OFFLOADDEVICECOM", device.triple
        flags = job.own_flags(offload_arch.arch_flags(env, device))
        variables = {"_OFFLOAD_TARGET_ID": device.name, "_OFFLOAD_ARCH_FLAGS": flags}
    target = device.name if device is not None else "host"
    declared = declared_passes(env).add(node, unit.source, command, target)
    like = f"{job.kind} {job.stage} {job.rdc} {machine} {unit.language_flags}"
    common, run = cached(env, like, lambda: _common_to_passes(env, unit, job))
    run = _pass_runner(env, node, job, f"{like} {target} {is_shared}", run)
    if compat.is_build():
        name = f"{unit.kind} {unit.language_flags}"
        whole = cached(env, name, lambda: _whole_compile(env, unit))
        run = spawn.with_driver_warnings(env, run, whole)
    if env["OFFLOAD_SUMMARY"] and declared is not None:
        request_summary(env)
        declared.seconds = 0.0
    made = (node.get_internal_path(), depfile_of(node))
    variables[OWN_SPAWN] = spawn.pass_spawn(run, made, declared)
    _add_records(env, node, unit, job, command)
    libraries = _device_libraries(env, unit, job)
    if libraries and env["OFFLOAD_LAUNCHER"]:
        with compat.at_top(env):
            files = [*map(str, libraries)]
        variables["SHELL_ENV_GENERATORS"] = compat.with_variables(
            common, partial(_with_extra_files, files)
        )
    variables["_OFFLOAD_PASS_FLAGS"] = job.flags(toolchain)
    builder(common, node, sources, **variables)
    if device is not None and job.has_host_ir and device.arch == "nvptx64":
        ptxas = found_tools.ptxas(env, "openmp")
        env.Depends(node, env.Value(ptxas.identity if ptxas is not None else ""))
    node.add_dependency(libraries)
    add_identity(env, node)
    return node


def _with_extra_files(files: list[str], variables: dict[str, Any]) -> dict[str, Any]:
    name = "CCACHE_EXTRAFILES"  # inputs that ccache misses
    names = filter(None, [variables.get(name), *files])
    return {**variables, name: os.pathsep.join(names)}


def _whole_compile(env: Environment, unit: Unit) -> list[str]:
    toolchain = found_tools.toolchain(env)
    devices = offload_arch.devices(env, unit.kind) if env["OFFLOAD_ARCH"] else ()
    given = f"{unit.language_flags} $CCFLAGS $CPPFLAGS $OFFLOAD_HOST_FLAGS $OFFLOAD_FLAGS"
    flags = _substituted(env, given, unit)
    for device in devices:
        flags += map(str, offload_arch.arch_flags(env, device))
    job = unit.job("device", devices[0]) if devices else unit.job("host")
    local = [flag for flag in job.local_flags(toolchain) if flag]
    begin = [*toolchain.clang, *local]
    targets = [device.name for device in devices if device.target_id is not None]
    return whole_command(begin, unit.kind, unit.source.name, targets, flags)


def _pass_runner(
    env: Environment, node: Node, job: CompilePass, like: str, run: spawn.Runner
) -> spawn.Runner:
    """Return the runner of one pass: with a PCH, or in stages, as variables specify."""
    stages = None
    cuts_off = env["OFFLOAD_CUTOFF"] and job.can_bypass_driver and not job.rdc
    if cuts_off and isinstance(run, spawn.DirectRunner):
        stages = Stages(is_checked=env["OFFLOAD_CUTOFF_CHECK"])
        run = replaced(run, stages=stages)
    if env["OFFLOAD_PCH"]:
        from offload_tool.scons.pch import PchRunner  # few builds need it

        run = PchRunner(env, node, job, like, run)
    return run if stages is None else spawn.with_cut_off(run, node, stages)


def _common_to_passes(
    env: Environment, unit: Unit, job: CompilePass
) -> tuple[Environment, spawn.Runner]:
    """Return the environment and the runner that all similar passes share."""
    local: list[Any] = []
    if compat.is_build():
        local += job.local_flags(found_tools.toolchain(env))
    variables = spawn.toolchain_variables(env)
    if job.has_host_ir and job.device is not None:
        local += _openmp_local_flags(env, job.device)
        given = settings.substituted(env, "$OFFLOAD_FLAGS")
        if job.own_flags(given) != given:
            variables["OFFLOAD_FLAGS"] = job.own_flags(given)
    if job.has_host_ir and env["OFFLOAD_LAUNCHER"]:
        variables["_OFFLOAD_CACHE_KEY"] = _cache_key
        local.append("$_OFFLOAD_CACHE_KEY")
    common = env.Override(
        {
            **variables,
            signature.VARIABLE: signature.SharedTexts(),
            "_OFFLOAD_LOCAL_FLAGS": local,
            "_OFFLOAD_LAST_FLAGS": last_flags(env, job),
            "_OFFLOAD_DEPENDENCY_FLAGS": _dependency_flags,
            "_OFFLOAD_LANGUAGE": unit.kind.upper(),
            "_OFFLOAD_LANGUAGE_FLAGS": unit.language_flags,
            "_OFFLOAD_SHOWN": _shown_source,
        }
    )
    return common, spawn.runner_of(env, job)


def _openmp_local_flags(env: Environment, device: CompileTarget) -> list[str]:
    if device.target_id is None:
        return []
    runtimes = found_tools.device_runtimes(env, device)
    flags = openmp.runtime_flags(device, found_tools.toolchain(env), runtimes)
    named = found_tools.ptxas(env, "openmp") if device.arch == "nvptx64" else None
    return [*flags, *([openmp.ptxas_flag(named)] if named is not None else [])]


def _shown_source(
    target: list[Any], source: list[Any], env: Environment, for_signature: bool
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


@reads()
def _dependency_flags(
    target: list[Node], source: list[Node], env: Environment, for_signature: bool
) -> list[Any]:
    """Return the flags that write the depfile; no signature contains them."""
    if for_signature:
        return []
    return [Literal(arg) for arg in dependency_flags(depfile_of(target[0]))]


def _add_records(env: Environment, node: Node, unit: Unit, job: CompilePass, command: str) -> None:
    """Connect a node with its manifest; make ``scons -c`` remove manifest and depfile."""
    flags, info = _flag_args(env, unit, job), info_of(node)
    if info.records is None:
        info.records = PassRecords(node, job, command, flags)
        if keeps_temporaries(all_args(flags.now)):  # named after the source: one compile at a time
            stem = os.path.splitext(unit.source.name)[0]
            env.SideEffect(compat.exact_file(env.fs, f".{stem}.temporaries"), node)
    if not (compat.is_build() or node.noclean):  # the depfile is left by a failed compile
        names = (depfile_of(node), manifest_path(node.get_internal_path()))
        env.Clean(node, [compat.exact_file(env.fs, name) for name in names])


def _flag_args(env: Environment, unit: Unit, job: CompilePass) -> FlagArgs:
    """Return the arguments of a pass's flags, checked as they are now."""
    own = "$OFFLOAD_HOST_FLAGS" if job.device is None else "$OFFLOAD_FLAGS"
    text = f"{unit.language_flags} $CCFLAGS $CPPFLAGS $_CPPDEFFLAGS {own}"
    device = job.device

    def find() -> tuple[str, ...]:
        of_device = offload_arch.arch_flags(env, device) if device is not None else ()
        return (*_substituted(env, text, unit), *map(str, of_device))

    def make() -> FlagArgs:
        made = FlagArgs(options_of(found_tools.toolchain(env).clang), find)
        check_flags(made.declared, rdc=job.rdc)
        return made

    return cached(env, f"{text} of {device.name if device else 'host'}", make)


def last_flags(env: Environment, job: CompilePass) -> list[str]:
    """Return the flags of a pass that follow the user's, with all targets of CUDA's passes."""
    wanted = _archive_format(env, job.kind) if job.rdc else ""
    toolchain = found_tools.toolchain(env)
    flags = job.end_flags(toolchain, wanted)
    if not job.lists_targets or toolchain.major < cuda.ARCH_LIST_SINCE:
        return flags
    given = env.subst("$CCFLAGS $CPPFLAGS $_CPPDEFFLAGS $OFFLOAD_FLAGS $OFFLOAD_HOST_FLAGS")
    if cuda.ARCH_LIST in given:
        return flags
    targets = (device.name for device in offload_arch.devices(env, "cuda"))
    return [*flags, *cuda.arch_list_flags(targets)]


def uses_new_driver(env: Environment, unit: Unit) -> bool:
    """Return True if clang's new offload driver compiles a source's relocatable code."""
    if not compat.is_build():
        return True  # more files than of the old one
    job = unit.job("host")
    command, environment = _driver_command(env, unit, job, last_flags(env, job))
    with compat.at_top(env):
        return hip.uses_new_driver(command, environment)


def _driver_command(
    env: Environment, unit: Unit, job: CompilePass, more: Iterable[str] = ()
) -> tuple[list[str], dict[str, str]]:
    """Return a pass's command and environment for queries, with `more` flags at its end."""
    toolchain = found_tools.toolchain(env)
    # Flags that differ between sources without effect here would repeat the query for each.
    given = _flag_args(env, unit, job).declared
    args = general_args([*job.flags(toolchain), *given, *more], ())
    flags = [
        arg
        for before, arg in itertools.pairwise(("", *args))
        if before.startswith("-X") or not (before == "-I" or arg.startswith("-I"))
    ]
    local = [arg for arg in job.local_flags(toolchain) if arg]
    environment = {**env["ENV"], **dict(toolchain.environment)}
    return [*toolchain.clang, *local, *flags], environment


def _substituted(env: Environment, text: str, unit: Unit) -> list[str]:
    with compat.at_top(env):
        return settings.substituted(env, text, unit.source)


def _cache_key(
    target: list[Node], source: list[Node], env: Environment, for_signature: bool
) -> list[str]:
    """Return an option without effect that separates OpenMP compiles in a launcher's cache."""
    if for_signature or not env["OFFLOAD_LAUNCHER"]:  # the compilation database has none
        return []
    records = records_of(target[0])
    key = records.identity() if records.job.stage == "host-ir" else source[1].get_csig()
    return ["-Xclang", f"-cuid={key}"]


def _device_libraries(env: Environment, unit: Unit, job: CompilePass) -> list[Any]:
    device = job.device
    if device is None or device.target_id is None or not compat.is_build():
        return []
    like = f"libraries of {job.kind} {job.rdc} {device.name} {unit.language_flags}"

    def find() -> list[Any]:
        command, environment = _driver_command(env, unit, job)
        with compat.at_top(env):
            found = device_libraries(command, environment)
            return [compat.exact_file(env.fs, name) for name in found]

    return cached(env, like, find)


def _archive_format(env: Environment, kind: str) -> str:
    given = str(env.subst(str(env["OFFLOAD_ARCHIVE_FORMAT"] or "")))
    if given not in ("", *_ARCHIVE_FORMATS[kind]):
        raise UsageError(
            f"OFFLOAD_ARCHIVE_FORMAT: expected {' or '.join(_ARCHIVE_FORMATS[kind])} for "
            f"{kind.upper()} sources, found {given!r}"
        )
    found = found_tools.toolchain(env)
    is_new = kind == "hip" and given == "offload-binary"
    if is_new and compat.is_build() and hip.driver_flags(found.major, rdc=True):
        raise UsageError(
            f"OFFLOAD_ARCHIVE_FORMAT: clang {found.version} cannot make {given}; "
            "expected clang 21 or later"
        )
    return given
