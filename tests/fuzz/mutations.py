"""Changes that know where numbers, names and packed contents are; from a random number alone."""

from __future__ import annotations

import random
import struct
import zipfile
from typing import NamedTuple

from tests.formats.compressed import compressed
from tests.formats.object_files import make_coff, make_elf
from tests.fuzz.seeds import archive, bundle, make_seeds, zipped

NUMBERS = (0, 1, 2, 7, 0x7F, 0xFF, 0x100, 0xFFFF, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1)
WIDE = (1 << 32, 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, (1 << 64) - 16)
NAMES = (
    *(b"", b"\n::error::x", b"\x1b[31m", b"\xc2\x9b", b"\xe2\x80\xae", b"../../x", b"/etc/passwd"),
    *(b"\0", b"\xff\xfe", b"a" * 300, b".", b"..", b"-", b"%s%n", b"[red]"),
)
DIGITS = (b"0", b"-1", b"9999999999", b"4294967295", b"x", b"1e9", b"")
MAGICS = (
    *(b"__CLANG_OFFLOAD_BUNDLE__", b"CCOB", b"\x10\xff\x10\xad", b"\x50\xed\x55\xba", b"\x7fELF"),
    *(b"BC\xc0\xde", b"PK\x01\x02", b"PK\x05\x06", b"PK\x03\x04", b"`\n"),
)


class Case(NamedTuple):
    """A file to be read."""

    seed: int
    format: str
    data: bytes


def make_case(seed: int) -> Case:
    """Return the case of a number; always the same one."""
    chance = random.Random(seed)
    seeds = make_seeds()
    name = chance.choice(sorted(seeds))
    data = bytearray(seeds[name])
    for _ in range(chance.choice((1, 1, 1, 2, 3, 8))):
        change = chance.choice(CHANGES)
        data = bytearray(change(chance, data))[: 1 << 20]
    while chance.random() < 0.25:
        data = bytearray(wrap(chance, bytes(data)))
    return Case(seed, name, bytes(data))


def place(chance: random.Random, data: bytearray) -> int:
    """Choose an offset: near the front, near a magic, or anywhere."""
    way = chance.random()
    found = data.find(chance.choice(MAGICS), chance.randrange(len(data) + 1)) if way < 0.3 else -1
    if found >= 0:
        return min(found + chance.randrange(0, 64, 2), max(len(data) - 1, 0))
    most = 128 if way < 0.65 else len(data)
    at = chance.randrange(max(1, min(most, len(data))))
    return at - at % chance.choice((1, 2, 4, 8))


def number(chance: random.Random, data: bytearray) -> bytearray:
    """Put an interesting number, or one near what is there or near the file's size, at a place."""
    size = chance.choice((1, 2, 4, 4, 8, 8))
    at = place(chance, data)
    if at + size > len(data):
        return data
    order = "little" if chance.random() < 0.85 else "big"
    old = int.from_bytes(data[at : at + size], order)
    near = (old + chance.choice((-8, -1, 1, 8, 16)), old * 2, len(data) - at, len(data), old ^ 1)
    value = chance.choice((*NUMBERS, *(WIDE if size == 8 else ()), *near))
    data[at : at + size] = (value % (1 << 8 * size)).to_bytes(size, order)
    return data


def flip(chance: random.Random, data: bytearray) -> bytearray:
    for _ in range(chance.choice((1, 2, 16)) if data else 0):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return data


def cut(chance: random.Random, data: bytearray) -> bytearray:
    return data[: place(chance, data)]


def remove(chance: random.Random, data: bytearray) -> bytearray:
    at = place(chance, data)
    del data[at : at + chance.choice((1, 2, 4, 8, 24, 60, 100))]
    return data


def repeat(chance: random.Random, data: bytearray) -> bytearray:
    at = place(chance, data)
    part = data[at : at + chance.choice((8, 24, 40, 60, 64, 1000))]
    return data[:at] + part * chance.choice((2, 3, 50)) + data[at:]


def name(chance: random.Random, data: bytearray) -> bytearray:
    """Put a hostile name, or digits, over what is at a place, or between."""
    text = chance.choice((*NAMES, *DIGITS))
    at = place(chance, data)
    return data[:at] + text + data[at + (len(text) if chance.random() < 0.8 else 0) :]


def splice(chance: random.Random, data: bytearray) -> bytearray:
    other = chance.choice(sorted(make_seeds().items()))[1]
    at, begin = place(chance, data), chance.randrange(len(other))
    return data[:at] + other[begin:] + (data[at:] if chance.random() < 0.5 else b"")


CHANGES = (number, number, number, number, flip, cut, remove, repeat, name, splice)


def wrap(chance: random.Random, data: bytes) -> bytes:
    """Put a file into another one, which is as it should be."""
    method = chance.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    text = chance.choice(NAMES).decode("latin-1").replace("\0", "")
    ways = (
        lambda: compressed(data, chance.choice((1, 2, 3)), chance.choice((0, 1))),
        lambda: archive({chance.choice(NAMES[1:]) or b"m": data}),
        lambda: zipped({text: data, "z": data[:100]}, method),
        lambda: make_elf(extra={chance.choice((b".hip_fatbin", b".nv_fatbin", b".data")): data}),
        lambda: make_coff({b".hip_fat": data}),
        lambda: bundle({b"hip-amdgcn-amd-amdhsa--gfx906": data, chance.choice(NAMES): data}),
        lambda: data + bytes(chance.randrange(32)) + data,
        lambda: b"x" * 64 + data + struct.pack("<Q", len(data)),
    )
    return chance.choice(ways)()
