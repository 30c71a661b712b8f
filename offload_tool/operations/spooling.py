"""A temporary file without a name, for bytes that are no range of any input."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from offload_tool.errors import FileError
from offload_tool.files import InputFile, OutputFile

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Spool", "open_spool"]

_NAME = "temporary file"


@dataclass(frozen=True, slots=True)
class Spool:
    """The file: written through `out`, read through `read`."""

    out: OutputFile
    descriptor: int

    def read(self, label: str = _NAME) -> InputFile:
        """Open what was written so far; `label` names it in messages."""
        return InputFile.from_descriptor(label, self.descriptor)


@contextmanager
def open_spool() -> Iterator[Spool]:
    """Make the file; it is gone when the block ends.

    :raises FileError: there is no room for temporary files.
    """
    try:
        file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - see below
    except OSError as error:
        raise FileError(_NAME, error) from error
    with file:
        yield Spool(OutputFile(_NAME, file.fileno(), seekable=True), file.fileno())
