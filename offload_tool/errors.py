"""The exceptions of this package, with one root.

Every message but a compiler's is one line: the file, offset or argument, what was expected and
found, and how to fix it. Callers catch `OffloadError`; any other exception that escapes is a bug in
this package.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from os import PathLike

from offload_tool.util.escape import one_line

_MEMORY = "this needs more memory than there is"
_FILES = "this needs more open files than there may be (ulimit -n)"
_BY_ERRNO = {errno.ENOMEM: _MEMORY, errno.EMFILE: _FILES, errno.ENFILE: _FILES}
_BY_TEXT = {
    "failed to map segment from shared object": _MEMORY,  # glibc's loader, for a module
    "cannot allocate memory": _MEMORY,
    "not enough memory": _MEMORY,  # libzstd
    "can't start new thread": _MEMORY,
}


class OffloadError(Exception):
    """Root of the exceptions; only drop-in commands raise it directly, with LLVM's messages.

    Its text is one line, even if file or member names contain line breaks.
    """

    def __str__(self) -> str:
        return one_line(self._text())

    def _text(self) -> str:
        return super().__str__()


class UsageError(OffloadError, ValueError):
    """An argument, option or environment variable is invalid."""


class TargetIDError(OffloadError, ValueError):
    """Target IDs are invalid or conflict.

    `problems` lists every problem, in input order; the message joins them.
    """

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(self.problems))

    def of(self, what: str) -> TargetIDError:
        """Return this error with `what` in front, such as a variable."""
        first, *others = self.problems
        return type(self)([f"{what}: {first}", *others])


class EntryIDError(TargetIDError):
    """Bundle entry IDs are invalid or conflict."""


class FileError(OffloadError):
    """A file cannot be read or written: missing, a directory, no permission, disk full."""

    def __init__(self, path: str | PathLike[str], reason: OSError | str) -> None:
        self.path = path
        self.reason = reason if isinstance(reason, str) else reason.strerror or str(reason)
        super().__init__(f"'{path}': {self.reason}")


class ContentError(OffloadError):
    """The content of a file cannot be used; the subclasses below state why.

    `path` is the file's name or None for data in memory; `offset` is in bytes from the beginning of
    that file; `field` is the name in the format's specification.
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
    """A file exceeds the limits of this run (`offload_tool.io.limits`), which `variable` raises."""

    def __init__(self, message: str, variable: str, path: str | PathLike[str] | None) -> None:
        self.path, self.variable = path, variable
        where = "" if path is None else f"'{path}': "
        super().__init__(f"{where}{message}; allow more with {variable}")


class FormatError(ContentError):
    """A file is broken: its bytes violate its format, or end too early."""


class UnsupportedError(ContentError):
    """A file is of a version or variant that this package cannot read or change."""


class NoContainerError(ContentError):
    """A file is valid but holds no container of device images."""


class UnexpectedError(OffloadError):
    """A bug in this package, reported for one file, so that the other files are still read."""

    def __init__(self, path: str | PathLike[str], error: Exception) -> None:
        self.path = path
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        super().__init__(f"'{path}': cannot be read: unexpected error ({text}); please report it")


class CompilerError(OffloadError):
    """No usable compiler was found, or the selected one lacks a capability.

    Its text may have lines: those of a program's output, or one for each compiler.
    """

    def __str__(self) -> str:
        return "\n".join(map(one_line, self._text().split("\n")))


class CodeObjectError(OffloadError):
    """A compiler reported success but its output is not what was requested."""


def shortage(error: BaseException) -> str | None:
    """Return a message if `error` or its cause is a shortage of memory or of other resources."""
    seen: set[int] = set()
    reason: BaseException | None = error
    while reason is not None and id(reason) not in seen:
        seen.add(id(reason))
        if isinstance(reason, MemoryError):
            return _MEMORY
        number = reason.errno if isinstance(reason, OSError) else None
        if number in _BY_ERRNO:
            return _BY_ERRNO[number]
        text = str(reason).lower()
        for part, line in _BY_TEXT.items():
            if part in text:
                return line
        reason = reason.__cause__ or reason.__context__
    return None
