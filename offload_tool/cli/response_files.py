"""Response files: an argument ``@FILE`` stands for the arguments that FILE holds.

As LLVM 22's tools read them: arguments are separated by blanks or line ends; single and
double quotes keep them; a backslash takes the next character as it is, also within quotes;
an empty argument cannot be written, and one that holds a NUL ends there. Response files
may name further ones, relative to the working directory. Where there is no such file, the
argument stays as it is.
"""

from __future__ import annotations

import codecs
import os

from offload_tool.errors import UsageError
from offload_tool.frozen import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Iterator
    from typing import TypeAlias

    _Identity: TypeAlias = tuple[int, int]

__all__ = ["expand_response_files"]

# Compiled, as all that is slow to load is imported, for a command line with a response file alone.
_ARGUMENT = rb"""(?sx)(?: \\. | '(?:\\.|[^'])*'? | "(?:\\.|[^"])*"? | [^\ \t\r\n'"] )+"""
_QUOTED = rb"""(?s)\\(.)|'((?:\\.|[^'])*)'?|"((?:\\.|[^"])*)"?"""
_ESCAPE = rb"(?s)\\(.)"


@frozen
class _Level:
    """A list of arguments being expanded, and the file it comes from."""

    words: Iterator[str]
    name: str = ""
    identity: _Identity | None = None


def expand_response_files(arguments: Iterable[str]) -> list[str]:
    """Replace each ``@FILE`` by the arguments in FILE.

    :raises UsageError: a file exists but cannot be read, or contains itself.
    """
    expanded = []
    # A stack of its own, not recursion: a long chain of files is no reason to fail.
    stack: list[_Level] = [_Level(iter(arguments))]
    while stack:
        word = next(stack[-1].words, None)
        if word is None:
            stack.pop()
            continue
        word = word.partition("\0")[0]
        opened = _open(word[1:]) if word.startswith("@") else None
        if opened is None:
            expanded.append(word)
            continue
        content, identity = opened
        for outer in stack:
            if identity == outer.identity:
                raise UsageError(f"recursive expansion of: '{_absolute(outer.name)}'")
        stack.append(_Level(_split(_decoded(content)), word[1:], identity))
    return expanded


def _open(name: str) -> tuple[bytes, _Identity] | None:
    """Give a file's content and which file it is, or None if there is none."""
    from pathlib import Path

    try:
        with Path(name).open("rb") as file:
            status = os.fstat(file.fileno())
            return file.read(), (status.st_dev, status.st_ino)
    except FileNotFoundError:
        return None
    except OSError as error:
        # The words are LLVM's.
        reason = f"cannot not open file '{_absolute(name)}': {error.strerror}"
        raise UsageError(reason) from error


def _absolute(name: str) -> str:
    # Unlike a Path, this keeps "./" and a final "/" as the user wrote them.
    return os.path.join(os.getcwd(), name) if name else os.getcwd()  # noqa: PTH109, PTH118


def _decoded(content: bytes) -> bytes:
    """Give UTF-8 for UTF-16 with a byte order mark, and drop that of UTF-8."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        try:
            return content.decode("utf-16").encode()
        except UnicodeError as error:
            raise UsageError("Could not convert UTF16 to UTF8") from error
    return content.removeprefix(codecs.BOM_UTF8)


def _split(content: bytes) -> Iterator[str]:
    import re

    for found in re.finditer(_ARGUMENT, content):
        argument = re.sub(_QUOTED, _unquoted, found[0])
        if argument:
            yield os.fsdecode(argument)


def _unquoted(piece: re.Match[bytes]) -> bytes:
    escaped, single, double = piece.groups()
    if escaped is not None:
        return bytes(escaped)
    import re

    return re.sub(_ESCAPE, rb"\1", double if single is None else single)
