r"""Split a command line into arguments as a POSIX shell does, if that needs no shell.

Source: POSIX.1-2017, "Shell Command Language", 2.2 and 2.6, compared with dash. `shlex` differs: in
double quotes, it keeps the backslash before ``$``. Operators count as words of their own alone:
``-DHEADER=<a.h>`` is a word, where a shell would read a file.
"""

from __future__ import annotations

import glob
import re

_TOKEN = re.compile(
    r"""
      (?P<blank>[ \t\n]+)
    | '(?P<single>[^']*)'
    | "(?P<double>(?:[^"\\]|\\.)*)"
    | \\(?P<escaped>.)
    | (?P<plain>[^ \t\n'"\\]+)
    """,
    re.DOTALL | re.VERBOSE,
)
_EXPANSION = re.compile(r"`|\$[A-Za-z0-9_{(@*#?!$-]")
_ESCAPE = re.compile(r"\\([$`\"\\\n])")
_ESCAPED = re.compile(r"\\.", re.DOTALL)
_OPERATORS = frozenset({"&&", "||", "|", "|&", ";", "&", ">", ">>", "<", "2>", "2>&1", "&>"})


class NeedsShellError(Exception):
    """A command has an expansion, a pattern or an operator of shells; the text shows it."""


def shell_words(text: str) -> list[str]:
    """Return a command line's arguments; raise NeedsShellError, or ValueError for quotes."""
    words: list[str] = []
    parts: list[str] = []
    begin = at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise ValueError(f"no closing quotation in the command {text}")
        kind, at = str(found.lastgroup), found.end()
        if kind == "blank":
            words += _word(text[begin : found.start()], parts)
            begin, parts = at, []
        else:
            parts.append(_value(kind, found[kind]))
    return words + _word(text[begin:], parts)


def _value(kind: str, value: str) -> str:
    """Return the value of a part of a word; raise NeedsShellError for an expansion."""
    if kind == "double":
        if _EXPANSION.search(_ESCAPED.sub("\\\\", value)):
            raise NeedsShellError(repr(value))
        return _ESCAPE.sub(lambda found: found[1].strip("\n"), value)
    if kind == "plain" and _EXPANSION.search(value):
        raise NeedsShellError(repr(value))
    return "" if (kind, value) == ("escaped", "\n") else value


def _word(spelled: str, parts: list[str]) -> list[str]:
    """Return the word with these parts, or []; raise NeedsShellError for a replaced word."""
    is_plain = spelled and not any(mark in spelled for mark in "'\"\\")
    if spelled in _OPERATORS or spelled.startswith("~"):
        raise NeedsShellError(repr(spelled))
    if is_plain and glob.has_magic(spelled) and glob.glob(spelled):
        raise NeedsShellError(repr(spelled))
    return ["".join(parts)] if parts else []
