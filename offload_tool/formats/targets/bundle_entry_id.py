"""Bundle entry IDs: the offload kind and target of each code object in a bundle.

::

    hip - amdgcn - amd - amdhsa -     - gfx90a:xnack+
    kind  triple, four fields (here with an empty environment)  target ID, may be empty

An ID is split at its first five dashes, so a target ID may contain dashes. LLVM 22 always writes
the fifth dash: an ID without target ID ends with a dash.

`BundleEntryID.parse` is for user input, `BundleEntryID.read` for the content of files. LLVM 22
silently loses some target IDs (newer processors, alternative names, old three-field triples); both
methods keep them, in canonical form, and `parse` warns.

Equal entries cannot share a bundle, nor those of which one sets a feature that another leaves open.

Sources: the ClangOffloadBundler documentation (Bundle Entry ID, Compatibility Rules, Bundled Code
Object Composition); clang-offload-bundler 22.1.8, observed, for the written form, the messages, the
comparison, and what it accepts in one bundle.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Container, Iterable, Iterator, Sequence

from offload_tool.errors import EntryIDError, TargetIDError
from offload_tool.formats.targets import target_id as target_ids
from offload_tool.formats.targets import triple as triples
from offload_tool.formats.targets.processors import find_processor
from offload_tool.formats.targets.target_id import TargetID
from offload_tool.util.frozen import frozen


class OffloadKind:
    """The offload kinds that a bundle entry ID may begin with; HIP and HIPV4 are equivalent."""

    HOST = "host"
    OPENMP = "openmp"
    HIP = "hip"
    HIPV4 = "hipv4"
    ALL = frozenset({HOST, OPENMP, HIP, HIPV4})
    ANY_HIP = frozenset({HIP, HIPV4})


def kind_outside_bundles(kind: str) -> str:
    """Return the offload kind that sources and offload binaries have for that of an entry."""
    return OffloadKind.HIP if kind == OffloadKind.HIPV4 else kind


_VIRTUAL = re.compile(r"\A(compute|lto)_")  # prefixes of CUDA's PTX and NVVM instead of ``sm_``

# Messages of clang-offload-bundler 22, verbatim.
_WRONG_FORMAT = (
    "Targets need to follow the format '<offload kind>-<target triple>', where '<target triple>' "
    "follows the format '<kind>-<arch>-<vendor>-<os>-<env>[-<target id>[:target features]]'."
)


@frozen
class BundleEntryID:
    """A bundle entry ID: offload kind, triple of four fields, target ID or ''.

    `target_id` is canonical if it is valid, otherwise unchanged.
    """

    kind: str
    triple: str
    target_id: str = ""

    @classmethod
    def parse(
        cls,
        text: str,
        *,
        warn: Callable[[str], None] | None = None,
        known: Callable[[TargetID], bool] | None = None,
    ) -> BundleEntryID:
        """Parse `text` from a user; return the ID to store in a bundle.

        The triple becomes LLVM's normal form, the target ID canonical. `warn` receives a sentence
        for everything that LLVM 22 would lose or that looks like a mistake but is kept. Examples
        are an unknown processor, a feature that the processor lacks, and a three-field triple
        before a target ID. With `known`, an invalid target ID is an error; `known` decides on
        processors that are not in the table.

        :raises EntryIDError: too few fields, or an unknown kind or architecture, with LLVM's
            message. With `known`, also an invalid target ID.
        """
        _check_typed(text)
        report = warn or (lambda _: None)
        kind, triple, target, is_old = _split(text)
        target_id = _typed_target_id(target, text, report, known)
        result = cls(kind, triples.emitted(triple), target_id)
        if known is not None:
            _check_architecture(result, text)
        if is_old:
            report(_three_fields(text, result))
        return result

    @classmethod
    def parse_any_kind(
        cls,
        text: str,
        *,
        warn: Callable[[str], None] | None = None,
        known: Callable[[TargetID], bool] | None = None,
    ) -> BundleEntryID:
        """Parse `text`, with which a user selects an image of any offload kind.

        `warn` and `known` are as for `parse`.

        :raises EntryIDError: as for `parse`.
        """
        kind = text.partition("-")[0]
        if kind in OffloadKind.ALL or not has_all_fields(text):
            return cls.parse(text, warn=warn, known=known)
        result = cls.read(text)
        report = warn or (lambda _: None)
        if known is not None:
            _check_typed(text, {kind})
            _typed_target_id(_VIRTUAL.sub("sm_", result.target_id), text, report, known)
            _check_architecture(result, text)
        *_, is_old = _split(text)
        if is_old:
            report(_three_fields(text, result))
        return result

    @classmethod
    def read(cls, text: str) -> BundleEntryID:
        """Read `text`, an ID from a file, in any form; never raises.

        The triple's fields are unchanged; missing ones become empty. A target ID after an old
        three-field triple is recognised.
        """
        kind, triple, target, _ = _split(text)
        return cls(kind, triple, str(any_target_id(target) or target))

    def __str__(self) -> str:
        return f"{self.kind}-{self.triple}-{self.target_id}"


def has_all_fields(text: str) -> bool:
    """Return whether an ID has an offload kind and the four fields of a triple."""
    return text.count("-") >= 4


def _check_typed(text: str, kinds: Container[str] = OffloadKind.ALL) -> None:
    if not text.isprintable():
        raise EntryIDError([f"invalid target {text!r}: it holds characters that cannot be printed"])
    if not has_all_fields(text):
        raise EntryIDError([_WRONG_FORMAT])
    kind, arch, vendor, system, rest = text.split("-", 4)
    problem = ""
    if kind not in kinds:
        problem += f", unknown offloading kind '{kind}'"
    if not triples.is_known_arch(arch):
        triple = "-".join((arch, vendor, system, rest.partition("-")[0]))
        problem += f", unknown target triple '{triple}'"
    if problem:
        raise EntryIDError([f"invalid target '{text}'{problem}"])


def any_target_id(text: str) -> TargetID | None:
    """Return a target ID, also of an unknown processor; None if `text` cannot be one."""
    try:
        return TargetID.parse(text, allow_unknown=True)
    except TargetIDError:
        return None


def _split(text: str) -> tuple[str, str, str, bool]:
    """Return kind, triple, target ID, and whether the triple has the old form of three fields."""
    kind, arch, vendor, system, rest = [*text.split("-", 4), "", "", "", ""][:5]
    old = _old_target_id(rest)
    environment, _, target = rest.partition("-") if old is None else ("", "", old)
    return kind, "-".join((arch, vendor, system, environment)), target, old is not None


def _old_target_id(rest: str) -> str | None:
    """Return the target ID in the old form of `rest`, behind the OS field, if any."""
    processor, colon, features = rest.partition(":")
    if not colon:
        processor = rest.removesuffix("-")  # LLVM 22's final dash, if any
    if not _names_gpu(processor):
        return None
    if features.endswith(("+-", "--")):
        features = features[:-1]
    return processor + colon + features


def _three_fields(text: str, result: BundleEntryID) -> str:
    return (
        f"'{text}' has a triple of three fields before its target ID: it is taken as '{result}', "
        "write that"
    )


def _names_gpu(name: str) -> bool:
    processor = find_processor(name)
    if processor is not None:
        return processor.family in {"amdgcn", "nvptx", "spirv"}
    # A newer processor, but not an old one followed by a dash and a target ID.
    return name.startswith(("gfx", "sm_")) and "-" not in name


def _typed_target_id(
    text: str, whole: str, report: Callable[[str], None], known: Callable[[TargetID], bool] | None
) -> str:
    if not text:
        return ""
    understood = any_target_id(text)
    try:
        strict = TargetID.parse(text)
    except TargetIDError as error:
        if known is not None and (understood is None or not known(understood)):
            problems = (f"invalid target '{whole}': {problem}" for problem in error.problems)
            raise EntryIDError(problems) from None
        if understood is None:
            report(f"'{whole}' keeps its target ID as it is: {error}")
            return text
        if find_processor(understood.processor) is None:
            report(
                f"unknown processor '{understood.processor}' in '{whole}' is kept, "
                "LLVM 22 would drop the target ID"
            )
        return str(understood)
    return str(strict)


_FAMILIES = {
    **dict.fromkeys(("amdgcn", "amdgpu"), "amdgcn"),
    **dict.fromkeys(("nvptx", "nvptx64"), "nvptx"),
    **dict.fromkeys(("spirv", "spirv32", "spirv64"), "spirv"),
}
"""Processor family of each GPU architecture."""


def _check_architecture(entry: BundleEntryID, whole: str) -> None:
    """Raise if the processor does not belong to the triple's architecture."""
    name = entry.target_id.partition(":")[0]
    processor = find_processor(name)
    arch = triples.meaning(entry.triple).arch
    if processor is None or processor.family not in _FAMILIES.values():
        return
    if _FAMILIES.get(arch) != processor.family:
        raise EntryIDError(
            [f"invalid target '{whole}': '{name}' is no processor of {arch or 'this triple'}"]
        )


