"""Rewrite files, folders and wheels with some of their files changed.

::

    Tree         the files of a folder or wheel, or one file: their names; opens one at a time
    TreeWriter   keeps files (copied inside the kernel, without repacking), adds new ones, leaves
                 others out, and finally updates each RECORD

Names are paths below the root, with ``/``. Links and empty folders are kept. Signed trees are
rejected, because this package cannot sign them again.
"""

from __future__ import annotations

import os
import posixpath
import stat
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple, TypeAlias, TypeVar

from offload_tool.containers.file_format import recognise
from offload_tool.containers.walk import Location
from offload_tool.containers.zip_members import open_zip, open_zip_member
from offload_tool.errors import FileError, FormatError, UnsupportedError, UsageError
from offload_tool.formats import wheel, zip_writer
from offload_tool.io import InputFile, StrPath, replace_file
from offload_tool.io.limits import effective_budget, run_budget
from offload_tool.io.output_folder import OutputFolder, new_folder, open_folder
from offload_tool.io.paths import is_same_file, is_within, naming
from offload_tool.io.spool import Spool
from offload_tool.io.write_plan import FilePlan

_T = TypeVar("_T", bound="_Tree")
_NEW_MODE = 0o644
_BEGIN = 4096
NOTHING = FilePlan((), 0)
"""The plan of a file to leave out."""


class TreeFile(NamedTuple):
    """One file, link or folder of a tree, with its permission bits."""

    name: str
    kind: str
    """``file``, ``link`` or ``folder``."""
    mode: int


class _Tree:
    def __init__(self, path: StrPath) -> None:
        self.label = str(path)
        self.files: list[TreeFile] = []
        """In the order of the output."""
        self.size = 0
        """Bytes of all files, as stored."""
        self.mode: int | None = None
        """Permission bits of the output; None: those of a new file."""
        self.stack = ExitStack()

    def installed(self, file: TreeFile) -> str:
        """Return the path of a file after the tree is installed."""
        return file.name

    def __enter__(self: _T) -> _T:
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()


def check_outside(
    output: StrPath, folder: StrPath, done: str, instead: str = "write elsewhere"
) -> None:
    """Raise UsageError if an output is inside the folder to be `done` (such as "thinned")."""
    if is_within(output, folder):
        where = f"the output '{output}' is in the folder to be {done}, '{folder}'"
        raise UsageError(f"{where}; {instead}")


class FileTree(_Tree):
    """One file, which stays open; a context manager."""

    def __init__(self, path: StrPath) -> None:
        super().__init__(path)
        with naming(path):
            mode = Path(path).stat().st_mode
        self.source = self.stack.enter_context(InputFile(path))
        self.size = len(self.source)
        self.mode = stat.S_IMODE(mode) if stat.S_ISREG(mode) else None
        self.files.append(TreeFile(Path(path).name, "file", self.mode or _NEW_MODE))

    @contextmanager
    def open(self, _: TreeFile, **__: bool) -> Iterator[Location | None]:
        """Yield the file, whatever it holds."""
        yield Location.of(self.source, self.label)

    def path(self, _: str) -> str:
        """Return the file's name for messages."""
        return self.label


class FolderTree(_Tree):
    """A folder without its subfolder `besides`; raise FileError, or UnsupportedError (devices)."""

    def __init__(self, folder: StrPath, besides: Path | None = None) -> None:
        super().__init__(folder)
        self.root = Path(folder)
        budget = effective_budget()
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
                    status = path.lstat()
                except OSError as error:
                    raise FileError(path, error) from error
                mode = status.st_mode
                if stat.S_ISLNK(mode):
                    yield TreeFile(relative, "link", 0o777)
                elif stat.S_ISDIR(mode):
                    yield TreeFile(relative, "folder", stat.S_IMODE(mode))
                elif stat.S_ISREG(mode):
                    self.size += status.st_size
                    yield TreeFile(relative, "file", stat.S_IMODE(mode))
                else:
                    message = "expected files, folders and links, found something else"
                    raise UnsupportedError(message, path=path)

    @contextmanager
    def open(self, file: TreeFile, *, always: bool = False) -> Iterator[Location | None]:
        """Yield an open file; None if its format is unknown or it is empty, unless `always`."""
        path = self.path(file.name)
        if (budget := run_budget()) is not None:
            budget.next_file()
        with InputFile(path) as source:
            wanted = always or (len(source) and recognise(source.data) is not None)
            yield Location.of(source, path) if wanted else None

    def path(self, name: str) -> str:
        """Return a file's path for messages."""
        return str(self.root / name)


