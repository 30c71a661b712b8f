"""The names of headers in objects, equal with and without a precompiled header (PCH).

Clang uses the absolute name of a header in a PCH, however it was spelled. ``__builtin_FILE()``,
``std::source_location``, ``assert`` of glibc 2.43, and the types of lambdas contain it::

    -Iinclude  #include <a/h.h>      plain:      include/a/h.h
                                     PCH:        /home/x/include/a/h.h
    -fmacro-prefix-map=/home/x/include/a/=include/a/   and it is include/a/h.h again

So each folder with a relative spelling gets an option that maps it back. If no such options restore
every name, there is no PCH.

Source: clang 19.1, 21, 22.1 and 23, observed: if two folders are prefixes, the longer one applies.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

_MAP = "-fmacro-prefix-map="
_KEEP_DOTS = "-fno-file-reproducible"
"""Without this option, such a map also strips ``./``."""


def absolute_name(name: str, folder: str) -> str:
    """Return the name that a file has in a PCH made in `folder`."""
    absolute = name if name.startswith("/") else f"{folder}/{name}"
    return "/" + "/".join(part for part in absolute.split("/") if part not in ("", "."))


class Names(NamedTuple):
    """The folder of a PCH's quoted header, which the PCH's text includes by its absolute name.

    Without a PCH, such a header and its quoted includes have names in a relative folder::

        src/norm.cuh    #include "common.cuh"                 src/common.cuh
        text of a PCH   #include "/home/x/src/common.cuh"     /home/x/src/common.cuh
    """

    folder: str = ""
    """The absolute folder of the header, with a trailing slash."""
    spelled: str = ""
    """The folder as spelled without a PCH."""

    @staticmethod
    def of(headers: Sequence[str], folder: str) -> Names:
        """Return the names of a PCH's headers."""
        for each in headers:
            if each[0] == '"':
                spelled = each[1:-1]
                return Names(_folder_of(absolute_name(spelled, folder)), _folder_of(spelled))
        return Names()

    @property
    def options(self) -> list[str]:
        """The options that restore the headers' names in macros."""
        if self.folder == self.spelled:
            return []
        return [_KEEP_DOTS, f"{_MAP}{self.folder}={self.spelled}"]

    def restored(self, name: str) -> str:
        """Return a name that the compiler reports, as it is without a PCH."""
        if self.folder and name.startswith(self.folder):
            return self.spelled + name.removeprefix(self.folder)
        return name

    def shown(self, name: str) -> str:
        """Return the name as in depfiles and messages."""
        return without_dots(self.restored(name))


def options_for(entered: Iterable[str], folder: str) -> tuple[list[str], str]:
    """Return options that restore files' names, and the first that they do not restore."""
    names = {name: absolute_name(name, folder) for name in entered}
    maps: dict[str, str] = {}
    for name, absolute in names.items():
        maps.setdefault(_folder_of(absolute), _folder_of(name))
    changed = [absolute for absolute, name in maps.items() if absolute != name]
    needed = [
        f"{_MAP}{absolute}={name}"
        for absolute, name in sorted(maps.items())
        if any(absolute.startswith(other) for other in changed)
    ]
    args = [_KEEP_DOTS, *needed] if needed else []
    mapped = ((name, mapped_name(absolute, args)) for name, absolute in names.items())
    return args, next((name for name, found in mapped if found != name), "")


def write_options(file: str, args: Sequence[str], *, is_guarded: bool) -> None:
    """Write a PCH's options, and whether its headers are guarded; raise FileError."""
    from offload_tool.io import replace_file

    with replace_file(file) as out:
        out.write(json.dumps([is_guarded, *args]).encode())


def read_options(file: str) -> tuple[tuple[str, ...], bool] | None:
    """Return what `write_options` wrote; None if the file is missing or invalid."""
    try:
        with open(file, "rb") as opened:
            is_guarded, *args = json.load(opened)
            return tuple(map(str, args)), is_guarded is True
    except (OSError, ValueError, TypeError, RecursionError):
        return None


def without_dots(name: str) -> str:
    """Return a name as in clang's depfiles: without a leading ``./``."""
    while name.startswith("./"):
        name = name[2:].lstrip("/")
    return name


def _folder_of(name: str) -> str:
    return name[: name.rfind("/") + 1]


def mapped_name(absolute: str, args: Sequence[str]) -> str:
    """Return the name that clang gives a file with these options."""
    maps = [arg.removeprefix(_MAP).partition("=") for arg in args if arg.startswith(_MAP)]
    for old, _, new in sorted(maps, reverse=True):
        if absolute.startswith(old):
            return new + absolute.removeprefix(old)
    return absolute
