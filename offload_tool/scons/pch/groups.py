"""Passes that may share precompiled headers (PCHs), and what a build knows of its PCHs.

Passes of one group have all words of their commands in common, but for source and output. Which of
them share a PCH depends on their sources: on what each begins with (`include_prefix`). Of all that
they could share, that is made which saves most reading: its users, less those that it takes to
pay, times the bytes of its headers.
"""

from __future__ import annotations

import os
import re
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import SCons.Node

from offload_tool.pch.include_prefix import Candidate, Headers, SearchPath, bytes_read
from offload_tool.scons import compat

if TYPE_CHECKING:
    from offload_tool.scons.types import Environment, Node

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
        alike: dict[str, Counter[str]] = {}
        for reason, count in self.reasons.items():
            alike.setdefault(re.sub("'[^']*'", "", reason), Counter())[reason] += count
        counts = {
            each.most_common(1)[0][0] + " (for instance)" * (len(each) > 1): sum(each.values())
            for each in alike.values()
        }
        reasons = "; ".join(f"{count}: {reason}" for reason, count in Counter(counts).most_common())
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
        self._shares: dict[str, Candidate] = {}

    def shares(self, path: SearchPath) -> dict[str, Candidate]:
        """Return the PCH that each source is to use, if there are enough for it."""
        if not self._shares or compat.is_interactive():
            sources = dict.fromkeys(map(_source_file, self.nodes))
            found = {name: path.candidates(name).all for name in sources}
            weigh = cache(lambda headers: bytes_read(headers, path))
            self._shares = shared_headers(found, self.wanted, weigh)
        return self._shares

    def users_of(self, headers: Headers) -> int:
        """Count the compiles that may yet be compiled with a PCH of these headers."""
        users = {name for name, each in self._shares.items() if each.headers == headers}
        return sum(
            _source_file(node) in users and node.get_state() in _UNDECIDED for node in self.nodes
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
        self.small: set[tuple[str, Headers]] = set()
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

    def most_files(self, node: Node, path: SearchPath) -> int:
        """Return how many PCHs of a node's target and kind are kept: for some sets of flags."""
        like = self._keys[node][:2]
        groups = [group for key, group in self._groups.items() if key[:2] == like and key.words]
        shares = ({each.headers for each in group.shares(path).values()} for group in groups)
        return _SETS_OF_FLAGS * sum(map(len, shares))

    def lock_of(self, file: str) -> threading.Lock:
        """Return the lock under which a PCH is looked at and made."""
        with self.lock:
            return self._locks[file]


def pch_statistics(env: Environment) -> PchStatistics:
    """Return the statistics of the build that an environment is part of."""
    return compat.of_build(env, Pchs).statistics


def shared_headers(
    candidates: Mapping[str, Sequence[Candidate]],
    wanted: tuple[str, ...] | bool,
    weigh: Callable[[Headers], int],
) -> dict[str, Candidate]:
    """Return the PCH that each source shares with at least two others.

    It is that of `wanted`; with True the one that saves most. `weigh` tells how many bytes headers
    have.
    """
    shares: dict[str, Candidate] = {}
    while True:
        users: dict[Headers, dict[str, Candidate]] = {}
        for name, each in candidates.items():
            if name not in shares:
                for candidate in filter(lambda one: _is_wanted(one, wanted), each):
                    users.setdefault(candidate.headers, {})[name] = candidate
        users = {each: names for each, names in users.items() if len(names) >= FEWEST_USERS}
        if not users:
            return shares
        saved = {
            headers: (len(names) - FEWEST_USERS + 1) * weigh(headers)
            for headers, names in users.items()
            if len(users) > 1
        }
        shares.update(users[max(users, key=lambda each: saved.get(each, 0))])


def _is_wanted(candidate: Candidate, wanted: tuple[str, ...] | bool) -> bool:
    """Return whether a PCH is one that the user has asked for, by names of headers."""
    names = tuple(each[1:-1] for each in candidate.headers if each[0] == "<")
    return wanted in (True, names) or (bool(candidate.written) and wanted == (candidate.written,))


def _source_file(node: Node) -> str:
    source = node.sources[0]
    file = str(source.rfile())
    return file if os.path.exists(file) else str(source.srcnode().rfile())
