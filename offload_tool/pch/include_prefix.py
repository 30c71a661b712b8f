"""What a source begins with: its leading run of ``#include <...>`` lines.

A precompiled header stands in for just these bytes of a source, which clang then skips
(``-preamble-bytes``). So they are told strictly: comments and blank lines may stand between the
lines, and whatever else there is ends the run: a macro, a condition, a name in quotes (looked up
beside the source), a line that goes on after a backslash.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

__all__ = ["Beginning", "beginning_of", "includes_text", "leading_includes"]

_LARGEST = 1 << 16
"""Bytes of a source that are looked at."""
_NO_SPLICE = rb"\\(?![ \t\f\v\r\n])"
"""A backslash that does not join lines; clang lets blanks follow one that does."""
_LINE_COMMENT = rb"//(?:[^\n\\]|" + _NO_SPLICE + rb")*"
_COMMENT = rb"/\*(?:[^*\\]|\*(?!/)|" + _NO_SPLICE + rb")*\*/"
_COMMENT_IN_LINE = rb"/\*(?:[^*\\\n]|\*(?!/)|" + _NO_SPLICE + rb")*\*/"
_BLANK = rb"[ \t\f\v\r\n]"
_BETWEEN = re.compile(rb"(?:" + _BLANK + rb"|" + _LINE_COMMENT + rb"\n|" + _COMMENT + rb")*")
_INCLUDE = re.compile(
    rb"#[ \t]*include[ \t]*<([^<>\"\\\r\n]+)>"
    rb"(?:[ \t\r]|" + _COMMENT_IN_LINE + rb")*(?:" + _LINE_COMMENT + rb")?\n"
)
_HIDDEN = re.compile(rb"\?\?|\r(?!\n)")


class Beginning(NamedTuple):
    """The leading ``#include <...>`` lines of a source."""

    headers: tuple[str, ...] = ()
    """The names between the angle brackets."""
    ends: tuple[int, ...] = ()
    """For each of them, how many bytes of the source end with its line."""

    def end_of(self, headers: tuple[str, ...]) -> int:
        """Return the number of bytes that are just these includes; 0 if the source differs."""
        count = len(headers)
        return self.ends[count - 1] if count and self.headers[:count] == headers else 0


def leading_includes(text: bytes) -> Beginning:
    """Return the lines ``#include <...>`` with which a source's text begins."""
    text = _plain_text(text[:_LARGEST])
    headers: list[str] = []
    ends: list[int] = []
    at = 0
    while True:
        between = _BETWEEN.match(text, at)
        found = _INCLUDE.match(text, between.end() if between else at)
        if found is None:
            return Beginning(tuple(headers), tuple(ends))
        headers.append(os.fsdecode(found[1]))
        at = found.end()
        ends.append(at)


def _plain_text(text: bytes) -> bytes:
    """Return a text up to where its lines are not those that it seems to have.

    These are trigraphs, and a carriage return alone, which ends a line for clang.
    """
    return re.split(_HIDDEN, text, maxsplit=1)[0]


def beginning_of(source: str) -> Beginning:
    """Return the leading includes of the file `source`; none where it cannot be read."""
    try:
        with open(source, "rb") as file:
            return leading_includes(file.read(_LARGEST))
    except OSError:
        return Beginning()


def includes_text(headers: tuple[str, ...]) -> bytes:
    """Return the text that includes some headers, and nothing else."""
    return b"".join(b"#include <%s>\n" % os.fsencode(name) for name in headers)
