"""Detect races: files that changed while a pass read them.

A pass has read the present content of a file if nothing on the file's path has changed since the
pass began: the file, a symbolic link, or a directory that was replaced. A changed file is not
recorded as read, so the next build runs the pass again.
"""

from __future__ import annotations

import functools
import os
import stat
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from offload_tool.errors import FileError
from offload_tool.io.file_digests import (
    CHANGED,
    DigestCache,
    file_stat,
    identity,
    is_system_path,
    make_marker,
)


class Start(NamedTuple):
    """The moment at which a pass begins, by the file system's clock, and the state of files."""

    moment: int
    """Nanoseconds: later than all earlier changes, see `make_marker`."""
    folders: Mapping[str, str] = MappingProxyType({})
    """Identities of directories; another file in one changes its times as its replacement does."""
    digests: Mapping[str, str] = MappingProxyType({})
    """Digests of possible inputs. A hard link, such as SCons makes for a variant directory, changes
    a file's ctime, but not its content."""

    @classmethod
    def now(
        cls, marker: str, folders: Iterable[str] = (), digests: Mapping[str, str] | None = None
    ) -> Start:
        """Make the file `marker`, whose ctime is the moment, with `folders` and `digests`."""
        # Others may write into the folders above the working directory, such as /tmp.
        above, here = [], os.getcwd()
        while here not in above:
            above.append(here)
            here = os.path.dirname(here)
        known = {name: identity(name or ".") for name in ("", *above, *folders)}
        try:
            return cls(make_marker(marker), known, digests or {})
        except OSError as error:
            raise FileError(marker, error) from error


class RaceCheck:
    """The possible changes since a pass began."""

    def __init__(self, start: Start) -> None:
        self._start = start
        self._is_unchanged = functools.cache(self._find_is_unchanged)

    def digest_as_read(self, name: str, digests: DigestCache) -> str:
        """Return the digest of a file as the pass has read it; `CHANGED` if that is not certain."""
        found = digests.digest(name)
        is_certain = self.is_old(name) or self._start.digests.get(name) == found
        return found if found and is_certain else CHANGED

    def folders_were_replaced(self) -> bool:
        """Return whether a search directory of the pass was replaced."""
        known = self._start.folders
        return any(was and identity(name or ".") != was for name, was in known.items())

    def is_old(self, name: str, *, was_reachable: bool = True) -> bool:
        """Return whether a file, and what leads to it, has not changed since the pass began.

        For one that the pass may not have reached, new folders and entries on its path count, too.
        """
        status = file_stat(name)
        is_old = status is not None and status.changed < self._start.moment
        return is_old and self._is_unchanged(name, was_reachable)

    def _find_is_unchanged(self, path: str, was_reachable: bool) -> bool:
        if is_system_path(path) or not path.strip("./"):  # the working directory, or above
            return True
        known = self._start.folders.get(path)
        if known is not None:
            return identity(path) == known
        parent, _, last = path.rpartition("/")
        try:
            status = os.lstat(path)
            target = os.readlink(path) if stat.S_ISLNK(status.st_mode) else ""
        except OSError:
            return False
        is_new = status.st_ctime_ns >= self._start.moment
        if is_new and stat.S_ISDIR(status.st_mode):
            # A new entry changes both times; the rename of a directory changes only its ctime.
            is_renamed = status.st_ctime_ns != status.st_mtime_ns
            is_known = last == ".." or identity(path) in self._unmoved
            is_new = not is_known and (is_renamed or not was_reachable)
        if is_new or (
            target and not self._is_unchanged(os.path.join(parent, target), was_reachable)
        ):
            return False
        return self._is_unchanged(parent, was_reachable)

    @functools.cached_property
    def _unmoved(self) -> frozenset[str]:
        """The identities of the known directories that are still in place."""
        known = self._start.folders.items()
        return frozenset(was for name, was in known if was and identity(name or ".") == was)
