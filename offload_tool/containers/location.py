"""Where bytes are: in which file, and through which archives and zip files one gets there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from offload_tool.io import InputFile


class Neighbours(Protocol):
    """The files around one, in whose `folder` it is; of those that are in a zip file, members."""

    folder: str
    where: str
    """What a path from the folder on is, for messages."""

    def has(self, path: str, /) -> bool:
        """Return whether a file is at a path."""

    def like(self, before: str, behind: str, /) -> Iterable[str]:
        """Return the paths with any part of a name between two texts, sorted."""

    def open(self, path: str, /) -> InputFile:
        """Open a file that is there, as long as this one can be read.

        :raises ContentError: it is broken.
        :raises FileError: it cannot be read.
        """


class Place(NamedTuple):
    """Bytes to look at: a file, or a part of one."""

    path: str
    """The file that the user named, or one of the folder."""
    source: InputFile
    label: str
    """For messages."""
    files: tuple[str, ...] = ()
    """The file at `path`, and those that thin archives named from there: the last one has the
    bytes. Empty where they are in no file, but unpacked: thin archives name no files there."""
    names: tuple[str, ...] = ()
    """Of the members around, the outermost first."""
    base: int | None = 0
    """Where the bytes begin in the file at `path`; None if they are not in it."""
    beside: Neighbours | None = None
    """What is around a member of a zip file."""

    @classmethod
    def of(cls, source: InputFile, label: str) -> Place:
        """Return the place of a file that is looked at as a whole."""
        return cls(label, source, label, (label,))

    @property
    def member(self) -> str | None:
        """Which member of an archive or zip file: ``a.o``, ``lib/x.so``, ``lib/y.a(a.o)``."""
        return member_path(self.names) if self.names else None


def member_path(names: tuple[str, ...]) -> str:
    """Name a member by its own name and those of the files around it, the outermost first."""
    first, *others = names
    return first + "".join(f"({name})" for name in others)
