"""The compressed bundle: a header, and a whole bundle as one zstd or zlib payload.

::

    version 1  version 2  version 3   field
    ---------  ---------  ---------   ---------------------------------------------
    0, 4       0, 4       0, 4        magic, ``CCOB``
    4, 2       4, 2       4, 2        version
    6, 2       6, 2       6, 2        method: 0 zlib, 1 zstd
    -          8, 4       8, 8        total size: this header and the payload
    8, 4       12, 4      16, 8       uncompressed size of the payload
    12, 8      16, 8      24, 8       hash: the first half of the MD5 of the uncompressed bundle
    20         24         32          the payload

The first number is the offset from the beginning of the compressed bundle, the second the size.
Integers are little-endian and unsigned.

Several compressed bundles may follow each other, with or without padding. The total size delimits
each; version 1 has none, so the end of the zstd frame or zlib stream does. The reader never
searches a payload for a magic.

The sizes in a header are untrusted. Impossible ones are rejected before decompression. The reader
decompresses in chunks, in bounded memory, and stops when the data exceeds the recorded size. Unlike
clang-offload-bundler 22.1.8, it rejects a wrong size or hash.

Source: the ClangOffloadBundler documentation ("Compression and Decompression");
clang-offload-bundler 22.1.8, which ignores the total size.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TypeAlias

from offload_tool.errors import FileError, FormatError, UnsupportedError, UsageError
from offload_tool.formats import codec
from offload_tool.formats.magic import COMPRESSED_BUNDLE as MAGIC
from offload_tool.formats.magic import begins
from offload_tool.io import OutputFile, StrPath
from offload_tool.io.limits import effective_budget
from offload_tool.io.spool import Spool, seekable
from offload_tool.util.frozen import frozen, replaced

_PREFIX = struct.Struct("<4sHH")
_FIELDS = {  # after the prefix: [total size], uncompressed size, hash
    1: struct.Struct("<IQ"),
    2: struct.Struct("<IIQ"),
    3: struct.Struct("<QQQ"),
}
_METHODS: dict[int, codec.Method] = {0: "zlib", 1: "zstd"}
_VERSION_2_LIMIT = 1 << 32
_IN_MEMORY = 16 << 20
_Write: TypeAlias = Callable[[bytes | memoryview], object]
"""Appends bytes to an output."""


@frozen
class CompressedHeader:
    """The header of a compressed bundle; the payload stays in place."""

    version: int
    method: codec.Method
    total_size: int | None
    """Bytes of header and payload; None in version 1, which does not record it."""
    uncompressed_size: int
    """Recorded size of the decompressed payload, in bytes."""
    hash: int
    """The first 8 bytes of the MD5 of the uncompressed data, as a little-endian number."""
    offset: int = 0
    """Start of the compressed bundle in the data it was read from, in bytes."""

    @property
    def size(self) -> int:
        """Size of the header in bytes."""
        return _PREFIX.size + _FIELDS[self.version].size

    def pack(self) -> bytes:
        """Return the header's bytes; version 1, which has no total size, is not written."""
        (method,) = (code for code, name in _METHODS.items() if name == self.method)
        sizes = (self.total_size, self.uncompressed_size, self.hash)
        return _PREFIX.pack(MAGIC, self.version, method) + _FIELDS[self.version].pack(*sizes)


@frozen
class CompressionReport:
    """Statistics of a compression or decompression."""

    header: CompressedHeader
    payload_size: int
    """Compressed bytes without the header."""
    seconds: float
    level: int | None = None
    """The requested level; None after decompression."""

    @property
    def end(self) -> int:
        """End of the compressed bundle in the data it was read from."""
        return self.header.offset + self.header.size + self.payload_size


