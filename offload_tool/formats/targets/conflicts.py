"""Which entries cannot share a bundle: equal ones, a feature set in one and open in another, hosts.

Sources: the ClangOffloadBundler documentation (Bundled Code Object Composition);
clang-offload-bundler 22.1.8, observed, for the messages and for what it accepts.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence

from offload_tool.errors import EntryIDError
from offload_tool.formats.targets.bundle_entry_id import BundleEntryID, OffloadKind
from offload_tool.formats.targets.target_id import TargetID


def read_targets(
    texts: Iterable[str],
    *,
    warn: Callable[[str], None] | None = None,
    known: Callable[[TargetID], bool] | None = None,
) -> list[BundleEntryID]:
    """Parse the targets of one bundler job; `warn` and `known` are as for `parse`.

    :raises EntryIDError: as for `parse`, or a repeated ID, or a feature set in one entry and Any in
        another. clang-offload-bundler 22 rejects these, in the same order with the same messages.
    """
    spelled: dict[BundleEntryID, str] = {}
    ids: dict[str, BundleEntryID] = {}
    for text in texts:
        if text in ids:
            raise EntryIDError(["Duplicate targets are not allowed"])
        ids[text] = BundleEntryID.parse(text, warn=warn, known=known)
    for text, entry in ids.items():
        if entry in spelled:
            raise EntryIDError([_duplicate(entry, spelled[entry], text)])
        spelled[entry] = text
    if conflict := first_conflict(spelled):
        first, other = (spelled[entry] for entry in conflict)
        raise EntryIDError(
            [f"Cannot bundle inputs with conflicting targets: '{first}' and '{other}'"]
        )
    return list(ids.values())


def check_hosts(ids: Iterable[BundleEntryID], *, bundling: bool) -> None:
    """Raise EntryIDError for several host entries, or none in a bundle that is not all HIP."""
    kinds = [entry.kind for entry in ids]
    hosts = kinds.count(OffloadKind.HOST)
    if hosts > 1 or (hosts == 0 and bundling and not OffloadKind.ANY_HIP.issuperset(kinds)):
        raise EntryIDError([f"expecting exactly one host target but got {hosts}"])


def _duplicate(entry: BundleEntryID, first: str, second: str) -> str:
    return (
        f"Duplicate targets are not allowed: '{first}' and '{second}' "
        f"are both '{entry}', remove one"
    )


def find_conflicts(
    ids: Iterable[BundleEntryID], spellings: Sequence[str] | None = None
) -> tuple[str, ...]:
    """Return all reasons why these entries cannot share a bundle, one message each.

    Reasons are equal IDs or, for one kind, triple and processor, a feature set in one entry and
    open (Any) in another. `spellings` are the unparsed IDs, in the same order, for the messages.
    Source: Bundled Code Object Composition; messages begin as LLVM 22's do.
    """
    ids = tuple(ids)
    texts = tuple(map(str, ids)) if spellings is None else tuple(spellings)
    problems = []
    first_text: dict[BundleEntryID, str] = {}
    for entry, text in zip(ids, texts, strict=True):
        if entry in first_text:
            problems.append(_duplicate(entry, first_text[entry], text))
        first_text.setdefault(entry, text)
    for first, other in _pairs_to_compare(first_text):
        features = sorted(_feature_names(first) ^ _feature_names(other))
        if features:
            listed = " and ".join(f"'{feature}'" for feature in features)
            both = f"'{first_text[first]}' and '{first_text[other]}'"
            problems.append(
                f"Cannot bundle inputs with conflicting targets: {both}, "
                f"set {listed} in both or in neither"
            )
    return tuple(problems)


def first_conflict(ids: Iterable[BundleEntryID]) -> tuple[BundleEntryID, BundleEntryID] | None:
    """Return the first pair of entries that LLVM 22 does not bundle together, or None.

    The rule is slightly weaker than the documented one (`find_conflicts`): in sorted order, no
    later entry of a processor may set a feature that the first leaves open.
    """
    for first, other in _pairs_to_compare(ids):
        if _feature_names(other) - _feature_names(first):
            return first, other
    return None


def _pairs_to_compare(
    ids: Iterable[BundleEntryID],
) -> Iterator[tuple[BundleEntryID, BundleEntryID]]:
    """Yield, in LLVM's order, the first entry of each processor with each of its other entries."""
    ordered = sorted(ids, key=lambda entry: (_composition_group(entry), entry.target_id))
    for _, (first, *others) in itertools.groupby(ordered, key=_composition_group):
        yield from ((first, other) for other in others)


def _composition_group(entry: BundleEntryID) -> tuple[str, str, str]:
    return entry.kind, entry.triple, entry.target_id.partition(":")[0]


def _feature_names(entry: BundleEntryID) -> set[str]:
    return {part.rstrip("+-") for part in entry.target_id.split(":")[1:]}


def check_composition(ids: Iterable[BundleEntryID]) -> None:
    """Raise `EntryIDError` with all messages of `find_conflicts`, if any."""
    problems = find_conflicts(ids)
    if problems:
        raise EntryIDError(problems)
