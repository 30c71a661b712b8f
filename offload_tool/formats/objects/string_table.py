"""String tables as LLVM 22 lays them out: each string once, with shared suffixes.

The NUL-terminated strings are sorted by their reversed bytes,
descending, so that a string directly precedes its own suffixes. A suffix is not stored again but
points into the string before it::

    strings        text, .text, .rela.text, .data
    reversed       txet  txet.  txet.aler.  atad.
    stored         NUL ".rela.text" NUL ".data" NUL
    offsets        .rela.text 1, .text 6, text 7, .data 12

A table begins with one NUL, to which the empty string points.

Source: llvm-objcopy and llvm-offload-binary 22.1.8, observed.
"""

from __future__ import annotations

from collections.abc import Iterable


def build_string_table(strings: Iterable[bytes]) -> tuple[bytes, dict[bytes, int]]:
    """Return the table, and the offset of each string."""
    table = bytearray(1)
    offsets = {b"": 0}
    stored = b""
    for reverse in sorted({string[::-1] for string in strings if string}, reverse=True):
        string = reverse[::-1]
        if not stored.endswith(string):
            stored = string
            table += string + b"\0"
        offsets[string] = len(table) - 1 - len(string)
    return bytes(table), offsets