class WheelTree(_Tree):
    """A wheel or zip file, a context manager; raise FormatError if broken or of unsafe names."""

    def __init__(self, path: StrPath) -> None:
        super().__init__(path)
        self.rows: dict[str, zipfile.ZipInfo] = {}
        with ExitStack() as stack:
            self.source = stack.enter_context(InputFile(path))
            self._zip = stack.enter_context(open_zip(self.source, self.label))
            self.files = list(self._read())
            self.size = len(self.source)
            self.stack = stack.pop_all()

    def _read(self) -> Iterator[TreeFile]:
        budget = effective_budget()
        for row in self._zip.infolist():
            label = self.path(row.filename)
            budget.member(label)
            name = row.filename
            parts = name.rstrip("/").split("/")
            if name.startswith("/") or ".." in parts or "\\" in name:
                raise FormatError("its name leads out of the wheel", path=label)
            if name in self.rows:
                raise FormatError("this name is there twice", path=label)
            self.rows[name] = row
            mode = row.external_attr >> 16
            kind = "link" if stat.S_ISLNK(mode) else "folder" if name.endswith("/") else "file"
            yield TreeFile(name, kind, stat.S_IMODE(mode) or _NEW_MODE)

    @contextmanager
    def open(self, file: TreeFile, *, always: bool = False) -> Iterator[Location | None]:
        """Yield an open file as `FolderTree` does."""
        label = self.path(file.name)

        def wanted(begin: memoryview) -> bool:
            return always or recognise(begin) is not None

        row = self.rows[file.name]
        with open_zip_member(self._zip, row, self.source, label, wanted) as member:
            if member is None or not wanted(member[0].data[:_BEGIN]):
                yield None
                return
            source, offset = member
            yield Location(self.label, source, label, (), (file.name,), offset)

    def path(self, name: str) -> str:
        """Return a file's path for messages."""
        return f"{self.label}({name})"

    def installed(self, file: TreeFile) -> str:
        """Return the installed path of a file; its own name if it is outside of packages."""
        return wheel.installed_path(file.name) or file.name


Tree: TypeAlias = "FileTree | FolderTree | WheelTree"


# -- writing -----------------------------------------------------------------------------


class TreeWriter:
    """Base of writers; call `finish`. Raise UnsupportedError if signed, FormatError by a RECORD."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.changed: dict[str, wheel.Digest] = {}
        self.added: dict[str, wheel.Digest] = {}
        self.removed: list[str] = []
        self.saved = 0
        """Bytes by which files became shorter."""
        self.is_changed = False
        names = {file.name for file in tree.files if file.kind == "file"}
        self.records = sorted(name for name in names if name.endswith(f".dist-info/{wheel.RECORD}"))
        for record in self.records:
            for name in wheel.SIGNATURES:
                signature = posixpath.join(posixpath.dirname(record), name)
                if signature in names:
                    message = f"'{name}' is a signature, which would not fit any more; take it out"
                    raise UnsupportedError(message, path=tree.path(signature))

    def rewrite(self, plan: Callable[[Location, TreeFile], FilePlan | None]) -> None:
        """Write each file by `plan`: None keeps it, an empty plan leaves it out."""
        for file in self.tree.files:
            if file.kind != "file":
                self.keep(file)
                continue
            with self.tree.open(file) as location:
                if location is None or (new := plan(location, file)) is None:
                    self.keep(file)
                    continue
                self.saved += len(location.source) - new.size
                if new.size:
                    self.put(file, new)
                else:
                    self.is_changed = True
                    self.removed.append(file.name)

    def put(self, file: TreeFile, plan: FilePlan) -> None:
        """Replace the content of a file of the tree."""
        self.is_changed = True
        if self.records:
            self.changed[file.name] = wheel.digest(plan.chunks(mapped=False))
        self._put(file, plan)

    def add(self, name: str, plan: FilePlan) -> None:
        """Add a new file."""
        if self.records:
            self.added[name] = wheel.digest(plan.chunks(mapped=False))
        self._add(name, plan)

    def finish(self) -> None:
        """Update the RECORD files."""
        for record in self.records:
            file = next(f for f in self.tree.files if f.name == record)
            mine = self.added if len(self.records) == 1 else {}
            with self.tree.open(file, always=True) as location:
                data = b"" if location is None else bytes(location.source.data)
            new = wheel.edited_record(
                data, record, self.changed, mine, self.removed, path=self.tree.path(record)
            )
            if new is not None:
                self._put(file, FilePlan.of([new]))

    def keep(self, file: TreeFile) -> None:
        """Keep a file unchanged; `finish` may still update a RECORD."""
        raise NotImplementedError

    @property
    def size(self) -> int:
        """Bytes of the output, without changes of a folder's RECORD files."""
        return self.tree.size - self.saved

    def _put(self, file: TreeFile, plan: FilePlan) -> None:
        raise NotImplementedError

    def _add(self, name: str, plan: FilePlan) -> None:
        raise NotImplementedError


