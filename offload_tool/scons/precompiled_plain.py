"""Precompiled headers of the C and C++ sources beside offload sources.

SCons compiles them by its own builders and signs their commands; it runs these through ``SPAWN``,
which is in no signature. The compiler is the clang that compiles the offload sources: what it
reads for a PCH it tells in a depfile of the PCH's own, so that ``$CXXCOM`` needs none. Whether a
source is compiled, SCons alone decides; a PCH decides for itself whether it is current.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from offload_tool.compiler.driver import front_end_jobs
from offload_tool.compiler.driver_answers import program_of
from offload_tool.compiler.pch import bytes_of
from offload_tool.compiler.pch_rules import reason_of_flags
from offload_tool.compiler.reading import general_words
from offload_tool.compiler.recorded import WRITES_FILES
from offload_tool.scons import compat, precompiled, settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from offload_tool.compiler import pch
    from offload_tool.scons.precompiled import Spawn
    from offload_tool.scons.protocols import Environment, Node

__all__ = ["PlainSpawn"]

_LANGUAGES = {"CC": "c", "CXX": "c++"}
_OTHER_LANGUAGE = ("-x", "--language", "-ObjC")
_OTHER_OUTPUT = ("-S", "-E", "--assemble", "--preprocess", "--output", "-o")
_VARIABLES = ("CC_", "CCC_", "DEPENDENCIES_OUTPUT", "SUNPRO_DEPENDENCIES")
"""Beginnings of the variables by which clang's driver changes commands, logs them, or writes
depfiles. Source: clang 22.1.8, observed."""


class PlainSpawn:
    """The SPAWN function of a C or C++ source that may use a PCH."""

    def __init__(self, env: Environment, language: str, command: str, spawn: Spawn) -> None:
        """Begin with SCons's `language`, ``CC`` or ``CXX``, and the text of its `command`.

        :raises UsageError: OFFLOAD_PCH or OFFLOAD_PCH_CHECK is not what it may be.
        """
        self._env = env
        self._plain = _Plain(env, language)
        self._spawn = precompiled.PchSpawn(env, self._plain, (command,), spawn)
        self.run = self._spawn.run

    def belong_to(self, nodes: list[Node]) -> None:
        """Be that of the nodes that SCons has declared for it, the object first."""
        self._plain.nodes = nodes
        self._spawn.belong_to(self._env, nodes[0])


class _Plain:
    """What decides about the PCH of a C or C++ source."""

    name, stage = "host", "host"

    def __init__(self, env: Environment, language: str) -> None:
        toolchain = settings.toolchain(env)
        self.kind = _LANGUAGES[language]
        self._compiler = [*(toolchain.cc if language == "CC" else toolchain.cxx)]
        self._is_one_program = len(toolchain.clang) == 1 and not toolchain.is_embedded
        self.program = len(self._compiler)
        self.identity = toolchain.own_identity or toolchain.identity
        self.nodes: list[Any] = []

    def compile_of(
        self, command: list[str], variables: Mapping[str, str]
    ) -> precompiled.Compile | str:
        """Read the command that SCons runs; or say why it is not understood."""
        source = str(self.nodes[0].sources[0].rfile())
        flags = self._flags_in(command, source)
        if flags is None:
            return "a command of its own"
        if not self._is_one_program:
            return "a compiler of several words"
        for name in variables:
            if name.startswith(_VARIABLES):
                return f"the variable {name}"
        if any(word.startswith("@") for word in flags):
            return "a response file"
        if any(word.startswith(_OTHER_LANGUAGE) for word in flags):
            return "a language of its own (-x)"
        if any(word.startswith(WRITES_FILES) for word in flags):
            return "files beside its output"
        if any("section" in word and "(" in word for word in flags):
            return "a section of its own"
        made = (*self._compiler, *flags, "-x", self.kind)
        return precompiled.Compile(source, made, command, variables)

    def _flags_in(self, command: list[str], source: str) -> list[str] | None:
        """Give the flags of a compile of one source to one object; None if it is another one."""
        output = self.nodes[0].get_internal_path()
        begin, flags = command[: self.program], command[self.program : -1]
        if begin != self._compiler or command[-1] != source or len(self.nodes) != 1:
            return None
        if flags.count("-o") != 1 or flags.count("-c") != 1:
            return None
        at = flags.index("-o")
        if flags[at + 1 : at + 2] != [output]:
            return None
        del flags[at : at + 2]
        flags.remove("-c")
        return None if any(word.startswith(_OTHER_OUTPUT) for word in flags) else flags

    def refuses(self, compiled: precompiled.Compile) -> str:
        """Say why its flags, or its compiler, allow no PCH; "" where they do."""
        words = general_words(compiled.made, ())
        program = program_of(compiled.made, compiled.variables)
        if program is None:
            return "a compiler that is a script"
        reason = reason_of_flags(self.kind, self.stage, words, compiled.variables)
        if reason:
            return reason
        (job,) = front_end_jobs(words, compiled.variables)
        if os.path.realpath(job[0]) != os.path.realpath(program):
            return "a compiler cache or wrapper"
        return ""

    def is_edit(self) -> bool:
        """Tell whether SCons knows of another source, and of nothing else that is another."""
        return compat.only_source_differs(self.nodes[0])

    def least_of_own(self, shared: pch.UsablePch | None) -> float | None:
        """Give how many bytes of headers are enough: what a compile reads, nobody has recorded."""
        there = bytes_of(shared.inputs) / precompiled.MOST_SHARED if shared is not None else 0
        return max(precompiled.SMALLEST, there)
