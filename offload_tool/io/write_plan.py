"""A new file as a list of pieces: literal bytes, and ranges of other files.

A plan is made from tables and sizes alone. Writing it copies the ranges, so memory does not grow
with their size::

    position  0       64            5000            9000000    9000004   9008192
              Literal Range of host Range of        (zeros)    Literal   end
                                    the content

An editor of object files has the data of the file, but not the open file: its plan refers to it as
`HOST`, and `bound` fills it in. A plan can have more `Unopened` files than can be open at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import NamedTuple, TypeAlias

from offload_tool.errors import FileError
from offload_tool.io import FileRange, InputFile, OutputFile, StrPath, replace_file

HOST = -1
"""Stands for the edited file."""
_ZEROS = bytes(1 << 20)

Source: TypeAlias = "InputFile | bytes | memoryview"
Part: TypeAlias = "bytes | memoryview | InputFile | FileRange | FilePlan"
"""A content of a new file."""


class Unopened(NamedTuple):
    """A file that is open only while a range of it is copied."""

    open: Callable[[], AbstractContextManager[InputFile]]

    def range(self, offset: int, size: int) -> FilePlan:
        """Return a plan of `size` bytes from `offset` on."""
        return FilePlan((Range(0, self, offset, size),), size)


def file_plan(path: StrPath, size: int) -> FilePlan:
    """Return a plan of the file at `path`; writing raises FileError if its size is another."""
    return Unopened(partial(_reopen, path, size)).range(0, size)


def _reopen(path: StrPath, size: int) -> InputFile:
    source = InputFile(path)
    if len(source) != size:
        source.close()
        raise FileError(path, "changed its size while it was read; try again")
    return source


class Literal(NamedTuple):
    """Literal bytes, at `position` of the new file."""

    position: int
    data: bytes

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.data)


class Range(NamedTuple):
    """`size` bytes from `offset` of a source, at `position` of the new file."""

    position: int
    source: Source | Unopened | int
    """The source, or `HOST`."""
    offset: int
    size: int


Piece: TypeAlias = "Literal | Range"


def part_size(part: Part) -> int:
    """Return the number of bytes of a part."""
    return part.size if isinstance(part, (FileRange, FilePlan)) else len(part)


class FilePlan(NamedTuple):
    """A new file of `size` bytes: the `pieces`, in file order, with zeros between."""

    pieces: tuple[Piece, ...]
    size: int

    @classmethod
    def of(cls, parts: Iterable[Part | int]) -> FilePlan:
        """Return a plan of consecutive parts; an integer is a number of zeros."""
        pieces: list[Piece] = []
        position = 0
        for part in parts:
            if isinstance(part, bytes):
                pieces.append(Literal(position, part))
            elif isinstance(part, FilePlan):
                pieces += part.moved(position)
            elif isinstance(part, memoryview):
                pieces.append(Range(position, part, 0, len(part)))
            elif not isinstance(part, int):
                whole = part.range(0, len(part)) if isinstance(part, InputFile) else part
                pieces.append(Range(position, *whole))
            position += part if isinstance(part, int) else part_size(part)
        return cls(join(pieces), position)

    def moved(self, by: int) -> Iterator[Piece]:
        """Return the pieces as part of a file in which this one begins at `by`."""
        return (piece._replace(position=piece.position + by) for piece in self.pieces)

    def bound(self, host: Source) -> FilePlan:
        """Return the plan with the edited file for `HOST`."""
        return FilePlan(tuple(_bound(piece, host) for piece in self.pieces), self.size)

    def write_to(self, out: OutputFile) -> None:
        """Append the file to `out`; raise FileError if a source is shorter or the disk full."""
        out.reserve(self.size)
        out.append(self._parts())

    def write(self, path: StrPath, *, keep_equal: bool = False) -> None:
        """Write the file at `path`; errors and `keep_equal` as of `replace_file`."""
        with replace_file(path, keep_equal=keep_equal) as out:
            self.write_to(out)

    def _parts(self) -> Iterator[bytes | memoryview | FileRange | int]:
        position = 0
        for piece in self.pieces:
            yield piece.position - position
            if isinstance(piece, Literal):
                yield piece.data
            elif isinstance(piece.source, InputFile):
                yield FileRange(piece.source, piece.offset, piece.size)
            elif isinstance(piece.source, Unopened):
                with piece.source.open() as source:
                    yield FileRange(source, piece.offset, piece.size)
            elif isinstance(piece.source, int):
                raise TypeError("the host of this plan is not bound")
            else:
                yield memoryview(piece.source)[piece.offset : piece.offset + piece.size]
            position = piece.position + piece.size
        yield self.size - position

    def chunks(self, *, mapped: bool = True) -> Iterator[bytes | memoryview]:
        """Yield the file's bytes in order; files are mapped, or read in chunks."""
        for part in self._parts():
            if isinstance(part, FileRange) and mapped:
                yield part.data
            elif isinstance(part, FileRange):
                for at in range(0, part.size, len(_ZEROS)):
                    size = min(part.size - at, len(_ZEROS))
                    yield part.source.read(part.offset + at, size)
            elif isinstance(part, int):
                yield from (_ZEROS[: part - at] for at in range(0, part, len(_ZEROS)))
            else:
                yield part


def _bound(piece: Piece, host: Source) -> Piece:
    if isinstance(piece, Range) and isinstance(piece.source, int):
        return piece._replace(source=host)
    return piece


def join(pieces: Iterable[Piece]) -> tuple[Piece, ...]:
    """Drop empty pieces, and merge adjacent pieces that are adjacent in their source."""
    joined: list[Piece] = []
    for piece in pieces:
        last = joined[-1] if joined else None
        if (
            isinstance(piece, Range)
            and isinstance(last, Range)
            and last.source is piece.source
            and last.position + last.size == piece.position
            and last.offset + last.size == piece.offset
        ):
            joined[-1] = last._replace(size=last.size + piece.size)
        elif piece.size:
            joined.append(piece)
    return tuple(joined)
