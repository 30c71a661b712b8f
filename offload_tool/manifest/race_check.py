"""Detect races: files that changed while a pass read them.

The pass has read the present content of a file if the file's last change (ctime) precedes the pass.
Two changes do not show in that ctime. A symbolic link on the file's path may have a new target;
each link has its own ctime. And a directory may have been renamed with everything in it.
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
    FileStat,
    Fingerprints,
    file_stat,
    identity,
    is_system_path,
    make_marker,
)

_MOST_LINKS = 40


class Start(NamedTuple):
    """The moment at which a pass begins, by the file system's clock, and the state of files."""

    moment: int
    """Nanoseconds: the ctime of a file that was made at that moment."""
    stats: Mapping[str, FileStat]
    """The stat() records of files: ctime alone does not order a change just before that moment."""
    digests: Mapping[str, str] = MappingProxyType({})
    """Digests of possible inputs: a new hard link changes a file's times, but not its content."""
    folders: Mapping[str, str] = MappingProxyType({})
    """Identities of directories, to detect their replacement."""

    @classmethod
    def now(cls, marker: str, files: Iterable[str], folders: Iterable[str] = ()) -> Start:
        """Make the file `marker`, whose ctime is the moment; record `files` and `folders`.

        :raises FileError: the file cannot be written.
        """
        stats = {name: status for name in files if (status := file_stat(name)) is not None}
        known = {name: identity(name or ".") for name in folders}
        try:
            return cls(make_marker(marker), stats, folders=known)
        except OSError as error:
            raise FileError(marker, error) from error


class RaceCheck:
    """The possible changes since a pass began."""

    def __init__(self, start: Start) -> None:
        self._start = start
        self._new_links: dict[str, bool] = {}
        """Cache: a directory's path has a new link."""
        self._is_new = functools.cache(self._find_is_new)
        self._is_renamed = functools.cache(self._find_is_renamed)

    def digest_as_read(self, name: str, prints: Fingerprints) -> str:
        """Return the digest of a file as the pass has read it; `CHANGED` if that is not certain."""
        status = file_stat(name)
        if status is None:
            return CHANGED
        found = prints.digest(name, status)
        if file_stat(name) != status or not found:
            return CHANGED
        start = self._start
        is_old = status.changed < start.moment or start.stats.get(name) == status
        if is_old and not self._has_new_link(name) and not self._path_is_renamed(name):
            return found
        if start.digests.get(name) == found:
            return found
        return CHANGED

    def folders_were_replaced(self) -> bool:
        """Return whether a search directory of the pass was replaced."""
        known = self._start.folders
        return any(was and identity(name or ".") != was for name, was in known.items())

    def was_written_to(self, name: str) -> bool:
        """Return whether a file may have been replaced, with equal content or not."""
        return not self._is_old(name) and self._start.stats.get(name) != file_stat(name)

    def was_there(self, name: str) -> bool:
        """Return whether a file that exists now certainly existed when the pass began.

        It may not have if its directory may be new.
        """
        return self._is_old(name) and not self._is_new(name.rpartition("/")[0])

    def _is_old(self, name: str) -> bool:
        status = file_stat(name)
        return (
            status is not None
            and status.changed < self._start.moment
            and not self._has_new_link(name)
        )

    def _find_is_new(self, folder: str) -> bool:
        """Return whether a directory may be new or replaced."""
        if is_system_path(f"{folder}/") or not folder.strip("./"):  # working directory, or above
            return False
        was = self._start.folders.get(folder)
        if was is not None:
            return identity(folder) != was
        parent, _, last = folder.rpartition("/")
        if last == "..":  # each directory has one
            return self._is_new(parent)
        # Another compile's output changes the directory's ctime, under all its names.
        if identity(folder) in self._unmoved_folders:
            return self._is_new(parent)
        try:
            changed = os.stat(folder).st_ctime_ns
        except OSError:
            return True
        return changed >= self._start.moment or self._is_new(parent)

    @functools.cached_property
    def _unmoved_folders(self) -> frozenset[str]:
        """The identities of the known directories that are still in place."""
        known = self._start.folders.items()
        return frozenset(was for name, was in known if was and identity(name or ".") == was)

    def _path_is_renamed(self, name: str) -> bool:
        """Return whether a directory on a file's path may have been renamed since the start.

        A rename changes its ctime only; a new file in it changes its mtime, too.
        `folders_were_replaced` checks the directories that were known before.
        """
        folder = name.rpartition("/")[0]
        if is_system_path(name) or not folder.strip("./") or self._start.folders.get(folder):
            return False
        return self._is_renamed(folder)

    def _find_is_renamed(self, folder: str) -> bool:
        try:
            found = os.stat(folder)
        except OSError:
            return True
        is_renamed = self._start.moment <= found.st_ctime_ns != found.st_mtime_ns
        return is_renamed or self._path_is_renamed(folder)

    def _has_new_link(self, name: str) -> bool:
        """Return whether a symbolic link on a file's path, or on its target's, is new."""
        if is_system_path(name):
            return False
        left = _MOST_LINKS
        while left:
            folder, _, _ = name.rpartition("/")
            if folder and self._folder_has_new_link(folder, left):
                return True
            target = self._target(name)
            if target is None:
                return False
            if not target:
                return True
            name = os.path.join(folder, target)
            left -= 1
        return True

    def _folder_has_new_link(self, folder: str, left: int) -> bool:
        known = self._new_links.get(folder)
        if known is None:
            self._new_links[folder] = True  # a link to itself
            known = self._new_links[folder] = left <= 1 or self._has_new_link(folder)
        return known

    def _target(self, name: str) -> str | None:
        """Return the target of a link; "" if it is new, None if the name is not a link."""
        try:
            status = os.lstat(name)
            if not stat.S_ISLNK(status.st_mode):
                return None
            return "" if status.st_ctime_ns >= self._start.moment else os.readlink(name)
        except OSError:
            return ""
