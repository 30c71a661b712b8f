"""Digests of file contents; a file is read again only if it may have changed.

A `FileStat` has a file's modification time, change time, size and inode number. Every write changes
it, even if the writer restores the modification time (``cp -p``), because the change time cannot be
set. A cached digest is valid while the `FileStat` is unchanged. It is not cached if the change time
is so recent that a second write could get the same one: the kernel's clock for file times advances
in steps of some milliseconds.
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
_P = ParamSpec("_P")
_MAX_CACHED = 65536
_CHUNK = 1 << 20
_DIGEST_BYTES = 16
_CLOCK_STEP = 20_000_000  # nanoseconds; the kernel's step is at most 10 ms (``CONFIG_HZ`` of 100)
_SECOND = 1_000_000_000
_SYSTEM = "/usr/"  # builds do not write below this folder
_NOTHING: frozenset[str] = frozenset()
CHANGED = "changed"
"""Stands for the digest of a file that changed while it was read; no digest equals it."""


class FileStat(NamedTuple):
    """The `stat` data that every write to a file changes; times are in nanoseconds."""

    modified: int
    changed: int
    size: int
    inode: int


def digest_of(data: bytes | memoryview) -> str:
    """Return the digest of `data`."""
    return str(blake2b(data, digest_size=_DIGEST_BYTES).hexdigest())


def is_system_path(folder: str) -> bool:
    """Return whether a folder is below ``/usr/``."""
    return folder.startswith(_SYSTEM)


def file_stat(path: str) -> FileStat | None:
    """Return the `FileStat` of a file; None if it does not exist."""
    try:
        return file_stat_from(os.stat(path))
    except (OSError, ValueError):
        return None


def file_stat_from(status: os.stat_result) -> FileStat:
    """Return the `FileStat` in a `stat` result."""
    return FileStat(status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)


def content_of(name: str, limit: int = -1) -> bytes:
    """Return the content of a file, at most `limit` bytes; empty if it cannot be read."""
    try:
        with open(name, "rb") as file:
            return file.read(limit)
    except (OSError, ValueError):
        return b""


def cached_by_stat(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Cache a function of a file's content, by name, until the file's `FileStat` changes.

    A result of a file so new that it may change unseen is not cached.
    """
    call: Callable[..., _T] = function

    def result(_key: FileStat | None, *args: Any, **options: Any) -> _T:
        return call(*args, **options)

    cached: Callable[..., _T] = functools.lru_cache(_MAX_CACHED)(result)

    @functools.wraps(function)
    def wrapper(*args: _P.args, **options: _P.kwargs) -> _T:
        status = file_stat(str(args[0]))
        if status is None or not is_cacheable(status):
            return call(*args, **options)
        return cached(status, *args, **options)

    return wrapper


def identity(name: str) -> str:
    """Return device and inode number of a file or folder; "" if it does not exist."""
    try:
        status = os.stat(name)
    except OSError:
        return ""
    return f"{status.st_dev:x}:{status.st_ino:x}"


def make_marker(path: str) -> int:
    """Create an empty file; return its change time, a lower bound for those of later writes.

    It is later than those of earlier writes: if these may be of the same step of the clock, the
    call waits for the next one. (A file system with longer steps than Linux is not waited for.)

    :raises OSError: the file cannot be created.
    """
    first = _change_time(path)
    deadline = time.monotonic_ns() + _CLOCK_STEP
    while (found := _change_time(path)) == first and time.monotonic_ns() < deadline:
        time.sleep(0.0005)
    return found


def _change_time(path: str) -> int:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666))
    return os.stat(path).st_ctime_ns


class DigestCache:
    """Cached digests of files and listings of folders."""

    def __init__(self, is_unwritten: Callable[[str], bool] | None = None) -> None:
        """`is_unwritten` returns whether builds never write to a folder; it is listed once then."""
        self._digests: dict[str, tuple[FileStat, str]] = {}
        self._folders: dict[str, tuple[FileStat, frozenset[str]]] = {}
        self._unwritten_names: dict[str, frozenset[str]] = {}
        self._is_unwritten = is_unwritten or is_system_path
        self._unwritten: dict[str, bool] = {}
        self._results: dict[Hashable, Any] = {}
        self._with_current: DigestCache | None = None

    def digest(self, path: str) -> str:
        """Return the digest of the file at `path`; "" if there is none."""
        current = file_stat(path)
        if current is None:
            return ""
        cached = self._digests.get(path)
        if cached is not None and cached[0] == current:
            return cached[1]
        digest = digest_of_file(path)
        if file_stat(path) == current and is_cacheable(current):
            self._digests[path] = (current, digest)
        return digest

    def cached(self, path: str) -> tuple[FileStat, str] | None:
        """Return the cached `FileStat` and digest of a file, if any."""
        return self._digests.get(path)

    def add(self, path: str, status: FileStat, digest: str) -> None:
        """Add a digest from an earlier run; a cached one takes precedence."""
        self._digests.setdefault(path, (status, digest))

    def store(self, path: str, status: FileStat, digest: str) -> None:
        """Cache the digest of a file that this process wrote."""
        self._digests[path] = (status, digest)

    def names(self, folder: str) -> frozenset[str]:
        """Return the names in a folder; empty if the folder does not exist."""
        folder = folder or "."
        if folder in self._unwritten_names:
            return self._unwritten_names[folder]
        names = self._names(folder)
        if self.caches_listing(folder):
            self._unwritten_names[folder] = names
        return names

    def caches_listing(self, folder: str) -> bool:
        """Return whether the contents of a folder are cached for the whole run."""
        found = self._unwritten.get(folder)
        if found is None:
            found = self._unwritten[folder] = self._is_unwritten(folder)
        return found

    def memoize(self, key: Hashable, compute: Callable[[], Any]) -> Any:
        """Return the result of `compute`, cached under `key` for the whole run."""
        if key not in self._results:
            self._results[key] = compute()
        return self._results[key]

    def identity_of_folder(self, folder: str) -> str:
        """Return device and inode number of a folder."""
        if self.caches_listing(folder):
            return str(self.memoize((folder, "identity"), lambda: identity(folder)))
        return identity(folder or ".")

    def with_current_listings(self) -> DigestCache:
        """Return one that shares the file caches but treats only system folders as unwritten."""
        if self._with_current is None:
            copy = self._with_current = DigestCache()
            copy._digests, copy._folders = self._digests, self._folders
        return self._with_current

    def clear_listings(self) -> None:
        """Drop the caches of unwritten folders, for a process that builds several times."""
        self._unwritten_names.clear()
        self._unwritten.clear()
        self._results.clear()
        self._with_current = None

    def _names(self, folder: str) -> frozenset[str]:
        current = file_stat(folder)
        if current is None:
            return _NOTHING
        cached = self._folders.get(folder)
        if cached is not None and cached[0] == current:
            return cached[1]
        try:
            names = frozenset(os.listdir(folder))
        except OSError:
            return _NOTHING
        if is_cacheable(current):
            self._folders[folder] = (current, names)
        return names


def digest_of_file(path: str) -> str:
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


def is_cacheable(current: FileStat) -> bool:
    """Return whether any later write to the file would change its `FileStat`."""
    return abs(time.time_ns() - current.changed) > clock_step(current)


def clock_step(current: FileStat) -> int:
    """Return how long after a change another one may leave the same `FileStat`, in nanoseconds.

    Whole seconds are of a file system that stores no parts of them: SFTP, or FAT with its two.
    """
    return _CLOCK_STEP if current.changed % _SECOND else 2 * _SECOND
