r"""The depfile of a compile with what all of its passes have read.

The driver lets the host pass alone write one, so a header that only device code includes is not in
it, and a change of it goes unseen. The names that device passes have beside are put behind the
host's in its rule::

    s.o: s.hip h.h \          <- the host pass's, as it is
      only_device.h           <- added; with -MP also a rule "only_device.h:" at the end

Names are taken over as the compiler has escaped them. Where there is none to add, the file is the
driver's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_NAME = re.compile(rb"(?:\\[\s\S]|\$\$|[^\s\\])+")
_CONTINUED = re.compile(rb"\\\r?\n")
_RULE_END = re.compile(rb"(?<!\\)\n")


def union(host: bytes, devices: Iterable[bytes], *, phony: bool) -> bytes:
    """Return the depfile of the host pass with the names in those of device passes.

    `phony`: each name has an empty rule of its own, as with ``-MP``.
    """
    rule, end, rest = _first_rule(host)
    names = dict.fromkeys(_prerequisites(rule))
    added = [
        name
        for text in devices
        for name in _prerequisites(_first_rule(text)[0])
        if name not in names and names.setdefault(name) is None
    ]
    if not added:
        return host
    lines = b"".join(b" \\\n  " + name for name in added)
    more = b"".join(name + b":\n" for name in added) if phony else b""
    return rule + lines + (end or b"\n") + rest + more


def _first_rule(text: bytes) -> tuple[bytes, bytes, bytes]:
    """Split a depfile behind its first rule: before the line break, the break, what follows."""
    for found in _RULE_END.finditer(text):
        return text[: found.start()], found[0], text[found.end() :]
    return text, b"", b""


def _prerequisites(rule: bytes) -> list[bytes]:
    joined = _CONTINUED.sub(b" ", rule)
    _, _, names = joined.partition(b": ")
    return _NAME.findall(names)
