"""A temporary file without a name, for bytes that are a range of no input."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from offload_tool.errors import FileError
from offload_tool.io import FileRange, InputFile, OutputFile, StrPath


class Spool:
    """The file: written through `added` or `out`, read through `since` and `read`.

    It is gone with its block. `name` stands for it in messages. It is made in `folder`
    (default: the usual one).

    :raises FileError: there is no room for temporary files.
    """

    def __init__(self, name: StrPath = "temporary file", folder: StrPath | None = None) -> None:
        import tempfile  # most runs need none

        from offload_tool.io.temporary_directory import usual_folder

        self.name = name
        try:
            place = usual_folder() if folder is None else folder
            self._file = tempfile.TemporaryFile(buffering=0, dir=place)  # noqa: SIM115 - see __exit__
        except OSError as error:
            raise FileError(name, error) from error
        self.descriptor = self._file.fileno()
        self.out = OutputFile(name, self.descriptor, seekable=True)

    @cached_property
    def _reader(self) -> InputFile:
        return self.read()

    def added(self, write: Callable[[OutputFile], object]) -> FileRange:
        """Return what `write` appends; it can be read as long as the spool is open."""
        start = self.out.position
        write(self.out)
        return self.since(start)

    def since(self, start: int = 0) -> FileRange:
        """Return what was written from `start` on; likewise."""
        self.out.finish()
        self._reader.grow()
        return FileRange(self._reader, start, self.out.position - start)

    def read(self, label: StrPath | None = None) -> InputFile:
        """Open what was written so far; `label` names it in messages."""
        self.out.finish()
        return InputFile.from_descriptor(self.name if label is None else label, self.descriptor)

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *_: object) -> None:
        if "_reader" in self.__dict__:
            self._reader.close()
        self._file.close()
