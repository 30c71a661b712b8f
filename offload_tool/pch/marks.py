"""Marks of compiles that would have used a precompiled header (PCH), had it been there.

A PCH takes as long as it saves in about three compiles. One that several compiles of a build share
is made at once. Otherwise each compile leaves a mark, as long as the headers stay the same. After
three marks, as of edits of one source, the PCH would have paid, and the next compile makes it.
"""

from __future__ import annotations

import os
import time

from offload_tool.io.file_digests import DigestCache, content_of, digest_of, file_stat
from offload_tool.io.paths import sibling
from offload_tool.manifest.output_state import pass_run
from offload_tool.pch.include_prefix import Candidate
from offload_tool.pch.pch import states
from offload_tool.pch.recipe import PchRecipe

_MOST_MARKS = 3
_ONE_BUILD = 60_000_000_000
"""Nanoseconds between two compiles of one build. Of slower ones, headers are a small part."""


class Marks:
    """The marks of compiles with one state of the headers."""

    def __init__(self, recipe: PchRecipe, candidate: Candidate, digests: DigestCache) -> None:
        self._file = sibling(recipe.file, ".mark")
        self._state = _state(recipe, candidate, digests)
        state, *names = content_of(self._file).split(b"\0")
        self._names = names if state == self._state else []

    @property
    def are_enough(self) -> bool:
        """Whether the PCH would have paid."""
        return len(self._names) >= _MOST_MARKS

    def has_other(self, source: str) -> bool:
        """Return True if the last mark is of another source, in this build."""
        left = file_stat(self._file)
        is_recent = left is not None and time.time_ns() - left.modified < _ONE_BUILD
        return is_recent and bool(self._names) and self._names[-1] != os.fsencode(source)

    def add(self, source: str) -> None:
        """Leave a mark; raise OSError."""
        os.makedirs(os.path.dirname(self._file), exist_ok=True)
        self._names.append(os.fsencode(source))
        with open(self._file, "wb") as written:
            written.write(b"\0".join([self._state, *self._names]))


def _state(recipe: PchRecipe, candidate: Candidate, digests: DigestCache) -> bytes:
    """Return a digest of the files in a PCH, or of its headers if they are not known."""
    find = recipe.search_path.find
    headers = (each[1:-1] if each[0] == '"' else find(each[1:-1])[0] for each in candidate.headers)
    names = pass_run(states(recipe)[-1].work(), digests).inputs() or headers
    return digest_of("".join(map(digests.digest, names)).encode()).encode()
