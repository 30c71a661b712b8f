"""Merge the messages of a compile's passes: no duplicates, and device messages name their targets.

The host pass prints what users know from a plain compiler, so its text comes first, unchanged. Only
new messages of device passes follow, under a line with their target IDs. A message extends from one
first line to the next, with the preceding includes, its notes, and its source lines.

Source: the messages of clang 21 to 23, observed; line matching ignores colours.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_COLOUR = re.compile(rb"\x1b\[[0-9;]*[mK]")
_FIRST = re.compile(rb"(.+?: )?(fatal error|error|warning|remark): ")
_INCLUDED = re.compile(rb"In (file included from|module '.*' imported from) |  +from .*:\d+[:,]$")
_COUNT = re.compile(
    rb"\d+ (warnings?|errors?)( and \d+ errors?)? generated( when compiling for .*)?\."
)


def merge_messages(host: bytes, devices: Mapping[str, bytes]) -> bytes:
    """Return the host's messages, then those that only passes of some target IDs print."""
    host_messages = set(_messages(host))
    new: dict[bytes, list[str]] = {}
    for target, text in devices.items():
        for message in dict.fromkeys(_messages(text)):
            if message not in host_messages:
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
    """Yield each message of a text with all its lines, without the summary counts."""
    kept: list[bytes] = []
    includes: list[bytes] = []
    for line in text.splitlines(keepends=True):
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
