"""The exceptions of this package: one family, one root.

Every message is one line that says which file, offset or argument is wrong, what was
expected, what was found, and what to do. Callers that want to stop cleanly catch
`OffloadError`; anything else that escapes is a bug in this package.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from typing import TYPE_CHECKING

from offload_tool.util.escape import one_line

if TYPE_CHECKING:
    from os import PathLike

_MEMORY = "this needs more memory than there is"
_FILES = "this needs more open files than there may be (ulimit -n)"
_OF_NUMBERS = {errno.ENOMEM: _MEMORY, errno.EMFILE: _FILES, errno.ENFILE: _FILES}
_OF_WORDS = {
    "failed to map segment from shared object": _MEMORY,  # glibc's loader, of a module
    "cannot allocate memory": _MEMORY,
    "not enough memory": _MEMORY,  # libzstd
    "can't start new thread": _MEMORY,
}


class OffloadError(Exception):
    """Root of the family; itself raised only by drop-in commands, with the words of LLVM's.

    As text it is one line, whatever names of files and members are in it.
    """

    def __str__(self) -> str:
        return one_line(self._text())

    def _text(self) -> str:
        return super().__str__()


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
        self.reason = reason if isinstance(reason, str) else reason.strerror or str(reason)
        super().__init__(f"'{path}': {self.reason}")


class ContentError(OffloadError):
    """What is in a file cannot be used; one of the three below says why.

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

    def _text(self) -> str:
        where = [] if self.path is None else [f"'{self.path}'"]
        if self.offset is not None:
            where.append(f"offset {self.offset:#x}")
        if self.field is not None:
            where.append(self.field)
        return ": ".join([", ".join(where), self.message]) if where else self.message


class LimitError(OffloadError):
    """A file asks for more than this run may use; see `offload_tool.io.limits`.

    `variable` is the environment's, with which more can be allowed.
    """

    def __init__(
        self, message: str, variable: str, path: str | PathLike[str] | None = None
    ) -> None:
        self.path = path
        self.variable = variable
        option = "--" + variable.removeprefix("OFFLOAD_").lower().replace("_", "-")
        where = "" if path is None else f"'{path}': "
        super().__init__(f"{where}{message}; allow more with {option} or {variable}")


class FormatError(ContentError):
    """A file is broken: its bytes contradict its format, or end too early."""


class UnsupportedError(ContentError):
    """A file is not broken, as far as is known, but of a sort that this package does not handle.

    A version or variant that it does not read, or one in which it cannot make the change.
    """


class NoContainerError(ContentError):
    """A file is not broken, but holds no container of device images."""


class UnexpectedError(OffloadError):
    """What reading a file led to that is none of the errors of this family: a mistake in here.

    Where many files are read, it stands for that file, so that the others are read.
    """

    def __init__(self, path: str | PathLike[str], error: Exception) -> None:
        self.path = path
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        super().__init__(f"'{path}': cannot be read, for a reason that nobody foresaw ({text})")


class CompilerError(OffloadError):
    """No usable compiler was found, or the one asked for cannot do the work."""


class CodeObjectError(OffloadError):
    """A compiler reported success but its output is not what was asked for."""


def shortage(error: BaseException) -> str | None:
    """Return the line for a user if `error`, or what it was raised from, is a shortage.

    A shortage of memory, or of another of the machine's resources, comes in many forms: Python,
    the kernel, the dynamic loader and libzstd each have their own.
    """
    seen: set[int] = set()
    reason: BaseException | None = error
    while reason is not None and id(reason) not in seen:
        seen.add(id(reason))
        if isinstance(reason, MemoryError):
            return _MEMORY
        number = reason.errno if isinstance(reason, OSError) else None
        if number in _OF_NUMBERS:
            return _OF_NUMBERS[number]
        text = str(reason).lower()
        for words, line in _OF_WORDS.items():
            if words in text:
                return line
        reason = reason.__cause__ or reason.__context__
    return None
