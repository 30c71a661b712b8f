"""All that a pass has read, and where it has looked for files: from what its depfile lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from offload_tool.io.file_digests import Fingerprints
from offload_tool.manifest.assembler_includes import UnknownReadsError, assembler_reads
from offload_tool.manifest.include_search import Lookups, expected_lookups


class PassReads(NamedTuple):
    """What a pass has read and looked up."""

    files: list[str]
    lookups: Lookups
    untold: str = ""
    """Where it may have read more; "" where nothing else was read."""
    by_assembler: bool = False
    """Whether its assembler has read files: what comes out is not of the bitcode alone."""


def reads_of(
    listed: Sequence[str], folders: Sequence[str], words: Sequence[str], prints: Fingerprints
) -> PassReads:
    """Return what a pass read that lists some files; `folders`: its search path, () if unknown.

    What the assembler has found in a folder may later appear in an earlier one, as a header may.
    """
    lookups = expected_lookups(listed, folders, words, prints)
    untold = ""
    found: list[str] = []
    try:
        found = assembler_reads(listed, lookups.folders, words)
    except UnknownReadsError as error:
        untold = str(error)
    files = list(dict.fromkeys([*listed, *found]))
    if found:
        lookups = expected_lookups(files, ["", *folders], words, prints)
    if not folders:
        lookups = lookups._replace(unknown=True)
    return PassReads(files, lookups, untold, bool(found))


def all_reads(listed: Sequence[str], lookups: Lookups, words: Sequence[str]) -> list[str] | None:
    """Add what the assembler reads to what a pass lists; None where nobody knows that."""
    try:
        found = assembler_reads(listed, lookups.folders, words)
    except UnknownReadsError:
        return None
    return list(dict.fromkeys([*listed, *found]))
