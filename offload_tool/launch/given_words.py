"""The words of a command with those in its response files, as the driver takes them.

``@file`` may hold any word: such as speak to the driver itself are not in its plan. A file that
cannot be read as the driver reads it lets the command pass through, and so does one that can be
read once only (the shell's ``@<(...)``): the driver is to have it.
"""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["UnreadableWordsError", "given_words"]

_DEPTH = 10
_LARGEST = 1 << 20
"""Bytes of a file that is read."""
_WIDE = (b"\xff\xfe", b"\xfe\xff")
"""How files in UTF-16 begin."""


class UnreadableWordsError(Exception):
    """What is in a response file is not known; the text says why."""


def given_words(words: Sequence[str]) -> list[str]:
    """Give words, each response file being followed by those in it.

    One that is not there is a word like others, as for the driver.

    :raises UnreadableWordsError: one of them cannot be read here.
    """
    return list(_given(words, _DEPTH))


def _given(words: Sequence[str], depth: int) -> Iterator[str]:
    for word in words:
        yield word
        if word.startswith("@"):
            if not depth:
                raise UnreadableWordsError(f"'{word}' is too deep in response files")
            yield from _given(_read(word[1:]), depth - 1)


def _read(name: str) -> list[str]:
    """Give the words of a response file; none where there is no such file."""
    try:
        found = os.stat(name)  # noqa: PTH116
        if not stat.S_ISREG(found.st_mode) or found.st_size > _LARGEST:
            raise UnreadableWordsError(f"'@{name}' is no small regular file")
        with open(name, "rb") as file:  # noqa: PTH123
            content = file.read()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UnreadableWordsError(f"'@{name}': {error.strerror}") from error
    if content.startswith(_WIDE):
        raise UnreadableWordsError(f"'@{name}' is in UTF-16")
    import shlex

    text = content.decode("utf-8-sig", errors="surrogateescape")
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UnreadableWordsError(f"'@{name}': {error}") from error
