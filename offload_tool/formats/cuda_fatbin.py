"""CUDA's fat binary: PTX texts and cubins of one source, as nvcc embeds them.

::

    offset  size  field of the header
    ------  ----  ------------------------------------------------------------------
    0       4     magic, 0xBA55ED50
    4       2     version, 1
    6       2     size of this header, 16
    8       8     size of all entries behind it

    offset  size  field of an entry
    ------  ----  ------------------------------------------------------------------
    0       2     kind: 1 PTX, 2 ELF (a cubin)
    4       4     size of this entry's header, 64 or more
    8       8     size of the payload that follows it, with padding
    16      4     size of the payload without padding where it is compressed, else 0
    20      4     PTX: 64, where the options for ptxas are told of
    24      2, 2  PTX: its version, minor and major; ELF: its ABI version, 1
    28      4     number of the processor: 90 is ``sm_90`` (``compute_90`` for PTX)
    48      8     flags: 0x1 64-bit, 0x10 Linux, 0x1000 for ``sm_90a`` and the like
    56      8     size of what the payload decompresses to, or 0
    64      16    PTX: 72, where the options begin (none: 0)

Entries follow each other without gaps. Integers are little-endian and unsigned. In a
program, the section ``.nv_fatbin`` (``__nv_relfatbin`` with relocatable device code)
holds one or more of these, with zeros between.

Source: NVIDIA documents no layout. This one is public through independent readers (the
``cricket`` project's fatbin decompressor, 2023) and held for all entries of the PyPI wheel
jax-cuda12-plugin 0.6.2. Payloads are compressed by NVIDIA's own methods and not read here.
What is written is what fatbinary 13.0 writes with ``--compress=false``, observed: the same
bytes for cubins, and the same headers for PTX, whose text it shortens.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from offload_tool.errors import FormatError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offload_tool.files import StrPath

__all__ = [
    "SECTIONS",
    "CudaEntry",
    "CudaFatbin",
    "NewCudaEntry",
    "is_cuda_fatbin",
    "plan_cuda_fatbin",
    "read_cuda_fatbin",
]

SECTIONS = (".nv_fatbin", "__nv_relfatbin")
_MAGIC = 0xBA55ED50
_HEADER = struct.Struct("<IHHQ")
_ENTRY = struct.Struct("<H2xIQI8xI24xQ")
_KINDS = {1: "ptx", 2: "elf"}
_PTX, _ELF = 1, 2
_NEW_ENTRY = struct.Struct("<HHIQIIHHI16xQQ")
_ENTRY_VERSION = 0x101
_PTX_OPTIONS = struct.pack("<QQ", 72, 0)
_FLAGS = 0x11
_SPECIFIC_FLAG = 0x1000
_PROCESSOR = re.compile(r"sm_(\d+)(a?)")
_PTX_VERSION = re.compile(rb"^\.version (\d+)\.(\d+)", re.MULTILINE)
_PTX_HEAD = 4096
"""Bytes in which a PTX module's version is looked for: only comments stand before it."""
_ELF_ABI_VERSION = 8
"""Its offset in an ELF file."""
_ALIGNMENT = 8


@dataclass(frozen=True, slots=True)
class CudaEntry:
    """One entry: for what processor it is, and where its payload is."""

    kind: str
    """``ptx``, ``elf``, or ``kind N`` for what is not publicly known."""
    processor: str
    """``sm_90``, or ``compute_90`` for PTX."""
    offset: int
    """Bytes from the beginning of the data it was read from to the payload."""
    stored_size: int
    """Bytes of the payload, without padding where this is known."""
    size: int
    """Bytes after decompression; `stored_size` where it is not compressed."""
    is_compressed: bool


@dataclass(frozen=True, slots=True)
class CudaFatbin:
    """A fat binary's entries; `size` is in bytes, with its header."""

    entries: tuple[CudaEntry, ...]
    size: int


def is_cuda_fatbin(data: memoryview, offset: int = 0) -> bool:
    """Tell whether a fat binary's magic stands at `offset`."""
    return data[offset : offset + 4] == _MAGIC.to_bytes(4, "little")


