"""The binary bundle: a table, then the code objects of one source.

::

    offset  size          field
    ------  ------------  ---------------------------------------------------------
    0       24            magic, ``__CLANG_OFFLOAD_BUNDLE__``
    24      8             number of bundle entries N
    32      24 + length   for each entry: code object offset (8), code object size (8),
                          bundle entry ID length (8), bundle entry ID (no NUL)
    ...                   zeros up to a multiple of the alignment, then a code object;
                          N times, in the order of the table; nothing after the last

Integers are little-endian and unsigned; offsets count from the beginning of the bundle.

Source: the ClangOffloadBundler documentation ("Bundled Binary File Layout"); padding as
clang-offload-bundler 22.1.8 writes it: an empty code object is aligned too, so a bundle
whose last entry is empty ends in padding.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Sequence
from operator import itemgetter

from offload_tool.errors import FormatError, UsageError
from offload_tool.formats.magic import BUNDLE as MAGIC
from offload_tool.formats.magic import aligned
from offload_tool.io import StrPath
from offload_tool.io.write_plan import FilePlan, Part, part_size
from offload_tool.util.frozen import frozen

_COUNT = struct.Struct("<Q")
_ENTRY = struct.Struct("<QQQ")
_HEADER_SIZE = len(MAGIC) + _COUNT.size
_FAT_BINARY = 4096
_MOST = (1 << 63) - 1  # bytes of a file
_ALIGNMENTS = (_FAT_BINARY, *(1 << power for power in range(21)))


@frozen
class BundleEntry:
    """An entry of a bundle: its target, and the range of its code object or text."""

    id: str
    """Bundle entry ID as stored (bytes that are not UTF-8 become surrogates)."""
    offset: int
    """Bytes from the beginning of the bundle, which in the text layout is the file's."""
    size: int
    """Bytes; may be 0 (the host entry of a fat binary)."""


@frozen
class Bundle:
    """The table of a bundle; the code objects stay in place."""

    entries: tuple[BundleEntry, ...]
    offset: int
    """Start of the bundle in the data it was read from, in bytes."""
    size: int
    """Bytes from the magic to the end of the last code object."""

    def image(self, data: memoryview, entry: BundleEntry) -> memoryview:
        """Return the code object of `entry` as a slice of `data`, which contains the bundle."""
        start = self.offset + entry.offset
        return data[start : start + entry.size]


def plan_bundle(items: Iterable[tuple[str, Part]], alignment: int = 1) -> FilePlan:
    """Return a plan of the bundle of (bundle entry ID, content) items; raise UsageError."""
    rows = list(items)
    header, offsets = _layout([(name, part_size(content)) for name, content in rows], alignment)
    parts: list[Part | int] = [header]
    end = len(header)
    for offset, (_, content) in zip(offsets, rows, strict=True):
        parts += (offset - end, content)
        end = offset + part_size(content)
    return FilePlan.of(parts)


def _layout(rows: Sequence[tuple[str, int]], alignment: int) -> tuple[bytes, list[int]]:
    """Return header and code object offsets of a bundle of (bundle entry ID, size) rows."""
    table = [(name, name.encode("utf-8", "surrogateescape"), size) for name, size in rows]
    if alignment < 1:
        raise UsageError(f"bundle alignment must be at least 1, not {alignment}")
    if not table:
        raise UsageError("a bundle needs at least one entry")
    name, count = Counter(name for name, _, _ in table).most_common(1)[0]
    if count > 1:
        raise UsageError(f"{count} entries have the bundle entry ID '{name}'; each must differ")

    position = _HEADER_SIZE + sum(_ENTRY.size + len(raw) for _, raw, _ in table)
    header = bytearray(MAGIC + _COUNT.pack(len(table)))
    offsets = []
    for _, raw, size in table:
        position = aligned(position, alignment)
        if position + size > _MOST:
            raise UsageError(
                f"bundle alignment {alignment}: a bundle of entries so far apart would exceed "
                f"{_MOST} bytes, the most of a file; give a smaller alignment"
            )
        header += _ENTRY.pack(position, size, len(raw)) + raw
        offsets.append(position)
        position += size
    return bytes(header), offsets


def find_alignment(bundles: Sequence[Bundle]) -> int:
    """Return the alignment, in bytes, with which all of `bundles` may have been written.

    The table does not record it, and several alignments can give the same layout. 4096, the
    alignment of fat binaries, has priority, then the smallest (clang-offload-bundler's default is
    1). If no alignment gives the layouts, the result is one that divides all offsets.
    """
    for alignment in _ALIGNMENTS:
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
    _, offsets = _layout(rows, alignment)
    return offsets == [entry.offset for entry in bundle.entries]