def read_compressed_header(
    data: memoryview, offset: int = 0, *, path: StrPath | None = None
) -> CompressedHeader:
    """Read the header at `offset` of `data`; raise FormatError or UnsupportedError."""

    def error(position: int, field: str, message: str) -> FormatError:
        return FormatError(message, path=path, offset=offset + position, field=field)

    def take(start: int, fields: struct.Struct) -> tuple[int, ...]:
        if available < start + fields.size:
            message = f"expected {start + fields.size} bytes, found {available}; the file may be "
            raise error(0, "header", f"{message}cut short")
        return fields.unpack_from(data, offset + start)

    available = max(len(data) - offset, 0)
    if not begins(data, MAGIC, offset):
        found = bytes(data[offset : offset + len(MAGIC)])
        raise error(0, "magic", f"expected {MAGIC.decode()!r}, found {found!r}")
    _, version, method = take(0, _PREFIX)
    if version not in _FIELDS:
        message = f"expected 1, 2 or 3, found {version}"
        raise UnsupportedError(message, path=path, offset=offset + 4, field="version")
    if method not in _METHODS:
        message = f"expected 0 (zlib) or 1 (zstd), found {method}"
        raise UnsupportedError(message, path=path, offset=offset + 6, field="method")
    *total, uncompressed_size, digest = take(_PREFIX.size, _FIELDS[version])
    header = CompressedHeader(
        version, _METHODS[method], total[0] if total else None, uncompressed_size, digest, offset
    )
    if total and not header.size <= total[0] <= available:
        message = f"expected {header.size} (the header) to {available} (what is left of the file), "
        message += f"found {total[0]}; the file may be cut short"
        raise error(8, "total size", message)
    return header


def compress_bundle(
    output: OutputFile,
    parts: Sequence[bytes | memoryview],
    *,
    version: int = 3,
    method: codec.Method = "zstd",
    level: int | None = None,
) -> CompressionReport:
    """Append the bundle that consists of `parts` to `output`, compressed; raise UsageError.

    The output does not depend on the number of cores or on the division into parts. The bundle is
    not copied into memory as a whole.
    """
    if version not in (2, 3):
        raise UsageError(f"compressed bundles are written in version 2 or 3, not {version}")
    if method not in (known := _METHODS.values()):
        expected = " or ".join(known)
        raise UsageError(f"unknown compression method '{method}': expected {expected}")
    size = sum(memoryview(part).nbytes for part in parts)
    _check_version_2(version, size, "Uncompressed size")
    draft = CompressedHeader(version, method, 0, size, 0, output.position)
    with seekable(output) as file:
        start = file.position
        file.write(draft.pack())  # placeholder: sizes and hash are known at the end
        started = time.perf_counter()
        with codec.BackgroundHash() as md5:
            chunks = md5.watch(codec.split(parts))
            for chunk in codec.compress(chunks, size, method=method, level=level):
                file.write(chunk)
            digest = _truncated(md5.digest())
        total_size = file.position - start
        _check_version_2(version, total_size, "Total file size")
        header = replaced(draft, total_size=total_size, hash=digest)
        seconds = time.perf_counter() - started
        file.patch(start, header.pack())
    if level is None:
        level = -1 if method == "zlib" else 3
    return CompressionReport(header, total_size - header.size, seconds, level)


def _truncated(digest: bytes) -> int:
    """Return the header's hash for data with this MD5."""
    return int.from_bytes(digest[:8], "little")


def _check_version_2(version: int, size: int, what: str) -> None:
    if version == 2 and size >= _VERSION_2_LIMIT:
        raise UsageError(f"{what} exceeds version 2 limit: {size} bytes; use version 3")


def decompress(
    data: memoryview, header: CompressedHeader, *, path: StrPath | None = None
) -> tuple[memoryview, CompressionReport]:
    """Decompress a bundle: in memory, or above 16 MiB in an anonymous file; see `BundleStream`."""
    stream = BundleStream(data, header, path=path)
    reports: list[CompressionReport] = []
    content = _stored(header.uncompressed_size, lambda write: reports.append(stream.to(write)))
    return content, reports[0]


