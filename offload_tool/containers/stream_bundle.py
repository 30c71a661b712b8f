r"""What a compressed bundle holds, decompressed while it is copied, and not kept.

::

    compressed bundle --> begin: the table --> which entries are wanted?
                     \
                      --> the rest --+--> hash
                                     +--> outputs that have their names only when the hash is right

So a bundle of any size needs no temporary file, and is never in memory as a whole. Whoever wants to
look anywhere else than at the beginning reads `file`: then `decompress` keeps it, as for others.
"""

from __future__ import annotations

from collections.abc import Sequence

from offload_tool.formats.bundle.compressed import CompressionReport, read_compressed_header
from offload_tool.formats.bundle.decompress import Passing, decompress
from offload_tool.io import InputFile, OutputFile, StrPath


class PassingContent:
    """The content of the compressed bundle at `position` of `source`.

    It has been checked after `check` or `copy`, or when the data of `file` was asked for, and not
    before.

    :raises FormatError: it is damaged, as far as that is seen at its beginning.
    :raises UnsupportedError: it is of a version or sort that is not read.
    """

    def __init__(self, source: InputFile, position: int, *, path: StrPath) -> None:
        data = source.data
        header = read_compressed_header(data, position, path=path)
        self._passing = Passing(data, header, path=path)
        self.begin = memoryview(self._passing.begin)
        """The first bytes of it; at least one, if there are any."""
        self.end = self._passing.end
        """Where the bundle ends in `source`; None where only decompressing tells that."""
        self.report = CompressionReport(header, (self.end or 0) - header.offset - header.size, 0.0)
        """What was decompressed, but for the time."""

        def make() -> memoryview:
            return decompress(data, header, path=path).data

        self.file = InputFile.made_later(path, header.uncompressed_size, make)
        """All of it, decompressed once more when it is looked into."""

    def check(self) -> None:
        """Decompress it for its hash alone.

        :raises FormatError: it is damaged.
        :raises LimitError: it is greater than the run's budget allows.
        """
        self.copy([])

    def copy(self, ranges: Sequence[tuple[int, int, OutputFile]]) -> None:
        """Append ranges of it, (offset, size) in bytes, each to a file of its own.

        That, or `check`, works once.

        :raises FormatError: it is damaged, and the files have bytes that cannot be trusted.
        :raises LimitError: it is greater than the run's budget allows.
        :raises FileError: a file cannot be written.
        """
        self._passing.to(_Parts(ranges))


class _Parts:
    """Writes each part of a stream to its file."""

    def __init__(self, ranges: Sequence[tuple[int, int, OutputFile]]) -> None:
        self._ranges = ranges
        self._position = 0

    def write(self, data: bytes | memoryview, /) -> None:
        start, end = self._position, self._position + len(data)
        for offset, size, file in self._ranges:
            if offset < end and start < offset + size:
                if offset >= start:  # what was unpacked till now is in the budget for it
                    file.reserve(size)
                file.write(data[max(offset - start, 0) : offset + size - start])
        self._position = end