def read_cuda_fatbin(
    data: memoryview, offset: int = 0, *, path: StrPath | None = None
) -> CudaFatbin:
    """Read the fat binary at `offset` of `data`; `path` is for messages only.

    :raises FormatError: none is there, or its sizes contradict the data.
    """

    def error(position: int, field: str, message: str) -> FormatError:
        return FormatError(message, path=path, offset=position, field=field)

    available = len(data) - offset
    if available < _HEADER.size:
        message = f"expected {_HEADER.size} bytes, found {max(available, 0)}"
        raise error(offset, "CUDA fat binary header", message)
    magic, version, header_size, size = _HEADER.unpack_from(data, offset)
    if magic != _MAGIC:
        raise error(offset, "magic", f"expected {_MAGIC:#x}, found {magic:#x}")
    if version != 1 or header_size < _HEADER.size:
        message = f"expected version 1 and a header of 16 bytes, found {version} and {header_size}"
        raise error(offset + 4, "CUDA fat binary header", message)
    if header_size + size > available:
        message = f"expected at most {available} bytes, found {header_size + size}"
        raise error(offset + 8, "size", f"{message}; the file may be cut short")
    position, end = offset + header_size, offset + header_size + size
    entries: list[CudaEntry] = []
    while position < end:
        field = f"CUDA entry {len(entries) + 1}"
        if end - position < _ENTRY.size:
            message = f"expected {_ENTRY.size} bytes, found {end - position}"
            raise error(position, field, message)
        kind, entry_header, payload, packed, number, unpacked = _ENTRY.unpack_from(data, position)
        room = end - position
        if entry_header < _ENTRY.size or entry_header + payload > room or packed > payload:
            message = (
                f"expected a header of {_ENTRY.size} bytes or more and a payload within {room} "
                f"bytes, found {entry_header} and {payload} ({packed} compressed)"
            )
            raise error(position, field, message)
        name = _KINDS.get(kind, f"kind {kind}")
        stored = packed or payload
        entries.append(
            CudaEntry(
                name,
                f"{'compute' if name == 'ptx' else 'sm'}_{number}",
                position + entry_header,
                stored,
                unpacked if packed else stored,
                bool(packed),
            )
        )
        position += entry_header + payload
    return CudaFatbin(tuple(entries), header_size + size)


@dataclass(frozen=True, slots=True)
class NewCudaEntry:
    """A device image to be written: PTX or a cubin (seen from its content), for a processor."""

    processor: str
    """``sm_90a``; for PTX too."""
    content: memoryview


def plan_cuda_fatbin(entries: Sequence[NewCudaEntry]) -> list[bytes | memoryview]:
    """Give the pieces of a fat binary of uncompressed images, in their order.

    :raises UsageError: a processor that such an entry cannot name.
    :raises FormatError: a content that is neither PTX nor ELF.
    """
    pieces: list[bytes | memoryview] = []
    for entry in entries:
        header, tail = _frame(entry)
        pieces += [header, entry.content, tail]
    size = sum(map(len, pieces))
    return [_HEADER.pack(_MAGIC, 1, _HEADER.size, size), *pieces]


def _frame(entry: NewCudaEntry) -> tuple[bytes, bytes]:
    """Give what stands before and behind an image."""
    processor = _PROCESSOR.fullmatch(entry.processor)
    if processor is None:
        raise UsageError(
            f"'{entry.processor}' cannot be in a CUDA fat binary; expected sm_NN or sm_NNa"
        )
    is_elf = bytes(entry.content[:4]) == b"\x7fELF"
    if is_elf and len(entry.content) > _ELF_ABI_VERSION:
        kind, version, options, terminator = _ELF, (entry.content[_ELF_ABI_VERSION], 1), b"", 0
    else:
        kind, version, options, terminator = _PTX, _ptx_version(entry.content), _PTX_OPTIONS, 1
    size = len(entry.content) + terminator
    padding = -size % _ALIGNMENT
    header = _NEW_ENTRY.pack(
        kind,
        _ENTRY_VERSION,
        _NEW_ENTRY.size + len(options),
        size + padding,
        0,
        _NEW_ENTRY.size if options else 0,
        *version,
        int(processor[1]),
        _FLAGS | (_SPECIFIC_FLAG if processor[2] else 0),
        0,
    )
    return header + options, bytes(terminator + padding)


def _ptx_version(content: memoryview) -> tuple[int, int]:
    found = _PTX_VERSION.search(bytes(content[:_PTX_HEAD]))
    if found is None:
        raise FormatError(
            f"expected a cubin or PTX with a line '.version', found {bytes(content[:8])!r}"
        )
    return int(found[2]), int(found[1])
