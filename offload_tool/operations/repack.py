"""Write a bundle anew with another compression, version or alignment; its entries stay.

Which targets are in it need not be known. Source of the use: runtimes older than ROCm 6.3 read
version 2 of compressed bundles alone, and clang 22 writes version 3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from offload_tool.containers.open_bundle import open_bundle
from offload_tool.errors import NoContainerError, UsageError
from offload_tool.formats.bundle.binary import plan_bundle
from offload_tool.io import InputFile, StrPath, replace_file

if TYPE_CHECKING:
    from offload_tool.operations.bundle import Compression


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
            from offload_tool.formats.bundle.compressed import compress_bundle

            chosen = {"version": compression.version, "method": compression.method}
            compress_bundle(out, list(plan.chunks()), level=compression.level, **chosen)  # type: ignore[arg-type] # checked by its class