def written_by_llvm(text: str, entry: BundleEntryID) -> BundleEntryID:
    """Return the ID that LLVM 22 stores: without target ID behind an AMD triple of three fields."""
    *_, is_old = _split(text)
    return BundleEntryID(entry.kind, entry.triple, "") if is_old else entry


def incompatibility(
    code_object: BundleEntryID, target: BundleEntryID, *, hip_openmp: bool = False
) -> str | None:
    """Return briefly why an entry is not compatible with a target; None if it is.

    Entries with the same kind and target ID, or none, and compatible triples are compatible.
    Otherwise the kinds must be compatible (equal, hip and hipv4, and with `hip_openmp` also openmp
    and any hip), and both need a valid target ID, by the rules of `target_id.incompatibility`.
    Source: Compatibility Rules for Bundle Entry ID; clang-offload-bundler 22.1.8, observed, except
    that it considers any two unknown processors equal.
    """
    other_triple = triples.incompatibility(code_object.triple, target.triple)
    if not _kinds_compatible(code_object.kind, target.kind, hip_openmp=hip_openmp):
        return f"offload kind {code_object.kind} is not {target.kind}"
    if other_triple is not None:
        return other_triple
    if (code_object.kind, code_object.target_id) == (target.kind, target.target_id):
        return None
    ours, theirs = _valid_target_id(code_object), _valid_target_id(target)
    if ours is None or theirs is None:
        return f"target ID {_quoted(code_object)} is not {_quoted(target)}"
    return target_ids.incompatibility(ours, theirs)


