"""ROCm's kpack archive: the code objects of many libraries, separate from their host code.

Version 1, all numbers little-endian::

    0     "KPAK"
    4     u32 version, 1
    8     u64 offset of the table of contents
    16    zeros up to 64
    64    the consecutive code objects: unchanged (scheme "none"), or
            u32 count, then for each u32 size and one zstd frame (scheme "zstd-per-kernel")
    end   the table of contents, a MessagePack map up to the end of the file:
            format_version     1
            group_name         a project, for example: the archive is GROUP_TARGET.kpack
            gfx_arch_family    nowadays the only target ID
            gfx_arches         array of target IDs; readers ignore others
            toc                map: kernel key -> map: target ID -> map
              type               "hsaco"
              ordinal            index of the code object, from 0; entries may share one
              original_size      bytes, decompressed
              metadata           a map, optional, which no reader uses
            compression_scheme "none" or "zstd-per-kernel"
            blobs              of "none": array of maps, offset (in the file) and size
            zstd_offset,       of "zstd-per-kernel": offset of the count, and bytes from there
            zstd_size

The runtime finds archive and key through the marker in a host program, see `marker`. It reads
"none" piecewise, and keeps all of "zstd-per-kernel" in memory.

AMD's two readers, which differ, are the only specification. This module reads the same archives as
the C++ reader, with two exceptions. It rejects an unknown scheme (AMD: "none") and two frames
instead of one (AMD's Python reader uses the first). It writes archives for both readers, with the
bytes of AMD's own writer if all code objects differ; equal ones are stored once. Source:
ROCm/rocm-kpack, observed.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from offload_tool.errors import ContentError, FormatError, UnsupportedError, UsageError
from offload_tool.formats.magic import KPACK
from offload_tool.formats.msgpack_stream import MessagePackReader, check_text, messagepack, reading
from offload_tool.io import FileRange, InputFile, OutputFile, StrPath
from offload_tool.io.limits import effective_budget
from offload_tool.io.spool import Spool, seekable
from offload_tool.io.write_plan import FilePlan

SUFFIX = ".kpack"
FOLDER = ".kpack"
"""Folder of the archives in a tree."""
NONE, ZSTD = SCHEMES = ("none", "zstd-per-kernel")
_HEADER = struct.Struct("<4sIQ")
_DATA = 64  # offset of the code objects
_VERSION = 1
_MIN_ENTRY = 8  # smallest entry with its key, in bytes
_COUNT = struct.Struct("<I")
_MAX_FRAMES = 1 << 20  # the runtime rejects more
_MAX_DATA = 1 << 32  # bytes of all frames; the runtime rejects more
_MAX_NUMBER = (1 << 64) - 1
_LEVEL = 3
_MAX_IN_MEMORY = 64 << 20
"""Largest code object that is compressed in one step, as by AMD's writer, in bytes."""
_CHUNK = 4 << 20


class KpackImage(NamedTuple):
    """A code object for one key and one target ID.

    Offset and sizes, stored and decompressed, are in bytes; `is_compressed` ones are zstd frames.
    """

    key: str
    target_id: str
    offset: int
    stored_size: int
    size: int
    metadata: bytes
    """MessagePack; empty if there is none."""
    is_compressed: bool


class KpackArchive(NamedTuple):
    """The content of an archive: group, scheme (one of `SCHEMES`), and images in table order."""

    group: str
    target_ids: tuple[str, ...]
    """Target IDs that the archive lists; runtimes find no others."""
    scheme: str
    images: tuple[KpackImage, ...]
    unknown: tuple[str, ...]

    def check_known(self, path: StrPath) -> None:
        """Raise UnsupportedError if the table has unknown keys, which a rewrite would lose."""
        if self.unknown:
            message = f"its table has {self.unknown[0]!r}, whose meaning is unknown"
            raise UnsupportedError(f"cannot be written anew: {message}", path=path)


def kernel_key(kernel_name: str, index: int = 0) -> str:
    """Return the key under which a runtime looks up a wrapper's code object."""
    return f"{kernel_name}#{index}"


def archive_name(group: str, target_id: str) -> str:
    """Return the usual name of an archive for one group and one target ID."""
    return f"{group}_{target_id}{SUFFIX}"


# -- reading ---------------------------------------------------------------------------


def read_kpack(data: memoryview, *, path: StrPath | None = None) -> KpackArchive:
    """Read and check the table of contents of an archive; raise ContentError or UsageError."""
    return _KpackReader(data, path).read()


