"""Cache of a builder call's results, for its other nodes and for later calls.

A SConstruct may call a builder for ten thousand sources, mostly with an unchanged environment. The
next call reuses results if its variables, overrides, folder and shell variables are equal. The
cache compares variables with a copy, since users may change them in place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from offload_tool.scons import compat
from offload_tool.scons.settings import shell_variables
from offload_tool.scons.types import Environment
from offload_tool.scons.values import Copy, is_plain, leaves, references
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


@dataclass(slots=True)
class Results:
    """The results for one environment."""

    depends_on_source: bool
    compiler: Toolchain | None = None
    by_key: dict[str, Any] = field(default_factory=dict)


class Call:
    """The environment of a builder call, with its overrides."""

    __slots__ = ("_base", "_depends_on_source", "_of_kinds", "env", "is_plain")

    def __init__(self, base: Environment, env: Environment) -> None:
        self._base = base
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
            added = {**differs, _RESULTS: results}
            self._of_kinds[text] = compat.override(self.env, self._base, added)
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
        self._variables = Copy(env.Dictionary())
        self._context = context
        self._calls: deque[tuple[Copy, Call]] = deque(maxlen=_CAPACITY)

    def is_equal(self, env: Environment, context: Any) -> bool:
        return self._context == context and self._variables.is_equal(env.Dictionary())

    def call(self, overrides: dict[str, Any]) -> Call:
        """Return the cached call of equal overrides, or a new one."""
        for before, call in self._calls:
            if before.is_equal(overrides):
                return call
        env = self._env.Override(overrides) if overrides else self._env
        found = read_variables(env)
        made = Call(self._env, env.Override(found) if found else env)
        if made.is_plain:
            self._calls.append((Copy(overrides), made))
        return made


def _dependencies(env: Environment) -> tuple[set[str], bool]:
    """Return the texts of the variables that results depend on, and whether they are all."""
    variables = env.Dictionary()
    ours = [name for name in variables if name.startswith("OFFLOAD")]
    # SCons reads command lines and their messages, in the build.
    names = [name for name in ours if not name.endswith(("COM", "COMSTR"))]
    found = references([*names, *_DEPENDENCIES], variables.get)
    return found.texts, found.is_plain and all(map(is_plain, leaves(variables.get("ENV"))))


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
