"""Checks of SCons's ``Configure`` contexts: they use the compiler of the environment.

A check builds one file now, and wants its status alone, so that it has no nodes of passes: an
offload source is compiled as the driver does, host and device, and linked by SCons.
"""

from __future__ import annotations

from typing import Any

import SCons.Action
import SCons.Builder
import SCons.Errors
import SCons.Node
import SCons.Util

from offload_tool.passes.languages import compile_pass
from offload_tool.passes.source_kind import CXX_MODE
from offload_tool.scons import compat, found_tools, offload_arch
from offload_tool.scons.graph import units
from offload_tool.scons.types import Environment, Node
from offload_tool.toolchain.probe import Toolchain

BUILDERS = {
    "OffloadObject": "Object",
    "OffloadProgram": "Program",
    "OffloadSharedLibrary": "SharedLibrary",
}
"""Our builders that checks may use, and SCons's builders of the same names and suffixes."""
_FLAGS = (
    *("$CXXFLAGS", "$CCFLAGS", "$CPPFLAGS", "$_CPPDEFFLAGS", "$_OFFLOAD_INCLUDES"),
    "$OFFLOAD_FLAGS",
)
_END = ("-o", "$TARGET", "$SOURCE")
_NOWHERE = ("-o", "/dev/null", "$SOURCE")


def is_check(overrides: dict[str, Any]) -> bool:
    """Return True if a ``Configure`` context calls a builder: SCons passes this variable then."""
    return "SCONF_NODE" in overrides


class BuilderMethod(compat.AddedMethod):
    """A builder as a method, which ``TryBuild`` of a ``Configure`` context accepts."""

    @property
    def builder(self) -> Any:
        """The builder that decides names of outputs.

        :raises SCons.Errors.UserError: there is none for checks.
        """
        if self.name not in BUILDERS:
            raise SCons.Errors.UserError(
                f"TryBuild: env.{self.name} builds no check; give env.{', env.'.join(BUILDERS)}"
            )
        return self.object["BUILDERS"][BUILDERS[self.name]]


def accept_in_checks(env: Environment, name: str) -> None:
    """Make a builder's method one that ``TryBuild`` accepts, also in clones of the environment."""
    compat.adopt_method(env, name, BuilderMethod)


class CheckedAction(SCons.Util.Proxy):  # type: ignore[misc]
    """The action of one of SCons's builders, which has contents for offload sources, too."""

    def get_contents(self, target: Any, source: Any, env: Environment) -> bytes:
        """Return what names the outputs of a check."""
        try:
            return bytes(self.get().get_contents(target, source, env))
        except SCons.Errors.UserError:  # no action for the suffix
            return b"offload"


def check(env: Environment, builder: Any, name: str, target: Any, given: list[Any]) -> Any:
    """Declare the file of a check: with SCons's `builder` of a name, and our compiler."""
    found = _toolchain(env)
    variables: dict[str, Any] = {"ENV": {**env["ENV"], **dict(found.environment)}}
    for prefix in ("", "SH"):
        variables |= {f"{prefix}CC": list(found.cc), f"{prefix}CXX": list(found.cxx)}
        variables[f"{prefix}LINK"] = list(found.cxx)
    local = env.Override({**variables, "SCONF_NODE": True})
    nodes = local.arg2nodes(given, env.fs.File)
    kinds = {node: units.kind_of(env, node) for node in nodes}
    if not {"hip", "cuda"} & {*kinds.values()}:
        return builder(local, target, nodes)
    if name.endswith("Object"):
        return _object(local, kinds[nodes[0]] or "", target, nodes[0])
    own = (n for n in nodes if kinds[n] in ("hip", "cuda"))
    objects = {n: _object(local, kinds[n] or "", f"{n}{env.subst('$OBJSUFFIX')}", n) for n in own}
    return builder(local, target, [objects.get(node, node) for node in nodes])


def _toolchain(env: Environment) -> Toolchain:
    """Return the compiler, with ``scons -c`` as well: checks decide what a SConscript declares."""
    return found_tools.toolchain(env, lenient=compat.is_build())


def _object(env: Environment, kind: str, target: Any, source: Node) -> Any:
    toolchain = _toolchain(env)
    devices = offload_arch.devices(env, kind)
    host = compile_pass(kind, "host", "check")
    if kind == "hip":  # the driver links device code by itself
        local = host.local_flags(toolchain, source.name)
        targets = [f"--offload-arch={device.name}" for device in devices]
        lines = [[*toolchain.clang, *local, CXX_MODE, "-x", "hip", *targets, *_FLAGS, "-c", *_END]]
    else:
        passes = [(compile_pass(kind, "device", "check", device), _NOWHERE) for device in devices]
        lines = []
        for each, end in (*passes, (host, _END)):
            command = each.command(toolchain, _FLAGS, source.name)
            lines.append([*command.program, *command.flags, *end])
    action = SCons.Action.ListAction([SCons.Action.Action([line]) for line in lines])
    return SCons.Builder.Builder(action=action)(env, target, [source])
