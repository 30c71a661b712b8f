"""Decompressing bundles: in bounded memory, nothing believed, the hash verified.

A header's sizes are claims. What cannot be true is refused before anything is
decompressed; the rest is decompressed in chunks and refused as soon as it is more than
the header records. The payload ends where the header (from version 2 on), the zstd frame
or the zlib stream says.

Unlike clang-offload-bundler 22.1.8, a size or hash that does not match is an error.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Protocol, TypeVar

from offload_tool.errors import FileError, FormatError
from offload_tool.files.budget import budget
from offload_tool.files.spool import Spool
from offload_tool.formats.bundles.compressed import CompressionReport, truncate_digest
from offload_tool.formats.bundles.compressed_stream import (
    UNHASHED,
    BackgroundHash,
    ZlibStream,
    ZstdStream,
)
from offload_tool.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable

    from offload_tool.files import StrPath
    from offload_tool.formats.bundles.compressed import CompressedHeader
    from offload_tool.formats.bundles.compressed_stream import Method

__all__ = ["Decompressed", "decompress", "decompress_range", "decompress_to"]

_IN_MEMORY = 16 << 20
_Result = TypeVar("_Result")


class _ByteSink(Protocol):
    def write(self, data: bytes | memoryview, /) -> object: ...


class _Memory:
    """Bytes in memory.

    No ``io.BytesIO``: where its end is found by the collector of cycles, it is closed while there
    are views of its bytes, and Python 3.13 prints the error of that (older ones with ``-X dev``).
    """

    def __init__(self) -> None:
        self.data = bytearray()

    def write(self, data: bytes | memoryview, /) -> None:
        self.data += data


@frozen
class Decompressed:
    """A bundle that was compressed: its bytes, in memory or mapped, and the report."""

    data: memoryview
    report: CompressionReport


def decompress(
    data: memoryview,
    header: CompressedHeader,
    *,
    path: StrPath | None = None,
    limit: int | None = None,
    directory: StrPath | None = None,
) -> Decompressed:
    """Decompress a bundle to look into it; see `decompress_to` for what is checked.

    Above 16 MiB the bundle goes to a file in `directory` (default: the usual one for
    temporary files) that has no name and vanishes with the last use of the result.

    :raises FormatError: the compressed bundle is damaged, or greater than `limit`.
    :raises LimitError: it is greater than the run's budget allows.
    :raises FileError: `directory` cannot take it.
    """
    stream = _checked_stream(data, header, path, limit)

    def write(output: _ByteSink) -> CompressionReport:
        return _verify(stream, output, header, path)

    return Decompressed(*_kept(header.uncompressed_size, directory, write))


def decompress_range(
    data: memoryview,
    start: int,
    end: int,
    size: int,
    *,
    head: bytes = b"",
    method: Method,
    refused: Callable[[str], FormatError],
    path: StrPath | None = None,
) -> memoryview:
    """Decompress what is from `start` to `end` of `data`, which must give `size` bytes.

    They come behind `head`. Nothing is believed, and memory is bounded, as for bundles.
    `refused` makes the error for a size that cannot be or is not true; it is given what
    was expected instead.

    :raises FormatError: that, or damage.
    :raises LimitError: it is more than the run's budget allows.
    :raises FileError: there is no room for temporary files.
    """
    stream = (ZstdStream if method == "zstd" else ZlibStream)(data, start, end, path)
    for expected, is_true in (
        (f"{stream.exact} (the size in the zstd frame)", stream.exact in (None, size)),
        (f"at most {stream.most} (what the payload can hold)", size <= stream.most),
    ):
        if not is_true:
            raise refused(expected)
    budget(end - start).unpack(size, path)

    def write(output: _ByteSink) -> None:
        output.write(head)
        written = 0
        for chunk in stream:
            written += len(chunk)
            if written > size:
                raise refused(f"at least {written} (what the payload holds)")
            output.write(chunk)
        if written < size:
            raise refused(f"{written} (what the payload holds)")

    content, _ = _kept(len(head) + size, None, write)
    return content


def _kept(
    size: int, directory: StrPath | None, write: Callable[[_ByteSink], _Result]
) -> tuple[memoryview, _Result]:
    """Give the `size` bytes that `write` writes, in memory or mapped, and what it returns."""
    if size <= _IN_MEMORY:
        memory = _Memory()
        result = write(memory)
        return memoryview(memory.data).toreadonly(), result
    import tempfile  # slow to load, and not needed for what stays in memory

    folder = tempfile.gettempdir() if directory is None else directory
    try:
        room = os.statvfs(folder)
        free = room.f_bavail * room.f_frsize
    except OSError as error:
        raise FileError(folder, error) from error
    if size > free:
        raise FileError(folder, f"decompressing needs {size} bytes, only {free} are free")
    with Spool(folder, folder) as spool:
        result = write(spool.out)
        return spool.since().data, result


def decompress_to(
    output: _ByteSink,
    data: memoryview,
    header: CompressedHeader,
    *,
    path: StrPath | None = None,
    limit: int | None = None,
) -> CompressionReport:
    """Decompress a bundle into `output`, in chunks; check its size and its hash.

    Memory does not depend on any size in the header. `limit` is how many bytes the
    bundle may have, besides what the run's budget allows (`offload_tool.files.budget`). When
    an error is raised, `output` has bytes that cannot be trusted.

    :raises FormatError: the compressed bundle is damaged, or greater than `limit`.
    :raises LimitError: it is greater than the run's budget allows.
    """
    return _verify(_checked_stream(data, header, path, limit), output, header, path)


def _open_stream(
    data: memoryview, header: CompressedHeader, path: StrPath | None
) -> ZstdStream | ZlibStream:
    start = header.offset + header.size
    end = None if header.total_size is None else header.offset + header.total_size
    stream = ZstdStream if header.method == "zstd" else ZlibStream
    return stream(data, start, end, path)


def _checked_stream(
    data: memoryview, header: CompressedHeader, path: StrPath | None, limit: int | None
) -> ZstdStream | ZlibStream:
    """Open the payload; refuse what can be refused before it is decompressed."""
    stream = _open_stream(data, header, path)
    if stream.exact not in (None, header.uncompressed_size):
        raise _size_error(header, path, f"{stream.exact} (the size in the zstd frame)")
    if header.uncompressed_size > stream.most:
        raise _size_error(header, path, f"at most {stream.most} (what the payload can hold)")
    if limit is not None and header.uncompressed_size > limit:
        raise _size_error(header, path, f"at most {limit} (the limit)")
    budget(stream.end - header.offset).unpack(header.uncompressed_size, path)
    return stream


def _verify(
    stream: ZstdStream | ZlibStream,
    output: _ByteSink,
    header: CompressedHeader,
    path: StrPath | None,
) -> CompressionReport:
    started = time.perf_counter()
    with BackgroundHash(UNHASHED) as md5:
        _drain(stream, header, path, output, md5)
        digest = truncate_digest(md5.digest())
    start = header.offset + header.size
    if header.total_size is not None and stream.end != header.offset + header.total_size:
        message = (
            f"expected {stream.end - header.offset} (the end of the zlib stream), "
            f"found {header.total_size}"
        )
        raise FormatError(message, path=path, offset=header.offset + 8, field="total size")
    if digest != header.hash:
        message = (
            f"hash stored in the header {header.hash:#018x}, hash of the data {digest:#018x}; "
            "the file is damaged"
        )
        raise FormatError(message, path=path, offset=start - 8, field="hash")
    return CompressionReport(header, stream.end - start, time.perf_counter() - started)


def _drain(
    stream: ZstdStream | ZlibStream,
    header: CompressedHeader,
    path: StrPath | None,
    output: _ByteSink | None = None,
    md5: BackgroundHash | None = None,
) -> None:
    """Decompress all of `stream`, no byte more or less than the header records."""
    size = 0
    for chunk in stream:
        size += len(chunk)
        if size > header.uncompressed_size:
            raise _size_error(header, path, f"at least {size} (what the payload holds)")
        if md5 is not None:
            md5.update(chunk)
        if output is not None:
            output.write(chunk)
    if size < header.uncompressed_size:
        raise _size_error(header, path, f"{size} (what the payload holds)")


def _size_error(header: CompressedHeader, path: StrPath | None, expected: str) -> FormatError:
    position = header.offset + header.size - (16 if header.version == 3 else 12)
    message = f"expected {expected}, found {header.uncompressed_size}"
    return FormatError(message, path=path, offset=position, field="uncompressed size")
