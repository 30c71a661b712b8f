"""Extract files from a bundle, and list the entries of a bundle.

A target gets the entry with the same ID, else the most specific compatible one, else the first
in the file. Each entry serves one target. (clang-offload-bundler 22.1.8 takes entries and
targets in the order of a hash table.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from offload_tool.containers.entries import (
    DEFAULT_FILE_TYPE,
    OpenedBundle,
    StoredEntry,
    check_file_type,
    open_bundle,
)
from offload_tool.errors import FormatError, OffloadError, UsageError
from offload_tool.formats.objects.elf.reader import is_elf
from offload_tool.formats.targets.bundle_entry_id import (
    BundleEntryID,
    OffloadKind,
    best_match,
    has_all_fields,
    is_compatible,
)
from offload_tool.io import InputFile, StrPath, replace_all


class MissingEntriesError(OffloadError):
    """A bundle has no entry for one or more of the requested targets."""

    def __init__(self, path: StrPath, missing: Sequence[str], present: Sequence[str]) -> None:
        self.missing = tuple(missing)
        listed = ", ".join(present) if present else "none"
        if not present:
            with suppress(OffloadError), InputFile(path) as source:
                if is_elf(source.data):
                    listed += " (linked files: offload_tool.extract_device_images, "
                    listed += "'offload-tool extract')"
        super().__init__(f"'{path}': no entry for {', '.join(missing)}; entries found: {listed}")


def unbundle_file(
    path: StrPath,
    outputs: Mapping[BundleEntryID, StrPath],
    *,
    file_type: str = DEFAULT_FILE_TYPE,
    allow_missing: bool = False,
    hip_openmp: bool = False,
    one_each: bool = False,
    keep_equal: bool = False,
    opened: Callable[[OpenedBundle], None] | None = None,
) -> None:
    """Write the entry of the bundle at `path` that serves each target of `outputs` to its file.

    All outputs are written or none. `file_type` is as for `bundle_files`. With `allow_missing`,
    targets without an entry get empty files; if no target has one (because the file is not a
    bundle, for instance), the host target gets the whole file. `hip_openmp` lets hip and openmp
    entries serve each other. With `one_each`, several entries of the selected ID are an error;
    otherwise the first is written. With `keep_equal`, files that already have the same bytes are
    left untouched. `opened` is called with the bundle before anything is written.

    :raises MissingEntriesError: no entry serves one or more of the targets.
    :raises UsageError: no targets, an unknown file type, or with `one_each` several entries.
    :raises FormatError, UnsupportedError, FileError: a file is broken, unsupported or unusable.
    """
    if not outputs:
        raise UsageError("no targets to unbundle; give at least one bundle entry ID")
    targets = list(outputs)

    def wanted(entry_id: str) -> bool:
        entry = BundleEntryID.read(entry_id)
        return any(is_compatible(entry, target, hip_openmp=hip_openmp) for target in targets)

    with InputFile(path) as source:
        check_file_type(file_type)
        # The report of decompression comes before any output.
        bundle = open_bundle(source, file_type, wanted=wanted, stream=opened is None)
        if opened is not None:
            opened(bundle)
        entries = bundle.entries
        chosen = _assign(entries, targets, hip_openmp=hip_openmp)
        if one_each:
            _check_only(path, chosen, entries)
        missing = [str(target) for target in targets if target not in chosen]
        is_invalid = missing and any(not has_all_fields(entry.id) for entry in entries)
        if is_invalid or (missing and not allow_missing):
            bundle.check()  # report damage first
            if is_invalid:
                raise FormatError("invalid bundle id read from the bundle")
            raise MissingEntriesError(path, missing, [entry.id for entry in entries])
        with replace_all(list(outputs.values()), keep_equal=keep_equal) as files:
            pairs = [*zip(targets, files, strict=True)]
            hosts = [file for target, file in pairs if target.kind == OffloadKind.HOST]
            if chosen or not hosts:
                bundle.write([(chosen[target], file) for target, file in pairs if target in chosen])
            for file in hosts if not chosen else ():
                file.copy(bundle.content)


def list_entry_ids(
    path: StrPath,
    *,
    file_type: str = DEFAULT_FILE_TYPE,
    opened: Callable[[OpenedBundle], None] | None = None,
) -> list[str]:
    """Return the entry IDs of the bundle at `path`, as stored, in file order.

    A file that is not a bundle has none. `file_type` is as for `bundle_files`. `opened` is
    called with the bundle.

    :raises UsageError: an unknown file type.
    :raises FormatError, UnsupportedError, FileError: the file is broken, unsupported or unusable.
    """
    with InputFile(path) as source:
        check_file_type(file_type)
        bundle = open_bundle(source, file_type, stream=opened is None)
        if opened is not None:
            opened(bundle)
        bundle.check()
        return [entry.id for entry in bundle.entries]


def _check_only(
    path: StrPath, chosen: Mapping[BundleEntryID, StoredEntry], entries: Sequence[StoredEntry]
) -> None:
    for taken in chosen.values():
        wanted = BundleEntryID.read(taken.id)
        same = [each for each in entries if each.size and BundleEntryID.read(each.id) == wanted]
        if len(same) > 1:
            offsets = ", ".join(f"{each.offset:#x} ({each.size} bytes)" for each in same)
            raise UsageError(
                f"'{path}': {len(same)} entries '{taken.id}', at {offsets}, of which one file can "
                "have one; 'offload-tool extract' writes all of them"
            )


def _assign(
    entries: Sequence[StoredEntry], targets: Sequence[BundleEntryID], *, hip_openmp: bool
) -> dict[BundleEntryID, StoredEntry]:
    """Return the entry of each target, equal IDs first; no entry is used twice."""
    remaining = [(BundleEntryID.read(entry.id), entry) for entry in entries]
    chosen: dict[BundleEntryID, StoredEntry] = {}
    for exact in (True, False):
        for target in targets:
            if target in chosen:
                continue
            candidates = [entry_id for entry_id, _ in remaining]
            index = best_match(candidates, target, hip_openmp=hip_openmp)
            if index is not None and (not exact or candidates[index] == target):
                chosen[target] = remaining.pop(index)[1]
    return chosen
