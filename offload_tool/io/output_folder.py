"""Output folders: create files, folders and links below one without following links.

Inputs supply the names of outputs, and links may exist in the folder. So each name is resolved part
by part from the folder's descriptor, and no link is followed: nothing behind a link is created,
changed or removed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from offload_tool.errors import FileError
from offload_tool.io.atomic_write import same_bytes
from offload_tool.io.limits import run_budget
from offload_tool.io.output_file import OutputFile, set_permissions
from offload_tool.io.paths import StrPath, closing, naming
from offload_tool.io.signals import shielded
from offload_tool.io.temporary_directory import create_folder, temporary_folder
from offload_tool.io.write_plan import FilePlan

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class OutputFolder:
    """An open folder; names are paths below it, with ``/``. All methods raise FileError.

    Messages use `path`. `temporary` is the real location, for writers that need the path of a whole
    output.
    """

    def __init__(self, path: Path, temporary: Path, descriptor: int) -> None:
        self.path = path
        self.temporary = temporary
        self._descriptor = descriptor

    @contextmanager
    def _parent(self, name: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
        """Open the folder of `name`; yield its descriptor and the last part of `name`."""
        *parents, last = name.split("/")
        if not {"", ".", ".."}.isdisjoint((*parents, last)):
            raise FileError(self.path / name, "is no name of a file below its folder")
        descriptor = os.dup(self._descriptor)
        try:
            with naming(self.path / name):
                for parent in parents:
                    if make:
                        with suppress(FileExistsError):
                            os.mkdir(parent, dir_fd=descriptor)
                    outer, descriptor = descriptor, _enter(descriptor, parent)
                    os.close(outer)
                yield descriptor, last
        finally:
            os.close(descriptor)

    @contextmanager
    def file(
        self, name: str, *, mode: int | None = None, times: tuple[int, int] | None = None
    ) -> Iterator[OutputFile]:
        """Create a file; `times` are those of access and modification, in nanoseconds."""
        with self._parent(name, make=True) as (parent, last):
            descriptor = os.open(last, _NEW, 0o666, dir_fd=parent)
        path = self.path / name
        with closing(descriptor):
            out = OutputFile(path, descriptor, seekable=True, budget=run_budget())
            if mode is not None:
                out.set_mode(mode)
            yield out
            out.finish()
            if times is not None:
                with naming(path):
                    os.utime(descriptor, ns=times)

    def write(self, name: str, plan: FilePlan, mode: int | None = None) -> int:
        """Create a file; return its size in bytes."""
        with self.file(name, mode=mode) as out:
            plan.write_to(out)
            return out.position

    def folder(self, name: str, mode: int | None = None) -> None:
        """Create a folder unless it exists."""
        with self._parent(f"{name}/-", make=True) as (folder, _):
            if mode is not None:
                set_permissions(folder, mode)

    def link(self, name: str, target: str) -> None:
        """Create a link; its target is not checked."""
        with self._parent(name, make=True) as (parent, last):
            os.symlink(target, last, dir_fd=parent)

    def remove(self, name: str) -> None:
        """Remove a file or link if it exists."""
        if self.kind(name) is not None:
            with self._parent(name) as (parent, last):
                os.unlink(last, dir_fd=parent)

    def kind(self, name: str) -> str | None:
        """Return ``folder``, ``link`` or ``file``; None if `name` does not exist."""
        try:
            with self._parent(name) as (parent, last):
                return _kind(parent, last)
        except FileError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return None
            raise


def _enter(parent: int, name: str) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=parent)
    except NotADirectoryError:
        if _kind(parent, name) == "link":
            raise OSError(f"'{name}' is a link: nothing is written through one") from None
        raise


def _kind(parent: int, name: str) -> str | None:
    try:
        mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None
    return "folder" if stat.S_ISDIR(mode) else "link" if stat.S_ISLNK(mode) else "file"


@contextmanager
def new_folder(directory: StrPath, *, keep_equal: bool = False) -> Iterator[OutputFolder]:
    """Yield a temporary folder, and move its content to `directory` if the block succeeds.

    `directory` is created if necessary. Files of the same names are replaced, or with `keep_equal`
    left untouched if their content is equal. Raises FileError.
    """
    path = Path(directory)
    with (
        create_folder(path),
        temporary_folder(".offload-", path) as temporary,
        closing(os.open(temporary, _FOLDER)) as source,
    ):
        yield OutputFolder(path, temporary, source)
        with open_folder(path) as final:
            for _ in _moves(source, final._descriptor, path):
                pass
            with shielded():
                for old, new, name in _moves(source, final._descriptor, path):
                    if not (keep_equal and _are_equal(old, new, name)):
                        os.replace(name, name, src_dir_fd=old, dst_dir_fd=new)


@contextmanager
def open_folder(path: Path) -> Iterator[OutputFolder]:
    """Open an existing folder; links in `path` are followed."""
    with naming(path):
        descriptor = os.open(path, _FOLDER & ~os.O_NOFOLLOW)
    with closing(descriptor):
        yield OutputFolder(path, path, descriptor)


def _moves(source: int, target: int, path: Path) -> Iterator[tuple[int, int, str]]:
    """Yield each move (source, target, name); raise FileError if a folder is a file there."""
    for name in sorted(os.listdir(source)):
        ours, theirs = _kind(source, name), _kind(target, name)
        if ours == theirs == "folder":
            with closing(_enter(source, name)) as old, closing(_enter(target, name)) as new:
                yield from _moves(old, new, path / name)
        elif theirs is not None and "folder" in (ours, theirs):
            kind = "a folder; a file is" if theirs == "folder" else f"a {theirs}; a folder is"
            raise FileError(path / name, f"is {kind} to be written there")
        else:
            yield source, target, name


def _are_equal(source: int, target: int, name: str) -> bool:
    try:
        with (
            closing(os.open(name, _OLD, dir_fd=source)) as old,
            closing(os.open(name, _OLD, dir_fd=target)) as new,
        ):
            return same_bytes(old, new)
    except OSError:
        return False
