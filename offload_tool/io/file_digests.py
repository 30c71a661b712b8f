"""Digests of file contents; a file is read again only if it may have changed.

A *look* is the `stat` data of a file: modification time, change time, size and inode number. Every
write changes the look, even if the writer restores the modification time (``cp -p``), because the
change time cannot be set. A digest is valid while the look is unchanged. It is not cached if the
change time is so recent that a second write could get the same one: the kernel's clock for file
times advances in steps of some milliseconds.
"""

from __future__ import annotations

import functools
import os
import stat
import time
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, ParamSpec, TypeVar

try:  # fast to load, unlike hashlib with OpenSSL
    from _blake2 import blake2b
except ImportError:  # an interpreter other than CPython
    from hashlib import blake2b

_T = TypeVar("_T")
_Given = ParamSpec("_Given")
_MOST_KEPT = 65536
_CHUNK = 1 << 20
_DIGEST_BYTES = 16
_CLOCK_STEP = 20_000_000
"""Nanoseconds; the kernel's step is at most 10 ms (``CONFIG_HZ`` of 100)."""
_SYSTEM = "/usr/"
"""Builds do not write below this folder."""
_NOTHING: frozenset[str] = frozenset()
CHANGED = "changed"
"""Stands for the digest of a file that changed while it was read; no digest equals it."""


class FileStat(NamedTuple):
    """The `stat` data that every write to a file changes; times are in nanoseconds."""

    modified: int
    changed: int
    size: int
    inode: int


def digest_of(data: bytes) -> str:
    """Return the digest of `data`."""
    return str(blake2b(data, digest_size=_DIGEST_BYTES).hexdigest())


def is_of_system(folder: str) -> bool:
    """Return whether a folder is below ``/usr/``."""
    return folder.startswith(_SYSTEM)


def file_stat(path: str) -> FileStat | None:
    """Return the look of a file; None if it does not exist."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return file_stat_from(found)


def file_stat_from(found: os.stat_result) -> FileStat:
    """Return the look in a `stat` result."""
    return FileStat(found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)


def content_of(name: str, most: int = -1) -> bytes:
    """Return the content of a file, at most `most` bytes; empty if it cannot be read."""
    try:
        with open(name, "rb") as file:
            return file.read(most)
    except (OSError, ValueError):
        return b""


def cached_by_stat(find: Callable[_Given, _T]) -> Callable[_Given, _T]:
    """Cache a function of a file's content until the file's look changes.

    The first argument is the file's name.
    """
    call: Callable[..., _T] = find

    def result(_look: FileStat | None, *given: Any, **named: Any) -> _T:
        return call(*given, **named)

    kept: Callable[..., _T] = functools.lru_cache(_MOST_KEPT)(result)

    @functools.wraps(find)
    def found(*given: _Given.args, **named: _Given.kwargs) -> _T:
        return kept(file_stat(str(given[0])), *given, **named)

    return found


def identity(name: str) -> str:
    """Return device and inode number of a file or folder; "" if it does not exist."""
    try:
        found = os.stat(name)
    except OSError:
        return ""
    return f"{found.st_dev:x}:{found.st_ino:x}"


def make_marker(path: str) -> int:
    """Create an empty file; return its change time, a lower bound for those of later writes.

    :raises OSError: the file cannot be created.
    """
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666))
    return os.stat(path).st_ctime_ns


class Fingerprints:
    """Cached digests of files and listings of folders."""

    def __init__(self, is_unwritten: Callable[[str], bool] | None = None) -> None:
        """`is_unwritten` returns whether builds never write to a folder; it is read once then."""
        self._digests: dict[str, tuple[FileStat, str]] = {}
        self._folders: dict[str, tuple[FileStat, frozenset[str]]] = {}
        self._system: dict[str, frozenset[str]] = {}
        self._is_unwritten = is_unwritten or is_of_system
        self._unwritten: dict[str, bool] = {}
        self._answers: dict[Hashable, Any] = {}

    def digest(self, path: str, look: FileStat | None = None) -> str:
        """Return the digest of the file at `path`; "" if there is no file.

        `look` is the current look, if the caller has it.
        """
        look = look or file_stat(path)
        if look is None:
            return ""
        known = self._digests.get(path)
        if known is not None and known[0] == look:
            return known[1]
        found = _read(path)
        after = file_stat(path)
        if after == look and has_settled(look):
            self._digests[path] = (look, found)
        return found

    def known(self, path: str) -> tuple[FileStat, str] | None:
        """Return the cached look and digest of a file, if any."""
        return self._digests.get(path)

    def believe(self, path: str, look: FileStat, digest: str) -> None:
        """Add a digest from an earlier run; a cached one takes precedence."""
        self._digests.setdefault(path, (look, digest))

    def note(self, path: str, look: FileStat, digest: str) -> None:
        """Cache the digest of a file that this process wrote."""
        self._digests[path] = (look, digest)

    def names(self, folder: str) -> frozenset[str]:
        """Return the names in a folder; empty if the folder does not exist."""
        folder = folder or "."
        if folder in self._system:
            return self._system[folder]
        look = file_stat(folder)
        found = self._names(folder, look)
        if self.lists_once(folder):
            self._system[folder] = found
        return found

    def lists_once(self, folder: str) -> bool:
        """Return whether the contents of a folder are cached for the whole run."""
        found = self._unwritten.get(folder)
        if found is None:
            found = self._unwritten[folder] = self._is_unwritten(folder)
        return found

    def once(self, question: Hashable, find: Callable[[], Any]) -> Any:
        """Cache the result of `find` for the whole run, under the key `question`."""
        if question not in self._answers:
            self._answers[question] = find()
        return self._answers[question]

    def identity_of_folder(self, folder: str) -> str:
        """Return device and inode number of a folder."""
        if self.lists_once(folder):
            return str(self.once((folder, "identity"), lambda: identity(folder)))
        return identity(folder or ".")

    def looking_now(self) -> Fingerprints:
        """Return a copy that shares the file caches but treats only system folders as unwritten."""
        made = Fingerprints()
        made._digests, made._folders = self._digests, self._folders
        return made

    def clear_listings(self) -> None:
        """Drop the caches of unwritten folders, for a process that builds several times."""
        self._system.clear()
        self._unwritten.clear()
        self._answers.clear()

    def _names(self, folder: str, look: FileStat | None) -> frozenset[str]:
        if look is None:
            return _NOTHING
        known = self._folders.get(folder)
        if known is not None and known[0] == look:
            return known[1]
        try:
            found = frozenset(os.listdir(folder))
        except OSError:
            return _NOTHING
        if has_settled(look):
            self._folders[folder] = (look, found)
        return found


def _read(path: str) -> str:
    """Return the digest of a file's content; "" if it is not a regular file or cannot be read."""
    digest = blake2b(digest_size=_DIGEST_BYTES)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return ""
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    except OSError:
        return ""
    return str(digest.hexdigest())


def has_settled(look: FileStat) -> bool:
    """Return whether any later write would change the look."""
    return abs(time.time_ns() - look.changed) > _CLOCK_STEP
