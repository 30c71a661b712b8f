"""The nodes of compiler passes: one per source and device, one or two for the host.

::

    HIP, CUDA    source ---> device 1, device 2, ..., host object     (no one waits for another)
    OpenMP       source ---> host IR ---> device 1, device 2, ..., host object
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import SCons.Script

from offload_tool.compiler.device_libraries import device_libraries
from offload_tool.compiler.passes import CompilePass, dependency_flags
from offload_tool.formats.entry_id import BundleEntryID
from offload_tool.scons import actions, settings
from offload_tool.scons.declaring import NodeBuilder
from offload_tool.scons.dependencies import DEPENDENCY_SCANNER, NO_SCANNER, depfile_of, identity_of
from offload_tool.scons.nodes import add_aliases, identified, label
from offload_tool.scons.records import record_pass
from offload_tool.scons.spawning import device_spawn
from offload_tool.scons.summary import ask_for_summary, timed

if TYPE_CHECKING:
    from offload_tool.compiler.device import Device
    from offload_tool.scons.nodes import Unit

__all__ = ["device_nodes", "host_node"]

_SCANNERS = {"source_scanner": NO_SCANNER, "target_scanner": DEPENDENCY_SCANNER}
_DEVICE = NodeBuilder(actions.DEVICE, **_SCANNERS)
_HOST = NodeBuilder(actions.HOST, **_SCANNERS)
_HOST_FROM_IR = NodeBuilder(actions.HOST_FROM_IR)
_HOST_IR_SUFFIX = ".host.bc"


def device_nodes(env: Any, unit: Unit) -> list[Any]:
    """Give one node per device: what the compiler makes of the source for it."""
    made = []
    for device in settings.devices(env, unit.kind):
        job = _pass(env, unit, "device", device)
        suffix = "$OFFLOADDEVICESUFFIX" if job.suffix == ".co" else job.suffix
        node = unit.file(env, f".{device.filename}{suffix}")
        _compile(
            *(env, _DEVICE, node, unit, job),
            _OFFLOAD_TARGET_ID=device.name,
            _OFFLOAD_ARCH_FLAGS=settings.arch_flags(env, device),
        )
        label(node, unit.kind, device)
        node.attributes.offload_relocatable = job.rdc or job.kind == "openmp"
        add_aliases(env, node, device)
        made.append(node)
    return made


def host_node(env: Any, unit: Unit, name: Any = None, *, shared: bool = False) -> Any:
    """Give the host object of a source; it depends on no device image."""
    node = name or unit.file(env, "$OFFLOADSHHOSTSUFFIX" if shared else "$OFFLOADHOSTSUFFIX")
    variables = {"_OFFLOAD_PIC_FLAGS": ["-fPIC"] if shared else []}
    job = _pass(env, unit, "host")
    if not job.compiles_source:
        _from_host_ir(env, node, unit, job, variables)
    else:
        _compile(env, _HOST, node, unit, job, **variables)
    triple = settings.toolchain(env).host_triple
    node.attributes.offload_entry_id = BundleEntryID.parse(f"host-{triple}-")
    return node


def _host_ir_node(env: Any, unit: Unit) -> Any:
    """Give the node of the host IR, which is made anew when a source file is replaced."""
    node = unit.file(env, _HOST_IR_SUFFIX)
    if not node.has_builder():
        _compile(env, _HOST, node, unit, _pass(env, unit, "host-ir"))
        identity = node.attributes.offload_identity = identity_of(unit.source, node, env)
        env.Depends(node, identity)
    return node


def _from_host_ir(
    env: Any, node: Any, unit: Unit, job: CompilePass, variables: dict[str, Any]
) -> None:
    toolchain = settings.toolchain(env)
    made = _HOST_FROM_IR(
        env,
        node,
        _host_ir_node(env, unit),
        **settings.toolchain_variables(env),
        **variables,
        _OFFLOAD_PASS_FLAGS=job.flags(toolchain),
        _OFFLOAD_LANGUAGE="OPENMP",
        _OFFLOAD_LANGUAGE_FLAGS=unit.language_flags,
    )
    identified(env, made)


def _pass(env: Any, unit: Unit, stage: Any, device: Device | None = None) -> CompilePass:
    return CompilePass(unit.kind, stage, unit.cuid, device, rdc=settings.is_relocatable(env, unit))


def _compile(
    env: Any, builder: Any, node: Any, unit: Unit, job: CompilePass, **variables: Any
) -> None:
    """Declare a node that the compiler makes of a source, with exact dependencies."""
    depfile = depfile_of(node)
    if SCons.Script.GetOption("clean"):  # it is there only after a compile that failed
        env.Clean(node, node.dir.File(f"{node.name}.d"))
    toolchain = settings.toolchain(env)
    sources = [unit.source]
    if job.needs_host_ir:
        sources.append(_host_ir_node(env, unit))
    variables = {**settings.toolchain_variables(env), **variables}
    variables["_OFFLOAD_LOCAL_FLAGS"] = job.local_flags(toolchain, unit.source.name)
    if job.kind == "openmp" and env["OFFLOAD_LAUNCHER"]:
        variables["_OFFLOAD_CACHE_KEY"] = _cache_key
        variables["_OFFLOAD_LOCAL_FLAGS"].append("$_OFFLOAD_CACHE_KEY")
    command = "$OFFLOADDEVICECOM" if job.device is not None else "$OFFLOADHOSTCOM"
    declared = record_pass(node, unit.source, command, job.device.name if job.device else "host")
    spawn = device_spawn(env, unit.kind) if job.device is not None else None
    if env["OFFLOAD_SUMMARY"] and declared is not None:
        ask_for_summary()
        spawn = timed(spawn or env["SPAWN"], declared)
    if spawn is not None:
        variables["SPAWN"] = spawn
    libraries = _device_libraries(env, unit, job)
    _show_to_ccache(env, libraries, variables["ENV"])
    made = builder(
        env,
        node,
        sources,
        **variables,
        _OFFLOAD_PASS=job.to_text(),
        _OFFLOAD_PASS_FLAGS=job.flags(toolchain, "${SOURCES[1]}"),
        _OFFLOAD_DEPENDENCY_FLAGS=dependency_flags(depfile),
        _OFFLOAD_LANGUAGE=unit.kind.upper(),
        _OFFLOAD_LANGUAGE_FLAGS=unit.language_flags,
    )
    settings.add_environment(env, made)
    env.Depends(node, libraries)
    identified(env, made)


def _cache_key(target: Any, source: Any, env: Any, for_signature: bool) -> list[str]:
    """Give an option without an effect, by which a cache tells compiles of OpenMP apart.

    Their result depends on inode numbers: of the files read, or of those in the host IR.
    """
    if for_signature or not env["OFFLOAD_LAUNCHER"]:  # the compilation database has none
        return []
    identity = getattr(target[0].attributes, "offload_identity", None) or source[1]
    return ["-Xclang", f"-cuid={identity.get_csig()}"]


def _show_to_ccache(env: Any, files: list[Any], variables: dict[str, str]) -> None:
    """Tell ccache of inputs that it does not see."""
    if files and env["OFFLOAD_LAUNCHER"]:
        name = "CCACHE_EXTRAFILES"
        given = [variables[name]] if variables.get(name) else []
        variables[name] = os.pathsep.join([*given, *map(str, files)])


def _device_libraries(env: Any, unit: Unit, job: CompilePass) -> list[Any]:
    """Give the libraries that the compiler links into device code by itself."""
    if job.device is None or job.kind == "openmp" or "-nogpulib" in env["OFFLOAD_FLAGS"]:
        return []
    toolchain = settings.toolchain(env)
    given = env.subst_list(f"{unit.language_flags} $CCFLAGS $OFFLOAD_FLAGS", source=unit.source)
    words = [*job.flags(toolchain), *map(str, given[0])]
    words += map(str, settings.arch_flags(env, job.device))
    # What differs from source to source without a meaning here would be asked for each.
    flags = [word for word in words if not word.startswith(("-cuid=", "-D", "-I"))]
    command = [*toolchain.clang, *toolchain.local_flags, *flags]
    environment = {**env["ENV"], **dict(toolchain.environment)}
    return [env.File(name) for name in device_libraries(command, environment)]
