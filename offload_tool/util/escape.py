"""Text that came out of files, made safe to be printed.

A name in a stranger's file can hold line breaks, with which it would forge lines of a log
(``::error::``), escape sequences for the terminal, and characters that turn text around.
"""

from __future__ import annotations

_RAW_BYTES = 0xDC00
"""Bytes that are not UTF-8 are in text as these surrogates, from 0x80 on."""
_FIRST_HARMLESS = 0xDCA0
"""Below are C1's control characters, which terminals of 8 bits obey."""


def printable(text: str) -> str:
    r"""Show what is not a printable character as an escape, as Python spells it: ``\x1b``."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def one_line(text: str) -> str:
    """Return `text` as `printable` does, but bytes of a name that are not UTF-8 as they are."""
    return text if text.isprintable() else "".join(map(_shown, text))


def _shown(character: str) -> str:
    if character.isprintable():
        return character
    code = ord(character)
    if _FIRST_HARMLESS <= code <= _RAW_BYTES + 0xFF:
        return character
    if _RAW_BYTES + 0x80 <= code < _FIRST_HARMLESS:
        return f"\\x{code - _RAW_BYTES:02x}"
    return repr(character)[1:-1]