def _quoted(entry: BundleEntryID) -> str:
    return f"'{entry.target_id}'" if entry.target_id else "(none)"


def _kinds_compatible(first: str, second: str, *, hip_openmp: bool) -> bool:
    if first == second or {first, second} <= OffloadKind.ANY_HIP:
        return True
    if not hip_openmp or OffloadKind.OPENMP not in {first, second}:
        return False
    return any(kind.lower().startswith("hip") for kind in (first, second))


def _valid_target_id(entry: BundleEntryID) -> TargetID | None:
    """Return the entry's target ID if it is valid for the entry's architecture."""
    understood = any_target_id(entry.target_id)
    if understood is None:
        return None
    arch = triples.meaning(entry.triple).arch
    if arch not in {"amdgcn", "r600"}:
        return None if understood.features else understood  # only AMD GPUs have features
    processor = find_processor(understood.processor)  # None: a newer processor
    return understood if processor is None or processor.family == arch else None


def is_compatible(
    code_object: BundleEntryID, target: BundleEntryID, *, hip_openmp: bool = False
) -> bool:
    """Return whether an entry is compatible with a target (see `incompatibility`)."""
    return incompatibility(code_object, target, hip_openmp=hip_openmp) is None


def best_match(
    candidates: Sequence[BundleEntryID], target: BundleEntryID, *, hip_openmp: bool = False
) -> int | None:
    """Return the index of the most suitable entry for `target`, None if none is compatible.

    The equal ID has priority, then equal kind and target ID, then the compatible entry that sets
    the most features, then the earliest. (LLVM 22 takes the first in hash table order.)
    """

    def rank(index: int) -> tuple[bool, bool, int, int]:
        entry = candidates[index]
        same = (entry.kind, entry.target_id) == (target.kind, target.target_id)
        return entry != target, not same, -entry.target_id.count(":"), index

    serving = (
        index
        for index, entry in enumerate(candidates)
        if is_compatible(entry, target, hip_openmp=hip_openmp)
    )
    return min(serving, key=rank, default=None)


# -- entries that cannot share a bundle -----------------------------------------------------------


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
