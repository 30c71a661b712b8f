"""Folders and wheels, written anew with some of their files changed.

::

    Tree         the files of a folder or wheel: their names, and each opened in its turn
    TreeWriter   keeps files as they are (copied inside the kernel; packed ones stay packed), puts
                 new ones, leaves others out, and in the end writes each RECORD for what changed

Names are paths below the root, with ``/``. Links and empty folders are kept. What is signed is
refused: nobody could sign it again here.
"""

from __future__ import annotations

import os
import posixpath
import stat
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from offload_tool.containers.file_format import recognise
from offload_tool.containers.walk import Place
from offload_tool.containers.zip_members import open_zip, open_zip_member
from offload_tool.errors import FileError, FormatError, UnsupportedError
from offload_tool.formats.wheel import (
    RECORD,
    SIGNATURES,
    Digest,
    digest,
    edited_record,
    installed_path,
)
from offload_tool.formats.zip_writer import (
    PackedMember,
    copied_member,
    new_row,
    pack_member,
    packed_member,
    plan_zip,
)
from offload_tool.io import InputFile, StrPath
from offload_tool.io.limits import current, running
from offload_tool.io.paths import naming
from offload_tool.io.spool import Spool
from offload_tool.io.write_plan import FilePlan

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from offload_tool.io.output_folder import OutputFolder

_NEW_MODE = 0o644


class TreeFile(NamedTuple):
    """One of a tree."""

    name: str
    kind: str
    """``file``, ``link`` or ``folder``."""
    mode: int
    """Permission bits."""
    row: zipfile.ZipInfo | None = None
    """Of a wheel."""


class Tree(Protocol):
    """A folder or wheel that is read."""

    label: str
    files: list[TreeFile]
    """In the order that outputs keep."""

    def open(self, file: TreeFile, *, always: bool = False) -> AbstractContextManager[Place | None]:
        """Open a file; None if it is of no known format, or empty, and not to be given `always`."""

    def path(self, name: str) -> str:
        """Name a file for messages."""

    def installed(self, file: TreeFile) -> str:
        """Return where a file is once the tree is in its place."""


def is_inside(path: StrPath, folder: StrPath) -> bool:
    """Return whether a path, which need not exist, is a folder or in it."""
    return Path(path).resolve().is_relative_to(Path(folder).resolve())


class FolderTree:
    """A folder; the folder `besides` in it does not count.

    :raises FileError: it cannot be read.
    :raises UnsupportedError: it has what is neither file, folder nor link.
    """

    def __init__(self, folder: StrPath, besides: Path | None = None) -> None:
        self.label = str(folder)
        self.root = Path(folder)
        self.files: list[TreeFile] = []
        budget = current()
        for file in self._read(besides):
            budget.file(self.path(file.name))
            self.files.append(file)

    def _read(self, besides: Path | None) -> Iterator[TreeFile]:
        def failed(error: OSError) -> None:
            raise FileError(error.filename or self.root, error) from error

        for parent, folders, names in os.walk(self.root, onerror=failed):
            if besides is not None and Path(parent) == besides.parent:
                folders[:] = [name for name in folders if name != besides.name]
            folders.sort()
            for name in (*folders, *sorted(names)):
                path = Path(parent, name)
                relative = path.relative_to(self.root).as_posix()
                try:
                    mode = path.lstat().st_mode
                except OSError as error:
                    raise FileError(path, error) from error
                if stat.S_ISLNK(mode):
                    yield TreeFile(relative, "link", 0o777)
                elif stat.S_ISDIR(mode):
                    yield TreeFile(relative, "folder", stat.S_IMODE(mode))
                elif stat.S_ISREG(mode):
                    yield TreeFile(relative, "file", stat.S_IMODE(mode))
                else:
                    message = "expected files, folders and links, found something else"
                    raise UnsupportedError(message, path=path)

    @contextmanager
    def open(self, file: TreeFile, *, always: bool = False) -> Iterator[Place | None]:
        """Open a file, see `Tree`."""
        path = self.path(file.name)
        if (budget := running()) is not None:
            budget.next_file()
        with InputFile(path) as source:
            wanted = always or (len(source) and recognise(source.data) is not None)
            yield Place.of(source, path) if wanted else None

    def path(self, name: str) -> str:
        """Name a file."""
        return str(self.root / name)

    def installed(self, file: TreeFile) -> str:
        """Return where a file is: there."""
        return file.name


