r"""The preamble of a source: the directives with which it begins, for a PCH of its own.

::

    // text                          \
    #include "own.h"                  |
    #define SIZE 64                   |  the preamble
    #if defined(__HIP_DEVICE_COMPILE__)
    #include <device.h>               |
    #endif                           /
    #if SIZE > 32                       has code in it: the preamble ends before
    int value;

A precompiled header takes the place of just these bytes (see `pch`). So they are told strictly:
comments, blank lines, ``#include`` with a name, ``#define``, ``#undef`` and conditionals whose end
is there. Whatever else there is ends it: code, pragmas, computed names, raw strings, a comment that
a directive begins and another line ends, a backslash at the end of a comment.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from offload_tool.compiler.beginning import BETWEEN, plain_text

__all__ = ["Preamble", "preamble_of"]

_LONGEST = 1 << 16
"""Bytes of a source that are looked at."""
_BLANKS = rb"(?:[ \t]|/\*(?:[^*\\\r\n]|\*(?!/))*\*/)*"
_REST = (
    rb"(?:[^\r\n\\/\"']|\\\r?\n|\\(?![ \t\f\v\r\n])|/(?![/*\\])"
    rb"|/\*(?:[^*\\\r\n]|\*(?!/))*\*/|\"(?:[^\"\\\r\n]|\\[^\r\n])*\"|'(?:[^'\\\r\n]|\\[^\r\n])*')*"
)
_END = rb"(?://(?:[^\r\n\\]|\\(?![ \t\f\v\r\n]))*)?\r?\n"
_DIRECTIVE = re.compile(
    rb"#[ \t]*(?:(?P<include>include)[ \t]*(?:<[^<>\"\\\r\n]+>|\"[^\"\\\r\n]+\")"
    + _BLANKS
    + _END
    + rb"|(?P<word>define|undef|ifdef|ifndef|if|elifdef|elifndef|elif|else|endif)\b(?P<rest>"
    + _REST
    + rb")"
    + _END
    + rb")"
)
_RAW_STRING = re.compile(rb"\b(?:u8|[uUL])?R\"")
_BEGINS = (b"if", b"ifdef", b"ifndef")


class Preamble(NamedTuple):
    """The leading bytes of a source that are directives alone."""

    text: bytes = b""
    includes: int = 0
    """How many headers it names."""


def preamble_of(source: str) -> Preamble:
    """Give the preamble of the file `source`; none where it cannot be read."""
    try:
        with open(source, "rb") as file:  # noqa: PTH123 - called for each pass
            return _leading_directives(file.read(_LONGEST))
    except OSError:
        return Preamble()


def _leading_directives(text: bytes) -> Preamble:
    text = plain_text(text[:_LONGEST])
    at = end = depth = 0
    includes = complete = 0
    while True:
        between = BETWEEN.match(text, at)
        found = _DIRECTIVE.match(text, between.end() if between else at)
        if found is None or (found["rest"] and _RAW_STRING.search(found["rest"])):
            break
        word = found["word"]
        if word in _BEGINS:
            depth += 1
        elif word == b"endif":
            depth -= 1
        elif word and word.startswith(b"el") and not depth:
            break
        if depth < 0:
            break
        at = found.end()
        includes += bool(found["include"])
        if not depth:
            end, complete = at, includes
    return Preamble(text[:end], complete)
