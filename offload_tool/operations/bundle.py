"""Bundle files of one source into one file, in every layout and compressed.

The same bytes as clang-offload-bundler 22.1.8 writes, in-process; the payload of a
compressed bundle is another one, that LLVM reads as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from offload_tool.containers.open_bundle import DEFAULT_FILE_TYPE, check_file_type, open_bundle
from offload_tool.errors import NoContainerError, UsageError
from offload_tool.formats.bundle.binary import plan_bundle
from offload_tool.formats.bundle.text import COMMENT_MARKS, check_text_content, plan_text_bundle
from offload_tool.formats.target.bundle_entry_id import (
    BundleEntryID,
    OffloadKind,
    check_composition,
)
from offload_tool.io import FileRange, InputFile, OutputFile, StrPath, replace_file
from offload_tool.util.frozen import frozen

if TYPE_CHECKING:
    from offload_tool.formats.bundle.compressed import CompressionReport
    from offload_tool.formats.codec import Method
    from offload_tool.io.write_plan import FilePlan


@frozen
class Compression:
    """How a bundle is compressed."""

    method: Method = "zstd"
    """``zstd`` or ``zlib``."""
    level: int | None = None
    """None: the method's default (zstd 3)."""
    version: int = 3
    """Of the header: 3, or 2 for older readers and less than 4 GiB."""


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

    None for a file is an empty code object, as a fat binary's host entry is. `file_type`
    is one of clang-offload-bundler's: text (``ii``, ``s``, ...), ``bc`` for the binary
    layout, ``o`` for sections in the host's object file where there is one, else the binary
    layout. `alignment` (bytes) and `compression` do not matter to sections; `warn` is called
    where a compression is given for them. With `keep_equal`, a file that already has the very
    bytes is left untouched. Memory does not grow with the files' sizes: their bytes are copied
    inside the kernel, or streamed to be compressed.

    :raises EntryIDError: equal IDs, or a feature set in one entry and Any in another.
    :raises UsageError: no items, an unknown file type, an alignment below 1, or a host of
        an object format that cannot take sections.
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
    """Do what `bundle_files` does, for IDs whose composition the caller has checked."""
    if not items:
        raise UsageError("a bundle needs at least one entry")
    with ExitStack() as stack:
        contents = [_Item(entry_id, stack.enter_context(_open(path))) for entry_id, path in items]
        check_file_type(file_type)
        host = _object_host(contents) if file_type == "o" else None
        if host is not None:
            if compression is not None and warn is not None:
                warn("no compression: the code objects are sections of the host's object file")
            with replace_file(output, keep_equal=keep_equal) as out:
                _write_object(out, contents, host)
            return None
        if file_type in COMMENT_MARKS:
            plan = _text_bundle(contents, COMMENT_MARKS[file_type])
        else:
            plan = _binary_bundle(contents, alignment)
        with replace_file(output, keep_equal=keep_equal) as out:
            if compression is not None:
                return compress_plan(out, plan, compression)
            plan.write_to(out)
    return None


@frozen
class _Item:
    id: BundleEntryID
    content: InputFile

    @property
    def range(self) -> FileRange:
        return self.content.range(0, len(self.content))


def _open(path: StrPath | None) -> InputFile:
    return InputFile.from_data("empty", memoryview(b"")) if path is None else InputFile(path)


def _binary_bundle(items: Sequence[_Item], alignment: int) -> FilePlan:
    layout = plan_bundle(((str(item.id), len(item.content)) for item in items), alignment)
    return layout.plan(item.range for item in items)


def _text_bundle(items: Sequence[_Item], comment: str) -> FilePlan:
    for item in items:
        check_text_content(item.content.data, comment, path=item.content.path)
    return plan_text_bundle(((str(item.id), item.range) for item in items), comment)


def _object_host(items: Sequence[_Item]) -> _Item | None:
    """Return the item whose object file takes the others as sections, if there is one.

    Without a host entry the binary layout is used, whatever the code objects are.
    """
    host = next((item for item in items if item.id.kind == OffloadKind.HOST), None)
    if host is None or not len(host.content):
        return None
    from offload_tool.formats.bundle.object_file import is_object_file  # see opening

    return host if is_object_file(host.content.data) else None


def _write_object(out: OutputFile, items: Sequence[_Item], host: _Item) -> None:
    from offload_tool.formats.bundle.object_file import HOST_MARKER, plan_object_bundle

    contents: list[InputFile | bytes] = [
        HOST_MARKER if item is host else item.content for item in items
    ]
    sizes = [(str(item.id), len(data)) for item, data in zip(items, contents, strict=True)]
    plan = plan_object_bundle(host.content.data, sizes, path=host.content.path)
    plan.bound(host.content, contents).write_to(out)


def compress_plan(out: OutputFile, plan: FilePlan, compression: Compression) -> CompressionReport:
    """Append the bundle of a plan, compressed."""
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
    """Write the one bundle in `path`, plain or compressed, to `output`.

    The entries keep their IDs, order and bytes. `alignment` (bytes) is that of each entry;
    without `compression`, the result is plain. With `keep_equal`, a file that already has the
    very bytes is left untouched.

    :raises NoContainerError: the file is no bundle of the binary layout.
    :raises UsageError: several bundles stand in it, or an alignment below 1.
    :raises FormatError: a broken bundle.
    :raises UnsupportedError: a version that is not read, or too large for version 2.
    :raises FileError: a file cannot be read or written.
    """
    with InputFile(path) as source:
        opened = open_bundle(source, "bc")
        if not opened.entries:
            raise NoContainerError(
                "expected a bundle of the binary layout, plain or compressed; 'offload-tool list' "
                "says what is in the file",
                path=source.path,
            )
        if len(opened.containers) > 1:
            raise UsageError(
                f"'{source.path}': {len(opened.containers)} bundles, of which each would need a "
                "file of its own; 'offload-tool extract' takes them apart"
            )
        entries = opened.entries
        layout = plan_bundle([(entry.id, entry.size) for entry in entries], alignment)
        plan = layout.plan(opened.content.range(entry.offset, entry.size) for entry in entries)
        with replace_file(output, keep_equal=keep_equal) as out:
            if compression is None:
                plan.write_to(out)
                return
            compress_plan(out, plan, compression)
