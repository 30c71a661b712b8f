"""The headers at the beginning of a source, which its precompiled header (PCH) may hold.

There are two ways to find them:

- the leading run of lines ``#include <...>``. The PCH replaces exactly these bytes of the source,
  which clang then skips (``-preamble-bytes``);
- the chain of first includes: the source's, that header's own first one, and so on. Clang reads the
  source from its first line, and skips the header in the PCH by its guard. The headers on the way
  define only guards before their first include::

      norm.cu    #include "norm.cuh"
      norm.cuh   #pragma once          an includer
                 #include "common.cuh" the PCH may hold this one, or the next on the chain

Both stop at anything else than comments, blank lines and, on a chain, ``#pragma once`` and include
guards: a macro, a condition, or a line continued by a backslash.

Clang looks up a quoted name in the includer's folder, so the name with the folder identifies the
header: ``"src/common.cuh"`` and ``"src/x/../common.cuh"`` are two.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Sequence
from typing import NamedTuple

from offload_tool.io.file_digests import cached_by_stat, content_of, identity
from offload_tool.toolchain.disk_cache import kept_by_stat

Headers = tuple[str, ...]
"""The headers of a PCH: ``<name>``, or ``"path"`` if found in the includer's folder."""
_LARGEST = 1 << 16
"""Bytes of a file that are examined."""
_LONGEST = 64
"""Maximum number of headers on a chain."""
_NO_SPLICE = rb"\\(?![ \t\f\v\r\n])"
"""A backslash that joins no lines; clang allows blanks between backslash and line break."""
_LINE_COMMENT = rb"//(?:[^\n\\]|" + _NO_SPLICE + rb")*"
_COMMENT = rb"/\*(?:[^*\\]|\*(?!/)|" + _NO_SPLICE + rb")*\*/"
_COMMENT_IN_LINE = rb"/\*(?:[^*\\\n]|\*(?!/)|" + _NO_SPLICE + rb")*\*/"
_BLANK = rb"[ \t\f\v\r\n]"
_GAP = rb"(?:" + _BLANK + rb"|" + _LINE_COMMENT + rb"\n|" + _COMMENT + rb")*"
_BETWEEN = re.compile(_GAP)
_REST = rb"(?:[ \t\r]|" + _COMMENT_IN_LINE + rb")*(?:" + _LINE_COMMENT + rb")?\n"
_NAME = rb"[^<>\"\\\r\n]+"
_INCLUDE = re.compile(rb"#[ \t]*include[ \t]*<(" + _NAME + rb")>" + _REST)
_QUOTED_INCLUDE = re.compile(rb"#[ \t]*include[ \t]*\"(" + _NAME + rb")\"" + _REST)
_ONCE = re.compile(rb"#[ \t]*pragma[ \t]+once" + _REST)
_BUILT_IN = (
    rb"(?:__pragma|__identifier|_Pragma|defined|__(?:has|is|building)_\w+|__(?:BASE_FILE|COUNTER|"
    rb"DATE|FILE|FILE_NAME|FLT_EVAL_METHOD|INCLUDE_LEVEL|LINE|MODULE|TIME|TIMESTAMP)__)\b"
)
"""Macros that clang defines but does not list: a header guarded by one is empty."""
_GUARD = re.compile(
    rb"#[ \t]*(?:ifndef[ \t]+|if[ \t]+![ \t]*defined[ \t]*(\([ \t]*)?)"
    rb"(?!"
    + _BUILT_IN
    + rb")(\w+)[ \t]*(?(1)\))"
    + _REST
    + _GAP
    + rb"#[ \t]*define[ \t]+\2(?:[ \t]+\w+)?"
    + _REST
)
_HIDDEN = re.compile(rb"\?\?|\r(?!\n)")
_ANY_INCLUDE = re.compile(rb"(?m)^[ \t]*#[ \t]*include(?:_next)?[ \t]*(\"[^\"\n]+|<[^>\n]+)")
_IN_NO_TEXT = re.compile(r"[\"\\\r\n=]")
"""Characters not allowed in a name in a PCH's text, or in an option that maps it."""


