r"""Files that the assembler reads for statements in C++ sources: no depfile lists them.

::

    asm(".incbin \"table.bin\"");        R"(.include "macros.s")"

Such a file is looked for in the current folder, then in those of the search path, whose order is
not that of the command: all that are there under the name count. What one includes is followed. A
name that is put together by macros is not known, and neither is what was read; nor is it where
the statement itself is put together, or where a flag holds it.

Source: clang 22.1.8, observed: of ``-isystem a -I b`` its integrated assembler takes `b`.
"""

from __future__ import annotations

import os
import re

from offload_tool.compiler.configured import has_configuration
from offload_tool.compiler.fingerprints import Look, look_at
from offload_tool.compiler.named_files import all_words, possible_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["UnknownReadsError", "assembler_reads", "lets_assembler_read"]

_STATEMENT = re.compile(
    rb"\.incbin|\.include(?:\s|\\[tn])*\\?\""
    rb"|\.i(?:n(?:c(?:b(?:i|in)?|l(?:u(?:de?)?)?)?)?)?\"\s*\""  # in the middle of two strings
)
_NAMED = re.compile(rb"\.(?:incbin|include)(?:\s|\\[tn])*\\?\"([^\"\\\n]+)\\?\"")
_MOST_FOLLOWED = 1000

_LARGEST = 1 << 20
"""Bytes of a file that a flag names and that may hold flags."""

_known: dict[tuple[str, Look], tuple[bytes, ...] | None] = {}
"""The names in a file, by its name and look; None where one is not known."""


class UnknownReadsError(Exception):
    """A statement does not tell which file is read."""


def lets_assembler_read(text: bytes) -> bool:
    """Tell whether there may be such a statement in a text."""
    return _STATEMENT.search(text) is not None


def assembler_reads(
    files: Iterable[str], folders: Sequence[str], words: Iterable[str] = ()
) -> list[str]:
    """Give the files that statements in `files` read, and those in them.

    They are looked for in the current folder and in `folders`. `words` are the command's.

    :raises UnknownReadsError: that cannot be told.
    """
    _see_that_none_says_so(tuple(words))
    waiting = list(files)
    seen = set(waiting)
    found: list[str] = []
    while waiting:
        for raw in _names_in(waiting.pop()):
            name = os.fsdecode(raw)
            places = (os.path.join(folder, name) for folder in ("", *folders))  # noqa: PTH118
            there = list(filter(os.path.isfile, places))
            if not there or len(found) > _MOST_FOLLOWED:
                raise UnknownReadsError  # a comment, say, or text for another program
            new = [place for place in there if place not in seen]
            seen.update(new)
            found += new
            waiting += new
    return found


def _see_that_none_says_so(words: tuple[str, ...]) -> None:
    """See that no macro of a command, nor one in a file that it names, is such a statement.

    :raises UnknownReadsError: one is.
    """
    if any(lets_assembler_read(os.fsencode(word)) for word in all_words(words)):
        raise UnknownReadsError
    if has_configuration(words):
        for name in possible_files(words):
            look = look_at(name)
            if look is not None and look.size < _LARGEST and _names_in(name):
                raise UnknownReadsError


def _names_in(file: str) -> tuple[bytes, ...]:
    """Give the names that statements in a file have.

    :raises UnknownReadsError: one has none that can be read here.
    """
    try:
        look = look_at(file)
        if look is None:
            return ()
        key = (file, look)
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
