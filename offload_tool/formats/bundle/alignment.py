"""Find the alignment with which a binary bundle was written: the table does not record it.

Several may give the same layout. Of those, 4096 is the most likely one, which fat binaries
have, then the smallest: 1 is the default of clang-offload-bundler.
"""

from __future__ import annotations

from collections.abc import Sequence

from offload_tool.formats.bundle.binary import Bundle, plan_bundle

_FAT_BINARY = 4096
_CANDIDATES = (_FAT_BINARY, *(1 << power for power in range(21)))


def find_alignment(bundles: Sequence[Bundle]) -> int:
    """Return the alignment, in bytes, with which all of `bundles` may have been written.

    Where none gives their layouts, it is one that no entry's offset contradicts.
    """
    for alignment in _CANDIDATES:
        if all(_is_layout(bundle, alignment) for bundle in bundles):
            return alignment
    offsets = 0
    for bundle in bundles:
        for entry in bundle.entries:
            offsets |= entry.offset
    return min(offsets & -offsets, _FAT_BINARY) or 1


def _is_layout(bundle: Bundle, alignment: int) -> bool:
    rows = [(entry.id, entry.size) for entry in bundle.entries]
    if not rows or len({name for name, _ in rows}) < len(rows):
        return not rows
    planned = plan_bundle(rows, alignment).entries
    return all(a.offset == b.offset for a, b in zip(planned, bundle.entries, strict=True))
