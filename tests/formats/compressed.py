"""Compressed bundles made by hand, field by field, for the tests of what reads them."""

from __future__ import annotations

import hashlib
import struct
import zlib

import zstandard

ZLIB, ZSTD = 0, 1
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


def md5_half(data: bytes) -> bytes:
    return hashlib.md5(data).digest()[:8]


def header(version: int, method: int, payload: int, size: int, digest: bytes) -> bytes:
    """Pack a header for a payload of `payload` bytes that holds `size` bytes."""
    start = b"CCOB" + struct.pack("<HH", version, method)
    if version == 1:
        return start + struct.pack("<I", size) + digest
    if version == 2:
        return start + struct.pack("<II", 24 + payload, size) + digest
    return start + struct.pack("<QQ", 32 + payload, size) + digest


def compressed(
    data: bytes,
    version: int = 3,
    method: int = ZSTD,
    *,
    payload: bytes | None = None,
    size: int | None = None,
    digest: bytes | None = None,
) -> bytes:
    """Compress `data`; what is given by name replaces what would be right."""
    if payload is None:
        payload = zlib.compress(data) if method == ZLIB else zstandard.compress(data)
    size = len(data) if size is None else size
    return header(version, method, len(payload), size, digest or md5_half(data)) + payload


def skippable(data: bytes, kind: int = 0) -> bytes:
    """Return a zstd frame that holds nothing: a reader skips `data`."""
    return struct.pack("<II", 0x184D2A50 + kind, len(data)) + data


def compressed_offload_binary(data: bytes, method: int = ZSTD, *, inflated: int = 0) -> bytes:
    """Compress an offload binary of version 2 into version 3, whose header is 8 bytes longer.

    `inflated` replaces the size that would be right.
    """
    made = bytearray(data[:32] + bytes(8) + data[32:])
    count, entries_at = struct.unpack_from("<Q", made, 24)[0], 40
    struct.pack_into("<Q", made, 16, entries_at)
    struct.pack_into("<I", made, 4, 3)
    fields = []
    for at in range(entries_at, entries_at + 40 * count, 40):
        pairs_at, pairs = struct.unpack_from("<QQ", made, at + 8)
        fields += [at + 8, at + 24]
        fields += [pairs_at + 8 + 24 * n + f for n in range(pairs) for f in (0, 8)]
    for at in fields:
        struct.pack_into("<Q", made, at, struct.unpack_from("<Q", made, at)[0] + 8)
    body = bytes(made[40:])
    payload = zlib.compress(body) if method == ZLIB else zstandard.compress(body)
    struct.pack_into("<Q", made, 8, 40 + len(payload))
    struct.pack_into("<Q", made, 32, inflated or len(made))
    packed = bytes(made[:40]) + payload
    return packed + bytes(-len(packed) % 8)


def repeated(byte: bytes, blocks: int, *, window: int = 7) -> bytes:
    """Return a zstd frame, without a content size, of `blocks` times 128 KiB of `byte`."""
    full = (1 << 17) << 3 | 1 << 1
    rows = [full.to_bytes(3, "little") + byte] * (blocks - 1)
    last = (full | 1).to_bytes(3, "little") + byte
    return ZSTD_MAGIC + bytes([0, window << 3]) + b"".join(rows) + last
