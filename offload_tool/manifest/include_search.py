"""The files that a preprocessor looks for, and those it would find now.

The depfile lists the files that a compile has read. Failed lookups count as well: a file may appear
on an earlier path of an ``#include``, or for ``__has_include`` or ``__has_embed``. Two sources
yield the lookups, without parsing directives again:

- Each file that was read was found in some directory under some name; that name can be found in
  any other directory of the search path, or next to a file that was read.
- Names of failed ``__has_include`` are in the text of the files that were read.

Both yield too many names, so a file that appears under one only makes the preprocessor run again;
if it reads the same files, the output is current. (Clang lists in a depfile what ``__has_include``
and ``__has_embed`` find: 19.1 and 22.1, observed.)
"""

from __future__ import annotations

import functools
import os
import posixpath
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from offload_tool.clang.argument_files import all_args
from offload_tool.clang.options import HEADERS, does
from offload_tool.io.file_digests import DigestCache, digest_of, is_system_path

if TYPE_CHECKING:
    from offload_tool.manifest.source_text import HasIncludeNames


class Lookups(NamedTuple):
    """The names that one pass may have looked up."""

    folders: tuple[str, ...] = ()
    """The search path, and the directories of the files read; as they are spelled."""
    names: tuple[str, ...] = ()
    """Names that are looked up in them."""
    present: tuple[str, ...] = ()
    """Existing files under such names that were not read."""
    unknown: bool = False
    """A name is not known, or headers are found in ways that are not followed."""
    search_path: str = ""
    """A digest of the search path; "" if it has none."""
    outside: tuple[str, ...] = ()
    """Further names: of files outside the working directory, and those which such files test."""


@functools.lru_cache(maxsize=256)
def digest_of_path(folders: tuple[str, ...]) -> str:
    """Return a digest of a search path."""
    return digest_of(os.fsencode("\0".join(folders)))


def is_outside(name: str) -> bool:
    """Return whether a file is outside the working directory; files in it have relative names."""
    return name.startswith("/")


def _prefix(folder: str) -> str:
    """Return what clang puts before the names of files in a folder.

    Source: clang 22.1.8, observed: it removes one final slash, and adds one if none is left. A
    depfile has no ``./`` before a name.
    """
    shorter = folder.removesuffix("/")
    spelled = shorter if shorter.endswith("/") or not folder else f"{shorter}/"
    while spelled.startswith("./"):
        spelled = spelled[2:].lstrip("/")
    return spelled


@functools.lru_cache(maxsize=4096)
def _searched(
    folders: tuple[str, ...], names: tuple[str, ...]
) -> tuple[tuple[str, str, frozenset[str]], ...]:
    """Return each directory to search, the prefix of its files, and the names that count."""
    by_folder: dict[str, set[str]] = {}
    for name in names:
        parent, _, last = name.rpartition("/")
        by_folder.setdefault(parent, set()).add(last)
    found = []
    for folder in folders:
        begin = _prefix(folder)
        for below, wanted in by_folder.items():
            spelled = f"{begin}{below}/" if below else begin
            found.append((spelled.rstrip("/") or folder, spelled, frozenset(wanted)))
    return tuple(found)


def expected_lookups(
    read: Sequence[str], folders: Iterable[str], args: Sequence[str], digests: DigestCache
) -> Lookups:
    """Return the possible lookups of a pass that has read `read` with this search path."""
    from offload_tool.manifest.source_text import has_include_names  # not if all is current

    # The search path finds headers of the system; files that appear next to one do not count.
    adjacent = (posixpath.dirname(name) for name in read if not is_system_path(name))
    searched = tuple(dict.fromkeys([*folders, *adjacent]))
    found = has_include_names(read)
    tested = [name for each in found.values() for name in each.names]
    unknown = any(each.unknown for each in found.values())
    unknown = unknown or any("__has_" in arg or does(arg, HEADERS) for arg in all_args(args))
    unknown = unknown or any(map(os.path.isfile, searched))  # header maps
    absolute = [name for name in tested if name.startswith("/")]
    names = dict.fromkeys([*tested, *map(posixpath.basename, absolute)])
    for folder in searched:
        begin = _prefix(folder)
        names.update((name[len(begin) :], None) for name in read if name.startswith(begin))
    names_outside = _names_outside(found, searched)
    searched = tuple(dict.fromkeys([*searched, *map(posixpath.dirname, absolute)]))
    # Absolute names have no other lookups.
    relative = sorted(name for name in names if not name.startswith("/"))
    own = tuple(name for name in relative if name not in names_outside)
    outside = tuple(name for name in relative if name in names_outside)
    made = Lookups(searched, own, (), unknown, digest_of_path(tuple(folders)), outside)
    return made._replace(present=tuple(appeared(made, frozenset(read), digests)))


def _names_outside(read: Mapping[str, HasIncludeNames], searched: Iterable[str]) -> set[str]:
    """Return names of files outside the working directory, and those that such files test."""
    files = [name for name in read if is_outside(name)]
    found = {tested for name in files for tested in read[name].names}
    for folder in searched:
        begin = _prefix(folder)
        if is_outside(begin):
            found.update(name[len(begin) :] for name in files if name.startswith(begin))
    return found


def appeared(lookups: Lookups, read: frozenset[str], digests: DigestCache) -> list[str]:
    """Return the files under looked-up names that were neither read nor present before."""
    folders, outside = lookups.folders, lookups.outside
    found = found_in(folders, lookups.names, digests)
    if outside:
        listed_once = tuple(x for x in folders if is_outside(x) and digests.caches_listing(x))
        others = tuple(folder for folder in folders if folder not in listed_once)
        found |= found_in(others, outside, digests)
        found |= digests.memoize(
            (listed_once, outside), lambda: found_in(listed_once, outside, digests)
        )
    new = found.difference(read, lookups.present)
    return sorted(name for name in new if os.path.exists(name) and not os.path.isdir(name))


def found_in(folders: tuple[str, ...], names: tuple[str, ...], digests: DigestCache) -> set[str]:
    """Return the paths of names that exist in the directories, prefixed with the directory."""
    found: set[str] = set()
    for folder, spelled, wanted in _searched(folders, names):
        there = digests.names(folder)
        if not wanted.isdisjoint(there):
            found.update(spelled + name for name in wanted & there)
    return found
