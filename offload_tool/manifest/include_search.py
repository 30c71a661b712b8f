"""Where a preprocessor looks for files, and what it would find there today.

What a compile has read, its depfile lists. What it has *not* read counts as well: a file that
appears where an ``#include`` is looked up earlier, and one for which ``__has_include`` or
``__has_embed`` asks. Which lookups there were is known from both ends, without a second reading
of directives:

- Each file that was read was found in some folder under some name; that name can be found in
  any other folder of the search path, or beside a file that was read.
- Names that were asked for in vain stand in the text of the files that were read.

Both give more names than were looked up: of an ``#include <x.h>`` in a comment, say. So a file
that appears under such a name is only a reason to ask: the preprocessor then reads the source
again, and where it reads the same files as before, nothing has changed. (Clang lists in a
depfile what ``__has_include`` and ``__has_embed`` find: 19.1 and 22.1, observed.)
"""

from __future__ import annotations

import functools
import os
import posixpath
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from offload_tool.clang.argument_files import all_words
from offload_tool.clang.options import HEADERS, does
from offload_tool.clang.search_path import origins_digest
from offload_tool.io.file_digests import Fingerprints
from offload_tool.manifest.has_include import asked_in, asked_names

_SYSTEM = "/usr/"
"""Headers there are found by the search path; what appears beside one of them is not looked at."""


class Lookups(NamedTuple):
    """The names that one pass may have looked up."""

    folders: tuple[str, ...] = ()
    """The search path, and the folders of the files read; as they are spelled."""
    names: tuple[str, ...] = ()
    """What is looked for in them."""
    present: tuple[str, ...] = ()
    """What there was under such names, and was not read."""
    unknown: bool = False
    """There is a name that nobody knows, or headers are found in ways that are not followed."""
    origins: str = ""
    """A digest of what decides where the compiler looks by itself: see `origins`; "" if nothing."""
    outside: tuple[str, ...] = ()
    """More names: those that files outside of the folder of the build have, or ask for."""


def is_outside(name: str) -> bool:
    """Return whether a file is outside of the folder of the build; files in it have short names."""
    return name.startswith("/")


@functools.lru_cache(maxsize=4096)
def _searched(
    folders: tuple[str, ...], names: tuple[str, ...]
) -> tuple[tuple[str, str, frozenset[str]], ...]:
    """Return each folder to look into, how its files are spelled, and which of them count."""
    by_folder: dict[str, set[str]] = {}
    for name in names:
        folder, _, last = name.rpartition("/")
        by_folder.setdefault(folder, set()).add(last)
    found = []
    for place in folders:
        begin = f"{place.rstrip('/')}/" if place else ""
        for folder, wanted in by_folder.items():
            spelled = f"{begin}{folder}/" if folder else begin
            found.append((spelled.rstrip("/") or place, spelled, frozenset(wanted)))
    return tuple(found)


def expected_lookups(
    read: Sequence[str],
    folders: Iterable[str],
    words: Sequence[str],
    prints: Fingerprints,
) -> Lookups:
    """Return what a pass may have looked up that has read the files `read`, as spelled by clang.

    `folders` is its search path, `words` are those of its command: macros that they define may
    name files.
    """
    beside = (posixpath.dirname(name) for name in read if not name.startswith(_SYSTEM))
    places = tuple(dict.fromkeys([*folders, *beside]))
    asked, unknown = asked_names(read, words)
    unknown = unknown or any(does(word, HEADERS) for word in all_words(words))
    unknown = unknown or any(map(os.path.isfile, places))  # header maps
    absolute = [name for name in asked if name.startswith("/")]
    names = dict.fromkeys([*asked, *map(posixpath.basename, absolute)])
    for place in places:
        begin = f"{place.rstrip('/')}/" if place else ""
        names.update((name[len(begin) :], None) for name in read if name.startswith(begin))
    theirs = _names_outside(read, places)
    places = tuple(dict.fromkeys([*places, *map(posixpath.dirname, absolute)]))
    # Absolute names are looked up nowhere else.
    relative = sorted(name for name in names if not name.startswith("/"))
    own = tuple(name for name in relative if name not in theirs)
    outside = tuple(name for name in relative if name in theirs)
    made = Lookups(places, own, (), unknown, origins_digest(places, prints), outside)
    return made._replace(present=tuple(appeared(made, frozenset(read), prints)))


def _names_outside(read: Iterable[str], places: Iterable[str]) -> set[str]:
    """Return the names that files outside of the folder of the build have in places, or ask for."""
    files = [name for name in read if is_outside(name)]
    found = {asked for name in files for asked in asked_in(name)}
    for place in places:
        begin = f"{place.rstrip('/')}/"
        if is_outside(begin):
            found.update(name[len(begin) :] for name in files if name.startswith(begin))
    return found


def appeared(lookups: Lookups, read: frozenset[str], prints: Fingerprints) -> list[str]:
    """Return the files that are there now, under names that are looked up, and were not before."""
    found = found_in(lookups.folders, lookups.names, prints)
    if lookups.outside:
        now, once = _when_to_look(lookups.folders, prints)
        found |= found_in(now, lookups.outside, prints)
        found |= prints.once(
            (once, lookups.outside), lambda: found_in(once, lookups.outside, prints)
        )
    return sorted(filter(_is_file, found.difference(read, lookups.present)))


def _is_file(name: str) -> bool:
    """Return whether there is a file that can be read, and not a folder, or a link to nothing."""
    return os.path.exists(name) and not os.path.isdir(name)


def _when_to_look(
    folders: tuple[str, ...], prints: Fingerprints
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the folders to look into each time, and those to look into once."""
    once = tuple(folder for folder in folders if is_outside(folder) and prints.looks_once(folder))
    return tuple(folder for folder in folders if folder not in once), once


def found_in(folders: tuple[str, ...], names: tuple[str, ...], prints: Fingerprints) -> set[str]:
    """Return those of the names that are there in some of the folders, behind the folder's name."""
    found: set[str] = set()
    for folder, spelled, wanted in _searched(folders, names):
        there = prints.names(folder)
        if not wanted.isdisjoint(there):
            found.update(spelled + name for name in wanted & there)
    return found
