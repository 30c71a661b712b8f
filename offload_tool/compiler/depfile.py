"""Read the Makefile rule in which clang lists the files that a compile has read.

Source: clang 22.1.8, observed: blanks and ``#`` are escaped with a backslash, ``$`` is
doubled, and long rules continue after a backslash at the end of a line.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from offload_tool.errors import FileError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["parse_depfile", "read_depfile"]

_PREREQUISITE = re.compile(r"(?:\\[ #]|\$\$|\\(?!\n)|[^\s\\])+")
_ESCAPED = re.compile(r"\\([ #])|\$(\$)")


def read_depfile(path: Path) -> list[str]:
    """Give the names of the files that the rule in the file at `path` depends on.

    :raises FileError: it cannot be read.
    """
    try:
        return parse_depfile(path.read_text(encoding="utf-8", errors="surrogateescape"))
    except OSError as error:
        raise FileError(path, error) from error


def parse_depfile(text: str) -> list[str]:
    """Give the prerequisites of the first rule in `text`, unescaped, in order."""
    _, _, names = text.partition(": ")
    return [
        _ESCAPED.sub(lambda match: match[1] or match[2], word)
        for word in _PREREQUISITE.findall(names)
    ]
