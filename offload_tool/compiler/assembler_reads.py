r"""Files that the assembler reads for statements in C++ sources: no depfile lists them.

::

    asm(".incbin \"table.bin\"");        R"(.include "macros.s")"

Such a file is looked for in the current folder, then in those of ``-I``. What one includes is
followed. A name that is put together by macros is not known, and neither is what was read.

Source: clang 22.1.8, observed: its integrated assembler, with the paths of ``-I``.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from offload_tool.compiler.named_files import all_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["UnknownReadsError", "assembler_reads", "folders_of_assembler"]

_STATEMENT = re.compile(rb"\.incbin\b|\.include(?:\s|\\[tn])*\\?\"")
_NAMED = re.compile(rb"\.(?:incbin|include)(?:\s|\\[tn])*\\?\"([^\"\\\n]+)\\?\"")
_MOST_FOLLOWED = 1000

_known: dict[tuple[str, int, int], tuple[bytes, ...] | None] = {}
"""The names in a file, by its name, time and size; None where one is not known."""


class UnknownReadsError(Exception):
    """A statement does not tell which file is read."""


def assembler_reads(files: Iterable[str], folders: Sequence[str]) -> list[str]:
    """Give the files that statements in `files` read, and those in them.

    They are looked for in the current folder, then in `folders`.

    :raises UnknownReadsError: that cannot be told.
    """
    waiting = list(files)
    seen = set(waiting)
    found: list[str] = []
    while waiting:
        for raw in _names_in(waiting.pop()):
            name = os.fsdecode(raw)
            places = (os.path.join(folder, name) for folder in ("", *folders))  # noqa: PTH118
            place = next(filter(os.path.isfile, places), None)
            if place is None or len(found) == _MOST_FOLLOWED:
                raise UnknownReadsError  # a comment, say, or text for another program
            if place not in seen:
                seen.add(place)
                found.append(place)
                waiting.append(place)
    return found


def _names_in(file: str) -> tuple[bytes, ...]:
    """Give the names that statements in a file have.

    :raises UnknownReadsError: one has none that can be read here.
    """
    try:
        status = os.stat(file)  # noqa: PTH116 - called for each header of each pass
        key = (file, status.st_mtime_ns, status.st_size)
        if key not in _known:
            with open(file, "rb") as opened:  # noqa: PTH123
                content = opened.read()
            names = tuple(_NAMED.findall(content))
            _known[key] = names if len(names) == len(_STATEMENT.findall(content)) else None
    except OSError:
        return ()
    known = _known[key]
    if known is None:
        raise UnknownReadsError
    return known


def folders_of_assembler(command: Sequence[str]) -> list[str]:
    """Give the folders in which the command of a compile lets the assembler look."""
    folders = []
    before = ""
    for word in all_words(command):
        if before == "-I":
            folders.append(word)
        elif word.startswith("-I") and word != "-I":
            folders.append(word.removeprefix("-I"))
        before = word
    return folders
