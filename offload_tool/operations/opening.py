"""Open a bundle of any layout, compressed or not, one or several in a file.

What is found depends on the file type, as clang-offload-bundler 22.1.8 does it:

    text types          the entries between comment markers
    bc, gch, ast        the binary layout; a file without its magic has no entries
    o                   sections of an object file, else the binary layout

Modules for object files and for compression are imported where they are used: most runs
need neither, and start in half the time without.

Each may be compressed as a whole. In the binary layout several bundles may follow each
other, with zeros between (what a linker makes of several ``.hip_fatbin`` sections); each
is bounded by its own sizes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from offload_tool.errors import FormatError, UsageError
from offload_tool.files import InputFile
from offload_tool.formats.bundle import is_bundle, read_bundle
from offload_tool.formats.text_bundle import COMMENT_MARKS, read_text_bundle

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from offload_tool.files import OutputFile
    from offload_tool.formats.compressed_bundle import CompressionReport

__all__ = [
    "BINARY_TYPES",
    "FILE_TYPES",
    "Container",
    "OpenedBundle",
    "StoredEntry",
    "check_file_type",
    "open_bundle",
]

BINARY_TYPES = ("bc", "gch", "ast")
FILE_TYPES = (*COMMENT_MARKS, *BINARY_TYPES, "o")
"""The file types that can be bundled; ``a`` can only be unbundled."""

_NOT_ZERO = re.compile(rb"[^\0]")
_COMPRESSED = b"CCOB"  # the magic of `compressed_bundle`, which is imported only for those
_SMALLEST_COMPRESSED = 8  # bytes; LLVM takes a shorter file for no compressed bundle


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """An entry of an opened bundle, and where its content is."""

    id: str
    """Bundle entry ID as stored."""
    source: InputFile
    offset: int
    """Bytes from the beginning of `source`."""
    size: int
    is_host_object: bool = False
    """The content is all of `source`, an object file, without the bundle's sections."""
    is_decompressed: bool = False
    """`source` is not a part of the file itself."""

    def write_to(self, out: OutputFile) -> None:
        """Append the content to `out`.

        :raises FormatError: the host object cannot be separated from the bundle.
        """
        if self.is_host_object:
            from offload_tool.formats.file_plan import write_plan
            from offload_tool.formats.object_bundle import plan_host

            plan = plan_host(self.source.data, path=self.source.path)
            write_plan(out, plan, self.source)
        else:
            out.reserve(self.size)
            out.copy(self.source, self.offset, self.size)


@dataclass(frozen=True, slots=True)
class Container:
    """One bundle of a file: its entries in file order, and how it was decompressed."""

    entries: tuple[StoredEntry, ...]
    report: CompressionReport | None = None
    """None where the bundle is not compressed."""


@dataclass(frozen=True, slots=True)
class OpenedBundle:
    """All bundles of a file, in file order."""

    content: InputFile
    """The whole file; what it decompresses to where it is one compressed bundle."""
    containers: tuple[Container, ...]

    @property
    def entries(self) -> list[StoredEntry]:
        """The entries of all bundles."""
        return [entry for container in self.containers for entry in container.entries]


def check_file_type(file_type: str) -> None:
    """Refuse what is not in `FILE_TYPES`.

    :raises UsageError: with LLVM's message.
    """
    if file_type not in FILE_TYPES:
        raise UsageError(f"'{file_type}': invalid file type specified")


def open_bundle(
    source: InputFile,
    file_type: str,
    *,
    start: int = 0,
    wanted: Callable[[str], bool] | None = None,
) -> OpenedBundle:
    """Find the entries of `source` from `start` on; it must stay open while they are used.

    `wanted` says which IDs are to be unbundled; without it all are listed (see
    `read_text_bundle`). A file that is no bundle has no entries.

    :raises FormatError: it is a broken bundle.
    """
    containers: list[Container] = []
    contents: list[InputFile] = []
    position: int | None = start
    while position is not None:
        if _is_compressed(source.data, position):
            content, report = _decompress(source, position)
            entries, _ = _read_plain(content, 0, file_type, wanted)
            end = report.end
        else:
            content, report = source, None
            entries, end = _read_plain(source, position, file_type, wanted)
            if end == position:  # no bundle
                _check_rest(source, position, containers)
                break
        if report is not None:
            entries = [replace(entry, is_decompressed=True) for entry in entries]
        containers.append(Container(tuple(entries), report))
        contents.append(content)
        position = _next_content(source.data, end)
    return OpenedBundle(contents[0] if len(contents) == 1 else source, tuple(containers))


def _read_plain(
    source: InputFile, position: int, file_type: str, wanted: Callable[[str], bool] | None
) -> tuple[list[StoredEntry], int]:
    """Read the uncompressed bundle at `position`; give its entries and where it ends."""
    if file_type in COMMENT_MARKS:
        return _text_entries(source, file_type, wanted), len(source)
    if not is_bundle(source.data, position):
        entries = None
        if file_type == "o" and position == 0:
            entries = _object_entries(source, unbundling=wanted is not None)
        return ([], position) if entries is None else (entries, len(source))
    bundle = read_bundle(source.data, position, path=source.path)
    # Of equal IDs in one bundle, LLVM takes the last, at the place of the first.
    rows = {entry.id: entry for entry in bundle.entries}
    entries = [
        StoredEntry(entry.id, source, position + entry.offset, entry.size)
        for entry in rows.values()
    ]
    return entries, position + bundle.size


def _text_entries(
    source: InputFile, file_type: str, wanted: Callable[[str], bool] | None
) -> list[StoredEntry]:
    comment = COMMENT_MARKS[file_type]
    found = read_text_bundle(source.data, comment, wanted=wanted, path=source.path)
    return [StoredEntry(entry.id, source, entry.offset, entry.size) for entry in found]


def _object_entries(source: InputFile, *, unbundling: bool) -> list[StoredEntry] | None:
    """Read an object bundle; None if the file is no object file."""
    from offload_tool.formats.object_bundle import (
        is_object_file,
        read_object_bundle,
        refuse_merged,
    )

    if is_object_file(source.data) is None:
        return None
    found = read_object_bundle(source.data, path=source.path)
    if unbundling:
        refuse_merged(found, path=source.path)
    return [
        StoredEntry(entry.id, source, entry.offset, entry.size, entry.is_host_marker)
        for entry in found
    ]


def _decompress(source: InputFile, position: int) -> tuple[InputFile, CompressionReport]:
    from offload_tool.formats.compressed_bundle import read_compressed_header
    from offload_tool.formats.decompression import decompress

    header = read_compressed_header(source.data, position, path=source.path)
    unpacked = decompress(source.data, header, path=source.path)
    return InputFile.from_data(source.path, unpacked.data), unpacked.report


def _check_rest(source: InputFile, position: int, containers: Sequence[Container]) -> None:
    """Accept bytes after uncompressed bundles, as LLVM does; nothing follows a compressed one."""
    if containers and containers[-1].report is not None:
        found = bytes(source.data[position : position + 8])
        message = f"expected zeros or another bundle after a compressed one, found {found!r}"
        raise FormatError(message, path=source.path, offset=position)


def _next_content(data: memoryview, position: int) -> int | None:
    found = _NOT_ZERO.search(data, position)
    return None if found is None else found.start()


def _is_compressed(data: memoryview, position: int) -> bool:
    found = data[position : position + _SMALLEST_COMPRESSED]
    return len(found) == _SMALLEST_COMPRESSED and found[: len(_COMPRESSED)] == _COMPRESSED
