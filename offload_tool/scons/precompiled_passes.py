"""Precompiled headers of the passes of offload sources."""

from __future__ import annotations

from typing import TYPE_CHECKING

from offload_tool.compiler.fingerprints import look_at
from offload_tool.compiler.passes import without_dependency_flags
from offload_tool.compiler.pch_rules import reason_of_flags
from offload_tool.compiler.reading import general_words
from offload_tool.scons import precompiled, settings
from offload_tool.scons.outputs import records_of
from offload_tool.scons.recording import depfile_of
from offload_tool.scons.spawning import DirectSpawn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from offload_tool.compiler import pch
    from offload_tool.compiler.passes import CompilePass
    from offload_tool.scons.precompiled import Spawn
    from offload_tool.scons.protocols import Environment, Node

__all__ = ["pch_spawn"]


def pch_spawn(
    env: Environment, node: Node, job: CompilePass, flags: tuple[str, ...], spawn: Spawn
) -> Spawn:
    """Give the SPAWN function of a pass that may use a PCH; `spawn` compiles without.

    :raises UsageError: OFFLOAD_PCH or OFFLOAD_PCH_CHECK is not what it may be.
    """
    if not precompiled.is_wanted(env):
        return spawn
    made = precompiled.PchSpawn(env, _Pass(env, node, job, spawn), flags, spawn)
    made.belong_to(env, node)
    return made.run


class _Pass:
    """What decides about the PCH of a pass."""

    def __init__(self, env: Environment, node: Node, job: CompilePass, spawn: Spawn) -> None:
        toolchain = settings.toolchain(env)
        self.name = job.device.filename if job.device is not None else "host"
        self.kind: str = job.kind
        self.stage: str = job.stage
        self.program, self.identity = len(toolchain.clang), toolchain.identity
        self._node, self._clang = node, [*toolchain.clang]
        self._launcher = settings.launcher(env)
        self._is_distributed = bool(env["OFFLOAD_DIST"])
        self._quietly = spawn.run_quietly if isinstance(spawn, DirectSpawn) else None

    def compile_of(
        self, command: list[str], variables: Mapping[str, str]
    ) -> precompiled.Compile | str:
        """Read the command of the pass; or say why it is not understood."""
        launcher, node = [*self._launcher], self._node
        source = str(node.sources[0].rfile())
        if self._is_distributed:
            return "OFFLOAD_DIST"
        begin = [*launcher, *self._clang]
        if command[: len(begin)] != begin or command[-3:] != [
            *("-o", node.get_internal_path(), source)
        ]:
            return "a command of its own"
        words = command[len(launcher) :]
        made = without_dependency_flags(words[:-3], depfile_of(node))
        return precompiled.Compile(
            source, tuple(made), words, variables, tuple(launcher), self._quietly
        )

    def refuses(self, compiled: precompiled.Compile) -> str:
        """Say why its flags allow no PCH; "" where they do."""
        words = general_words(compiled.made, ())
        return reason_of_flags(self.kind, self.stage, words, compiled.variables)

    def is_edit(self) -> bool:
        """Tell whether it would read what the last one has read, but for the source."""
        return records_of(self._node).only_source_changed()

    def least_of_own(self, shared: pch.UsablePch | None) -> float | None:
        """Give 0; None where the pass reads little, or most of it is in a PCH already."""
        inputs = records_of(self._node).inputs_before()
        sizes = {name: look.size for name in inputs if (look := look_at(name)) is not None}
        total = sum(sizes.values())
        there = {*shared.inputs} if shared is not None else {}
        common = sum(size for name, size in sizes.items() if name in there)
        if total < precompiled.SMALLEST or common > precompiled.MOST_SHARED * total:
            return None
        return 0
