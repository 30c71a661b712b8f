"""Escape untrusted text before it is printed.

A name in an untrusted file can contain line breaks, which forge lines of a log (``::error::``),
escape sequences for the terminal, and characters that reverse the text direction.
"""

from __future__ import annotations

_RAW_BYTES = 0xDC00  # surrogates from 0x80 on stand for bytes that are not UTF-8
_FIRST_HARMLESS = 0xDCA0
"""The surrogates below are C1 control characters, which 8-bit terminals obey."""


def printable(text: str) -> str:
    r"""Replace characters that are not printable by Python's escapes, such as ``\x1b``."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def one_line(text: str) -> str:
    """Return `text` as `printable` does, but keep bytes that are not UTF-8."""
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
