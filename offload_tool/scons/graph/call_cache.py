"""Cache of a builder call's results, for its other nodes and for later calls.

A SConstruct may call a builder for ten thousand sources, mostly with an unchanged environment. The
next call reuses results if its variables, overrides, folder and shell variables are equal. The
cache compares variables with a copy, since users may change them in place.
"""

from __future__ import annotations

import re
from collections import UserList, deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from operator import is_
from typing import Any, TypeVar

import SCons.Node

from offload_tool.scons import compat
from offload_tool.scons.settings import shell_variables
from offload_tool.scons.types import Environment
from offload_tool.scons.variables import check_overrides, read_variables
from offload_tool.toolchain.probe import Toolchain

T = TypeVar("T")
KINDS = "_OFFLOAD_KINDS"
"""Offload kinds of a builder call: a comma-separated text."""
_RESULTS = "_OFFLOAD_RESULTS"
_CAPACITY = 8
"""Number of environments, and of overrides of each, whose last call is cached."""
_DEPENDENCIES = (
    *("CFLAGS", "CXXFLAGS", "CCFLAGS", "CPPFLAGS", "CPPDEFINES", "CPPDEFPREFIX", "CPPDEFSUFFIX"),
    *("LINKFLAGS", "SHLINKFLAGS", "OBJSUFFIX", "SHOBJSUFFIX"),
)
"""Dependencies of the results, in addition to our variables and ``ENV``."""
_CONTAINERS = (dict, list, tuple, UserList, deque)
_NAME = re.compile(r"\$(?:\{(\w+)\}|([A-Za-z_]\w*)|[$()])")


@dataclass(slots=True)
class Results:
    """The results for one environment."""

    depends_on_source: bool
    compiler: Toolchain | None = None
    by_key: dict[str, Any] = field(default_factory=dict)


class Call:
    """The environment of a builder call, with its overrides."""

    __slots__ = ("_depends_on_source", "_of_kinds", "env", "is_plain")

    def __init__(self, env: Environment) -> None:
        self.env = env
        texts, self.is_plain = _dependencies(env)
        names_source = any("SOURCE" in text or "TARGET" in text for text in texts)
        self._depends_on_source = names_source or not self.is_plain
        self._of_kinds: dict[str, Environment] = {}

    def for_kinds(self, kinds: Iterable[str]) -> Environment:
        """Return the environment whose compiler can compile sources of these offload kinds."""
        text = ",".join(sorted(set(kinds)))
        if text not in self._of_kinds:
            differs = {KINDS: text} if text and self.env.get(KINDS) != text else {}
            results = Results(self._depends_on_source)
            self._of_kinds[text] = self.env.Override({**differs, _RESULTS: results})
        return self._of_kinds[text]


def results_of(env: Environment) -> Results | None:
    """Return the results for an environment of `for_kinds`; None for others."""
    found: Results | None = env.get(_RESULTS)
    return found


def cached(env: Environment, key: str, compute: Callable[[], T]) -> T:
    """Return the result of `compute`, called once if it is equal for all nodes of a call."""
    results = results_of(env)
    if results is None or results.depends_on_source:
        return compute()
    if key not in results.by_key:
        results.by_key[key] = compute()
    found: T = results.by_key[key]
    return found


class _Variables:
    def __init__(self, env: Environment, context: Any) -> None:
        self._env = env  # keeps id() unique
        self._variables = _Copy(env.Dictionary())
        self._context = context
        self._calls: deque[tuple[_Copy, Call]] = deque(maxlen=_CAPACITY)

    def is_equal(self, env: Environment, context: Any) -> bool:
        return self._context == context and self._variables.is_equal(env.Dictionary())

    def call(self, overrides: dict[str, Any]) -> Call:
        """Return the cached call of equal overrides, or a new one."""
        for before, call in self._calls:
            if before.is_equal(overrides):
                return call
        env = self._env.Override(overrides) if overrides else self._env
        found = read_variables(env)
        made = Call(env.Override(found) if found else env)
        if made.is_plain:
            self._calls.append((_Copy(overrides), made))
        return made


class _Copy:
    __slots__ = ("_is_flat", "_items", "_keys", "_kind")

    def __init__(self, value: Any) -> None:
        self._kind = type(value)
        self._keys = list(value) if isinstance(value, dict) else None
        self._items = [
            _Copy(item) if isinstance(item, _CONTAINERS) else item for item in _items_of(value)
        ]
        self._is_flat = not any(type(item) is _Copy for item in self._items)

    def is_equal(self, value: Any) -> bool:
        """Return True if a value equals the copy, in types and order."""
        if type(value) is not self._kind or len(value) != len(self._items):
            return False
        if self._keys is not None and list(value) != self._keys:
            return False
        now = _items_of(value)
        if self._is_flat and all(map(is_, self._items, now)):  # fast path of the usual case
            return True
        return all(map(_is_equal, self._items, now))


def _items_of(value: Any) -> Collection[Any]:
    if isinstance(value, dict):
        return value.values()
    return value.data if isinstance(value, UserList) else value


def _is_equal(before: Any, now: Any) -> bool:
    if before is now:
        return True
    if type(before) is _Copy:
        return before.is_equal(now)
    # 1 == True, but they differ in a command.
    return type(before) is type(now) and isinstance(now, (str, int, float)) and before == now


def _dependencies(env: Environment) -> tuple[set[str], bool]:
    """Return the texts of the variables that results depend on, and whether they are all."""
    variables = env.Dictionary()
    ours = [name for name in variables if name.startswith("OFFLOAD")]
    # SCons reads command lines and their messages, in the build.
    names = [name for name in ours if not name.endswith(("COM", "COMSTR"))]
    pending, seen = [*names, *_DEPENDENCIES], set()
    texts, is_plain = set(), all(map(_is_plain, _leaves(variables.get("ENV"))))
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        for leaf in _leaves(variables.get(name)):
            is_plain = is_plain and _is_plain(leaf)
            if isinstance(leaf, str) and "$" in leaf:
                texts.add(leaf)
                pending += [braced or bare for braced, bare in _NAME.findall(leaf)]
                is_plain = is_plain and "$" not in _NAME.sub("", leaf)
    return texts, is_plain


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, _CONTAINERS):
        if isinstance(value, dict):
            yield from value
        for item in _items_of(value):
            yield from _leaves(item)
    else:
        yield value


def _is_plain(leaf: Any) -> bool:
    return leaf is None or isinstance(leaf, (str, int, float, SCons.Node.Node))


def call_of(env: Environment, overrides: dict[str, Any]) -> Call:
    """Return a call's environment; raise UsageError for an unknown or mistyped variable."""
    check_overrides(env, overrides)
    # Names of files are relative to the SConscript's folder.
    context = (env.fs.getcwd(), shell_variables(env))
    # The last calls, by the id() of their environment.
    calls = compat.of_build(env, dict[int, _Variables])
    known = calls.get(id(env))
    if known is None or not known.is_equal(env, context):
        calls.pop(id(env), None)
        known = calls[id(env)] = _Variables(env, context)
        if len(calls) > _CAPACITY:
            del calls[next(iter(calls))]
    return known.call(overrides)
