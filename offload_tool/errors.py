"""The exceptions of this package: one family, one root.

Every message is one line that says which file, offset or argument is wrong, what was
expected, what was found, and what to do. Callers that want to stop cleanly catch
`OffloadError`; anything else that escapes is a bug in this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from os import PathLike

__all__ = [
    "CodeObjectError",
    "CompilerError",
    "EntryIDError",
    "FileError",
    "FormatError",
    "OffloadError",
    "TargetIDError",
    "UsageError",
]


class OffloadError(Exception):
    """Root of the family; never raised itself."""


class UsageError(OffloadError, ValueError):
    """An argument, option or variable cannot be used as given."""


class TargetIDError(OffloadError, ValueError):
    """One or more target IDs are invalid, or cannot stand beside each other.

    `problems` holds every problem found, in input order; the message joins them.
    """

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(self.problems))


class EntryIDError(TargetIDError):
    """One or more bundle entry IDs are invalid, or cannot stand beside each other."""


class FileError(OffloadError):
    """A file cannot be read or written: missing, a directory, no permission, disk full."""

    def __init__(self, path: str | PathLike[str], reason: OSError | str) -> None:
        self.path = path
        text = reason if isinstance(reason, str) else reason.strerror or str(reason)
        super().__init__(f"'{path}': {text}")


class FormatError(OffloadError):
    """A file's bytes contradict its format.

    `path` is the file's name or None for data in memory; `offset` is in bytes from
    the beginning of that file; `field` is the name that the format's document uses.
    """

    def __init__(
        self,
        message: str,
        *,
        path: str | PathLike[str] | None = None,
        offset: int | None = None,
        field: str | None = None,
    ) -> None:
        self.message = message
        self.path = path
        self.offset = offset
        self.field = field
        super().__init__(message)

    def __str__(self) -> str:
        where = [] if self.path is None else [f"'{self.path}'"]
        if self.offset is not None:
            where.append(f"offset {self.offset:#x}")
        if self.field is not None:
            where.append(self.field)
        return ": ".join([", ".join(where), self.message]) if where else self.message


class CompilerError(OffloadError):
    """No usable compiler was found, or the one asked for cannot do the work."""


class CodeObjectError(OffloadError):
    """A compiler reported success but its output is not what was asked for."""
