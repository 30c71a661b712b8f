"""The list of declared compiler passes, for summaries, progress and databases."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from offload_tool.scons import compat
from offload_tool.scons.types import Environment, Node


@dataclass(slots=True)
class DeclaredPass:
    """The node of one compiler pass."""

    node: Node
    source: Any
    command: str
    """The variable with its command line, such as ``$OFFLOADDEVICECOM``."""
    target: str
    """The target ID, or ``host``."""
    number: int
    """In the order of declarations, from 1."""
    seconds: float | None = None
    """The time of its command; None if not measured."""


class DeclaredPasses:
    """The passes of a build, in the order in which SConscripts declared them."""

    def __init__(self) -> None:
        self._by_node: dict[Any, DeclaredPass] = {}
        self._folders: defaultdict[Any, set[Any]] = defaultdict(set)
        """The folders of the outputs of a source."""
        self._keeps_commands = False
        self.are_summed_up = False
        self.summary_file = ""
        """The file for the summary as JSON; empty for none."""
        self.pch_statistics: Any = None
        """Statistics of precompiled headers, if they are on."""

    def __iter__(self) -> Iterator[DeclaredPass]:
        return iter(self._by_node.values())

    def __len__(self) -> int:
        return len(self._by_node)

    def get(self, node: Node) -> DeclaredPass | None:
        """Return the pass of a node; None if it has none."""
        return self._by_node.get(node)

    def add(self, node: Node, source: Any, command: str, target: str) -> DeclaredPass | None:
        """Add a node; return None if it was declared before."""
        if node in self._by_node:
            return None
        made = self._by_node[node] = DeclaredPass(
            node, source, command, target, len(self._by_node) + 1
        )
        self._folders[source.srcnode()].add(node.dir)
        if self._keeps_commands:
            compat.keep_command(node)
        return made

    def is_ambiguous(self, made: DeclaredPass) -> bool:
        """Return True if the source is compiled in several folders, such as those of variants."""
        return len(self._folders[made.source.srcnode()]) > 1

    def keep_commands(self) -> None:
        """Make SCons keep the command of each pass, which it drops when a node is done."""
        self._keeps_commands = True
        for node in self._by_node:
            compat.keep_command(node)


def declared_passes(env: Environment) -> DeclaredPasses:
    """Return the passes of an environment's build."""
    return compat.of_build(env, DeclaredPasses)
