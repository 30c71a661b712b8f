"""Tables as data, which the scripts of the page draw; all foreign text is shortened and printable.

A table has one list for each column, or one value if all rows have the same. Texts are stored
once, in the order of their first use; columns of text have their numbers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

from offload_tool.util.escape import printable

_LONGEST = 10_000
"""Characters of a text; the longest demangled names of cuBLAS have 4,263."""


class Column(NamedTuple):
    """A column of a table; None is an unknown number."""

    key: str
    """Its name in links."""
    title: str
    kind: str
    """``text``, or ``kernel`` for its name; ``number``, ``sum`` for one that has a total, ``share``
    of the total, ``signed`` for a difference, ``pair`` for a number and that of `before`."""
    values: Sequence[str | int | None]
    before: Sequence[int | None] = ()


class Tables:
    """The tables of each view, and their texts."""

    def __init__(self) -> None:
        self.views: dict[str, list[object]] = {"sizes": []}
        self.texts: dict[str, int] = {}
        """The numbers of all texts, in their order."""

    def number(self, text: str) -> int:
        """Return the number of a text."""
        return self.texts.setdefault(shown(text), len(self.texts))

    def add(
        self, view: str, name: str, title: str, columns: Sequence[Column], order: str = ""
    ) -> None:
        """Add a table, which is sorted by falling numbers of the column `order`."""
        data = [
            {
                **column._asdict(),
                "values": _one_or_all(
                    column.values
                    if column.kind not in ("text", "kernel")
                    else [self.number(str(one or "")) for one in column.values]
                ),
                "before": _one_or_all(column.before),
            }
            for column in columns
        ]
        count = len(columns[0].values)
        table = {"name": name, "title": title, "order": order, "count": count, "columns": data}
        self.views.setdefault(view, []).append(table)


def shown(text: str) -> str:
    """Return a printable text; for a very long one, the beginning and a digest."""
    if len(text) <= _LONGEST:
        return printable(text)
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{printable(text[:_LONGEST])}... ({len(text):,} characters, SHA-256 {digest})"


def _one_or_all(values: Sequence[object]) -> object:
    first = values[0] if values else None
    return first if all(value == first for value in values) else values