def absolute_name(name: str, folder: str) -> str:
    """Return the name that a file has in a PCH made in `folder`."""
    absolute = name if name.startswith("/") else f"{folder}/{name}"
    return "/" + "/".join(part for part in absolute.split("/") if part not in ("", "."))


def without_dots(name: str) -> str:
    """Return a name as in clang's depfiles: without a leading ``./``."""
    while name.startswith("./"):
        name = name[2:].lstrip("/")
    return name


class Includer(NamedTuple):
    """A file on a chain before the PCH's header; the first one is the source."""

    name: str
    guards: tuple[tuple[str, int], ...] = ()
    """The macros that it defines before its first include, with their lines."""


class Candidate(NamedTuple):
    """The headers that a PCH for a source may hold."""

    headers: Headers
    end: int = 0
    """The size of the prefix that it replaces; 0 if clang reads the source from its first line."""
    includers: tuple[Includer, ...] = ()
    """The files on the chain before it; empty if it replaces a prefix of the source."""
    spelling: str = ""
    """The header's name as spelled on the chain."""


class Candidates(NamedTuple):
    """All candidates for a source."""

    all: tuple[Candidate, ...]
    stop: str
    """The file and line at which the chain of first includes ends."""


def leading_includes(text: bytes) -> list[tuple[str, int]]:
    """Return the names in the leading ``#include <...>`` lines of a text, and where each ends."""
    text = _plain_text(text)
    includes: list[tuple[str, int]] = []
    at = 0
    while found := _INCLUDE.match(text, _directive(text, at)):
        at = found.end()
        includes.append((os.fsdecode(found[1]), at))
    return includes


def _directive(text: bytes, at: int) -> int:
    """Return the offset of the next line that is neither blank nor comment."""
    between = _BETWEEN.match(text, at)
    return between.end() if between else at


def _plain_text(text: bytes) -> bytes:
    """Return a text up to the first trigraph or lone carriage return, which ends a line."""
    return re.split(_HIDDEN, text, maxsplit=1)[0]


class _First(NamedTuple):
    """The content of a file up to its first include."""

    guards: tuple[tuple[str, int], ...]
    is_guarded: bool
    has_pragma_once: bool
    include: str
    """``<name`` or ``"name``; empty if other code comes first."""
    line: int


@cached_by_stat
def _first_of(name: str) -> _First:
    text = _plain_text(content_of(name, _LARGEST))
    guards: list[tuple[str, int]] = []
    is_guarded = has_pragma_once = False
    at = 0
    while True:
        at = _directive(text, at)
        line = text.count(b"\n", 0, at) + 1
        if found := _ONCE.match(text, at):
            is_guarded = has_pragma_once = True
        elif found := _GUARD.match(text, at):
            guards.append((found[2].decode(), line))
            is_guarded = True
        else:
            angled, quoted = _INCLUDE.match(text, at), _QUOTED_INCLUDE.match(text, at)
            include = f"<{os.fsdecode(angled[1])}" if angled else ""
            include = f'"{os.fsdecode(quoted[1])}' if quoted else include
            return _First(tuple(guards), is_guarded, has_pragma_once, include, line)
        at = found.end()


def has_pragma_once(name: str) -> bool:
    """Return True if a header has ``#pragma once``, so that clang never reads it again."""
    return _first_of(name).has_pragma_once


