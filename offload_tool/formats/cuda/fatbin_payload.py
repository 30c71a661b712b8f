"""The payload of an entry of CUDA's fat binary, compressed: an LZ4 block or a zstd frame.

Which of them it is, and what it unpacks to, the entry's header says. What ``fatbinary`` does
for each ``--compress-mode``::

    mode      CUDA 13               12.9                  compressed are
    default   zstd, level 5         LZ4, NVIDIA's own     PTX and NVVM; with -g all images
    balance   zstd, level 5         zstd, level 5         the same
    speed     LZ4 HC, level 3       LZ4, NVIDIA's own     the same
    size      zstd, level 19        zstd, level 19        all images
    none      -                     -                     none

The payload stays compressed where that makes it larger. Observed: with libzstd 1.5.7 and liblz4
1.9.4 or 1.10, the bytes are those of 13.0 and 13.5; with libzstd 1.5.5 (zstandard 0.22) those of
12.9. The exception are the blocks of LZ4 that 12.9 and 13.0 write: no setting of liblz4 gives
them, so ours are HC's, which are a tenth smaller; what is unpacked is the same.

Decompressing: a header's sizes are claims, so what cannot be true is refused before there is room
for it. A byte of an LZ4 block stands for at most 255, and a zstd frame is walked over. The `lz4`
library is a dependency, because a decoder of our own would be a hundred times slower.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

from offload_tool.errors import FormatError, UnsupportedError, UsageError, shortage
from offload_tool.io import StrPath
from offload_tool.io.limits import budget
from offload_tool.util.frozen import frozen

Method: TypeAlias = 'Literal["lz4", "zstd"]'
CompressionMode: TypeAlias = 'Literal["none", "default", "balance", "speed", "size"]'
MODES: tuple[CompressionMode, ...] = get_args(
    Literal["none", "default", "balance", "speed", "size"]
)

SCRAMBLED = "flag 0x10000: scrambled"
_FIELD = "payload of a CUDA image"
_LZ4_HC = 3
_LEVEL, _HIGH_LEVEL = 5, 19
_LZ4_RATIO = 255
_LZ4_LAST = 64
"""Bytes; more than a block's last token can add to the ratio."""


@frozen
class Packed:
    """A compressed payload, and what the header says of it."""

    offset: int
    """Of its first byte, from the beginning of the data."""
    stored_size: int
    """Bytes, without padding."""
    size: int
    """Bytes that it unpacks to."""
    method: str
    """``lz4``, ``zstd``, `SCRAMBLED`, or ``flag 0x...`` for what is not known."""

    @property
    def is_readable(self) -> bool:
        """Whether it is publicly known how this is unpacked."""
        return self.method in ("lz4", "zstd")

    @property
    def end(self) -> int:
        """Where it ends in the data."""
        return self.offset + self.stored_size


def method_for(mode: CompressionMode, release: int) -> Method:
    """Return the method of a ``--compress-mode`` other than none.

    :raises UsageError: there is no such mode.
    """
    if mode not in MODES or mode == "none":
        raise UsageError(f"'{mode}' is no mode of compression; expected one of {', '.join(MODES)}")
    return "lz4" if mode == "speed" or (mode == "default" and release < 13) else "zstd"


def compressed(content: bytes | memoryview, mode: CompressionMode, release: int) -> bytes:
    """Compress a payload as ``fatbinary`` of CUDA 13 does; of `release` 12 with its method.

    :raises UsageError: there is no such mode.
    """
    if method_for(mode, release) == "lz4":
        import lz4.block

        packed: bytes = lz4.block.compress(
            content, mode="high_compression", compression=_LZ4_HC, store_size=False
        )
        return packed
    import zstandard

    level = _HIGH_LEVEL if mode == "size" else _LEVEL
    return zstandard.ZstdCompressor(level=level).compress(content)


def decompressed(data: memoryview, packed: Packed, *, path: StrPath | None = None) -> bytes:
    """Unpack a payload of `data`, which must give `packed.size` bytes.

    :raises FormatError: it is damaged, gives more or fewer bytes, or cannot give so many.
    :raises UnsupportedError: it is compressed in a way that is not known.
    :raises LimitError: it is more than the run's budget allows.
    """
    if not packed.is_readable:
        message = f"cannot be unpacked: how is not publicly known ({packed.method})"
        raise UnsupportedError(message, path=path, offset=packed.offset, field=_FIELD)
    unpack = _from_lz4 if packed.method == "lz4" else _from_zstd
    content = unpack(data, packed, path)
    if len(content) != packed.size:
        message = f"expected {packed.size} bytes when unpacked, found {len(content)}"
        raise _error(packed, path, message)
    return content


def _from_lz4(data: memoryview, packed: Packed, path: StrPath | None) -> bytes:
    import lz4.block

    most = packed.stored_size * _LZ4_RATIO + _LZ4_LAST
    if packed.size > most:
        message = f"expected at most {most} bytes unpacked (what the LZ4 block can hold), found "
        raise _error(packed, path, f"{message}{packed.size}")
    budget(packed.stored_size).unpack(packed.size, path)
    try:
        stored = data[packed.offset : packed.end]
        content: bytes = lz4.block.decompress(stored, uncompressed_size=packed.size)
    except (lz4.block.LZ4BlockError, ValueError) as error:
        raise _error(packed, path, f"the LZ4 block is damaged ({error})") from error
    return content


def _from_zstd(data: memoryview, packed: Packed, path: StrPath | None) -> bytes:
    import zstandard

    from offload_tool.formats.codec import ZstdStream

    stream = ZstdStream(data, packed.offset, packed.end, path)
    if stream.exact not in (None, packed.size) or packed.size > stream.most:
        what = f"at most {stream.most}" if stream.exact is None else str(stream.exact)
        message = f"expected {what} bytes unpacked (what the zstd frame says), found {packed.size}"
        raise _error(packed, path, message)
    budget(packed.stored_size).unpack(packed.size, path)
    try:
        stored = data[packed.offset : packed.end]
        return zstandard.ZstdDecompressor().decompress(stored, max_output_size=packed.size)
    except zstandard.ZstdError as error:
        if shortage(error):
            raise MemoryError from error
        raise _error(packed, path, f"the zstd frame is damaged ({error})") from error


def _error(packed: Packed, path: StrPath | None, message: str) -> FormatError:
    return FormatError(message, path=path, offset=packed.offset, field=_FIELD)
