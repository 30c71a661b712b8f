"""What the passes of a compile have said, as one text: nothing twice, and whose it is.

The host pass says what users know from a plain compiler, so its text comes first, as it is. Of a
device pass only those messages follow that were not told yet, under a line that names its target
IDs. A message is what stands between two first lines: with the includes before it, its notes, and
the lines of source behind it.

Source: the messages of clang 21 to 23, observed; colours are left out where lines are told apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

_COLOUR = re.compile(rb"\x1b\[[0-9;]*[mK]")
_FIRST = re.compile(rb"(.+?: )?(fatal error|error|warning|remark): ")
_NOTE = re.compile(rb"(.+?: )?note: ")
_INCLUDED = re.compile(rb"In (file included from|module '.*' imported from) |  +from .*:\d+[:,]$")
_COUNT = re.compile(
    rb"\d+ (warnings?|errors?)( and \d+ errors?)? generated( when compiling for .*)?\."
)


def joined_messages(host: bytes, devices: Mapping[str, bytes]) -> bytes:
    """Return the host's messages, and those that only passes of some target IDs have."""
    told = set(_messages(host))
    new: dict[bytes, list[str]] = {}
    for target, text in devices.items():
        for message in dict.fromkeys(_messages(text)):
            if message not in told:
                new.setdefault(message, []).append(target)
    found = [host]
    before: list[str] = []
    for message, targets in new.items():
        if targets != before:
            found.append(f"In device code for {', '.join(targets)}:\n".encode())
            before = targets
        found.append(message)
    return b"".join(found)


def _messages(text: bytes) -> Iterator[bytes]:
    """Yield the messages in a text, each with all of its lines; counts of them are none."""
    kept: list[bytes] = []
    includes: list[bytes] = []
    for line in _lines(text):
        plain = _COLOUR.sub(b"", line).rstrip(b"\n")
        if _INCLUDED.match(plain):
            includes.append(line)
            continue
        if _FIRST.match(plain) or _COUNT.fullmatch(plain):
            if kept:
                yield b"".join(kept)
            kept = []
        if not _COUNT.fullmatch(plain):
            kept += [*includes, line]
        includes = []
    if kept or includes:
        yield b"".join([*kept, *includes])


def _lines(text: bytes) -> Iterable[bytes]:
    return text.splitlines(keepends=True)
