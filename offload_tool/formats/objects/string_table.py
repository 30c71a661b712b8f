"""String tables as LLVM 22 lays them out: each string once, with shared suffixes.

A table is a *head*, then NUL-terminated strings. The strings are sorted by their reversed bytes,
descending, so that a string directly precedes its own suffixes. A suffix is not stored again but
points into the string before it::

    strings        text, .text, .rela.text, .data
    reversed       txet  txet.  txet.aler.  atad.
    stored         NUL ".rela.text" NUL ".data" NUL
    offsets        .rela.text 1, .text 6, text 7, .data 12

ELF's head is one NUL, and the empty string points to it. COFF's head is the table's size. COFF's
section names are first, as a sorted group, because their offsets may have only a few digits.

Source: llvm-objcopy and llvm-offload-binary 22.1.8, observed.
"""

from __future__ import annotations

from collections.abc import Iterable


def build_string_table(
    *groups: Iterable[bytes], head: bytes = b"\0"
) -> tuple[bytes, dict[bytes, int]]:
    """Return the table with `head`, and the offset of each string; the empty string has 0.

    Each group is sorted separately; a string in several groups belongs to the first.
    """
    table = bytearray(head)
    offsets = {b"": 0}
    stored = b""
    for group in groups:
        new = {string[::-1] for string in group if string not in offsets}
        for reverse in sorted(new, reverse=True):
            string = reverse[::-1]
            if not stored.endswith(string):
                stored = string
                table += string + b"\0"
            offsets[string] = len(table) - 1 - len(string)
    return bytes(table), offsets
