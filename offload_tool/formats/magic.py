"""Magics of files and containers, in one module so that recognising a format loads no reader."""

from __future__ import annotations

import re

BUNDLE = b"__CLANG_OFFLOAD_BUNDLE__"
COMPRESSED_BUNDLE = b"CCOB"
OFFLOAD_BINARY = b"\x10\xff\x10\xad"
CUDA_FATBIN = b"\x50\xed\x55\xba"
KPACK = b"KPAK"
ELF = b"\x7fELF"
DOS = b"MZ"
"""Begins PE images."""
ARCHIVE = b"!<arch>\n"
THIN_ARCHIVE = b"!<thin>\n"
ZIP_MEMBER = b"PK\x03\x04"
ZIPS = (ZIP_MEMBER, b"PK\x05\x06")
"""Begin a zip file with members, and one without."""
BITCODE = b"BC\xc0\xde"
BITCODE_WRAPPER = b"\xde\xc0\x17\x0b"
"""Precedes bitcode for Apple's targets."""
BITCODES = (BITCODE, BITCODE_WRAPPER)
SPIRVS = (b"\x03\x02\x23\x07", b"\x07\x23\x02\x03")
"""Begin little-endian and big-endian SPIR-V."""


def begins(data: memoryview, magic: bytes, offset: int = 0) -> bool:
    """Return whether `data` has a magic at `offset`."""
    return data[offset : offset + len(magic)] == magic


def aligned(position: int, alignment: int) -> int:
    """Return the first multiple of `alignment`, which may be 0, from `position` on."""
    return position + -position % max(alignment, 1)


_NOT_ZERO = re.compile(rb"[^\0]")


def next_content(data: memoryview, start: int) -> int | None:
    """Return the offset of the first byte from `start` on that is not zero."""
    found = _NOT_ZERO.search(data, start)
    return None if found is None else found.start()