class WheelTree:
    """A wheel, or another zip file; `files` has no folders, which a wheel need not have.

    Use as a context manager.

    :raises FormatError: it is broken, has a name twice, or one that leads out of it.
    """

    def __init__(self, path: StrPath) -> None:
        self.label = str(path)
        self._stack = ExitStack()
        try:
            self.source = self._stack.enter_context(InputFile(path))
            self._zip = self._stack.enter_context(open_zip(self.source, self.label))
            self.files = list(self._read())
        except BaseException:
            self._stack.close()
            raise

    def _read(self) -> Iterator[TreeFile]:
        budget = current()
        seen: set[str] = set()
        for row in self._zip.infolist():
            label = self.path(row.filename)
            budget.member(label)
            name = row.filename
            parts = name.rstrip("/").split("/")
            if name.startswith("/") or ".." in parts or "\\" in name:
                raise FormatError("its name leads out of the wheel", path=label)
            if name in seen:
                raise FormatError("this name is there twice", path=label)
            seen.add(name)
            mode = row.external_attr >> 16
            kind = "link" if stat.S_ISLNK(mode) else "folder" if name.endswith("/") else "file"
            yield TreeFile(name, kind, stat.S_IMODE(mode) or _NEW_MODE, row)

    @contextmanager
    def open(self, file: TreeFile, *, always: bool = False) -> Iterator[Place | None]:
        """Open a file, see `Tree`."""
        label = self.path(file.name)
        row = _row(file)
        with open_zip_member(
            self._zip, row, self.source, label, lambda begin: always or _is_known(begin)
        ) as member:
            if member is None or not (always or _is_known(member[0].data[:_BEGIN])):
                yield None
                return
            source, offset = member
            yield Place(self.label, source, label, (), (file.name,), offset)

    def path(self, name: str) -> str:
        """Name a file."""
        return f"{self.label}({name})"

    def installed(self, file: TreeFile) -> str:
        """Return where a file is installed; its own name if that is outside of packages."""
        return installed_path(file.name) or file.name

    def __enter__(self) -> WheelTree:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


_BEGIN = 4096


def _is_known(begin: memoryview) -> bool:
    return recognise(begin) is not None


def _row(file: TreeFile) -> zipfile.ZipInfo:
    if file.row is None:
        raise TypeError(f"{file.name} is no file of a wheel")
    return file.row


# -- writing -----------------------------------------------------------------------------


