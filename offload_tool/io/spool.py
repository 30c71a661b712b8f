"""A temporary file without a name, for bytes that are not a range of an input."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property

from offload_tool.io import FileRange, InputFile, OutputFile, StrPath
from offload_tool.io.paths import naming
from offload_tool.io.process import file_without_name


class Spool:
    """An anonymous file: `append` and `out` write it, `since` and `read` read it. Raise FileError.

    It ends with its block. Messages call it `name`. It is created in `folder` (default: the usual
    one).
    """

    def __init__(self, name: StrPath = "temporary file", folder: StrPath | None = None) -> None:
        from offload_tool.io.temporary_directory import system_temp_folder  # rarely needed

        self.name = name
        with naming(name):
            parent = system_temp_folder() if folder is None else folder
            self._file = file_without_name(os.fspath(parent))
        self.descriptor = self._file.fileno()
        self.out = OutputFile(name, self.descriptor, seekable=True)

    @cached_property
    def _reader(self) -> InputFile:
        return self.read()

    def append(self, write: Callable[[OutputFile], object]) -> FileRange:
        """Append by `write`; return the range, valid while the spool is open."""
        start = self.out.position
        write(self.out)
        return self.since(start)

    def since(self, start: int = 0) -> FileRange:
        """Return the range from `start` to the current end, valid while the spool is open."""
        self.out.finish()
        self._reader.grow()
        return FileRange(self._reader, start, self.out.position - start)

    def read(self, label: StrPath | None = None) -> InputFile:
        """Open the bytes written so far; messages call them `label`."""
        self.out.finish()
        return InputFile.from_descriptor(self.name if label is None else label, self.descriptor)

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *_: object) -> None:
        if "_reader" in self.__dict__:
            self._reader.close()
        self._file.close()


@contextmanager
def seekable(out: OutputFile) -> Iterator[OutputFile]:
    """Yield `out`, or for a pipe a spool whose content is appended to it after the block."""
    if out.seekable:
        yield out
        return
    with Spool(out.path) as spool:
        yield spool.out
        out.append([spool.since()])
