"""The compressed bundle: a header, and a whole bundle as one zstd or zlib payload.

::

    version 1  version 2  version 3   field
    ---------  ---------  ---------   ---------------------------------------------
    0, 4       0, 4       0, 4        magic, ``CCOB``
    4, 2       4, 2       4, 2        version
    6, 2       6, 2       6, 2        method: 0 zlib, 1 zstd
    -          8, 4       8, 8        total size: this header and the payload
    8, 4       12, 4      16, 8       uncompressed size: what the payload holds
    12, 8      16, 8      24, 8       hash: the first half of the MD5 of what it holds
    20         24         32          the payload begins

The first number is the offset from the beginning of the compressed bundle, the second
the size. Integers are little-endian and unsigned.

Several compressed bundles may follow each other, with or without padding between them.
Each is bounded by its total size; version 1 has none, so there the zstd frame or zlib
stream says where it ends. A payload is never searched for a magic.

The payload is read by `offload_tool.formats.bundle.decompress`.

Source: the ClangOffloadBundler documentation ("Compression and Decompression");
clang-offload-bundler 22.1.8, which does not look at the total size.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable, Sequence

from offload_tool.errors import FormatError, UnsupportedError, UsageError
from offload_tool.formats.codec.stream import BackgroundHash, Method, compress, split
from offload_tool.formats.magic import COMPRESSED_BUNDLE as MAGIC
from offload_tool.io import OutputFile, StrPath
from offload_tool.io.spool import Spool
from offload_tool.util.frozen import frozen, replaced

_PREFIX = struct.Struct("<4sHH")
_FIELDS = {  # behind the prefix: [total size], uncompressed size, hash
    1: struct.Struct("<IQ"),
    2: struct.Struct("<IIQ"),
    3: struct.Struct("<QQQ"),
}
_METHODS: dict[int, Method] = {0: "zlib", 1: "zstd"}
_VERSION_2_LIMIT = 1 << 32


@frozen
class CompressedHeader:
    """The header of a compressed bundle, read; the payload stays where it is."""

    version: int
    """1, 2 or 3."""
    method: Method
    """``zlib`` or ``zstd``."""
    total_size: int | None
    """Bytes of header and payload; None in version 1, which does not record it."""
    uncompressed_size: int
    """Bytes that the payload is said to hold."""
    hash: int
    """The first 8 bytes of the MD5 of the uncompressed data, as a little-endian number."""
    offset: int = 0
    """Where the compressed bundle begins in the data it was read from, in bytes."""

    @property
    def size(self) -> int:
        """Bytes of the header itself."""
        return _PREFIX.size + _FIELDS[self.version].size

    def pack(self) -> bytes:
        """Return the header's bytes."""
        (method,) = (code for code, name in _METHODS.items() if name == self.method)
        sizes = [self.uncompressed_size, self.hash]
        if self.total_size is not None:
            sizes.insert(0, self.total_size)
        return _PREFIX.pack(MAGIC, self.version, method) + _FIELDS[self.version].pack(*sizes)


@frozen
class CompressionReport:
    """What was compressed or decompressed, and how long that took."""

    header: CompressedHeader
    payload_size: int
    """Compressed bytes without the header."""
    seconds: float
    level: int | None = None
    """The level asked for; None after decompressing."""

    @property
    def end(self) -> int:
        """Where the compressed bundle ends in the data it was read from."""
        return self.header.offset + self.header.size + self.payload_size


def is_compressed_bundle(data: memoryview, offset: int = 0) -> bool:
    """Return whether a compressed bundle's magic stands at `offset`."""
    return data[offset : offset + len(MAGIC)] == MAGIC


def read_compressed_header(
    data: memoryview, offset: int = 0, *, path: StrPath | None = None
) -> CompressedHeader:
    """Read the header at `offset` of `data`; `path` is for messages only.

    :raises FormatError: no compressed bundle is there, or its total size contradicts the data.
    :raises UnsupportedError: its version or method is unknown.
    """

    def error(position: int, field: str, message: str) -> FormatError:
        return FormatError(message, path=path, offset=offset + position, field=field)

    def take(start: int, fields: struct.Struct) -> tuple[int, ...]:
        if available < start + fields.size:
            message = (
                f"expected {start + fields.size} bytes, found {available}; "
                "the file may be cut short"
            )
            raise error(0, "header", message)
        return fields.unpack_from(data, offset + start)

    available = max(len(data) - offset, 0)
    if not is_compressed_bundle(data, offset):
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
        message = (
            f"expected {header.size} (the header) to {available} (what is left of the file), "
            f"found {total[0]}; the file may be cut short"
        )
        raise error(8, "total size", message)
    return header


def truncate_digest(digest: bytes) -> int:
    """Return the hash that the header records for data with this MD5."""
    return int.from_bytes(digest[:8], "little")


def compress_bundle(
    output: OutputFile,
    parts: Sequence[bytes | memoryview],
    *,
    version: int = 3,
    method: Method = "zstd",
    level: int | None = None,
    threads: int | None = None,
) -> CompressionReport:
    """Append the bundle that `parts` are, one after the other, to `output`, compressed.

    The bytes do not depend on `threads` (default: all cores) nor on how the bundle is cut
    into parts. Nothing is copied into memory as a whole.

    :raises UsageError: a version or level that cannot be written, or too much for
        version 2.
    """
    if version not in (2, 3):
        raise UsageError(f"compressed bundles are written in version 2 or 3, not {version}")
    size = sum(memoryview(part).nbytes for part in parts)
    _check_version_2(version, size, "Uncompressed size")
    start = output.position
    packed = _Packer(parts, CompressedHeader(version, method, 0, size, 0, start), level, threads)
    if output.seekable:
        output.write(packed.header.pack())  # its place; the sizes and the hash come last
        report = packed.write_to(output)
        output.patch(start, report.header.pack())
        return report
    with Spool(output.path) as spool:
        report = packed.write_to(spool.out)
        output.write(report.header.pack())
        output.copy(*spool.since())
    return report


@frozen
class _Packer:
    """What `compress_bundle` was asked for; `header` lacks the total size and the hash."""

    parts: Iterable[bytes | memoryview]
    header: CompressedHeader
    level: int | None
    threads: int | None

    def write_to(self, output: OutputFile) -> CompressionReport:
        """Append the payload; report with the header as it must be."""
        started = time.perf_counter()
        start = output.position
        draft = self.header
        with BackgroundHash() as md5:
            for chunk in compress(
                md5.watch(split(self.parts)),
                draft.uncompressed_size,
                method=draft.method,
                level=self.level,
                threads=self.threads,
            ):
                output.write(chunk)
            digest = truncate_digest(md5.digest())
        payload_size = output.position - start
        total_size = draft.size + payload_size
        _check_version_2(draft.version, total_size, "Total file size")
        header = replaced(draft, total_size=total_size, hash=digest)
        seconds = time.perf_counter() - started
        default = -1 if draft.method == "zlib" else 3
        level = default if self.level is None else self.level
        return CompressionReport(header, payload_size, seconds, level)


def _check_version_2(version: int, size: int, what: str) -> None:
    if version == 2 and size >= _VERSION_2_LIMIT:
        raise UsageError(f"{what} exceeds version 2 limit: {size} bytes; use version 3")