class TreeWriter:
    """What writing folders and wheels has in common; `finish` ends it.

    :raises UnsupportedError: the tree is signed.
    :raises FormatError: a RECORD of it is broken.
    """

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.changed: dict[str, Digest] = {}
        self.added: dict[str, Digest] = {}
        self.removed: list[str] = []
        self.is_changed = False
        names = {file.name for file in tree.files if file.kind == "file"}
        self.records = [n for n in sorted(names) if _is_record(n)]
        for record in self.records:
            for name in SIGNATURES:
                signature = posixpath.join(posixpath.dirname(record), name)
                if signature in names:
                    message = f"'{name}' is a signature, which would not fit any more; take it out"
                    raise UnsupportedError(message, path=tree.path(signature))

    def keep(self, file: TreeFile) -> None:
        """Take a file over; a RECORD may change in the end."""
        self._keep(file)

    def put(self, file: TreeFile, plan: FilePlan) -> None:
        """Replace the content of a file of the tree."""
        self.is_changed = True
        if self.records:
            self.changed[file.name] = digest(plan.blocks())
        self._put(file, plan)

    def add(self, name: str, plan: FilePlan) -> None:
        """Add a new file."""
        if self.records:
            self.added[name] = digest(plan.blocks())
        self._add(name, plan)

    def leave_out(self, file: TreeFile) -> None:
        """Leave a file out."""
        self.is_changed = True
        self.removed.append(file.name)

    def finish(self) -> None:
        """Write the RECORDs for what changed."""
        for record in self.records:
            file = next(f for f in self.tree.files if f.name == record)
            mine = self.added if len(self.records) == 1 else {}
            with self.tree.open(file, always=True) as place:
                data = b"" if place is None else bytes(place.source.data)
            new = edited_record(
                data, record, self.changed, mine, self.removed, path=self.tree.path(record)
            )
            if new is not None:
                self._put(file, FilePlan.of([new]))

    def _keep(self, file: TreeFile) -> None:
        raise NotImplementedError

    def _put(self, file: TreeFile, plan: FilePlan) -> None:
        raise NotImplementedError

    def _add(self, name: str, plan: FilePlan) -> None:
        raise NotImplementedError


def _is_record(name: str) -> bool:
    folder, _, last = name.rpartition("/")
    return last == RECORD and folder.endswith(".dist-info")


class FolderWriter(TreeWriter):
    """Writes into `folder`, below `at`; with `only_changed`, no file that is kept."""

    def __init__(
        self, tree: Tree, folder: OutputFolder, at: str = "", *, only_changed: bool = False
    ) -> None:
        super().__init__(tree)
        self.folder = folder
        self.at = at
        self.only_changed = only_changed

    def _keep(self, file: TreeFile) -> None:
        if self.only_changed:
            return
        old, name = self.tree.path(file.name), self.at + file.name
        if file.kind == "folder":
            self.folder.folder(name, file.mode | 0o700)
        elif file.kind == "link":
            with naming(old):
                target = os.readlink(old)
            self.folder.link(name, target)
        else:
            with InputFile(old) as source:
                status = Path(old).lstat()
                times = status.st_atime_ns, status.st_mtime_ns
                with self.folder.file(name, mode=file.mode, times=times) as out:
                    out.copy(source)

    def _put(self, file: TreeFile, plan: FilePlan) -> None:
        self.folder.remove(self.at + file.name)
        self.folder.write(self.at + file.name, plan, file.mode)

    def _add(self, name: str, plan: FilePlan) -> None:
        self.folder.write(self.at + name, plan)


class WheelWriter(TreeWriter):
    """Makes the plan of a wheel, whose new files are in `spool`."""

    def __init__(self, tree: WheelTree, spool: Spool) -> None:
        super().__init__(tree)
        self.source = tree.source
        self.spool = spool
        self.members: dict[str, PackedMember] = {}

    def _keep(self, file: TreeFile) -> None:
        label = self.tree.path(file.name)
        self.members[file.name] = copied_member(_row(file), self.source, label=label)

    def _put(self, file: TreeFile, plan: FilePlan) -> None:
        self._pack(file.name, _row(file), plan)

    def _add(self, name: str, plan: FilePlan) -> None:
        row = new_row(name, _NEW_MODE)
        row.compress_type = zipfile.ZIP_DEFLATED
        self._pack(name, row, plan)

    def _pack(self, name: str, row: zipfile.ZipInfo, plan: FilePlan) -> None:
        self.members[name] = packed_into(self.spool, row, plan)

    def plan(self) -> FilePlan:
        """Plan the wheel; after `finish`."""
        return plan_zip(list(self.members.values()))


def packed_into(spool: Spool, row: zipfile.ZipInfo, plan: FilePlan) -> PackedMember:
    """Pack a new member of a zip file into a spool."""
    start = spool.out.position
    packed = pack_member(spool.out, row, plan.blocks())
    return packed_member(packed, spool.since(start))
