"""The nodes of compiler passes: one per source and device, one or two for the host.

::

    HIP, CUDA    source ---> device 1, device 2, ..., host object     (no one waits for another)
    OpenMP       source ---> host IR ---> device 1, device 2, ..., host object
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import SCons.Builder

from offload_tool.compiler.passes import CompilePass, dependency_flags
from offload_tool.formats.entry_id import BundleEntryID
from offload_tool.scons import actions, settings
from offload_tool.scons.dependencies import DEPENDENCY_SCANNER, depfile_of, identity_of
from offload_tool.scons.nodes import add_aliases, identified, label
from offload_tool.scons.records import record_pass
from offload_tool.scons.spawning import device_spawn
from offload_tool.scons.summary import ask_for_summary, timed

if TYPE_CHECKING:
    from offload_tool.compiler.device import Device
    from offload_tool.scons.nodes import Unit

__all__ = ["device_nodes", "host_node"]

_DEVICE = SCons.Builder.Builder(action=actions.DEVICE, target_scanner=DEPENDENCY_SCANNER)
_HOST = SCons.Builder.Builder(action=actions.HOST, target_scanner=DEPENDENCY_SCANNER)
_HOST_FROM_IR = SCons.Builder.Builder(action=actions.HOST_FROM_IR)
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
        env.Depends(node, identity_of(unit.source, node))
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
    env.Clean(node, node.dir.File(f"{node.name}.d"))  # there only after a compile that failed
    toolchain = settings.toolchain(env)
    sources = [unit.source]
    if job.needs_host_ir:
        sources.append(_host_ir_node(env, unit))
    variables = {**settings.toolchain_variables(env), **variables}
    variables["_OFFLOAD_LOCAL_FLAGS"] = job.local_flags(toolchain, unit.source.name)
    command = "$OFFLOADDEVICECOM" if job.device is not None else "$OFFLOADHOSTCOM"
    declared = record_pass(node, unit.source, command, job.device.name if job.device else "host")
    spawn = device_spawn(env, unit.kind) if job.device is not None else None
    if env["OFFLOAD_SUMMARY"] and declared is not None:
        ask_for_summary()
        spawn = timed(spawn or env["SPAWN"], declared)
    if spawn is not None:
        variables["SPAWN"] = spawn
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
    identified(env, made)
