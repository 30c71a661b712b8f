"""The files that a command's arguments name: ``@file``, ``--config F``, ``-fprofile-use=F``, ...

The content of these files is an input of the command. Clang has hundreds of options that name
files, and plugins add more, so this module has no list: each name of an existing file counts.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Sequence

from offload_tool.clang.options import (
    FILE_BEHIND,
    FOLDER,
    FOR_LINKER,
    FOR_OTHERS,
    LIBRARY,
    NO_FILE,
    PROGRAMS,
    beginnings,
    does,
    takes_next,
    values,
)
from offload_tool.clang.response_file import expand_command

_FOLDER_FLAGS = beginnings(FOLDER)
_PARTS = re.compile(r"[=,]")
_LINKERS = ("lld", "ld.lld")
_PRECOMPILED = (".pch", ".gch")
"""``-include F`` silently reads F with such a suffix instead of F. Source: clang's user manual."""
_PROFILE = "default.profdata"
"""``-fprofile-use`` reads it from the working directory, or from the directory that it names.
Source: clang's user manual."""


def possible_files(words: Iterable[str]) -> tuple[str, ...]:
    """Return the response files of a command and all parts of its arguments that may name a file.

    A file given to ``-I`` is a header map.

    :raises UsageError: see `expand_command`.
    """
    found = expand_command(words)
    given = (word[2:] for word in found.words if word.startswith("-I"))
    maps = filter(os.path.isfile, given)
    return tuple(dict.fromkeys([*found.files, *_files_among(found.words), *maps]))


@functools.lru_cache(maxsize=256)
def _files_among(words: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_parts(words)))


def all_words(words: Iterable[str]) -> tuple[str, ...]:
    """Return the arguments of a command with its response files expanded.

    :raises UsageError: see `expand_command`.
    """
    return expand_command(words).words


def options_of(command: Sequence[str]) -> tuple[str, ...]:
    """Return a command without its leading arguments, which name the program."""
    return tuple(itertools.dropwhile(lambda word: not word.startswith(("-", "@")), command))


@functools.lru_cache(maxsize=64)
def include_folders(
    words: tuple[str, ...], flags: tuple[str, ...] = _FOLDER_FLAGS
) -> tuple[str, ...]:
    """Return the header directories that flags name; ``=`` before one means the sysroot."""
    found = []
    for word, behind in itertools.pairwise((*words, "")):
        for flag in flags:
            if word == flag and behind:
                found.append(behind)
            elif word != flag and word.startswith(flag):
                found.append(word.removeprefix(flag))
    return tuple(dict.fromkeys(found))


def finds_libraries(words: Iterable[str]) -> bool:
    """Return whether a linker in a compile searches for libraries; its choice is not known."""
    given = all_words(words)
    return any(
        (does(before, FOR_LINKER) and takes_next(before) and does(word, LIBRARY))
        or (does(word, FOR_LINKER) and any(does(part, LIBRARY) for part in word.split(",")))
        for before, word in itertools.pairwise(("", *given))
    )


def _parts(words: Iterable[str]) -> Iterator[str]:
    for before, word in itertools.pairwise(("", *words)):
        if word.startswith("@"):
            yield word[1:]
        elif not word.startswith("-"):
            yield from _with_precompiled(word)
            if does(before, PROGRAMS):
                yield from programs_in(word)
        elif does(word, FOR_OTHERS) or not does(word, NO_FILE):
            yield from _parts_of_option(word)


def _parts_of_option(word: str) -> Iterator[str]:
    parts = _PARTS.split(word)[1:]
    yield from (part for part in parts if part)
    if len(parts) > 1:  # a file name may hold separators, too
        yield word.partition("=")[2]
    for name in values([word], FILE_BEHIND):
        yield from _with_precompiled(name)
    for prefix in values([word], PROGRAMS):
        yield from programs_in(prefix)
    if word.startswith("-fprofile"):
        folder = word.partition("=")[2]
        yield f"{folder}/{_PROFILE}" if folder else _PROFILE


def programs_in(prefix: str) -> tuple[str, ...]:
    """Return the names of the linkers that a compiler finds by ``-B`` or ``COMPILER_PATH``."""
    return tuple(f"{begin}{name}" for name in _LINKERS for begin in (prefix, f"{prefix}/"))


def _with_precompiled(name: str) -> Iterator[str]:
    yield name
    yield from (f"{name}{suffix}" for suffix in _PRECOMPILED)
