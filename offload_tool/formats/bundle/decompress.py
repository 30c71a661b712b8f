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
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Protocol, TypeVar

from offload_tool.errors import FileError, FormatError
from offload_tool.formats.bundle.compressed import (
    CompressedHeader,
    CompressionReport,
    truncate_digest,
)
from offload_tool.formats.codec.stream import (
    UNHASHED,
    BackgroundHash,
    Method,
    ZlibStream,
    ZstdStream,
)
from offload_tool.io import StrPath
from offload_tool.io.limits import budget
from offload_tool.io.spool import Spool
from offload_tool.util.frozen import frozen

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


class Passing:
    """A bundle that is decompressed once, as it passes by: its beginning is there, to be read.

    What is behind the beginning must be asked for by `to`, or nothing has been checked. See
    `decompress_to` for that.

    :raises FormatError: the compressed bundle is damaged.
    :raises LimitError: it is greater than the run's budget allows.
    """

    def __init__(
        self, data: memoryview, header: CompressedHeader, *, path: StrPath | None = None
    ) -> None:
        self._header = header
        self._path = path
        self._stream = _sound_stream(data, header, path, None)
        payload = self._stream.end - header.offset
        budget(payload).check_unpack(header.uncompressed_size, path)
        self._rest: Iterator[bytes | memoryview] = iter(self._stream)
        self.begin = bytes(next(self._rest, b""))
        """The first bytes, as many as were decompressed at once."""

    @property
    def end(self) -> int | None:
        """Where it ends in the data, in bytes; None where only decompressing tells that."""
        if self._header.total_size is not None:
            return self._header.offset + self._header.total_size
        return self._stream.end if isinstance(self._stream, ZstdStream) else None

    def to(self, output: _ByteSink) -> CompressionReport:
        """Decompress all of it into `output`, and check its size and its hash; this works once.

        :raises FormatError: it is damaged; `output` has bytes that cannot be trusted.
        :raises LimitError: it is greater than the run's budget allows.
        """
        _charge(self._stream, self._header, self._path)
        chunks: chain[bytes | memoryview] = chain([self.begin], self._rest)
        return _verify(self._stream, output, self._header, self._path, chunks)


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
    """Return the `size` bytes that `write` writes, in memory or mapped, and what it returns."""
    if size <= _IN_MEMORY:
        memory = _Memory()
        result = write(memory)
        return memoryview(memory.data).toreadonly(), result
    from offload_tool.io.temporary_directory import (
        usual_folder,  # not needed for what stays in memory
    )

    folder = usual_folder() if directory is None else directory
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
    bundle may have, besides what the run's budget allows (`offload_tool.io.limits`). When
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
    stream = _sound_stream(data, header, path, limit)
    _charge(stream, header, path)
    return stream


def _charge(
    stream: ZstdStream | ZlibStream, header: CompressedHeader, path: StrPath | None
) -> None:
    """Take what will be decompressed from the run's budget."""
    budget(stream.end - header.offset).unpack(header.uncompressed_size, path)


def _sound_stream(
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
    return stream


def _verify(
    stream: ZstdStream | ZlibStream,
    output: _ByteSink,
    header: CompressedHeader,
    path: StrPath | None,
    chunks: Iterable[bytes | memoryview] | None = None,
) -> CompressionReport:
    started = time.perf_counter()
    with BackgroundHash(UNHASHED) as md5:
        _drain(stream if chunks is None else chunks, header, path, output, md5)
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
    chunks: Iterable[bytes | memoryview],
    header: CompressedHeader,
    path: StrPath | None,
    output: _ByteSink,
    md5: BackgroundHash,
) -> None:
    """Decompress all `chunks`, no byte more or less than the header records."""
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > header.uncompressed_size:
            raise _size_error(header, path, f"at least {size} (what the payload holds)")
        md5.update(chunk)
        output.write(chunk)
    if size < header.uncompressed_size:
        raise _size_error(header, path, f"{size} (what the payload holds)")


def _size_error(header: CompressedHeader, path: StrPath | None, expected: str) -> FormatError:
    position = header.offset + header.size - (16 if header.version == 3 else 12)
    message = f"expected {expected}, found {header.uncompressed_size}"
    return FormatError(message, path=path, offset=position, field="uncompressed size")
