"""Tables as LLVM 22 lays them out: strings with shared suffixes, and keys in hash order.

A string table begins with one NUL, to which the empty string points. The NUL-terminated strings are
sorted by their reversed bytes, descending, so that a string directly precedes its own suffixes. A
suffix is not stored again but points into the string before it::

    strings        text, .text, .rela.text, .data
    reversed       txet  txet.  txet.aler.  atad.
    stored         NUL ".rela.text" NUL ".data" NUL
    offsets        .rela.text 1, .text 6, text 7, .data 12

The keys of an offload binary are in the order of LLVM's hash table::

    key --> hash, 64 bits --> bucket = low bits --> taken? add 1, then 2, then 3 ...
    the table: 64 buckets, doubled before it is three quarters full; keys stand in bucket order

The keys ``file`` and ``kind``, which are not stored, occupy buckets too.
Source: llvm/ADT/Hashing.h and DenseMap.h of LLVM 22; llvm-objcopy and llvm-offload-binary 22.1.8,
observed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

_MASK = (1 << 64) - 1
_SEED = 0xFF51AFD7ED558CCD
_K0, _K1, _K2 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F
_K3, _MUL = 0xC949D7C7509E6557, 0x9DDFEA08EB382D69
_BUCKETS = 64
_BLOCK = 64


def in_table_order(keys: Iterable[bytes]) -> list[bytes]:
    """Return the unique keys in the order of LLVM's table after these insertions."""
    buckets = _BUCKETS
    table: dict[int, bytes] = {}
    for number, key in enumerate(dict.fromkeys(keys), 1):
        if 4 * number >= 3 * buckets:
            buckets *= 2
            rows = [table[at] for at in sorted(table)]
            table = {}
            for row in rows:
                _insert(table, row, buckets)
        _insert(table, key, buckets)
    return [table[at] for at in sorted(table)]


def _insert(table: dict[int, bytes], key: bytes, buckets: int) -> None:
    at, step = _hash(key) % buckets, 1
    while at in table:
        at, step = (at + step) % buckets, step + 1
    table[at] = key


def _hash(key: bytes) -> int:
    """Return ``hash_value`` of a string in release builds; LLVM branches by length in bytes."""
    size = len(key)
    if size > _BLOCK:
        return _hash_long(key)
    if size > 32:
        return _hash_33_to_64(key)
    if size > 16:
        return _hash_17_to_32(key)
    if size > 8:
        first, last = _word(key, 0), _word(key, size - 8)
        return _mix(_SEED ^ first, _rotate((last + size) & _MASK, size)) ^ last
    if size > 3:
        first, last = struct.unpack_from("<I", key)[0], struct.unpack_from("<I", key, size - 4)[0]
        return _mix(size + 8 * first, _SEED ^ last)
    if size == 0:
        return _K2 ^ _SEED
    y, z = key[0] + (key[size >> 1] << 8), size + (key[-1] << 2)
    return _fold((y * _K2 & _MASK) ^ (z * _K3 & _MASK) ^ _SEED) * _K2 & _MASK


def _hash_17_to_32(key: bytes) -> int:
    size = len(key)
    a, b = _word(key, 0) * _K1 & _MASK, _word(key, 8)
    c, d = _word(key, size - 8) * _K2 & _MASK, _word(key, size - 16) * _K0 & _MASK
    return _mix(
        (_rotate((a - b) & _MASK, 43) + _rotate(c ^ _SEED, 30) + d) & _MASK,
        (a + _rotate(b ^ _K3, 20) - c + size + _SEED) & _MASK,
    )


def _hash_33_to_64(key: bytes) -> int:
    size = len(key)
    a = _word(key, 0) + (size + _word(key, size - 16)) * _K0
    vf, vs = _half(key, a, _word(key, 24), 8, 16)
    a = _word(key, 16) + _word(key, size - 32)
    wf, ws = _half(key, a, _word(key, size - 8), size - 24, size - 16)
    r = _fold(((vf + ws) * _K2 + (wf + vs) * _K0) & _MASK)
    return _fold(((_SEED ^ (r * _K0 & _MASK)) + vs) & _MASK) * _K2 & _MASK


def _half(key: bytes, a: int, z: int, second: int, third: int) -> tuple[int, int]:
    b, c = _rotate((a + z) & _MASK, 52), _rotate(a & _MASK, 37)
    a += _word(key, second)
    c += _rotate(a & _MASK, 7)
    a += _word(key, third)
    return (a + z) & _MASK, (b + _rotate(a & _MASK, 31) + c) & _MASK


def _hash_long(key: bytes) -> int:
    size = len(key)
    state = [0, _SEED, _mix(_SEED, _K1), _rotate(_SEED ^ _K1, 49), _SEED * _K1 & _MASK]
    state += [_fold(_SEED)]
    state += [_mix(state[4], state[5])]
    for at in range(0, size - size % _BLOCK, _BLOCK):
        state = _mix_block(state, key, at)
    if size % _BLOCK:
        state = _mix_block(state, key, size - _BLOCK)
    h0, h1, h2, h3, h4, h5, h6 = state
    return _mix(
        (_mix(h3, h5) + _fold(h1) * _K1 + h2) & _MASK,
        (_mix(h4, h6) + _fold(size) * _K1 + h0) & _MASK,
    )


def _mix_block(state: list[int], key: bytes, at: int) -> list[int]:
    h0, h1, h2, h3, h4, h5, h6 = state
    h0 = _rotate((h0 + h1 + h3 + _word(key, at + 8)) & _MASK, 37) * _K1 & _MASK
    h1 = _rotate((h1 + h4 + _word(key, at + 48)) & _MASK, 42) * _K1 & _MASK
    h0 ^= h6
    h1 = (h1 + h3 + _word(key, at + 40)) & _MASK
    h2 = _rotate((h2 + h5) & _MASK, 33) * _K1 & _MASK
    h3, h4 = _mix_32(key, at, h4 * _K1 & _MASK, (h0 + h5) & _MASK)
    h5, h6 = _mix_32(key, at + 32, (h2 + h6) & _MASK, (h1 + _word(key, at + 16)) & _MASK)
    return [h2, h1, h0, h3, h4, h5, h6]


def _mix_32(key: bytes, at: int, a: int, b: int) -> tuple[int, int]:
    a = (a + _word(key, at)) & _MASK
    c = _word(key, at + 24)
    b = _rotate((b + a + c) & _MASK, 21)
    d = a
    a = (a + _word(key, at + 8) + _word(key, at + 16)) & _MASK
    return (a + c) & _MASK, (b + _rotate(a, 44) + d) & _MASK


def _word(key: bytes, at: int) -> int:
    return int.from_bytes(key[at : at + 8], "little")


def _rotate(value: int, by: int) -> int:
    by %= 64
    return (value >> by | value << (64 - by)) & _MASK


def _fold(value: int) -> int:
    return value ^ (value >> 47)


def _mix(low: int, high: int) -> int:
    a = _fold((low ^ high) * _MUL & _MASK)
    return _fold((high ^ a) * _MUL & _MASK) * _MUL & _MASK


def build_string_table(strings: Iterable[bytes]) -> tuple[bytes, dict[bytes, int]]:
    """Return the table, and the offset of each string."""
    table = bytearray(1)
    offsets = {b"": 0}
    stored = b""
    for reverse in sorted({string[::-1] for string in strings if string}, reverse=True):
        string = reverse[::-1]
        if not stored.endswith(string):
            stored = string
            table += string + b"\0"
        offsets[string] = len(table) - 1 - len(string)
    return bytes(table), offsets
