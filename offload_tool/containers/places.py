"""Where bytes are: in which file, and through which archives and zip files one gets there."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from offload_tool.files import InputFile

__all__ = ["Place", "member_path"]


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

    @classmethod
    def of(cls, source: InputFile, label: str) -> Place:
        """Give the place of a file that is looked at as a whole."""
        return cls(label, source, label, (label,))

    @property
    def member(self) -> str | None:
        """Which member of an archive or zip file: ``a.o``, ``lib/x.so``, ``lib/y.a(a.o)``."""
        return member_path(self.names) if self.names else None


def member_path(names: tuple[str, ...]) -> str:
    """Name a member by its own name and those of the files around it, the outermost first."""
    first, *others = names
    return first + "".join(f"({name})" for name in others)
