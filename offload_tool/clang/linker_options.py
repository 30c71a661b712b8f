"""The words of a device link: which are known to say how it links, and nothing of other files.

Libraries, scripts, maps and traces are not: the links of several targets would write one file, and
what is found in folders is no input by its name.
"""

from __future__ import annotations

from collections.abc import Iterable

_KNOWN = (
    *("--no-undefined", "-shared", "--lto-", "-plugin-opt=", "-O", "-mllvm", "-z"),
    *("--whole-archive", "--no-whole-archive", "--gc-sections", "--no-gc-sections"),
    *("--strip-", "--build-id", "--hash-style=", "--icf=", "--threads=", "--error-limit="),
)
"""Beginnings."""
_WRITES = (
    *("-filename", "stats-file", "dwo_dir", "save-temps", "obj-path", "index-only", "emit-"),
    *("sample-profile", "cs-profile", "debug-pass-manager"),
)
"""Parts of words that name a file, or ask for other results."""
_WITH_NEXT = ("-mllvm", "-z", "-o")


def unknown_word(words: Iterable[str]) -> str:
    """Return the first option that is unknown, or that writes a file more; "" if none."""
    before = ""
    for word in words:
        is_option = word.startswith("-") and word != "-o" and before not in _WITH_NEXT
        is_known = word.startswith(_KNOWN) and not any(part in word for part in _WRITES)
        if is_option and not is_known:
            return word
        before = word
    return ""
