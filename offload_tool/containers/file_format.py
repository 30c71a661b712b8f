"""The formats of files that hold device images, or hold files that do."""

from __future__ import annotations

import re
from enum import Enum

from offload_tool.formats import magic
from offload_tool.formats.bundle.text import COMMENT_MARKS
from offload_tool.formats.objects.coff import is_coff


class FileFormat(Enum):
    """What a file, a part of one or a container is; the value is its name for users."""

    BUNDLE = "bundle"
    """Of the binary layout; as what a file begins like, a compressed one too."""
    COMPRESSED_BUNDLE = "compressed-bundle"
    TEXT_BUNDLE = "text"
    OBJECT_BUNDLE = "object"
    OFFLOAD_BINARY = "offload-binary"
    CUDA_FATBIN = "cuda-fatbin"
    CODE_OBJECT = "code-object"
    """Device code that no container is around."""
    KPACK = "kpack"
    """A kpack archive, and what one has under one key."""
    KPACK_MARKER = "kpack-marker"
    """In a host program: its device code is in kpack archives."""
    ARCHIVE = "archive"
    ZIP = "zip"
    ELF = "elf"
    COFF = "coff"
    BITCODE = "bitcode"


_MAGICS = (
    (magic.BUNDLE, FileFormat.BUNDLE),
    (magic.COMPRESSED_BUNDLE, FileFormat.BUNDLE),
    (magic.ELF, FileFormat.ELF),
    *((start, FileFormat.ZIP) for start in magic.ZIPS),
    (magic.ARCHIVE, FileFormat.ARCHIVE),
    (magic.THIN_ARCHIVE, FileFormat.ARCHIVE),
    (magic.OFFLOAD_BINARY, FileFormat.OFFLOAD_BINARY),
    (magic.CUDA_FATBIN, FileFormat.CUDA_FATBIN),
    (magic.KPACK, FileFormat.KPACK),
    *((magic, FileFormat.BITCODE) for magic in magic.BITCODES),
)
_LONGEST = max(len(magic) for magic, _ in _MAGICS)
_TEXT_START = re.compile(
    b"\n("
    + b"|".join(sorted({mark.encode() for mark in COMMENT_MARKS.values()}))
    + b") __CLANG_OFFLOAD_BUNDLE____START__ "
)
_NOT_ZERO = re.compile(rb"[^\0]")


def recognise(data: memoryview, *, anywhere: bool = False) -> FileFormat | None:
    """Return what `data` begins like; a text bundle may have text before it if `anywhere`."""
    begin = bytes(data[:_LONGEST])
    for start, file_format in _MAGICS:
        if begin.startswith(start):
            return file_format
    if is_coff(data):
        return FileFormat.COFF
    marker = _TEXT_START.search(data) if anywhere else _TEXT_START.match(data)
    return FileFormat.TEXT_BUNDLE if marker else None


def text_comment(data: memoryview) -> str:
    """Return the line comment with which a text bundle is marked; empty if it is none."""
    marker = _TEXT_START.search(data)
    return marker[1].decode() if marker else ""


def next_content(data: memoryview, start: int) -> int | None:
    """Return where the first byte that is not zero is, from `start` on."""
    found = _NOT_ZERO.search(data, start)
    return None if found is None else found.start()
