"""The results of earlier passes, recognised by their digests.

::

    the object           its images, and its host code, in which other images can replace them
    .NAME.o.kept         after an error, when there is no object: the same, one after the other

The second file has the results of the passes that did not fail. Those that failed keep the results
that the object had, so that a mended mistake is compiled as if it had not been made.
"""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING

from offload_tool.clang.job_plan import HOST
from offload_tool.errors import ContentError, OffloadError
from offload_tool.io.file_digests import DigestCache, content_of, digest_of
from offload_tool.io.limits import run_budget
from offload_tool.io.paths import sibling
from offload_tool.launch.write_result import exchange_images
from offload_tool.manifest.key import Cause
from offload_tool.manifest.manifest import OutputRecord

if TYPE_CHECKING:
    from offload_tool.io import InputFile

RESULTS, EMBEDDED, KEPT = "results", "embedded", "kept"
"""Texts of a record: the digests of a pass's results, the digest of the content of the host's
object, and the sizes of the results in the file of `kept_path`."""
NOTHING = "nothing"
"""The text `EMBEDDED` of an object without device code, of a source that has none."""


def kept_path(output: str) -> str:
    """Return the name of the hidden file for the results of passes that did not fail."""
    return sibling(output, ".kept")


def results_name(target: str) -> str:
    """Return the name of the text with the digests of a pass's results."""
    return f"{target} {RESULTS}"


class OldResults:
    """The results that a record speaks of."""

    def __init__(self, record: OutputRecord, output: str) -> None:
        self._record = record
        sizes = record.texts.get(KEPT)
        self._sizes = None if sizes is None else [int(x) for x in sizes.split() if x.isdecimal()]
        self._path = output if sizes is None else kept_path(output)
        self._content = b""

    @property
    def are_an_object(self) -> bool:
        """Whether they are those of an object, which is there."""
        return self._sizes is None

    def damage(self, digests: DigestCache) -> Cause | None:
        """Return what is wrong with the file: it must be the one that was made."""
        try:
            status = os.lstat(self._path)
        except OSError:
            return Cause.MISSING
        is_own = stat.S_ISREG(status.st_mode) and status.st_nlink == 1
        if not is_own or digests.digest(self._path) != self._record.output:
            return Cause.OUTPUT
        return None

    def load(self) -> None:
        """Read the file, unless it is being replaced."""
        content = content_of(self._path)
        if digest_of(content) == self._record.output:
            self._content = content
            if budget := run_budget():
                budget.add_input(len(content))

    def with_digests(self, digests: Sequence[str]) -> list[bytes] | None:
        """Return the results with some digests; None if they are not all there."""
        found = [self._by_digest[each] for each in digests if each in self._by_digest]
        return found if len(found) == len(digests) else None

    @cached_property
    def _by_digest(self) -> dict[str, bytes]:
        """The parts of the file, or the entries of the containers in the object."""
        if self._sizes is not None:
            ends = itertools.pairwise(itertools.accumulate(self._sizes, initial=0))
            parts = [self._content[start:end] for start, end in ends]
            return {digest_of(part): part for part in parts}
        from offload_tool.containers.find import containers_in

        found = {}
        with suppress(OffloadError):  # such as an object without images
            for container in containers_in(self._file(self._content), self._path):
                for image in container.images:
                    with suppress(OffloadError):
                        data = bytes(image.content.view())
                        found[digest_of(data)] = data
        return found

    @cached_property
    def host_object(self) -> bytes:
        """The host's object, with any images embedded; empty if there is none."""
        if self._sizes is None:
            return self._content
        return self._by_digest.get(self._record.texts.get(results_name(HOST), ""), b"")

    @cached_property
    def embedded(self) -> bytes | None:
        """The content of the host's object that images can replace; None if it is not known."""
        from offload_tool.formats.objects.elf.reader import read_elf_tables
        from offload_tool.formats.objects.splice_images import plan_with_content

        digest = self._record.texts.get(EMBEDDED, "")
        data = memoryview(self.host_object)
        if digest == NOTHING and data:
            return b""
        with suppress(ContentError):
            tables = read_elf_tables(data, path=self._path)
            for content in map(bytes, map(tables.content, range(len(tables.sections)))):
                if content and digest_of(content) == digest:
                    plan_with_content(data, content, content, path=self._path)
                    return content
        return None

    def exchange(self, images: str, output: str) -> None:
        """Write the host's object with other images to `output`.

        :raises ContentError, FileError: see `exchange_images`.
        """
        if self.embedded is not None:
            exchange_images(self._file(self.host_object), self.embedded, images, output)

    def _file(self, content: bytes) -> InputFile:
        from offload_tool.io import InputFile

        return InputFile.from_data(self._path, memoryview(content))
