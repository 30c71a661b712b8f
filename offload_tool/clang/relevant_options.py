"""Which of a compile's flags decide what must be installed, and where it is looked for."""

from __future__ import annotations

import os
from collections.abc import Iterable

from offload_tool.clang.options import (
    BESIDE,
    DEPFILE,
    ELSEWHERE,
    INSTALLED,
    OTHER_JOB,
    does,
    takes_next,
)

_WRITES = BESIDE | ELSEWHERE | DEPFILE | OTHER_JOB
_OUTPUT = ("-o", "-Xclang=-dep")


def relevant_flags(words: Iterable[str]) -> tuple[str, ...]:
    """Return those of a compile's flags that decide what must be installed."""
    rest = iter(words)
    found = []
    for word in rest:
        if does(word, INSTALLED):
            found += [word, next(rest, "")] if takes_next(word) else [word]
    return tuple(found)


def trial_flags(words: Iterable[str]) -> tuple[str, ...]:
    """Return all flags of a compile for a trial of the compiler; none if they write files."""
    given = tuple(words)
    writes = any(word.startswith(_OUTPUT) or does(word, _WRITES) for word in given)
    return () if writes else given


def folder_meant(words: Iterable[str]) -> list[str]:
    """Return the folder of this process if a word names something in it, and else nothing.

    That is for questions whose answers are kept: words that name nothing here, or name it by an
    absolute path, mean the same in every folder.
    """
    for word in words:
        for name in (word, word.partition("=")[2], word.removeprefix("-isysroot")):
            is_name = "/" in name or name is not word
            if is_name and name and not name.startswith(("/", "-")) and os.path.lexists(name):
                return [os.getcwd()]
    return []
