"""What files hold, by digest: each is read again only where it may have changed.

A file's *look* is what its inode tells: time of modification, time of change, size and
number. Whoever writes to a file changes its look, also where the time of modification is put
back (``cp -p``): the time of change cannot be set. A digest is valid while the file's status stays
the same. It is not where the file was changed so shortly before it was read that a second change
could have the same time: the kernel's clock for files has steps of some milliseconds.
"""

from __future__ import annotations

import functools
import os
import stat
import time
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, ParamSpec, TypeVar

try:  # loads in no time, unlike all of hashlib with OpenSSL
    from _blake2 import blake2b
except ImportError:  # another implementation of Python
    from hashlib import blake2b

_T = TypeVar("_T")
_Given = ParamSpec("_Given")
_MOST_KEPT = 65536
_CHUNK = 1 << 20
_DIGEST_BYTES = 16
_CLOCK_STEP = 20_000_000
"""Nanoseconds; the kernel's is at most 10 ms (``CONFIG_HZ`` of 100)."""
_SYSTEM = "/usr/"
"""No build writes to folders there."""
_NOTHING: frozenset[str] = frozenset()
CHANGED = "changed"
"""Stands for the digest of a file that was written to while it was read: equal to none."""


class Look(NamedTuple):
    """What changes whenever somebody writes to a file; times are in nanoseconds."""

    modified: int
    changed: int
    size: int
    inode: int


def digest_of(data: bytes) -> str:
    """Return the digest of some bytes."""
    return str(blake2b(data, digest_size=_DIGEST_BYTES).hexdigest())


def is_of_system(folder: str) -> bool:
    """Return whether a folder is the system's."""
    return folder.startswith(_SYSTEM)


def look_at(path: str) -> Look | None:
    """Return the look of a file; None where there is none."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return look_of(found)


def look_of(found: os.stat_result) -> Look:
    """Return the look of a file that has just been asked for."""
    return Look(found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)


def content_of(name: str) -> bytes:
    """Return the content of a file; none where it cannot be read."""
    try:
        with open(name, "rb") as file:
            return file.read()
    except (OSError, ValueError):
        return b""


def by_look(find: Callable[_Given, _T]) -> Callable[_Given, _T]:
    """Return a function of a file's content that is called anew where the file's look is another.

    The first argument is the file's name; all are by position.
    """
    call: Callable[..., _T] = find

    @functools.lru_cache(_MOST_KEPT)
    def kept(_look: Look | None, *given: Any) -> _T:
        return call(*given)

    @functools.wraps(find)
    def found(*given: _Given.args, **_: _Given.kwargs) -> _T:
        return kept(look_at(str(given[0])), *given)

    return found


def identity(name: str) -> str:
    """Return what identifies a file or folder beside its content; "" where there is none."""
    try:
        found = os.stat(name)
    except OSError:
        return ""
    return f"{found.st_dev:x}:{found.st_ino:x}"


def make_marker(path: str) -> int:
    """Make an empty file, and return its time of change: what is written later has no earlier one.

    :raises OSError: it cannot be made.
    """
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666))
    return os.stat(path).st_ctime_ns


class Fingerprints:
    """The digests of files, and the names in folders, as far as they were asked for."""

    def __init__(self, is_unwritten: Callable[[str], bool] | None = None) -> None:
        """`is_unwritten` tells of a folder that no build writes to it: it is looked at once."""
        self._digests: dict[str, tuple[Look, str]] = {}
        self._folders: dict[str, tuple[Look, frozenset[str]]] = {}
        self._system: dict[str, frozenset[str]] = {}
        self._is_unwritten = is_unwritten or is_of_system
        self._unwritten: dict[str, bool] = {}
        self._answers: dict[Hashable, Any] = {}

    def digest(self, path: str, look: Look | None = None) -> str:
        """Return the digest of what the file at `path` holds now; "" where there is no file.

        `look` is its look now, where the caller knows it.
        """
        look = look or look_at(path)
        if look is None:
            return ""
        known = self._digests.get(path)
        if known is not None and known[0] == look:
            return known[1]
        found = _read(path)
        after = look_at(path)
        if after == look and has_settled(look):
            self._digests[path] = (look, found)
        return found

    def known(self, path: str) -> tuple[Look, str] | None:
        """Return the look and the digest that are believed of a file, if there are any."""
        return self._digests.get(path)

    def believe(self, path: str, look: Look, digest: str) -> None:
        """Take over what an earlier run found."""
        self._digests.setdefault(path, (look, digest))

    def note(self, path: str, look: Look, digest: str) -> None:
        """Believe what was just found of a file that this process made."""
        self._digests[path] = (look, digest)

    def names(self, folder: str) -> frozenset[str]:
        """Return the names of the files and folders in a folder; none where there is no such."""
        folder = folder or "."
        if folder in self._system:
            return self._system[folder]
        look = look_at(folder)
        found = self._names(folder, look)
        if self.looks_once(folder):
            self._system[folder] = found
        return found

    def looks_once(self, folder: str) -> bool:
        """Return whether a folder is one that is looked at once."""
        found = self._unwritten.get(folder)
        if found is None:
            found = self._unwritten[folder] = self._is_unwritten(folder)
        return found

    def once(self, question: Hashable, find: Callable[[], Any]) -> Any:
        """Return the answer to a question about folders that are looked at once."""
        if question not in self._answers:
            self._answers[question] = find()
        return self._answers[question]

    def identity_of_folder(self, folder: str) -> str:
        """Return what tells a folder from others."""
        if self.looks_once(folder):
            return str(self.once((folder, "identity"), lambda: identity(folder)))
        return identity(folder or ".")

    def looking_now(self) -> Fingerprints:
        """Return others that know the same of files, and look at nothing but the system once."""
        made = Fingerprints()
        made._digests, made._folders = self._digests, self._folders
        return made

    def look_again(self) -> None:
        """Look again at all that is looked at once: a process that builds several times goes on."""
        self._system.clear()
        self._unwritten.clear()
        self._answers.clear()

    def _names(self, folder: str, look: Look | None) -> frozenset[str]:
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
    """Return the digest of a file's content; "" where it cannot be read or has none."""
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


def has_settled(look: Look) -> bool:
    """Return whether any change from now on would show in the look."""
    return abs(time.time_ns() - look.changed) > _CLOCK_STEP