def unpacked_kpack_image(
    data: memoryview, image: KpackImage, *, path: StrPath | None = None
) -> memoryview:
    """Return a code object, mapped or decompressed; raise FormatError or LimitError."""
    end = image.offset + image.stored_size
    if not image.is_compressed:
        return data[image.offset : end]
    from offload_tool.formats.bundle.compressed import decompress_range

    def size_error(expected: str) -> FormatError:
        message = f"expected {expected}, found {image.size}"
        field = f"original_size of {image.key} for {image.target_id}"
        return FormatError(message, path=path, offset=image.offset, field=field)

    return decompress_range(
        data, image.offset, end, image.size, method="zstd", size_error=size_error, path=path
    )


class _TableEntry(NamedTuple):
    key: str
    target_id: str
    ordinal: int
    original_size: int | None
    metadata: bytes


class _KpackReader:
    def __init__(self, data: memoryview, path: StrPath | None) -> None:
        self.data = data
        self.path = path
        self.toc = 0
        self.entries: list[_TableEntry] = []
        self.unknown: list[str] = []
        self.texts = {"group_name": "", "gfx_arch_family": "", "compression_scheme": NONE}
        self.numbers: dict[str, int] = {}
        self.target_ids: tuple[str, ...] = ()
        self.blobs: list[tuple[int, int]] | None = None

    def read(self) -> KpackArchive:
        self.toc = self._table_offset()
        seen: set[str] = set()
        with reading(self.data[self.toc :], self._refusal) as reader:
            for key in reader.map_keys("the map of the table", "a key of the table"):
                if key in seen:
                    raise self._refusal(f"the key {key!r} is there twice")
                seen.add(key)
                self._read_value(reader, key)
            at = self.toc + reader.position
        if at != len(self.data):
            message = f"expected the end of the file behind the table, found {len(self.data) - at} "
            raise self._error(message + "bytes more; AMD's two readers differ here", at, "toc")
        images = tuple(self._images())
        group, _, scheme = self.texts.values()
        return KpackArchive(group, self.target_ids, scheme, images, tuple(self.unknown))

    def _table_offset(self) -> int:
        if len(self.data) < _HEADER.size:
            message = f"expected {_HEADER.size} bytes of header, found {len(self.data)}"
            raise self._error(message, 0, "header")
        magic, version, toc = _HEADER.unpack_from(self.data)
        if magic != KPACK:
            raise self._error(f"expected {KPACK!r}, found {magic!r}", 0, "magic")
        if version != _VERSION:
            message = f"expected version {_VERSION} of a kpack archive, found {version}"
            raise UnsupportedError(message, path=self.path, offset=4, field="version")
        if not _HEADER.size <= toc < len(self.data):
            message = f"expected {_HEADER.size} to {len(self.data) - 1}, found {toc}; the file may "
            raise self._error(message + "be cut short", 8, "offset of the table of contents")
        return int(toc)

    def _read_value(self, reader: MessagePackReader, key: str) -> None:
        if key in self.texts:
            self.texts[key] = reader.string(f"a string for {key}")
        elif key == "gfx_arches":
            count = reader.array_size("an array for gfx_arches")
            self.target_ids = tuple(reader.string("a target ID") for _ in range(count))
        elif key == "toc":
            self._read_entries(reader)
        elif key == "blobs":
            self.blobs = list(self._read_blobs(reader))
        elif key in ("zstd_offset", "zstd_size"):
            self.numbers[key] = reader.number(key, _MAX_NUMBER)
        else:
            if key != "format_version":
                self.unknown.append(key)
            reader.skip()

    def _images(self) -> Iterator[KpackImage]:
        scheme = self.texts["compression_scheme"]
        if scheme == NONE:
            return self._plain(self.blobs)
        if scheme == ZSTD:
            return self._compressed(self.numbers)
        message = f"expected {NONE} or {ZSTD}, found {scheme!r}"
        field = "compression_scheme"
        raise UnsupportedError(message, path=self.path, offset=self.toc, field=field)

    def _read_entries(self, reader: MessagePackReader) -> None:
        keys: set[str] = set()
        count = reader.map_size("a map for toc")
        size = len(self.data)
        effective_budget(size).check_members(min(count, size // _MIN_ENTRY), self.path)
        for _ in range(count):
            key = reader.string("a kernel key")
            if key in keys:
                raise self._refusal(f"the kernel key {key!r} is there twice")
            keys.add(key)
            targets: set[str] = set()
            for target_id in reader.map_keys(f"a map for {key!r}", f"a target ID of {key!r}"):
                if target_id in targets:
                    raise self._refusal(f"{key!r} is there twice for {target_id}")
                targets.add(target_id)
                self.entries.append(self._read_entry(reader, key, target_id))

    def _read_entry(self, reader: MessagePackReader, key: str, target_id: str) -> _TableEntry:
        numbers: dict[str, int] = {}
        metadata = b""
        for field in reader.map_keys(f"a map for {key!r} and {target_id}", "a key"):
            if field in ("ordinal", "original_size"):
                numbers[field] = reader.number(f"{field} of {key!r} for {target_id}", _MAX_NUMBER)
            elif field == "metadata":
                metadata = bytes(reader.skip())
            else:
                reader.skip()
        if "ordinal" not in numbers:
            raise self._refusal(f"{key!r} has no ordinal for {target_id}")
        size = numbers.get("original_size")
        return _TableEntry(key, target_id, numbers["ordinal"], size, metadata)

    def _read_blobs(self, reader: MessagePackReader) -> Iterator[tuple[int, int]]:
        for number in range(reader.array_size("an array for blobs")):
            found: dict[str, int] = {}
            for key in reader.map_keys(f"a map for blob {number}", "a key"):
                if key in ("offset", "size"):
                    found[key] = reader.number(f"{key} of blob {number}", _MAX_NUMBER)
                else:
                    reader.skip()
            if len(found) < 2:
                raise self._refusal(f"blob {number} has no {'size' if found else 'offset'}")
            yield found["offset"], found["size"]

    # -- where the images are

    def _plain(self, blobs: list[tuple[int, int]] | None) -> Iterator[KpackImage]:
        if self.entries and blobs is None:
            raise self._refusal(f"there are no blobs, which the scheme {NONE} has")
        for entry in self.entries:
            offset, size = self._location(entry, blobs or [])
            if offset + size > len(self.data):
                message = f"claims bytes {offset} to {offset + size}, but the file has "
                message += f"{len(self.data)}; it may be cut short"
                raise self._error(message, self.toc, f"blob {entry.ordinal}")
            if entry.original_size not in (None, size):
                raise self._size_error(entry, f"{size} (the size of blob {entry.ordinal})", offset)
            yield KpackImage(*entry[:2], offset, size, size, entry.metadata, is_compressed=False)

    def _compressed(self, numbers: dict[str, int]) -> Iterator[KpackImage]:
        if not self.entries and not numbers:
            return
        frames = self._frames(numbers)
        sizes: dict[int, int] = {}
        for entry in self.entries:
            offset, size = self._location(entry, frames)
            if entry.ordinal not in sizes:
                sizes[entry.ordinal] = self._frame_size(entry, offset, offset + size)
            unpacked = sizes[entry.ordinal]
            if entry.original_size != unpacked:
                expected = f"{unpacked} (what the frame holds)"
                raise self._size_error(entry, expected, offset)
            yield KpackImage(*entry[:2], offset, size, unpacked, entry.metadata, is_compressed=True)

    def _frames(self, numbers: dict[str, int]) -> list[tuple[int, int]]:
        for key in ("zstd_offset", "zstd_size"):
            if key not in numbers:
                raise self._refusal(f"there is no {key}, which the scheme {ZSTD} has")
        start, size = numbers["zstd_offset"], numbers["zstd_size"]
        end = start + size
        if not _COUNT.size <= size <= _MAX_DATA:
            message = f"expected {_COUNT.size} to {_MAX_DATA}, found {size}"
            raise self._error(message, self.toc, "zstd_size")
        if end > len(self.data):
            message = f"claims bytes {start} to {end}, but the file has {len(self.data)}; it may "
            raise self._error(message + "be cut short", self.toc, "zstd_size")
        (count,) = _COUNT.unpack_from(self.data, start)
        if count > _MAX_FRAMES:
            message = f"expected at most {_MAX_FRAMES} frames, found {count}"
            raise self._error(message, start, "count of frames")
        found: list[tuple[int, int]] = []
        at = start + _COUNT.size
        for number in range(count):
            if at + _COUNT.size > end:
                message = f"expected {count} frames up to byte {end}, found {number}"
                raise self._error(message, at, "zstd frames")
            (length,) = _COUNT.unpack_from(self.data, at)
            at += _COUNT.size
            if at + length > end:
                message = f"claims bytes {at} to {at + length}, beyond the last frame's end at "
                raise self._error(f"{message}{end}", at - _COUNT.size, f"size of frame {number}")
            found.append((at, length))
            at += length
        return found

    def _frame_size(self, entry: _TableEntry, start: int, end: int) -> int:
        from offload_tool.formats.codec import ZstdStream

        stream = ZstdStream(self.data[:end], start, None, self.path)
        if stream.end != end:
            message = f"expected one zstd frame of {end - start} bytes, found one of "
            message += f"{stream.end - start}; AMD's two readers differ here"
            raise self._error(message, start, f"frame {entry.ordinal}")
        if stream.exact_size is not None:
            return stream.exact_size
        if entry.original_size is None or entry.original_size > stream.max_size:
            expected = f"at most {stream.max_size} (what the frame can hold)"
            raise self._size_error(entry, expected, start)
        return entry.original_size  # decompression checks it

    def _location(self, entry: _TableEntry, rows: Sequence[tuple[int, int]]) -> tuple[int, int]:
        if entry.ordinal >= len(rows):
            message = f"expected an ordinal below {len(rows)} for {entry.key!r} and "
            raise self._refusal(f"{message}{entry.target_id}, found {entry.ordinal}")
        return rows[entry.ordinal]

    # -- errors

    def _size_error(self, entry: _TableEntry, expected: str, offset: int) -> FormatError:
        found = "nothing" if entry.original_size is None else entry.original_size
        field = f"original_size of {entry.key!r} for {entry.target_id}"
        return self._error(f"expected {expected}, found {found}", offset, field)

    def _refusal(self, message: str) -> ContentError:
        message = f"expected the table of contents of a kpack archive: {message}"
        return self._error(message, self.toc, "toc")

    def _error(self, message: str, offset: int, field: str) -> FormatError:
        return FormatError(message, path=self.path, offset=offset, field=field)


# -- writing ---------------------------------------------------------------------------


class NewKpackImage(NamedTuple):
    """A code object to store under a `kernel_key`; `content` is read when it is written."""

    key: str
    target_id: str
    """In the form of bundle entry IDs: ``gfx942:sramecc+:xnack-``."""
    content: FileRange
    packed_from: int | None = None
    """Decompressed size in bytes, if `content` is a zstd frame of another archive."""
    metadata: bytes = b""
    """A MessagePack map, or empty."""


def copied_image(image: KpackImage, source: InputFile) -> NewKpackImage:
    """Return an image of the archive `source` for storing it unchanged in a new archive."""
    content = source.range(image.offset, image.stored_size)
    packed = image.size if image.is_compressed else None
    return NewKpackImage(image.key, image.target_id, content, packed, image.metadata)


def images_by_key(archive: KpackArchive) -> dict[str, list[KpackImage]]:
    """Return the images by key, in table order."""
    found: dict[str, list[KpackImage]] = {}
    for image in archive.images:
        found.setdefault(image.key, []).append(image)
    return found


def write_kpack(
    out: OutputFile,
    images: Iterable[NewKpackImage],
    *,
    group: str,
    target_ids: Sequence[str],
    scheme: str = ZSTD,
) -> None:
    """Append an archive of `images`, in order, to `out`; equal code objects are stored once.

    `target_ids` are those that a runtime finds. At most one compressed code object is in memory.
    Raises UsageError for keys, names and schemes that some reader cannot find or decode,
    FormatError if the scheme has no room for so much.
    """
    if scheme not in SCHEMES:
        raise UsageError(f"the scheme of a kpack archive is {NONE} or {ZSTD}, not {scheme!r}")
    with seekable(out) as file:
        _KpackWriter(file, scheme).write(images, group, target_ids)


def spooled_kpack(
    spool: Spool,
    images: Iterable[NewKpackImage],
    group: str,
    target_ids: Sequence[str],
    scheme: str,
) -> FilePlan:
    """Write an archive into `spool`, and return its plan; errors as of `write_kpack`."""
    write = partial(write_kpack, images=images, group=group, target_ids=target_ids, scheme=scheme)
    return FilePlan.of([spool.append(write)])


class _KpackWriter:
    def __init__(self, out: OutputFile, scheme: str) -> None:
        self.out = out
        self.start = out.position
        self.scheme = scheme
        self.rows: dict[str, dict[str, tuple[int, int, bytes]]] = {}
        """Ordinal, decompressed size and metadata, by key and target ID."""
        self.blobs: list[tuple[int, int]] = []
        """Offset in the archive and size of each code object, in scheme "none"."""
        self.count = 0
        self.known: dict[tuple[int, bytes], tuple[int, int]] = {}
        """Ordinal and decompressed size of the stored code objects."""

    def write(self, images: Iterable[NewKpackImage], group: str, target_ids: Sequence[str]) -> None:
        check_text(group)
        self.out.pad_to(self.start + _DATA)
        if self.scheme == ZSTD:
            self.out.write(_COUNT.pack(0))
        for image in images:
            self._check(image, target_ids)
            row = (*self._stored(image), image.metadata)
            self.rows.setdefault(image.key, {})[image.target_id] = row
        end = self.out.position
        if self.scheme == ZSTD:
            size = end - self.start - _DATA
            if self.count > _MAX_FRAMES or size > _MAX_DATA:
                message = f"{self.count} code objects of {size} bytes; the runtime takes at most "
                message += f"{_MAX_FRAMES} of {_MAX_DATA}: make archives of fewer, or use '{NONE}'"
                raise FormatError(message, path=self.out.path)
            self.out.patch(self.start + _DATA, _COUNT.pack(self.count))
        self.out.patch(self.start, _HEADER.pack(KPACK, _VERSION, end - self.start))
        self.out.append(self._table(group, target_ids, end))

    def _check(self, image: NewKpackImage, target_ids: Sequence[str]) -> None:
        if image.target_id not in target_ids:
            known = ", ".join(target_ids) or "none"
            raise UsageError(f"an archive for {known} cannot hold code for {image.target_id}")
        if image.target_id in self.rows.get(image.key, ()):
            raise UsageError(f"two code objects for {image.target_id} have the key '{image.key}'")
        check_text(image.key)
        if "\\" in image.key:
            raise UsageError(f"the kernel key '{image.key}' has a backslash, which is not found")

    def _stored(self, image: NewKpackImage) -> tuple[int, int]:
        """Store an image unless an equal one is stored; return its ordinal and size."""
        packed_from = image.packed_from
        if packed_from is not None and self.scheme == NONE:
            raise UsageError("a zstd frame cannot be stored by the scheme 'none'; unpack it")
        digest = hashlib.sha256(image.content.data).digest()
        known = -1 if packed_from is None else packed_from, digest
        if known not in self.known:
            self._store(image)
            size = image.content.size if packed_from is None else packed_from
            self.known[known] = self.count, size
            self.count += 1
        return self.known[known]

    def _store(self, image: NewKpackImage) -> None:
        content = image.content
        if self.scheme == NONE:
            self.blobs.append((self.out.position - self.start, content.size))
            self.out.append([content])
        elif image.packed_from is not None:
            self.out.append([_COUNT.pack(content.size), content])
        else:
            self._compress(content)

    def _compress(self, content: FileRange) -> None:
        import zstandard  # archives in a build tree are not compressed

        # Python's reader needs the content size in the frame.
        machine = zstandard.ZstdCompressor(level=_LEVEL)
        if content.size <= _MAX_IN_MEMORY:
            frame = machine.compress(content.data)
            self.out.append([_COUNT.pack(len(frame)), frame])
            return
        at = self.out.position
        self.out.write(_COUNT.pack(0))
        engine = machine.compressobj(size=content.size)
        for start in range(0, content.size, _CHUNK):
            self.out.write(engine.compress(content.data[start : start + _CHUNK]))
        self.out.write(engine.flush())
        size = self.out.position - at - _COUNT.size
        if size > _MAX_DATA - 1:
            message = f"a code object of {content.size} bytes is too large to be compressed"
            raise FormatError(f"{message}; use '{NONE}'", path=content.source.path)
        self.out.patch(at, _COUNT.pack(size))

    def _table(self, group: str, target_ids: Sequence[str], end: int) -> Iterator[bytes]:
        packer = messagepack().Packer(use_bin_type=True)
        extra = 1 if self.scheme == NONE else 2
        yield packer.pack_map_header(6 + extra)
        names = ("group_name", group, "gfx_arch_family", ",".join(target_ids))
        values = ("format_version", _VERSION, *names, "gfx_arches", list(target_ids), "toc")
        yield from map(packer.pack, values)
        yield packer.pack_map_header(len(self.rows))
        for key, targets in self.rows.items():
            yield packer.pack(key)
            yield packer.pack_map_header(len(targets))
            for target_id, (ordinal, size, metadata) in targets.items():
                yield packer.pack(target_id)
                yield packer.pack_map_header(4 if metadata else 3)
                fields = ("type", "hsaco", "ordinal", ordinal, "original_size", size)
                yield from map(packer.pack, fields)
                if metadata:
                    yield packer.pack("metadata")
                    yield metadata
        yield from map(packer.pack, ("compression_scheme", self.scheme))
        if self.scheme == NONE:
            yield packer.pack("blobs")
            yield packer.pack_array_header(len(self.blobs))
            for offset, size in self.blobs:
                yield packer.pack({"offset": offset, "size": size})
            return
        size = end - self.start - _DATA
        yield from map(packer.pack, ("zstd_offset", _DATA, "zstd_size", size))
