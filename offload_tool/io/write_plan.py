"""A new file as a list of pieces: literal bytes, and ranges of other files.

A plan is made from tables and sizes alone. Writing it copies the ranges, so memory does not grow
with their size::

    position  0       64            5000            9000000    9000004   9008192
              Literal Range of host Range of        (zeros)    Literal   end
                                    content 0

An editor of object files does not have the contents to insert: its plan refers to them by number,
and `bound` fills them in. A plan can have more `Unopened` files than can be open at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import NamedTuple, TypeAlias

from offload_tool.errors import FileError
from offload_tool.io import FileRange, InputFile, OutputFile, StrPath, replace_file

HOST = -1
"""The number of the edited file."""
_ZEROS = bytes(1 << 20)

Source: TypeAlias = "InputFile | bytes | memoryview"
Part: TypeAlias = "bytes | memoryview | FileRange | FilePlan"
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
        raise _changed(path)
    return source


def _changed(path: StrPath) -> FileError:
    return FileError(path, "changed its size while it was read; try again")


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
    """The source or its number: `HOST`, or the index of a content to insert."""
    offset: int
    size: int


Piece: TypeAlias = "Literal | Range"


def content(position: int, index: int, size: int) -> Range:
    """Return a piece for the whole content number `index`."""
    return Range(position, index, 0, size)


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
            elif isinstance(part, FileRange):
                pieces.append(Range(position, *part))
            elif isinstance(part, memoryview):
                pieces.append(Range(position, part, 0, len(part)))
            position += part if isinstance(part, int) else part_size(part)
        return cls(join(pieces), position)

    def moved(self, by: int) -> Iterator[Piece]:
        """Return the pieces as part of a file in which this one begins at `by`."""
        return (piece._replace(position=piece.position + by) for piece in self.pieces)

    def bound(self, host: Source | int, contents: Sequence[Source] = ()) -> FilePlan:
        """Replace numbers by their sources (`HOST` may stay); raise FileError for another size."""
        return FilePlan(tuple(_bound(piece, host, contents) for piece in self.pieces), self.size)

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
                raise TypeError(f"source {piece.source} of this plan is not bound")
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


def part_size(part: Part) -> int:
    """Return the number of bytes of a part."""
    return len(part) if isinstance(part, (bytes, memoryview)) else part.size


def _bound(piece: Piece, host: Source | int, contents: Sequence[Source]) -> Piece:
    if isinstance(piece, Literal) or not isinstance(piece.source, int):
        return piece
    if piece.source == HOST:
        return piece._replace(source=host)
    source = contents[piece.source]
    if len(source) != piece.size:
        if isinstance(source, InputFile):
            raise _changed(source.path)
        raise ValueError(f"{len(source)} bytes for the {piece.size} of content {piece.source}")
    return piece._replace(source=source)


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