def read_bundle(data: memoryview, offset: int = 0, *, path: StrPath | None = None) -> Bundle:
    """Read the table of the bundle at `offset` of `data`; messages name `path`.

    :raises FormatError: the table is broken.
    """
    return _TableReader(data, offset, path, len(data)).read()


def read_partial_bundle(
    begin: memoryview, size: int, *, path: StrPath | None = None
) -> Bundle | None:
    """Read the table of a bundle of `size` bytes from its `begin`; None if the table is longer."""
    try:
        return _TableReader(begin, 0, path, size).read()
    except _PartialTableError:
        return None


class TableForm:
    """The table form of one bundle, for reading others with the same IDs in one step."""

    def __init__(self, ids: Sequence[str]) -> None:
        raw = [name.encode("utf-8", "surrogateescape") for name in ids]
        rows = "".join(f"QQQ{len(name)}s" for name in raw)
        self._layout = struct.Struct(f"<{len(MAGIC)}sQ{rows}")
        self._rows = range(2, 2 + 4 * len(raw), 4)
        """Index of each entry's first field."""
        known: dict[int, bytes | int] = {0: MAGIC, 1: len(raw)}
        for index, name in zip(self._rows, raw, strict=True):
            known |= {index + 2: len(name), index + 3: name}
        self._known_of = itemgetter(*known)
        self._known = tuple(known.values())

    def read(self, data: memoryview, start: int, end: int) -> list[tuple[int, int]] | None:
        """Return position and size of each code object of the bundle from `start` to `end`.

        None: its table has another form, is broken, or does not cover exactly these bytes.
        """
        room, least = end - start, self._layout.size
        if room < least:
            return None
        fields = self._layout.unpack_from(data, start)
        if self._known_of(fields) != self._known:
            return None
        last = least
        found = []
        for index in self._rows:
            offset, size = fields[index], fields[index + 1]
            if size and offset < least:
                return None
            if offset + size > last:
                last = offset + size
            found.append((start + offset, size))
        return found if last == room else None


class _PartialTableError(Exception):
    """The table extends beyond the bytes at hand."""


class _TableReader:
    def __init__(self, data: memoryview, offset: int, path: StrPath | None, room: int) -> None:
        self.data = data
        self.offset = offset
        self.path = path
        self.room = room
        self.position = offset

    def read(self) -> Bundle:
        magic = bytes(self._take(len(MAGIC), "magic"))
        if magic != MAGIC:
            message = f"expected {MAGIC.decode()!r}, found {magic[:24]!r}"
            raise self._error(self.offset, "magic", message)
        start = self.position
        (count,) = _COUNT.unpack(self._take(_COUNT.size, "number of bundle entries"))
        room = (self.room - self.position) // _ENTRY.size
        if count > room:
            message = f"expected at most {room} (what fits in the file), found {count}"
            raise self._error(start, "number of bundle entries", message)
        entries = [self._read_entry(index) for index in range(1, count + 1)]
        header_size = self.position - self.offset
        for index, entry in enumerate(entries, 1):
            if entry.size and entry.offset < header_size:
                message = f"expected at least {header_size} (the end of the table), found "
                field = f"code object offset of entry {index}"
                raise self._error(self.offset, field, f"{message}{entry.offset}")
        end = max((entry.offset + entry.size for entry in entries), default=header_size)
        return Bundle(tuple(entries), self.offset, max(end, header_size))

    def _read_entry(self, index: int) -> BundleEntry:
        start = self.position
        offset, size, length = _ENTRY.unpack(self._take(_ENTRY.size, f"entry {index}"))
        raw = bytes(self._take(length, f"bundle entry ID of entry {index}"))
        available = self.room - self.offset
        if offset > available or size > available - offset:
            message = f"expected a code object within {available} bytes, found offset {offset} "
            message += f"and size {size}; the file may be cut short"
            raise self._error(start, f"entry {index} ({raw.decode('utf-8', 'replace')!r})", message)
        return BundleEntry(raw.decode("utf-8", "surrogateescape"), offset, size)

    def _take(self, size: int, field: str) -> memoryview:
        available = self.room - self.position
        if size > available:
            message = f"expected {size} bytes, found {max(available, 0)}; the file may be cut short"
            raise self._error(self.position, field, message)
        if self.position + size > len(self.data):
            raise _PartialTableError
        self.position += size
        return self.data[self.position - size : self.position]

    def _error(self, offset: int, field: str, message: str) -> FormatError:
        return FormatError(message, path=self.path, offset=offset, field=field)
