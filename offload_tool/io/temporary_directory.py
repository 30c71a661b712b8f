"""Temporary folders: removed after their block, or by the next process if that is killed.

A killed process leaves its folder behind. So each process locks its folder (`flock`); the kernel
releases the lock when the process ends. A process that creates a folder removes unlocked ones next
to it. Locks are local to a kernel, so names contain the boot ID: folders of other machines on a
shared file system stay. So do all folders on file systems without locks.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from offload_tool.errors import FileError
from offload_tool.io.paths import StrPath, check_name, closing
from offload_tool.io.signals import shielded

if TYPE_CHECKING:
    from pathlib import Path  # slow to load, as is shutil

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def create_folder(path: StrPath) -> Iterator[None]:
    """Create a folder for the block; if that fails, remove new, empty ones. Raise FileError."""
    from pathlib import Path

    check_name(path)
    folder = Path(path)
    new = [parent for parent in (folder, *folder.parents) if not os.path.exists(parent)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException as error:
        with suppress(OSError):
            for parent in new:
                parent.rmdir()
        if isinstance(error, OSError):
            raise FileError(folder, error) from error
        raise


@contextmanager
def temporary_output_folder(output: StrPath, name: str) -> Iterator[Path]:
    """Yield a temporary folder; then move its file `name` to `output`. Raise FileError."""
    from offload_tool.io.atomic_write import replace_file
    from offload_tool.io.input_file import InputFile

    with temporary_folder() as folder:
        yield folder
        with InputFile(folder / name) as made, replace_file(output) as out:
            out.copy(made)


@contextmanager
def temporary_folder(prefix: str = "offload-", folder: StrPath | None = None) -> Iterator[Path]:
    """Create a folder in `folder` (or the usual one); remove it after the block. Raise OSError."""
    from pathlib import Path

    with FolderOnDemand(prefix, folder) as made:
        made.make()
        yield Path(made.name)


class FolderOnDemand:
    """A temporary folder that has a name before it exists; removed after the block."""

    def __init__(self, prefix: str, folder: StrPath | None) -> None:
        parent = system_temp_folder() if folder is None else os.fspath(folder)
        boot = _boot_id()
        self._prefix = f"{prefix}{boot}-" if boot else ""
        self.name = os.path.abspath(f"{parent}/{self._prefix or prefix}{os.urandom(8).hex()}")
        self._lock: int | None = None

    def __enter__(self) -> FolderOnDemand:
        return self

    def make(self) -> None:
        """Create and lock it, once; raise OSError if it cannot be created."""
        if self._lock is not None:
            return
        if self._prefix:
            _remove_abandoned(os.path.dirname(self.name), self._prefix)
        with shielded():
            self._lock = _make(self.name)

    def __exit__(self, *_: object) -> None:
        with shielded():
            if self._lock is not None:
                _remove_tree(self.name)
                os.close(self._lock)


def system_temp_folder() -> str:
    """Return `tempfile.gettempdir()`, without its test files, which stay after a kill."""
    import tempfile  # slow to load, and a launcher already has its folder

    if tempfile.tempdir is not None:
        return os.fsdecode(tempfile.tempdir)
    named = (os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP"))
    for folder in (*named, "/tmp", "/var/tmp", "/usr/tmp"):  # noqa: S108 - the list of tempfile
        if folder and os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK):
            return os.path.abspath(folder)
    return tempfile.gettempdir()


def _boot_id() -> str:
    try:
        with open(_BOOT_ID, "rb") as file:
            return os.fsdecode(file.read()[:8])
    except OSError:
        return ""


def _make(path: str) -> int:
    """Create and lock a folder; return the lock."""
    while True:
        with suppress(FileExistsError):  # another process began to remove it before it was locked
            os.mkdir(path, 0o700)
        try:
            lock = os.open(path, _FLAGS)
        except FileNotFoundError:  # and has removed it
            continue
        if _is_ours(lock, path):
            return lock
        os.close(lock)


def _is_ours(lock: int, path: str) -> bool:
    """Lock a new folder; return whether no other process has begun to remove it."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.stat(path)
    except (BlockingIOError, FileNotFoundError):
        return False
    except OSError:  # no locks, so no other process gets one either
        return True
    return True


def _remove_abandoned(parent: str, prefix: str) -> None:
    """Remove the folders that killed processes of this user left behind."""
    with suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if entry.name.startswith(prefix):
                with suppress(OSError), closing(os.open(entry.path, _FLAGS)) as lock:
                    if os.fstat(lock).st_uid == os.geteuid():
                        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        _remove_tree(entry.path)


def _remove_tree(path: str) -> None:
    try:
        with closing(os.open(path, _FLAGS)) as folder:
            for name in os.listdir(folder):
                os.unlink(name, dir_fd=folder)
        os.rmdir(path)
    except OSError:  # it has subfolders
        import shutil

        shutil.rmtree(path, ignore_errors=True)
