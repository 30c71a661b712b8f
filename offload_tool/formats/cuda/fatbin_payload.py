"""The compressed payload of an entry of CUDA's fat binary: an LZ4 block or a zstd frame.

The entry's header records the method and the decompressed size. By default, ``fatbinary`` of CUDA
13 writes zstd, and earlier versions LZ4.

The sizes in a header are untrusted, so impossible ones are rejected before memory is allocated. A
byte of an LZ4 block stands for at most 255 bytes, and a zstd frame is walked over. The library
`lz4` is a dependency, because a decoder in Python would be a hundred times slower.
"""

from __future__ import annotations

from offload_tool.errors import FormatError, UnsupportedError, shortage
from offload_tool.io import StrPath
from offload_tool.io.limits import budget
from offload_tool.util.frozen import frozen

SCRAMBLED = "flag 0x10000: scrambled"
_FIELD = "payload of a CUDA image"
_LZ4_RATIO = 255
_LZ4_LAST = 64
"""Bytes; more than a block's last token can add to the ratio."""


@frozen
class Packed:
    """A compressed payload, as recorded in the header."""

    offset: int
    """Offset of its first byte in the data."""
    stored_size: int
    """Bytes, without padding."""
    size: int
    """Decompressed size in bytes."""
    method: str
    """``lz4``, ``zstd``, `SCRAMBLED`, or ``flag 0x...`` if unknown."""

    @property
    def is_readable(self) -> bool:
        """Whether this package can decompress it."""
        return self.method in ("lz4", "zstd")

    @property
    def end(self) -> int:
        """End of the payload in the data."""
        return self.offset + self.stored_size


def decompressed(data: memoryview, packed: Packed, *, path: StrPath | None = None) -> bytes:
    """Decompress a payload of `data` to exactly `packed.size` bytes.

    :raises FormatError: the payload is damaged, or its size is impossible or wrong.
    :raises UnsupportedError: its compression is unknown.
    :raises LimitError: the content exceeds the run's budget.
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
