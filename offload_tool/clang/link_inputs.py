"""The files that the command of a host link names: objects, and libraries by path or name.

``-lNAME`` is ``libNAME.so`` or ``libNAME.a`` in the first folder that has one, ``-l:FILE`` is that
file. An ``-L`` serves each ``-l``, before or after it. The linker's own folders are not searched,
response files and linker scripts not read. Source: GNU ld 2.40 and lld 22.1.8, observed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")
_FOLDER, _LIBRARY = ("--library-path", "-L"), ("--library", "-l")
_IS_STATIC = {
    **dict.fromkeys(("-Bstatic", "-dn", "-non_shared", "-static"), True),
    **dict.fromkeys(("-Bdynamic", "-dy", "-call_shared"), False),
}


def linked_files(
    args: Iterable[str], find: Callable[[str], T | None], folders: Sequence[str] = ()
) -> Iterator[T]:
    """Yield what `find` returns, if not None, for each file that a link's arguments name."""
    searched, files = _parsed(args)
    searched += folders
    for names, is_path in files:
        paths = names if is_path else (os.path.join(at, name) for at in searched for name in names)
        found = next((file for path in paths if (file := find(path)) is not None), None)
        if found is not None:
            yield found


def _parsed(args: Iterable[str]) -> tuple[list[str], list[tuple[tuple[str, ...], bool]]]:
    """Return the folders of ``-L``; for each file, its names, and whether they are paths."""
    folders: list[str] = []
    files: list[tuple[tuple[str, ...], bool]] = []
    is_static = False
    words = iter(_words(args))
    for word in words:
        option = next((each for each in (*_FOLDER, *_LIBRARY) if word.startswith(each)), None)
        if option is not None:
            value = word.removeprefix(option) or next(words, "")
            value = value.removeprefix("=") if option.startswith("--") else value
            if option in _FOLDER:
                folders.append(value)
            else:
                files.append((_names_of(value, is_static=is_static), False))
        elif word == "-o":
            next(words, None)
        elif word in _IS_STATIC:
            is_static = _IS_STATIC[word]
        elif word and word[0] not in "-@":
            files.append(((word,), True))
    return folders, files


def _words(args: Iterable[str]) -> Iterator[str]:
    """Yield the linker's arguments, also those that the compiler's driver passes on."""
    for arg in args:
        if arg.startswith("-Wl,"):
            yield from arg.split(",")[1:]
        elif arg != "-Xlinker":
            yield arg


def _names_of(library: str, *, is_static: bool) -> tuple[str, ...]:
    """Return the file names of a library in the order of preference."""
    if library.startswith(":"):
        return (library[1:],)
    return tuple(f"lib{library}{suffix}" for suffix in ([] if is_static else [".so"]) + [".a"])
