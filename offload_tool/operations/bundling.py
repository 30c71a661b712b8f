"""Bundle code objects into one file, and take them out again.

The same bytes as clang-offload-bundler 22.1.8 writes for the binary layout, in-process.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from offload_tool.errors import OffloadError, UsageError
from offload_tool.files import InputFile, replace_all, replace_file
from offload_tool.formats.bundle import plan_bundle, read_bundle
from offload_tool.formats.entry_id import BundleEntryID, best_match, check_composition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from offload_tool.files import StrPath

__all__ = ["MissingEntriesError", "bundle_files", "unbundle_file"]


class MissingEntriesError(OffloadError):
    """A bundle has no entry that serves one or more of the targets asked for."""

    def __init__(self, path: StrPath, missing: Sequence[str], present: Sequence[str]) -> None:
        self.missing = tuple(missing)
        listed = ", ".join(present) if present else "none"
        super().__init__(f"'{path}': no entry for {', '.join(missing)}; entries found: {listed}")


def bundle_files(
    output: StrPath,
    items: Sequence[tuple[BundleEntryID, StrPath | None]],
    *,
    alignment: int = 1,
) -> None:
    """Write the bundle of (bundle entry ID, file) items to `output`, in their order.

    None for a file is an empty code object, as a fat binary's host entry is. Memory
    does not grow with the files' sizes: their bytes are copied inside the kernel.

    :raises EntryIDError: equal IDs, or a feature set in one entry and Any in another.
    :raises UsageError: no items, or an alignment below 1.
    :raises FileError: a file cannot be read or written.
    """
    check_composition([entry_id for entry_id, _ in items])
    with ExitStack() as stack:
        inputs = [
            None if path is None else stack.enter_context(InputFile(path)) for _, path in items
        ]
        sizes = [0 if source is None else len(source) for source in inputs]
        names = [str(entry_id) for entry_id, _ in items]
        layout = plan_bundle(zip(names, sizes, strict=True), alignment)
        out = stack.enter_context(replace_file(output))
        out.write(layout.header)
        for entry, source in zip(layout.entries, inputs, strict=True):
            out.pad_to(entry.offset)
            if source is not None:
                out.copy(source)


def unbundle_file(path: StrPath, outputs: Mapping[BundleEntryID, StrPath]) -> None:
    """Write the code object that serves each target of the bundle at `path` to its file.

    The entry for a target is the one with exactly its ID, else the most specific
    compatible one. One entry may serve several targets. All outputs are written or none.

    :raises FormatError: the file is no bundle, or a broken one.
    :raises MissingEntriesError: no entry serves one or more of the targets.
    :raises FileError: a file cannot be read or written.
    """
    if not outputs:
        raise UsageError("no targets to unbundle: give at least one bundle entry ID")
    with InputFile(path) as source:
        bundle = read_bundle(source.data, path=path)
        candidates = [BundleEntryID.read(entry.id) for entry in bundle.entries]
        chosen = {target: best_match(candidates, target) for target in outputs}
        missing = [str(target) for target, index in chosen.items() if index is None]
        if missing:
            raise MissingEntriesError(path, missing, [entry.id for entry in bundle.entries])
        with replace_all(list(outputs.values())) as files:
            for index, file in zip(chosen.values(), files, strict=True):
                assert index is not None  # noqa: S101 - the missing were refused above
                entry = bundle.entries[index]
                file.copy(source, bundle.offset + entry.offset, entry.size)
