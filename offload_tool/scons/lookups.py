"""Which file each ``#include`` finds: what the list of the files that were read does not tell.

Two things beside those files can change what a compile gives: a file that appears in a
folder where it is searched for earlier, and one for which ``__has_include`` asks. So the names
that the read files spell are looked up again. In the usual case, each is found as a file that
was read.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from SCons.Node.FS import find_file

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Lookups", "look_up"]

_NAME = re.compile(
    r"^[ \t]*#[ \t]*(?:include|import)[ \t]*(?P<open>[<\"])(?P<name>[^>\"\n]+)"
    r"|__has_include[ \t]*\([ \t]*(?P<asks>[<\"])(?P<asked>[^>\"\n]+)",
    re.MULTILINE,
)


class _Lookup(NamedTuple):
    """A name that a file spells, and where it is found."""

    name: str
    asked: bool
    """By ``__has_include``."""
    node: Any
    found: str | None
    """The file that the name stands for, as a node and as text."""
    places: frozenset[str]
    """Where it may be found."""


class Lookups(NamedTuple):
    """What else than the files that it has read last a compile may read now."""

    changes: str
    """In words, and "" for nothing."""
    generated: list[Any]
    """Headers that the build makes: in branches that were not read, or of new includes."""


_known: dict[Any, dict[Any, tuple[str, tuple[_Lookup, ...]]]] = {}
"""For each search path and file: the file's signature, and what it spells."""


def look_up(files: Iterable[Any], path: tuple[Any, ...]) -> Lookups:
    """Look up what the files that a compile has read spell: its source and headers.

    `path` are the folders of ``CPPPATH``.
    """
    files = [file.rfile() for file in files]
    read = {str(file) for file in files}
    lines = set()
    others: dict[Any, None] = {}
    for file in files:
        for name, asked, node, found, places in _lookups(file, path):
            if found not in read:
                if node is not None:
                    others[node] = None
                if asked or not places.isdisjoint(read):
                    lines.add(f"{name} is {found or 'not there'}")
            elif asked:
                lines.add(f"{name} is {found}")
    return Lookups(", ".join(sorted(lines)), _generated(others, path) if others else [])


def _generated(pending: dict[Any, None], path: tuple[Any, ...]) -> list[Any]:
    """Give those of the headers, and of all that they include, that the build makes."""
    seen = dict(pending)
    waiting = list(pending)
    while waiting:
        file = waiting.pop().rfile()
        if file.exists():
            for lookup in _lookups(file, path):
                if lookup.node is not None and lookup.node not in seen:
                    seen[lookup.node] = None
                    waiting.append(lookup.node)
    return [node for node in seen if node.has_builder()]


def _lookups(file: Any, path: tuple[Any, ...]) -> tuple[_Lookup, ...]:
    known = _known.setdefault(path, {})
    signature = file.get_csig()
    remembered = known.get(file)
    if remembered is None or remembered[0] != signature:
        remembered = known[file] = (signature, tuple(_read(file, path)))
    return remembered[1]


def _read(file: Any, path: tuple[Any, ...]) -> Iterable[_Lookup]:
    top = file.fs.Top
    if not any(file.is_under(folder) for folder in (top, *top.getRepositories(), *path)):
        return  # the compiler's, or the system's
    for match in _NAME.finditer(file.get_text_contents()):
        name, asked = match["name"] or match["asked"], match["asks"] is not None
        folders = path if "<" in (match["open"], match["asks"]) else (file.dir, *path)
        node = find_file(name, folders)
        found = None if node is None else str(node.rfile())
        if asked or found is not None:
            places = (os.path.normpath(f"{place}/{name}") for f in folders for place in _places(f))
            yield _Lookup(name, asked, node, found, frozenset(places))


def _places(folder: Any) -> tuple[str, str]:
    return str(folder), str(folder.srcnode())
