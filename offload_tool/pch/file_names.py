"""Which names headers have in objects: with a precompiled header (PCH) as without.

A header that comes out of a PCH has its absolute name, whatever was spelled. ``__builtin_FILE()``,
``std::source_location``, ``assert`` of glibc 2.43, and the types of lambdas show it::

    -Iinclude  #include <a/h.h>      plain:      include/a/h.h
                                     PCH:        /home/x/include/a/h.h
    -fmacro-prefix-map=/home/x/include/a/=include/a/   and it is include/a/h.h again

So each folder that is spelled otherwise than absolute has a word that maps it back. Where no such
word gives each file its name, there is no PCH.

Source: clang 19.1, 21, 22.1 and 23, observed: where two folders begin a name, the longer counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

_MAP = "-fmacro-prefix-map="
_KEEP_DOTS = "-fno-file-reproducible"
"""Without it, such a map also strips ``./``."""


def absolute_name(name: str, folder: str) -> str:
    """Return the name that a PCH made in `folder` has for a file."""
    whole = name if name.startswith("/") else f"{folder}/{name}"
    return "/" + "/".join(part for part in whole.split("/") if part not in ("", "."))


class Names(NamedTuple):
    """What a PCH is made with where its header, looked up beside another, is named from the root.

    Without a PCH such a header, and what it includes in quotes, has the name of a relative folder::

        src/norm.cuh    #include "common.cuh"                 src/common.cuh
        text of a PCH   #include "/home/x/src/common.cuh"     /home/x/src/common.cuh
    """

    folder: str = ""
    """Of the header, with a slash at its end."""
    spelled: str = ""
    """Likewise, as it is without a PCH."""

    @staticmethod
    def of(headers: Sequence[str], folder: str) -> Names:
        """Return those of the headers of a PCH."""
        for each in headers:
            if each[0] == '"':
                spelled = each[1:-1]
                return Names(_folder_of(absolute_name(spelled, folder)), _folder_of(spelled))
        return Names()

    @property
    def words(self) -> list[str]:
        """The words by which macros of headers have the names that they have without a PCH."""
        if self.folder == self.spelled:
            return []
        return [_KEEP_DOTS, f"{_MAP}{self.folder}={self.spelled}"]

    def given(self, name: str) -> str:
        """Return a name of the compiler's as it is without a PCH."""
        if self.folder and name.startswith(self.folder):
            return self.spelled + name.removeprefix(self.folder)
        return name

    def shown(self, name: str) -> str:
        """Return what depfiles, and messages, have for it."""
        return without_dots(self.given(name))


def words_for(entered: Iterable[str], folder: str) -> tuple[list[str], str]:
    """Return the words by which files get the names with which they were entered.

    The second value is the first file that these words do not name right; "" if there is none.
    """
    names = {name: absolute_name(name, folder) for name in entered}
    maps: dict[str, str] = {}
    for name, whole in names.items():
        maps.setdefault(_folder_of(whole), _folder_of(name))
    changed = [whole for whole, name in maps.items() if whole != name]
    needed = [
        f"{_MAP}{whole}={name}"
        for whole, name in sorted(maps.items())
        if any(whole.startswith(other) for other in changed)
    ]
    words = [_KEEP_DOTS, *needed] if needed else []
    wrong = next((name for name, whole in names.items() if _named(whole, words) != name), "")
    return words, wrong


def is_renamed(name: str, words: Sequence[str]) -> bool:
    """Return whether the words give a file another name."""
    return _named(name, words) != name


def keep_words(file: str, words: Sequence[str], *, is_guarded: bool) -> None:
    """Write into a file the words of a PCH, and whether none of its headers comes twice.

    :raises FileError: it cannot be written.
    """
    from offload_tool.io import replace_file

    with replace_file(file) as out:
        out.write(json.dumps([is_guarded, *words]).encode())


def kept_words(file: str) -> tuple[tuple[str, ...], bool] | None:
    """Return what `keep_words` wrote; None if there is nothing."""
    try:
        with open(file, "rb") as opened:
            is_guarded, *words = json.load(opened)
            return tuple(map(str, words)), is_guarded is True
    except (OSError, ValueError, TypeError, RecursionError):
        return None


def without_dots(name: str) -> str:
    """Return a name as clang's depfiles have it: without a leading ``./``."""
    while name.startswith("./"):
        name = name[2:].lstrip("/")
    return name


def _folder_of(name: str) -> str:
    return name[: name.rfind("/") + 1]


def _named(whole: str, words: Sequence[str]) -> str:
    """Return the name that clang gives a file, as it reads the words."""
    maps = [word.removeprefix(_MAP).partition("=") for word in words if word.startswith(_MAP)]
    for old, _, new in sorted(maps, reverse=True):
        if whole.startswith(old):
            return new + whole.removeprefix(old)
    return whole