class BundleStream:
    """A bundle that is decompressed once, in bounded memory; raise FormatError or LimitError."""

    def __init__(
        self, data: memoryview, header: CompressedHeader, *, path: StrPath | None = None
    ) -> None:
        started = time.perf_counter()
        self._header = header
        self._path = path
        start = header.offset + header.size
        self.end = None if header.total_size is None else header.offset + header.total_size
        """End of the bundle in the data, in bytes; None if only decompression can find it."""
        self._stream = _open_stream(
            data, start, self.end, header.uncompressed_size, header.method, self._size_error, path
        )
        if isinstance(self._stream, codec.ZstdStream) and self.end is None:
            self.end = self._stream.end
        self._budget = effective_budget(self._stream.end - header.offset)
        self._budget.check_unpack(header.uncompressed_size, path)
        self._rest: Iterator[bytes | memoryview] = iter(self._stream)
        self.begin = memoryview(bytes(next(self._rest, b"")))
        """The first bytes, as many as one step decompresses."""
        self._seconds = time.perf_counter() - started

    def to(self, write: _Write) -> CompressionReport:
        """Decompress with `write`, and check size and hash; raise FormatError or LimitError."""
        header, stream = self._header, self._stream
        self._budget.unpack(header.uncompressed_size, self._path)
        started = time.perf_counter()
        chunks: Iterator[bytes | memoryview] = chain([self.begin], self._rest)
        with codec.BackgroundHash() as md5:
            for chunk in _exactly(header.uncompressed_size, chunks, self._size_error):
                md5.update(chunk)
                write(chunk)
            digest = _truncated(md5.digest())
        start = header.offset + header.size
        if header.total_size is not None and stream.end != self.end:
            message = f"expected {stream.end - header.offset} (the end of the zlib stream), "
            message += f"found {header.total_size}"
            raise self._error(header.offset + 8, "total size", message)
        if digest != header.hash:
            message = f"hash stored in the header {header.hash:#018x}, hash of the data "
            message += f"{digest:#018x}; the file is damaged"
            raise self._error(start - 8, "hash", message)
        seconds = self._seconds + time.perf_counter() - started
        return CompressionReport(header, stream.end - start, seconds)

    def _size_error(self, expected: str) -> FormatError:
        header = self._header
        position = header.offset + header.size - (16 if header.version == 3 else 12)
        message = f"expected {expected}, found {header.uncompressed_size}"
        return self._error(position, "uncompressed size", message)

    def _error(self, offset: int, field: str, message: str) -> FormatError:
        return FormatError(message, path=self._path, offset=offset, field=field)


def decompress_range(
    data: memoryview,
    start: int,
    end: int,
    size: int,
    *,
    head: bytes = b"",
    method: codec.Method,
    size_error: Callable[[str], FormatError],
    path: StrPath | None = None,
) -> memoryview:
    """Decompress a range of `data` to exactly `size` bytes, after `head`; raise FormatError.

    `size_error` returns the error for a wrong size from a description of the expected one.
    """
    stream = _open_stream(data, start, end, size, method, size_error, path)
    effective_budget(end - start).unpack(size, path)

    def decompress_to(write: _Write) -> None:
        write(head)
        for chunk in _exactly(size, stream, size_error):
            write(chunk)

    return _stored(len(head) + size, decompress_to)


def _open_stream(
    data: memoryview,
    start: int,
    end: int | None,
    size: int,
    method: codec.Method,
    size_error: Callable[[str], FormatError],
    path: StrPath | None,
) -> codec.ZstdStream | codec.ZlibStream:
    """Open the payload; reject an impossible `size` before decompression."""
    stream = (codec.ZstdStream if method == "zstd" else codec.ZlibStream)(data, start, end, path)
    if stream.exact_size not in (None, size):
        raise size_error(f"{stream.exact_size} (the size in the zstd frame)")
    if size > stream.max_size:
        raise size_error(f"at most {stream.max_size} (what the payload can hold)")
    return stream


def _exactly(
    size: int, chunks: Iterable[bytes | memoryview], size_error: Callable[[str], FormatError]
) -> Iterator[bytes | memoryview]:
    """Yield the chunks; raise unless they have `size` bytes in total."""
    found = 0
    for chunk in chunks:
        found += len(chunk)
        if found > size:
            raise size_error(f"at least {found} (what the payload holds)")
        yield chunk
    if found < size:
        raise size_error(f"{found} (what the payload holds)")


def _stored(size: int, produce: Callable[[_Write], None]) -> memoryview:
    """Return the `size` bytes that `produce` writes, in memory or mapped."""
    if size <= _IN_MEMORY:
        # Not io.BytesIO: the cycle collector may close it while views of its bytes exist, and
        # Python 3.13 then prints an error (older versions with ``-X dev``).
        memory = bytearray()
        produce(memory.extend)
        return memoryview(memory).toreadonly()
    from offload_tool.io.temporary_directory import system_temp_folder  # for large content alone

    folder = system_temp_folder()
    try:
        room = os.statvfs(folder)
        free = room.f_bavail * room.f_frsize
    except OSError as error:
        raise FileError(folder, error) from error
    if size > free:
        raise FileError(folder, f"decompressing needs {size} bytes, only {free} are free")
    with Spool(folder, folder) as spool:
        produce(spool.out.write)
        return spool.since().data
