"""zstd and zlib streams: multithreaded, in bounded memory, for untrusted input.

Compression. zstd's threads divide the input into jobs. The output depends on the job size, not on
the number of threads, so it is equal on every machine with the same libzstd. Two cases need care
(libzstd 1.5.7):

* when the input's size is a multiple of the job's, the end of the frame depends on the
  threads' timing; `_job_size` avoids that;
* with several threads, matches reach about 1 MiB less far back than with one. That alone
  can cost a fifth (four related images of 64 MiB), so above 128 MiB the window is one
  step larger than LLVM's 128 MiB.

Long-distance matching, as in LLVM, finds similarities between device images.

Decompression. A zstd frame is a header, then blocks of at most 128 KiB that each begin with their
size. Walking over them yields the frame's end and the maximum content size before decompression, so
an impossible size is rejected at no cost. Skippable frames have no content and are walked over too.

Source: RFC 8878 ("Zstandard Compression"), sections 3.1.1 and 3.1.2; RFC 1950 for zlib.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterable, Iterator
from itertools import cycle
from queue import SimpleQueue
from threading import Semaphore, Thread
from typing import Literal, TypeAlias

import zstandard

from offload_tool.errors import FormatError, UnsupportedError, UsageError, shortage
from offload_tool.io import StrPath
from offload_tool.util.cores import usable_cores

Method: TypeAlias = 'Literal["zlib", "zstd"]'

CHUNK = 4 << 20
"""Bytes that are compressed in one step."""
UNHASHED = 3
"""Maximum number of chunks that wait to be hashed while the next one is decompressed."""
_OUTPUT_SIZE = 1 << 18
"""Bytes that are decompressed in one step.

