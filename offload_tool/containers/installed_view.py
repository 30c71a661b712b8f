"""What is around a member of a zip file: the files of the tree that is there once it is installed.

::

    demo/lib/a.so          in demo-1.0-...whl
    .kpack/demo_*.kpack    in it, too, or in another wheel that is installed over it

Nothing is read before it is asked for. What is packed is unpacked once, into one file without a
name for all that is asked for, which the run's budget allows. Only members are found, whatever
path is asked for.
"""

from __future__ import annotations

import bisect
import posixpath
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from offload_tool.containers.file_format import FileFormat, recognise
from offload_tool.containers.zip_members import open_zip, open_zip_member
from offload_tool.errors import ContentError, FileError
from offload_tool.formats.wheel import installed_path
from offload_tool.io import InputFile, StrPath
from offload_tool.io.spool import Spool

if TYPE_CHECKING:
    import zipfile


class _Member(NamedTuple):
    archive: zipfile.ZipFile
    source: InputFile
    label: str
    row: zipfile.ZipInfo


class ZipOverlay:
    """The members of a zip file, and of the `others` that lie over it; open in its block.

    A member of the zip file itself goes before those of others with its name. Of the others, those
    that are no zip files, or broken, are passed over.
    """

    def __init__(
        self,
        archive: zipfile.ZipFile,
        source: InputFile,
        label: str,
        others: Sequence[StrPath] = (),
    ) -> None:
        self._own = archive, source, label
        self._others = others
        self._stack = ExitStack()
        self._unpacked: dict[str, InputFile] = {}
        self.where = f"from its folder in the zip file{'s' if others else ''}"

    @cached_property
    def _members(self) -> dict[str, _Member]:
        """By their paths in the tree."""
        found: dict[str, _Member] = {}
        for path in reversed(self._others):
            try:
                source = self._stack.enter_context(InputFile(path))
                if recognise(source.data) is FileFormat.ZIP:
                    archive = self._stack.enter_context(open_zip(source, str(path)))
                    found.update(_placed(archive, source, str(path)))
            except (ContentError, FileError):
                continue
        found.update(_placed(*self._own))
        return found

    @cached_property
    def _names(self) -> list[str]:
        return sorted(self._members)

    @cached_property
    def _spool(self) -> Spool:
        return self._stack.enter_context(Spool())

    def has(self, path: str) -> bool:
        """Return whether a file is there."""
        return path in self._members

    def like(self, before: str, behind: str) -> Iterator[str]:
        """Yield the paths with any file or folder name's part between two texts, sorted."""
        shortest = len(before) + len(behind)
        for at in range(bisect.bisect_left(self._names, before), len(self._names)):
            name = self._names[at]
            if not name.startswith(before):
                return
            if len(name) >= shortest and name.endswith(behind):
                middle = name[len(before) : len(name) - len(behind)]
                if "/" not in middle:
                    yield name

    def open(self, path: str) -> InputFile:
        """Return a file that is there; it can be read as long as this is open.

        :raises ContentError: as `open_zip_member`.
        """
        if path not in self._unpacked:
            archive, source, label, row = self._members[path]
            label = f"{label}({row.filename})"
            with open_zip_member(archive, row, source, label, lambda _: True) as member:
                assert member is not None  # noqa: S101 - all are wanted
                content, offset = member
                if offset is None:
                    kept = self._spool.added(lambda out: out.copy(content))
                    content = kept.source.part(label, kept.offset, kept.size)
                self._unpacked[path] = content
        return self._unpacked[path]

    def __enter__(self) -> ZipOverlay:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


class ZipFolder:
    """A folder of the tree, with a member in it; see `offload_tool.containers.location`."""

    def __init__(self, overlay: ZipOverlay, name: str) -> None:
        self.folder = posixpath.dirname(_in_tree(name) or name)
        self.where = overlay.where
        self.has, self.like, self.open = overlay.has, overlay.like, overlay.open


def _placed(
    archive: zipfile.ZipFile, source: InputFile, label: str
) -> Iterator[tuple[str, _Member]]:
    for row in archive.infolist():
        path = _in_tree(row.filename)
        if path is not None and not row.filename.endswith("/"):
            yield path, _Member(archive, source, label, row)


def _in_tree(name: str) -> str | None:
    """Return where a member comes to be; None: not in the tree."""
    path = installed_path(name)
    return None if path is None else posixpath.normpath(path)
