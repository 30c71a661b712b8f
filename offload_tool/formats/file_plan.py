"""A new file as a list of pieces: literal bytes, ranges of a host file, contents to insert.

The editors of object files compute such a plan from the host's tables alone. It is
written by copying, so memory does not grow with the host or with what is inserted::

    position  0       64            5000            9000000    9000004   9008192
              Literal HostRange     Content 0       (zeros)    Literal   end
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from offload_tool.errors import FileError
from offload_tool.files import InputFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from offload_tool.files import OutputFile

__all__ = ["Content", "FilePlan", "HostRange", "Literal", "Piece", "Source", "join", "write_plan"]

_BUFFERED = 1 << 16
"""Pieces and gaps up to this size in bytes are gathered: a system call each would be slower."""


@dataclass(frozen=True, slots=True)
class Literal:
    """These bytes, at `position` of the new file."""

    position: int
    data: bytes

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.data)


@dataclass(frozen=True, slots=True)
class HostRange:
    """`size` bytes from `offset` of the host, at `position` of the new file."""

    position: int
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Content:
    """The whole content number `index` of those to insert, at `position` of the new file."""

    position: int
    index: int
    size: int


Piece: TypeAlias = "Literal | HostRange | Content"
Source: TypeAlias = "InputFile | bytes | memoryview"


@dataclass(frozen=True, slots=True)
class FilePlan:
    """A new file: `size` bytes, all zero but for the `pieces`, which are in file order."""

    pieces: tuple[Piece, ...]
    size: int


def join(pieces: Iterable[Piece]) -> tuple[Piece, ...]:
    """Leave out empty pieces, and make one of neighbours that are neighbours in the host."""
    joined: list[Piece] = []
    for piece in pieces:
        last = joined[-1] if joined else None
        if (
            isinstance(piece, HostRange)
            and isinstance(last, HostRange)
            and last.position + last.size == piece.position
            and last.offset + last.size == piece.offset
        ):
            joined[-1] = HostRange(last.position, last.offset, last.size + piece.size)
        elif piece.size:
            joined.append(piece)
    return tuple(joined)


def write_plan(
    out: OutputFile,
    plan: FilePlan,
    host: Source,
    contents: Sequence[Source] = (),
    *,
    host_offset: int = 0,
) -> None:
    """Append the planned file to `out`; its contents are `contents`, in the plan's numbering.

    `host_offset` is where the host begins in `host` (a member of an archive), in bytes.

    :raises FileError: a file is not as long as it was when the plan was made.
    """
    writer = _Writer(out)
    for piece in plan.pieces:
        writer.pad_to(piece.position)
        if isinstance(piece, Literal):
            writer.append(piece.data, 0, piece.size)
        elif isinstance(piece, HostRange):
            writer.append(host, host_offset + piece.offset, piece.size)
        else:
            source = contents[piece.index]
            if isinstance(source, InputFile) and len(source) != piece.size:
                raise FileError(source.path, "changed its size while it was read; try again")
            writer.append(source, 0, piece.size)
    writer.pad_to(plan.size)
    writer.flush()


class _Writer:
    """Gathers small pieces and gaps before they go to the file."""

    def __init__(self, out: OutputFile) -> None:
        self.out = out
        self.start = out.position
        self.buffer = bytearray()

    def append(self, source: Source, offset: int, size: int) -> None:
        if isinstance(source, InputFile):
            if size > _BUFFERED:
                self.flush()
                self.out.copy(source, offset, size)
                return
            source = source.data
        data = memoryview(source)[offset : offset + size]
        if size > _BUFFERED:
            self.flush()
            self.out.write(data)
            return
        self.buffer += data
        if len(self.buffer) > _BUFFERED:
            self.flush()

    def pad_to(self, position: int) -> None:
        gap = position - (self.out.position - self.start + len(self.buffer))
        if 0 < gap <= _BUFFERED:
            self.buffer += bytes(gap)
        elif gap > 0:
            self.flush()
            self.out.pad_to(self.start + position)

    def flush(self) -> None:
        self.out.write(memoryview(self.buffer))
        self.buffer = bytearray()