Fresh memory would cost as much as decompression; writes of a megabyte cost the kernel up to three
times as much (ext4, Linux 6).
"""

_MAX_WINDOW = 1 << 28  # LLVM needs 2**27 at every level, `compress` 2**28
_LONG_INPUT = 1 << 27
_JOB_SIZE = 8 << 20
_SLOW_LEVEL = 10  # from here on, short jobs increase the size by up to 3 %
_SLOW_JOB_SIZE = 16 << 20
# A job first reads data before it: 9 is libzstd's maximum, each lower number halves it. At slow
# levels, 9 would exceed a job.
_OVERLAP, _SLOW_OVERLAP = 9, 6
_WORKER_MEMORY = 2 << 30  # for all threads together; one thread at level 22 needs 640 MiB

_RLE_BLOCK, _COMPRESSED_BLOCK = 1, 2
_MAX_FRAME_HEADER = 18
_SKIPPABLE_MAGIC, _SKIPPABLE_MASK = 0x184D2A50, 0xFFFFFFF0
_SKIPPABLE_HEADER = struct.Struct("<II")
_ZLIB_MAX_RATIO = 1032
_ZLIB_INPUT = 1 << 16


class BackgroundHash:
    """The MD5 of chunks, `UNHASHED` behind, computed in a thread; a context manager."""

    def __init__(self) -> None:
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._waiting: SimpleQueue[bytes | memoryview | None] = SimpleQueue()
        self._room = Semaphore(UNHASHED)
        self._is_wanted = True
        self._thread: Thread | None = Thread(target=self._run, name="hash", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # out of memory, or too many threads
            self._thread = None

    def _run(self) -> None:
        while (chunk := self._waiting.get()) is not None:
            if self._is_wanted:
                self._md5.update(chunk)
            self._room.release()

    def update(self, chunk: bytes | memoryview) -> None:
        """Add `chunk`, which must not change until it is hashed."""
        if self._thread is None:
            self._md5.update(chunk)
            return
        self._room.acquire()
        self._waiting.put(chunk)

    def watch(self, chunks: Iterable[memoryview]) -> Iterator[memoryview]:
        """Add each of the chunks, and yield it."""
        for chunk in chunks:
            self.update(chunk)
            yield chunk

    def digest(self) -> bytes:
        """Wait for all chunks and return their MD5; `update` must not follow."""
        self._end()
        return self._md5.digest()

    def _end(self) -> None:
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join()

    def __enter__(self) -> BackgroundHash:
        return self

    def __exit__(self, *_: object) -> None:
        self._is_wanted = False
        self._end()


def split(parts: Iterable[bytes | memoryview]) -> Iterator[memoryview]:
    """Divide each of `parts` into pieces of at most `CHUNK` bytes, without copying."""
    for part in parts:
        view = memoryview(part)
        for start in range(0, len(view), CHUNK):
            yield view[start : start + CHUNK]


def compress(
    chunks: Iterable[memoryview], size: int, *, method: Method = "zstd", level: int | None = None
) -> Iterator[bytes]:
    """Compress `chunks`, `size` bytes in total, into one frame or stream; raise UsageError.

    zstd accepts any level: 0 is the default, 3, and levels out of range mean the nearest one. zlib
    has levels -1 (default) to 9, and one thread.
    """
    if method == "zlib":
        level = -1 if level is None else level
        if not -1 <= level <= 9:
            raise UsageError(f"zlib's compression levels are -1 to 9, not {level}")
        return _run(zlib.compressobj(level), chunks)
    return _run(_zstd_compressor(3 if level is None else level, size), chunks)


def _run(
    engine: zlib._Compress | zstandard.ZstdCompressionObj, chunks: Iterable[memoryview]
) -> Iterator[bytes]:
    for chunk in chunks:
        if packed := engine.compress(chunk):
            yield packed
    yield engine.flush()


def _zstd_compressor(level: int, size: int) -> zstandard.ZstdCompressionObj:
    level = max(-(1 << 17), min(level, zstandard.MAX_COMPRESSION_LEVEL))
    job_size = _job_size(level, size)
    parameters = zstandard.ZstdCompressionParameters(
        compression_level=level,
        enable_ldm=True,
        window_log=28 if size > _LONG_INPUT else 27,
        threads=_worker_count(level, size, job_size),
        job_size=job_size,
        overlap_log=_OVERLAP if level < _SLOW_LEVEL else _SLOW_OVERLAP,
    )
    return zstandard.ZstdCompressor(compression_params=parameters).compressobj(size)


def _job_size(level: int, size: int) -> int:
    """Return a job size in bytes with which the last job is shorter than the others."""
    job_size = _JOB_SIZE if level < _SLOW_LEVEL else _SLOW_JOB_SIZE
    while size and size % job_size == 0:
        job_size += 1
    return job_size


def _worker_count(level: int, size: int, job_size: int) -> int:
    """Return the number of threads: at least 1, because 0 changes the output."""
    tables = zstandard.ZstdCompressionParameters.from_level(level, source_size=size)
    memory = tables.estimated_compression_context_size() + job_size
    cores = usable_cores()
    return max(1, min(cores, -(-size // job_size), _WORKER_MEMORY // memory))


class _Stream:
    """Compressed data from `start` on, up to `end` if that is known."""

    def __init__(self, data: memoryview, start: int, end: int | None, path: StrPath | None) -> None:
        self._start = start
        self._path = path
        self._data = data if end is None else data[:end]
        self.end = len(self._data)

    def _error(self, offset: int, message: str) -> FormatError:
        return FormatError(message, path=self._path, offset=offset, field="payload")


class ZstdStream(_Stream):
    """zstd frames in `data` from `start`: up to `end`, or a single frame without it.

    Skippable frames may surround them; LLVM skips them too. Iteration decompresses in chunks. Each
    chunk is valid until `UNHASHED` + 1 more are requested, because buffers are reused. `end` is the
    end of the last frame, `max_size` the maximum size of the content, and `exact_size` its size if
    the frames record it.

    :raises FormatError, UnsupportedError: no frame is complete, or one needs too much memory.
    """

    def __init__(self, data: memoryview, start: int, end: int | None, path: StrPath | None) -> None:
        super().__init__(data, start, end, path)
        self.max_size = 0
        self.exact_size: int | None = 0
        self.end = self._skip_frame(self._skip_skippable(start))
        if end is None:
            self.end = self._skip_skippable(self.end)
        while end is not None and self.end < end:
            self.end = self._skip_skippable(self.end)
            if self.end < end:
                self.end = self._skip_frame(self.end)

    def __iter__(self) -> Iterator[memoryview]:
        """Decompress; raise FormatError if the payload is damaged."""
        buffers = cycle(
            [memoryview(bytearray(min(_OUTPUT_SIZE, self.max_size))) for _ in range(UNHASHED + 1)]
        )
        source = self._data[self._start : self.end]
        decompressor = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW)
        reader = decompressor.stream_reader(source, read_across_frames=True)
        try:
            for buffer in buffers:
                size = reader.readinto(buffer)
                if not size:
                    break
                yield buffer[:size]
        except zstandard.ZstdError as error:
            if shortage(error):
                raise MemoryError from error
            raise self._error(self._start, f"expected zstd data, found damage: {error}") from error

    def _skip_skippable(self, position: int) -> int:
        """Walk over the skippable frames at `position`; return the end of the last one."""
        while position + _SKIPPABLE_HEADER.size <= len(self._data):
            magic, size = _SKIPPABLE_HEADER.unpack_from(self._data, position)
            if magic & _SKIPPABLE_MASK != _SKIPPABLE_MAGIC:
                break
            position += _SKIPPABLE_HEADER.size + size
            if position > len(self._data):
                raise self._cut_short()
        return position

    def _skip_frame(self, start: int) -> int:
        head = self._data[start : start + _MAX_FRAME_HEADER]
        if head[:4] != zstandard.FRAME_HEADER:
            found = bytes(head[:4])
            raise self._error(start, f"expected {zstandard.FRAME_HEADER!r}, found {found!r}")
        try:
            frame = zstandard.get_frame_parameters(head)
            position = start + zstandard.frame_header_size(head)
        except zstandard.ZstdError as error:
            raise self._error(start, f"expected a zstd frame, found damage: {error}") from error
        if frame.window_size > _MAX_WINDOW:
            raise UnsupportedError(
                f"expected a zstd window of at most {_MAX_WINDOW} bytes, "
                f"found {frame.window_size}; compress it again with a smaller one",
                path=self._path,
                offset=start,
                field="payload",
            )
        if frame.content_size == zstandard.CONTENTSIZE_UNKNOWN or self.exact_size is None:
            self.exact_size = None
        else:
            self.exact_size += frame.content_size
        position = self._skip_blocks(position) + (4 if frame.has_checksum else 0)
        if position > len(self._data):
            raise self._cut_short()
        return position

    def _skip_blocks(self, position: int) -> int:
        last = 0
        while not last:
            field = self._data[position : position + 3]
            if len(field) < 3:
                raise self._cut_short()
            header = int.from_bytes(field, "little")
            last, block_type, size = header & 1, header >> 1 & 3, header >> 3
            fullest = block_type == _COMPRESSED_BLOCK or size > zstandard.BLOCKSIZE_MAX
            self.max_size += zstandard.BLOCKSIZE_MAX if fullest else size
            position += 3 + (1 if block_type == _RLE_BLOCK else size)
        return position

    def _cut_short(self) -> FormatError:
        message = "expected more of the zstd frame, found the end; the file may be cut short"
        return self._error(len(self._data), message)


class ZlibStream(_Stream):
    """A zlib stream in `data` from `start`, at most up to `end`; iteration decompresses in chunks.

    After it, `end` is the end of the stream. `max_size` is the maximum size of the content.
    """

    exact_size = None  # a zlib stream does not record its content size

    def __init__(self, data: memoryview, start: int, end: int | None, path: StrPath | None) -> None:
        super().__init__(data, start, end, path)
        self.max_size = (self.end - start) * _ZLIB_MAX_RATIO

    def __iter__(self) -> Iterator[bytes]:
        """Decompress; raise FormatError if the payload is damaged or truncated."""
        engine = zlib.decompressobj()
        for start in range(self._start, len(self._data), _ZLIB_INPUT):
            piece = self._data[start : start + _ZLIB_INPUT]
            yield from self._inflate(engine, piece)
            if engine.eof:
                self.end = start + len(piece) - len(engine.unused_data)
                return
        message = "expected the end of the zlib stream, found none; the file may be cut short"
        raise self._error(len(self._data), message)

    def _inflate(self, engine: zlib._Decompress, piece: memoryview) -> Iterator[bytes]:
        """Yield the decompressed data of `piece`, at most `_OUTPUT_SIZE` bytes at a time."""
        rest: bytes | memoryview = piece
        while rest and not engine.eof:  # at the end, unconsumed_tail keeps its old value
            try:
                chunk = engine.decompress(rest, _OUTPUT_SIZE)
            except zlib.error as error:
                message = f"expected zlib data, found damage: {error}"
                raise self._error(self._start, message) from error
            rest = engine.unconsumed_tail
            if chunk:
                yield chunk
