"""Values of construction variables: what they refer to, and copies to see whether they changed."""

from __future__ import annotations

import re
from collections import UserList, deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from operator import is_
from typing import Any, TypeVar

import SCons.Node

from offload_tool.scons import compat

_Function = TypeVar("_Function", bound=Callable[..., Any])
_CONTAINERS = (dict, list, tuple, UserList, deque)
_NAME = re.compile(r"\$(?:\{(\w+)\}|([A-Za-z_]\w*)|[$()])")
_DEFINES = re.compile(r"\$\{(_defines)\((\w+), (\w+), (\w+), __env__(?:, TARGET, SOURCE)?\)\}")
"""SCons's own call for ``_CPPDEFFLAGS``, which substitutes the values of three variables."""
_READS = "offload_reads"


def reads(*names: str) -> Callable[[_Function], _Function]:
    """Declare all variables that a function of a variable reads for a signature, in one folder."""

    def declare(function: _Function) -> _Function:
        setattr(function, _READS, names)
        return function

    return declare


@dataclass
class References:
    """The variables that a substitution reads, and the texts in them that refer to others."""

    names: set[str] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)
    is_plain: bool = True
    """Whether these are all: no expression and no unknown function is called."""


def references(names: Iterable[str], get: Callable[[str], Any]) -> References:
    """Return all that a substitution of these variables reads, by the function that gets one."""
    found = References()
    pending = [*names]
    while pending:
        name = pending.pop()
        if name in found.names:
            continue
        found.names.add(name)
        for leaf in leaves(get(name)):
            if isinstance(leaf, str) and "$" not in leaf:
                continue
            others = _names_in(leaf)
            found.is_plain = found.is_plain and others is not None
            found.texts.update([leaf] if isinstance(leaf, str) else ())
            pending += others or ()
    return found


def _names_in(leaf: Any) -> Iterable[str] | None:
    """Return the variables that a leaf refers to; None if that is not known."""
    if isinstance(leaf, str):
        names = [braced or bare for braced, bare in _NAME.findall(leaf)]
        names += (name for call in _DEFINES.findall(leaf) for name in call)
        is_known = "$" not in _NAME.sub("", _DEFINES.sub("", leaf))
        return filter(None, names) if is_known else None
    known: tuple[str, ...] | None = getattr(leaf, _READS, None)
    return () if is_plain(leaf) or leaf is compat.DEFINES else known


def leaves(value: Any) -> Iterator[Any]:
    """Yield the items in a value of nested containers, and the keys of dictionaries."""
    if isinstance(value, _CONTAINERS):
        if isinstance(value, dict):
            yield from value
        for item in _items_of(value):
            yield from leaves(item)
    else:
        yield value


def is_plain(leaf: Any) -> bool:
    """Return True for a value whose text SCons takes as it is, but for references."""
    return leaf is None or isinstance(leaf, (str, int, float, SCons.Node.Node))


class Copy:
    """A copy of a value, to compare it with one that users may have changed in place."""

    __slots__ = ("_is_flat", "_items", "_keys", "_kind")

    def __init__(self, value: Any) -> None:
        self._kind = type(value)
        self._keys = list(value) if isinstance(value, dict) else None
        self._items = [
            Copy(item) if isinstance(item, _CONTAINERS) else item for item in _items_of(value)
        ]
        self._is_flat = not any(type(item) is Copy for item in self._items)

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
    if type(before) is Copy:
        return before.is_equal(now)
    # 1 == True, but they differ in a command.
    return type(before) is type(now) and isinstance(now, (str, int, float)) and before == now
