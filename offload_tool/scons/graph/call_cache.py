"""What one call of a builder has worked out, for its other nodes and for the calls after it.

A SConstruct calls a builder for each of ten thousand sources, mostly with an environment that
nobody has changed in between. What is the same for all nodes of a call is worked out once. The next
call reuses it if its variables, overrides, folder and shell variables are equal to those of the
call before. Variables are compared with a copy: they may be changed in place.
"""

from __future__ import annotations

import re
from collections import UserList, deque
from collections.abc import Callable, Collection, Iterable, Iterator
from operator import is_
from typing import TYPE_CHECKING, Any

import SCons.Node

from offload_tool.scons import compat

if TYPE_CHECKING:
    from offload_tool.scons.types import Environment

    Read = Callable[[Environment], dict[str, Any]]

KINDS = "_OFFLOAD_KINDS"
"""Offload kinds that a builder call is about: texts with commas between them."""
_ANSWERS = "_OFFLOAD_ANSWERS"
_REMEMBERED = 8
"""Environments, and overrides of each, whose last call is remembered."""
_READ = (
    *("CFLAGS", "CXXFLAGS", "CCFLAGS", "CPPFLAGS", "CPPDEFINES", "CPPDEFPREFIX", "CPPDEFSUFFIX"),
    *("LINKFLAGS", "SHLINKFLAGS", "OBJSUFFIX", "SHOBJSUFFIX"),
)
"""Variables that answers are made of, beside ours and ``ENV``."""
_CONTAINERS = (dict, list, tuple, UserList, deque)
_NAME = re.compile(r"\$(?:\{(\w+)\}|([A-Za-z_]\w*)|[$()])")


class Answers:
    """What has been worked out with one environment."""

    __slots__ = ("_by_text", "_depends_on_source", "compiler")

    def __init__(self, *, depends_on_source: bool) -> None:
        self.compiler: Any = None
        self._by_text: dict[str, Any] = {}
        self._depends_on_source = depends_on_source

    def once(self, text: str, find: Callable[[], Any]) -> Any:
        """Return what `find` gives; the second time without it, unless sources decide it."""
        if self._depends_on_source:
            return find()
        if text not in self._by_text:
            self._by_text[text] = find()
        return self._by_text[text]


class Call:
    """What a builder call begins with: an environment, and overrides."""

    __slots__ = ("_depends_on_source", "_of_kinds", "env", "is_plain")

    def __init__(self, env: Environment) -> None:
        self.env = env
        texts, self.is_plain = _texts_read(env)
        names_source = any("SOURCE" in text or "TARGET" in text for text in texts)
        self._depends_on_source = names_source or not self.is_plain
        self._of_kinds: dict[str, Environment] = {}

    def for_kinds(self, kinds: Iterable[str]) -> Environment:
        """Return the environment whose compiler can compile sources of these offload kinds."""
        text = ",".join(sorted(set(kinds)))
        if text not in self._of_kinds:
            differs = {KINDS: text} if text and self.env.get(KINDS) != text else {}
            answers = Answers(depends_on_source=self._depends_on_source)
            self._of_kinds[text] = self.env.Override({**differs, _ANSWERS: answers})
        return self._of_kinds[text]


def for_kinds(env: Environment, kinds: Iterable[str]) -> Environment:
    """Return an environment whose compiler can compile sources of these offload kinds."""
    return Call(env).for_kinds(kinds)


def answers_of(env: Environment) -> Answers | None:
    """Return what has been worked out with an environment of `for_kinds`; None of another one."""
    found: Answers | None = env.get(_ANSWERS)
    return found


def once(env: Environment, text: str, find: Callable[[], Any]) -> Any:
    """Return what `find` gives, called once where it is the same for all nodes of a call."""
    answers = answers_of(env)
    return find() if answers is None else answers.once(text, find)


def call_of(env: Environment, overrides: dict[str, Any], around: Any, read: Read) -> Call:
    """Return the call that this one is equal to, or a new one with what `read` returns.

    `around` is what else decides: anything that can be compared.
    """
    return compat.of_build(env, _Calls).get(env, overrides, around, read)


class _Calls:
    """The calls that are remembered: for each environment, the last ones."""

    def __init__(self) -> None:
        self._by_env: dict[int, _Variables] = {}

    def get(
        self,
        env: Environment,
        overrides: dict[str, Any],
        around: Any,
        read: Read,
    ) -> Call:
        known = self._by_env.get(id(env))
        if known is None or not known.are_those_of(env, around):
            known = _Variables(env, around)
            self._by_env.pop(id(env), None)
            self._by_env[id(env)] = known
            _forget_oldest(self._by_env)
        return known.call(overrides, read)


class _Variables:
    """The variables of an environment as they were, and the calls with them."""

    def __init__(self, env: Environment, around: Any) -> None:
        self._env = env  # kept, so that no other one gets its id()
        self._variables = _Copy(env.Dictionary())
        self._around = around
        self._calls: dict[int, tuple[_Copy, Call]] = {}

    def are_those_of(self, env: Environment, around: Any) -> bool:
        return self._around == around and self._variables.is_equal(env.Dictionary())

    def call(self, overrides: dict[str, Any], read: Read) -> Call:
        for before, call in self._calls.values():
            if before.is_equal(overrides):
                return call
        env = self._env.Override(overrides) if overrides else self._env
        found = read(env)
        made = Call(env.Override(found) if found else env)
        if made.is_plain:
            self._calls[id(made)] = (_Copy(overrides), made)
            _forget_oldest(self._calls)
        return made


def _forget_oldest(known: dict[int, Any]) -> None:
    if len(known) > _REMEMBERED:
        del known[next(iter(known))]


class _Copy:
    """A list or dictionary as it was: those of users may be changed in place."""

    __slots__ = ("_is_flat", "_items", "_keys", "_kind")

    def __init__(self, value: Any) -> None:
        self._kind = type(value)
        self._keys = list(value) if isinstance(value, dict) else None
        self._items = [_copied(item) for item in _items_of(value)]
        self._is_flat = not any(type(item) is _Copy for item in self._items)

    def is_equal(self, value: Any) -> bool:
        """Return whether a value is what was copied: of the same types, in the same order."""
        if type(value) is not self._kind or len(value) != len(self._items):
            return False
        if self._keys is not None and list(value) != self._keys:
            return False
        now = _items_of(value)
        if self._is_flat and all(map(is_, self._items, now)):  # the usual case, and fast
            return True
        return all(map(_is_equal, self._items, now))


def _copied(value: Any) -> Any:
    return _Copy(value) if isinstance(value, _CONTAINERS) else value


def _items_of(value: Any) -> Collection[Any]:
    if isinstance(value, dict):
        return value.values()
    return value.data if isinstance(value, UserList) else value


def _is_equal(before: Any, now: Any) -> bool:
    if before is now:
        return True
    if type(before) is _Copy:
        return before.is_equal(now)
    # 1 == True, but they are not one word in a command.
    return type(before) is type(now) and isinstance(now, (str, int, float)) and before == now


def _texts_read(env: Environment) -> tuple[set[str], bool]:
    """Return the texts of the variables that answers are made of, and of those that they name.

    And tell whether they are all: whether nothing else is evaluated than plain variables.
    """
    variables = env.Dictionary()
    names = [name for name in variables if name.startswith("OFFLOAD") and _is_read(name)]
    pending, seen = [*names, *_READ], set()
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


def _is_read(name: str) -> bool:
    """Return whether a variable of ours is looked at in a call, and not by SCons in a build."""
    return not name.endswith(("COM", "COMSTR"))


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
