"""Compiles that may share precompiled headers (PCHs), and what a build knows of its PCHs.

Compiles of one group have their target, language, flags and search path in common. Which of them
share a PCH, their sources tell: those that begin with the same lines ``#include <...>``.
"""

from __future__ import annotations

import os
import threading
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple

import SCons.Node

from offload_tool.compiler.beginning import beginning_of
from offload_tool.scons import compat

if TYPE_CHECKING:
    from collections.abc import Mapping

    from offload_tool.compiler.pch import PchRecipe
    from offload_tool.scons.protocols import Environment, Node

__all__ = [
    "FEWEST_USERS",
    "Group",
    "Key",
    "PchStatistics",
    "Pchs",
    "pch_statistics",
    "shared_beginnings",
]

FEWEST_USERS = 3
"""One for fewer would take longer to make than it saves."""
_UNDECIDED = (SCons.Node.no_state, SCons.Node.pending, SCons.Node.executing)


class PchStatistics:
    """How many compiles of a build were compiled with a PCH, and why others were not."""

    def __init__(self) -> None:
        self.used = 0
        self.reasons: Counter[str] = Counter()

    def __bool__(self) -> bool:
        return bool(self.used or self.reasons)

    def __str__(self) -> str:
        without = sum(self.reasons.values())
        reasons = "; ".join(f"{count}: {reason}" for reason, count in self.reasons.most_common())
        return f"{self.used} compiles with, {without} without" + (
            f" ({reasons})" if without else ""
        )


class Key(NamedTuple):
    """What the compiles have in common that may share a PCH."""

    target: str
    kind: str
    wanted: tuple[str, ...] | bool
    flags: tuple[str, ...]
    path: str


class Group:
    """Compiles that may share PCHs, as far as their flags tell."""

    def __init__(self, wanted: tuple[str, ...] | bool, number: int) -> None:
        self.number = number
        self.nodes: dict[Node, None] = {}
        self.wanted = wanted
        self._shares: dict[str, tuple[str, ...]] = {}

    def headers_for(self, source: str) -> tuple[str, ...]:
        """Give the headers of the PCH that a source is to use; none where it has too few users."""
        if source not in self._shares or compat.is_interactive():
            sources = [_source_file(node) for node in self.nodes]
            begins = {name: beginning_of(name).headers for name in sources}
            self._shares = shared_beginnings(begins, self.wanted)
        return self._shares.get(source, ())

    def users_of(self, headers: tuple[str, ...]) -> int:
        """Count the compiles that may yet be compiled with a PCH of these headers."""
        return sum(
            self._shares.get(_source_file(node)) == headers and node.get_state() in _UNDECIDED
            for node in self.nodes
        )


class Pchs:
    """The PCHs of a build."""

    def __init__(self) -> None:
        self.statistics = PchStatistics()
        self.lock = threading.Lock()
        self._groups: dict[Key, Group] = {}
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self.failed: set[str] = set()
        self.small: set[tuple[str, tuple[str, ...]]] = set()
        """Kinds with headers that were found to be small, for one target."""
        self._commands: dict[str, tuple[str, ...]] = {}
        self.edited: set[str] = set()
        """The sources that get PCHs of their own."""

    def group(self, key: Key) -> Group:
        """Give the group of a key; numbers are those of groups of one target, as declared."""
        if key not in self._groups:
            same = [each for each in self._groups if each[:2] == key[:2]]
            self._groups[key] = Group(key.wanted, len(same) + 1)
        return self._groups[key]

    def is_for(self, recipe: PchRecipe) -> bool:
        """Tell whether the file of a PCH is that of these words: of a group's first compile.

        Groups are told by flags as they are when nodes are declared. Where they are others later,
        two compiles would make the PCH, each for itself, while the other one reads it.
        """
        with self.lock:
            return self._commands.setdefault(recipe.file, recipe.words) == recipe.words

    def lock_of(self, file: str) -> threading.Lock:
        """Give the lock under which a PCH is looked at and made."""
        with self.lock:
            return self._locks[file]


def pch_statistics(env: Environment) -> PchStatistics:
    """Give the statistics of the build that an environment is part of."""
    return compat.of_build(env, Pchs).statistics


def shared_beginnings(
    begins: Mapping[str, tuple[str, ...]], wanted: tuple[str, ...] | bool
) -> dict[str, tuple[str, ...]]:
    """Give for each source the headers of the PCH that it shares with at least two others.

    These are those of `wanted`; with True the longest common beginnings.
    """
    shares: dict[str, tuple[str, ...]] = dict.fromkeys(begins, ())
    longest = max(map(len, begins.values()), default=0)
    lengths = range(longest, 0, -1) if wanted is True else [len(wanted or ())]
    for length in lengths:
        alike = defaultdict(list)
        for name, headers in begins.items():
            if len(headers) >= length and not shares[name]:
                alike[headers[:length]].append(name)
        for headers, names in alike.items():
            if len(names) >= FEWEST_USERS and wanted in (True, headers):
                shares.update(dict.fromkeys(names, headers))
    return shares


def _source_file(node: Node) -> str:
    source = node.sources[0]
    file = str(source.rfile())
    return file if os.path.exists(file) else str(source.srcnode().rfile())  # noqa: PTH110
