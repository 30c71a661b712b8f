"""Passes that may share precompiled headers (PCHs), and what a build knows of its PCHs.

Passes of one group have all words of their commands in common, but for source and output. Which of
them share a PCH depends on their sources: those that begin with the same lines ``#include <...>``.
"""

from __future__ import annotations

import os
import threading
from collections import Counter, defaultdict
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import SCons.Node

from offload_tool.pch.include_prefix import beginning_of
from offload_tool.scons import compat

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from offload_tool.scons.types import Environment, Node

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
_SETS_OF_FLAGS = 4
"""PCHs are kept for so many, such as those of debug and release builds."""
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
    """What decides which passes may share PCHs: their commands and the headers that are wanted."""

    target: str
    kind: str
    wanted: tuple[str, ...] | bool
    words: tuple[str, ...]
    """All words but source, output and depfile, and all else that the compiler depends on."""


class Group:
    """Passes with one key."""

    def __init__(self, wanted: tuple[str, ...] | bool) -> None:
        self.wanted = wanted
        self.nodes: list[Node] = []
        self._shares: dict[str, tuple[str, ...]] = {}

    def shares(self) -> dict[str, tuple[str, ...]]:
        """Return the headers of the PCH that each source is to use; none for too few."""
        if not self._shares or compat.is_interactive():
            begins = {name: beginning_of(name).headers for name in map(_source_file, self.nodes)}
            self._shares = shared_beginnings(begins, self.wanted)
        return self._shares

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
        self._words: dict[tuple[Any, ...], tuple[Any, Callable[[], tuple[str, ...]]]] = {}
        self._declared: dict[Node, Callable[[], Key]] = {}
        self._keys: dict[Node, Key] = {}
        self._groups: dict[Key, Group] = {}
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self.failed: set[str] = set()
        self.small: set[tuple[str, tuple[str, ...]]] = set()
        """Kinds with headers that were found to be small, for one target."""
        self.used: set[str] = set()
        """The files that passes of this build were given."""

    def once(
        self, like: tuple[Any, ...], find: Callable[[], tuple[str, ...]]
    ) -> Callable[[], tuple[str, ...]]:
        """Return a function that returns what `find` does, once for all passes with `like`.

        The first part of `like` is an environment, which is kept: no other one gets its ``id()``.
        """
        env, *more = like
        return self._words.setdefault((id(env), *more), (env, cache(find)))[1]

    def declare(self, node: Node, find_key: Callable[[], Key]) -> None:
        """Add a pass, whose key is read when the first pass runs: SConscripts may change flags."""
        self._declared[node] = find_key

    def groups_of(self, node: Node) -> tuple[Group, Group]:
        """Return the passes with the key of a node, and those whose words may differ."""
        with self.lock:
            if len(self._keys) != len(self._declared):
                self._keys = {each: find() for each, find in self._declared.items()}
                self._groups = {}
                for each, key in self._keys.items():
                    for like in {key, key._replace(words=())}:
                        self._groups.setdefault(like, Group(key.wanted)).nodes.append(each)
            key = self._keys[node]
            return self._groups[key], self._groups[key._replace(words=())]

    def most_files(self, node: Node) -> int:
        """Return how many PCHs of a node's target and kind are kept: for some sets of flags."""
        like = self._keys[node][:2]
        groups = [group for key, group in self._groups.items() if key[:2] == like and key.words]
        return _SETS_OF_FLAGS * sum(len({*filter(None, each.shares().values())}) for each in groups)

    def lock_of(self, file: str) -> threading.Lock:
        """Return the lock under which a PCH is looked at and made."""
        with self.lock:
            return self._locks[file]


def pch_statistics(env: Environment) -> PchStatistics:
    """Return the statistics of the build that an environment is part of."""
    return compat.of_build(env, Pchs).statistics


def shared_beginnings(
    begins: Mapping[str, tuple[str, ...]], wanted: tuple[str, ...] | bool
) -> dict[str, tuple[str, ...]]:
    """Return the headers of the PCH that each source shares with at least two others.

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
    return file if os.path.exists(file) else str(source.srcnode().rfile())