class SearchPath(NamedTuple):
    """The header search path of a pass."""

    folder: str
    """The working directory, as clang spells it."""
    folders: tuple[str, ...] = ()
    """All folders of the front end, in any order."""
    user_folders: tuple[str, ...] = ()
    """Those of ``-I`` and ``-iquote``, whose headers are not system headers."""

    def find(self, name: str) -> tuple[str, bool]:
        """Return a name's header, and whether a system's; "" if folders have different ones."""
        found = [each for each in self.folders if os.path.isfile(_joined(each, name))]
        if len({identity(_joined(each, name)) for each in found}) != 1:
            return "", True
        systems = {identity(each) for each in self.folders if each not in self.user_folders}
        is_system = found[0] not in self.user_folders or identity(found[0]) in systems
        return _joined(found[0], name), is_system

    def candidates(self, source: str) -> Candidates:
        """Return the candidates for a source's PCHs, largest first."""
        run = leading_includes(content_of(source, _LARGEST))
        names = tuple(f"<{name}>" for name, _ in run)
        found = [Candidate(names[:at], end) for at, (_, end) in enumerate(run, 1)][::-1]
        includers: list[Includer] = []
        name = source
        while True:
            first = _first_of(name)
            guards = {guard for each in includers for guard, _ in each.guards}
            stop = f"{without_dots(name)}:{first.line}"
            if guards.intersection(guard for guard, _ in first.guards):
                break
            includers.append(Includer(name, first.guards))
            adjacent = _adjacent(first.include, name)
            header, is_system = (adjacent, False) if adjacent else self.find(first.include[1:])
            if (
                not header
                or name in (each.name for each in includers[:-1])
                or len(includers) > _LONGEST
            ):
                break
            is_new = len(includers) > 1 or first.include[0] == '"'
            can_be_named = not adjacent or not _IN_NO_TEXT.search(header + self.folder)
            if is_new and can_be_named and _first_of(header).is_guarded:
                key = f'"{header}"' if adjacent else f"<{first.include[1:]}>"
                found.append(Candidate((key,), 0, tuple(includers), first.include[1:]))
            if is_system:
                break
            name = header
        return Candidates(tuple(found), stop)


def _joined(folder: str, name: str) -> str:
    """Join folder and name as clang does."""
    if name.startswith("/"):
        return name
    return f"{folder}{name}" if folder.endswith("/") else f"{folder}/{name}"


def includes_text(headers: Headers, folder: str) -> bytes:
    """Return the text that includes `headers`, by absolute names and original spellings."""
    lines = (
        f'#include "{absolute_name(each[1:-1], folder)}" // {each[1:-1]}\n'
        if each[0] == '"'
        else f"#include {each}\n"
        for each in headers
    )
    return b"".join(map(os.fsencode, lines))


@functools.cache  # targets have the same search path
def bytes_read(headers: Headers, path: SearchPath, enough: int = sys.maxsize) -> int:
    """Return the size of headers and all that they include: an upper bound, for this process.

    With `enough`, the sum ends there.
    """
    found: set[str] = set()
    wanted = [each[1:-1] if each[0] == '"' else path.find(each[1:-1])[0] for each in headers]
    resolved: dict[str, str] = {}
    total = 0
    while wanted and total < enough:
        name = wanted.pop()
        if name in found or not name:
            continue
        size, includes = _includes_in(name)
        found.add(name)
        total += size
        wanted += [_resolved(each, name, path, resolved) for each in includes]
    return total


def _adjacent(include: str, includer: str) -> str:
    """Return the header that a quoted include finds in the includer's folder; "" if none."""
    if not include.startswith('"'):
        return ""
    folder = includer.rpartition("/")[0].rstrip("/")
    folder = folder or ("/" if includer.startswith("/") else ".")  # as clang spells it
    found = _joined(folder, include[1:])
    return found if os.path.isfile(found) else ""


def _resolved(include: str, includer: str, path: SearchPath, known: dict[str, str]) -> str:
    if adjacent := _adjacent(include, includer):
        return adjacent
    if include[1:] not in known:
        names = (_joined(folder, include[1:]) for folder in path.folders)
        known[include[1:]] = next(filter(os.path.isfile, names), "")
    return known[include[1:]]


@kept_by_stat
def _includes_in(name: str) -> tuple[int, Sequence[str]]:
    text = content_of(name)
    return len(text), [*dict.fromkeys(map(os.fsdecode, _ANY_INCLUDE.findall(text)))]