class FolderWriter(TreeWriter):
    """Writes into `folder`, below `at`; with `only_changed`, kept files are not copied."""

    def __init__(
        self, tree: Tree, folder: OutputFolder, at: str = "", *, only_changed: bool = False
    ) -> None:
        super().__init__(tree)
        self.folder = folder
        self.at = at
        self.only_changed = only_changed
        self.kept: list[TreeFile] = []
        """Files for `copy_kept`."""

    def keep(self, file: TreeFile) -> None:
        """Record a file for `copy_kept`."""
        if not self.only_changed:
            self.kept.append(file)

    def copy_kept(self) -> None:
        """Copy the kept files that are not copied yet."""
        for file in self.kept:
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
        self.kept.clear()

    def finish(self) -> None:
        """Copy the kept files, and update the RECORD files."""
        self.copy_kept()
        super().finish()

    def _put(self, file: TreeFile, plan: FilePlan) -> None:
        self.folder.remove(self.at + file.name)
        self.folder.write(self.at + file.name, plan, file.mode)

    def _add(self, name: str, plan: FilePlan) -> None:
        self.folder.write(self.at + name, plan)


class FileWriter(TreeWriter):
    """Plans a single output file."""

    def __init__(self, tree: FileTree | WheelTree) -> None:
        super().__init__(tree)
        self.source = tree.source
        self._plan: FilePlan = NOTHING

    def keep(self, file: TreeFile) -> None:
        """Keep the file; it is the whole output."""

    def _put(self, _: TreeFile, plan: FilePlan) -> None:
        self._plan = plan

    def plan(self) -> FilePlan:
        """Return the plan of the whole output; call after `finish`."""
        if self.is_changed:
            return self._plan
        return FilePlan.of([self.source])

    @property
    def size(self) -> int:
        """Bytes of the output."""
        return self.plan().size if self.is_changed else self.tree.size  # the source is closed


class WheelWriter(FileWriter):
    """Plans a wheel; its new files are in `spool`."""

    tree: WheelTree

    def __init__(self, tree: WheelTree, spool: Spool) -> None:
        super().__init__(tree)
        self.rows = tree.rows
        self.spool = spool
        self.members: dict[str, zip_writer.PackedMember] = {}

    def keep(self, file: TreeFile) -> None:
        """Copy a member without unpacking it."""
        row, label = self.rows[file.name], self.tree.path(file.name)
        self.members[file.name] = zip_writer.copied_member(row, self.source, label=label)

    def _put(self, file: TreeFile, plan: FilePlan) -> None:
        self.members[file.name] = zip_writer.pack_member(self.spool, self.rows[file.name], plan)

    def _add(self, name: str, plan: FilePlan) -> None:
        row = zip_writer.new_row(name, _NEW_MODE)
        row.compress_type = zipfile.ZIP_DEFLATED
        self.members[name] = zip_writer.pack_member(self.spool, row, plan)

    def plan(self) -> FilePlan:
        """Return the plan of the wheel; call after `finish`."""
        members = list(self.members.values())
        return zip_writer.plan_zip(members) if self.is_changed else super().plan()


@contextmanager
def rewritten(
    path: StrPath, output: StrPath, spool: Spool, *, keep_equal: bool
) -> Iterator[TreeWriter]:
    """Yield a writer that rewrites a file, folder or wheel to `output`, which may be `path`.

    In a folder that is its own output, only changed files are written, or removed.
    """
    if os.path.isdir(path):
        old = Path(path)
        in_place = is_same_file(output, path)
        with new_folder(output, keep_equal=keep_equal) as fresh:
            tree = FolderTree(old, besides=fresh.temporary)
            writer = FolderWriter(tree, fresh, only_changed=in_place)
            yield writer
            writer.finish()
        if in_place:
            with open_folder(old) as folder:
                for name in writer.removed:
                    folder.remove(name)
    else:
        with WheelTree(path) if wheel.is_wheel(path) else FileTree(path) as one:
            made = WheelWriter(one, spool) if isinstance(one, WheelTree) else FileWriter(one)
            yield made
            made.finish()
            with replace_file(output, keep_equal=keep_equal) as out:
                made.plan().write_to(out)
                if one.mode is not None and out.seekable:
                    out.set_mode(one.mode)
