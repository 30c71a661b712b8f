"""What passes have read outside of the folder of the build: kept and judged once for many of them.

Real passes read hundreds of headers of a toolkit and of the system, the same ones in each source.
They are in each manifest, which is complete by itself, but as lines of their own: where the lines
of two manifests are the same text, they are parsed once, and one answer serves both.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from offload_tool.io.file_digests import digest_of

_known: dict[str | bytes, Outside] = {}
"""By the text, or its digest; they are held by the records of a build anyway."""
_SHORT = 1 << 10


class Outside:
    """Files outside of the folder of the build, and the names under which they are looked up."""

    __slots__ = ("folders", "inputs", "names")

    def __init__(self, inputs: dict[str, str], names: tuple[str, ...]) -> None:
        self.inputs = inputs
        """Digests by name."""
        self.names = names
        """See `lookups.Lookups.outside`."""
        self.folders = frozenset(name.rpartition("/")[0] or "/" for name in inputs)


class Inputs(dict[str, str]):
    """The digest of each file that a pass has read; those outside come last."""

    __slots__ = ("_places", "outside", "own")

    def __init__(self, own: Mapping[str, str], places: list[int], outside: Outside) -> None:
        super().__init__(own)
        self.update(outside.inputs)
        self._places = places
        self.own = own
        """Those that are not outside."""
        self.outside = outside

    def in_order(self) -> list[str]:
        """Return the names in the order in which they were read."""
        names = list(self.outside.inputs)
        for place, name in zip(self._places, self.own, strict=True):
            names.insert(place, name)
        return names


def is_outside(name: str) -> bool:
    """Return whether a file is outside of the folder of the build; files in it have short names."""
    return name.startswith("/")


def text_of_outside(inputs: Iterable[tuple[str, str]], names: tuple[str, ...]) -> str:
    """Return the line for a manifest."""
    return json.dumps({"inputs": dict(inputs), "names": names})


def outside_of_text(text: bytes) -> Outside:
    """Read such a line; equal lines give the same object.

    :raises ValueError, TypeError, KeyError, AttributeError: it is none.
    """
    key = text if len(text) < _SHORT else digest_of(text)
    found = _known.get(key)
    if found is None:
        value = json.loads(text)
        inputs = dict(value["inputs"])
        all_texts([*inputs, *inputs.values()])
        found = _known[key] = Outside(inputs, all_texts(value["names"]))
    return found


def all_texts(value: Any) -> tuple[str, ...]:
    """Return a list of JSON as texts.

    :raises TypeError: it is none.
    """
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise TypeError("no list of texts")
    return tuple(value)
