"""Bundle files of one source into one file, in every layout, optionally compressed.

The bytes equal those that clang-offload-bundler 22.1.8 writes. Only the payload of a compressed
bundle differs; LLVM reads it as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from offload_tool.containers.entries import DEFAULT_FILE_TYPE, check_file_type, open_bundle
from offload_tool.errors import NoContainerError, UsageError
from offload_tool.formats.bundle.binary import plan_bundle
from offload_tool.formats.bundle.text import COMMENT_MARKS, check_text_content, plan_text_bundle
from offload_tool.formats.targets.bundle_entry_id import (
    BundleEntryID,
    OffloadKind,
    check_composition,
)
from offload_tool.io import InputFile, OutputFile, StrPath, replace_file
from offload_tool.io.write_plan import FilePlan
from offload_tool.util.frozen import frozen

if TYPE_CHECKING:
    from offload_tool.formats.bundle.compressed import CompressionReport
    from offload_tool.formats.codec import Method


@frozen
class Compression:
    """How a bundle is compressed."""

    method: Method = "zstd"
    """``zstd`` or ``zlib``."""
    level: int | None = None
    """None: the method's default (zstd 3)."""
    version: int = 3
    """Header version: 3, or 2 for older readers and less than 4 GiB."""


def bundle_files(
    items: Sequence[tuple[BundleEntryID, StrPath | None]],
    output: StrPath,
    *,
    file_type: str = DEFAULT_FILE_TYPE,
    alignment: int = 1,
    compression: Compression | None = None,
    keep_equal: bool = False,
    warn: Callable[[str], None] | None = None,
) -> CompressionReport | None:
    """Write the bundle of `items`, (bundle entry ID, file) in their order, to `output`.

    A file of None is an empty code object, as in a fat binary's host entry. `file_type` is one of
    clang-offload-bundler's: text (``ii``, ``s``, ...), ``bc`` for the binary layout, or ``o`` for
    sections in the host's object file, with the binary layout if there is none. Sections ignore
    `alignment` (bytes) and `compression`; `warn` is called if a compression is given for them.
    `keep_equal` leaves an equal file untouched. Memory use does not depend on the files' sizes: the
    kernel copies their bytes, or the compressor streams them.

    :raises EntryIDError: equal IDs, or a feature set in one entry and Any in another.
    :raises UsageError: no items, an unknown file type or compression, an alignment that is
        below 1 or too large, or a host of an object format that cannot take sections.
    :raises FormatError: a text that holds bundle markers, or a broken host object.
    :raises FileError: a file cannot be read or written.
    """
    check_composition([entry_id for entry_id, _ in items])
    return write_bundle(
        items,
        output,
        file_type=file_type,
        alignment=alignment,
        compression=compression,
        keep_equal=keep_equal,
        warn=warn,
    )


def write_bundle(
    items: Sequence[tuple[BundleEntryID, StrPath | None]],
    output: StrPath,
    *,
    file_type: str,
    alignment: int = 1,
    compression: Compression | None = None,
    keep_equal: bool = False,
    warn: Callable[[str], None] | None = None,
) -> CompressionReport | None:
    """Write a bundle as `bundle_files` does; the caller has checked the combination of IDs."""
    if not items:
        raise UsageError("a bundle needs at least one entry")
    with ExitStack() as stack:
        contents = [_Item(entry_id, stack.enter_context(_open(path))) for entry_id, path in items]
        check_file_type(file_type)
        host = _object_host(contents) if file_type == "o" else None
        if host is not None:
            if compression is not None and warn is not None:
                warn("no compression: the code objects are sections of the host's object file")
            return _write(_plan_object(contents, host), output, None, keep_equal=keep_equal)
        rows = [(str(item.id), item.content) for item in contents]
        if file_type in COMMENT_MARKS:
            comment = COMMENT_MARKS[file_type]
            for item in contents:
                check_text_content(item.content.data, comment, path=item.content.path)
            plan = plan_text_bundle(rows, comment)
        else:
            plan = plan_bundle(rows, alignment)
        return _write(plan, output, compression, keep_equal=keep_equal)


def _write(
    plan: FilePlan, output: StrPath, compression: Compression | None, *, keep_equal: bool
) -> CompressionReport | None:
    with replace_file(output, keep_equal=keep_equal) as out:
        if compression is not None:
            return compress_plan(out, plan, compression)
        plan.write_to(out)
    return None


@frozen
class _Item:
    id: BundleEntryID
    content: InputFile


def _open(path: StrPath | None) -> InputFile:
    return InputFile.from_data("empty", memoryview(b"")) if path is None else InputFile(path)


def _object_host(items: Sequence[_Item]) -> _Item | None:
    """Return the item whose object receives the others as sections; None without a host entry."""
    host = next((item for item in items if item.id.kind == OffloadKind.HOST), None)
    if host is None or not len(host.content):
        return None
    from offload_tool.formats.bundle.object_file import is_object_file  # see opening

    return host if is_object_file(host.content.data) else None


def _plan_object(items: Sequence[_Item], host: _Item) -> FilePlan:
    from offload_tool.formats.bundle.object_file import HOST_MARKER, plan_object_bundle

    rows = [(str(item.id), HOST_MARKER if item is host else item.content) for item in items]
    plan = plan_object_bundle(host.content.data, rows, path=host.content.path)
    return plan.bound(host.content)


def compress_plan(out: OutputFile, plan: FilePlan, compression: Compression) -> CompressionReport:
    """Compress the bundle of a plan and append it."""
    from offload_tool.formats.bundle.compressed import compress_bundle

    return compress_bundle(
        out,
        list(plan.chunks()),
        version=compression.version,
        method=compression.method,
        level=compression.level,
    )


def repack_bundle(
    path: StrPath,
    output: StrPath,
    *,
    compression: Compression | None = None,
    alignment: int = 4096,
    keep_equal: bool = False,
) -> None:
    """Write the single bundle in `path`, plain or compressed, to `output`.

    The entries keep their IDs, order and bytes. `alignment` (bytes) applies to each entry; without
    `compression`, the result is plain. `keep_equal` leaves an equal file untouched.

    :raises NoContainerError: the file is not a bundle of the binary layout.
    :raises UsageError: the file holds several bundles, or an alignment is below 1.
    :raises UnsupportedError: the version is unknown, or the bundle is too large for version 2.
    :raises FormatError, FileError: a file is broken, or cannot be read or written.
    """
    with InputFile(path) as source:
        opened = open_bundle(source, "bc")
        if not opened.entries:
            raise NoContainerError(
                "expected a bundle of the binary layout, plain or compressed; 'offload-tool list' "
                "says what is in the file",
                path=source.path,
            )
        if len(opened.reports) > 1:
            raise UsageError(
                f"'{source.path}': {len(opened.reports)} bundles, of which each would need a "
                "file of its own; 'offload-tool extract' takes them apart"
            )
        rows = ((row.id, opened.content.range(row.offset, row.size)) for row in opened.entries)
        _write(plan_bundle(rows, alignment), output, compression, keep_equal=keep_equal)
