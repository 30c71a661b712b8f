"""What may have happened to files while a pass ran: what it has read, nobody else can tell.

A file whose last change is older than the beginning of the pass is as the pass has read it, and
was there when the pass looked for it. Its time of change tells so, but not that of a symbolic link
on the way to it, which may lead elsewhere by now: each link has a time of its own. Nor does it tell
of a folder that was renamed with all that is in it.
"""

from __future__ import annotations

import functools
import os
import stat
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from offload_tool.io.file_digests import (
    CHANGED,
    Fingerprints,
    Look,
    identity,
    is_of_system,
    look_at,
    make_marker,
)

_MOST_LINKS = 40


class Start(NamedTuple):
    """The moment when a pass begins, by the clock of the files, and what it finds."""

    moment: int
    """Nanoseconds: the time of change of a file that was made just then."""
    looks: Mapping[str, Look]
    """Of files that were made so shortly before that their times alone do not tell."""
    digests: Mapping[str, str] = MappingProxyType({})
    """Of files that may be read: a link to a file changes its times, and not what it holds."""
    folders: Mapping[str, str] = MappingProxyType({})
    """What tells folders from others that may be put in their places."""

    @classmethod
    def now(cls, marker: str, files: Iterable[str], folders: Iterable[str] = ()) -> Start:
        """Make the file `marker`, which tells the time; look at `files` and `folders`."""
        looks = {name: look for name in files if (look := look_at(name)) is not None}
        known = {name: identity(name or ".") for name in folders}
        return cls(make_marker(marker), looks, folders=known)


class Meanwhile:
    """What may have changed since a pass began."""

    def __init__(self, start: Start) -> None:
        self._start = start
        self._ways: dict[str, bool] = {}
        """Whether a folder's name leads elsewhere than before, as far as it was asked."""
        self._come: dict[str, bool] = {}
        """Whether a folder came, as far as it was asked."""
        self._put: dict[str, bool] = {}
        """Whether a folder may have been renamed, as far as it was asked."""

    def digest_as_read(self, name: str, prints: Fingerprints) -> str:
        """Return the digest of a file as the pass has read it; `CHANGED` where nobody can know."""
        look = look_at(name)
        if look is None:
            return CHANGED
        found = prints.digest(name, look)
        if look_at(name) != look or not found:
            return CHANGED
        start = self._start
        is_old = look.changed < start.moment or start.looks.get(name) == look
        if is_old and not self._leads_elsewhere(name) and not self._was_put(name):
            return found
        if start.digests.get(name) == found:
            return found
        return CHANGED

    def folders_are_others(self) -> bool:
        """Return whether a folder was put in the place of one that the pass has looked into."""
        known = self._start.folders
        return any(was and identity(name or ".") != was for name, was in known.items())

    def was_written_to(self, name: str) -> bool:
        """Return whether a file may be another one than at first, of equal content or not."""
        return not self._is_old(name) and self._start.looks.get(name) != look_at(name)

    def was_there(self, name: str) -> bool:
        """Return whether a file that is there now was so when the pass began.

        Where a folder may have come with all that is in it, it was not.
        """
        return self._is_old(name) and not self._came(name.rpartition("/")[0])

    def _is_old(self, name: str) -> bool:
        look = look_at(name)
        return (
            look is not None
            and look.changed < self._start.moment
            and not self._leads_elsewhere(name)
        )

    def _came(self, folder: str) -> bool:
        """Return whether a folder may be another one than before, or have come."""
        if is_of_system(f"{folder}/") or not folder.strip("./"):  # the current one, or above it
            return False
        known = self._come.get(folder)
        if known is None:
            known = self._come[folder] = self._finds_it_new(folder)
        return known

    def _finds_it_new(self, folder: str) -> bool:
        was = self._start.folders.get(folder)
        if was is not None:
            return identity(folder) != was
        parent, _, last = folder.rpartition("/")
        if last == "..":  # each folder has one
            return self._came(parent)
        # What another compile writes there changes the time of the folder, under all its names.
        if identity(folder) in self._unmoved:
            return self._came(parent)
        try:
            changed = os.stat(folder).st_ctime_ns
        except OSError:
            return True
        return changed >= self._start.moment or self._came(parent)

    @functools.cached_property
    def _unmoved(self) -> frozenset[str]:
        """The identities of the known folders that are in their places."""
        known = self._start.folders.items()
        return frozenset(was for name, was in known if was and identity(name or ".") == was)

    def _was_put(self, name: str) -> bool:
        """Return whether a folder on the way to a file may have been renamed to that meanwhile.

        That changes its time of change, and what is written into it the time of modification, too.
        Of folders that were known before, `folders_are_others` tells.
        """
        folder = name.rpartition("/")[0]
        if is_of_system(name) or not folder.strip("./") or self._start.folders.get(folder):
            return False
        known = self._put.get(folder)
        if known is None:
            known = self._put[folder] = self._finds_it_renamed(folder) or self._was_put(folder)
        return known

    def _finds_it_renamed(self, folder: str) -> bool:
        try:
            found = os.stat(folder)
        except OSError:
            return True
        return found.st_ctime_ns >= self._start.moment and found.st_ctime_ns != found.st_mtime_ns

    def _leads_elsewhere(self, name: str) -> bool:
        """Return whether a symbolic link on the way to a file, or to what it names, is new."""
        if is_of_system(name):
            return False
        left = _MOST_LINKS
        while left:
            folder, _, _ = name.rpartition("/")
            if folder and self._way_is_new(folder, left):
                return True
            target = self._target(name)
            if target is None:
                return False
            if not target:
                return True
            name = os.path.join(folder, target)
            left -= 1
        return True

    def _way_is_new(self, folder: str, left: int) -> bool:
        known = self._ways.get(folder)
        if known is None:
            self._ways[folder] = True  # a link that leads to itself
            known = self._ways[folder] = left <= 1 or self._leads_elsewhere(folder)
        return known

    def _target(self, name: str) -> str | None:
        """Return what a link holds; "" where it is new, None where the name is none."""
        try:
            status = os.lstat(name)
            if not stat.S_ISLNK(status.st_mode):
                return None
            return "" if status.st_ctime_ns >= self._start.moment else os.readlink(name)
        except OSError:
            return ""
