"""The device images of kpack archives: in an archive, and of a host program by its markers.

What an archive has under one key is a container, and the key is its member's name. What a
wrapper of a host program gets from the archives that its marker names is a container too, of
the host program: a device loads one of its images, as of a bundle.

A marker may name any file, and be a stranger's. So an archive has to be in the folder of its
program, or in a folder ``.kpack`` of one above, as of installed trees, unless the run allows more.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from offload_tool.containers.entries import PackedFrame, StoredEntry
from offload_tool.errors import ContentError, FileError, FormatError
from offload_tool.formats.kpack.archive import (
    FOLDER,
    KpackArchive,
    KpackImage,
    images_by_key,
    read_kpack,
)
from offload_tool.formats.kpack.marker import PLACEHOLDER, KpackMarker
from offload_tool.formats.kpack.wrappers import MarkedWrapper, marked_wrappers
from offload_tool.formats.objects.elf.reader import ElfTables
from offload_tool.formats.target.bundle_entry_id import BundleEntryID, OffloadKind
from offload_tool.io import InputFile
from offload_tool.io.limits import allowed_outside, current
from offload_tool.io.paths import is_within

if TYPE_CHECKING:
    from offload_tool.containers.walk import Neighbours, Place

_TRIPLE = "amdgcn-amd-amdhsa-"
_TARGETS = ("gfx", "amdgcn")
"""What the names of targets begin with."""


KpackEntry: TypeAlias = "tuple[BundleEntryID, StoredEntry, int]"
"""A code object, with its bytes when it is unpacked."""


def entry_id_of(target_id: str) -> BundleEntryID:
    """Return the bundle entry ID that a target ID of an archive stands for."""
    return BundleEntryID(OffloadKind.HIPV4, _TRIPLE, target_id)


def codes_of_archive(source: InputFile, label: str) -> Iterator[tuple[str, list[KpackEntry]]]:
    """Yield each key of an archive, and what it has under that.

    :raises FormatError: it is broken.
    :raises UnsupportedError: it is of a version or scheme that is not known.
    """
    archive = read_kpack(source.data, path=label)
    for key, group in images_by_key(archive).items():
        yield key, [_entry(source, archive, image, label) for image in group]


def _entry(source: InputFile, archive: KpackArchive, image: KpackImage, label: str) -> KpackEntry:
    name = entry_id_of(image.target_id)
    frame = PackedFrame(archive, image, label) if archive.is_compressed else None
    entry = StoredEntry(
        *(str(name), source, image.offset, image.stored_size),
        is_decompressed=frame is not None,
        frame=frame,
    )
    return name, entry, image.size


def code_of_wrappers(
    tables: ElfTables, place: Place
) -> Iterator[tuple[MarkedWrapper, list[KpackEntry], tuple[str, ...]]]:
    """Yield each wrapper of a host program, with what it gets from the archives that are there.

    The last is what is wrong with the archives. An entry can be read until the next wrapper is
    asked for. A program that is in no file of a folder or zip file gets nothing.

    :raises FormatError: a wrapper or marker is broken, or names an archive elsewhere.
    """
    with ExitStack() as stack:
        around = place.beside or (_Folder(place.files[-1], stack) if place.files else None)
        if around is None:
            return
        archives = _Archives(around)
        seen = set()
        for wrapper in marked_wrappers(tables):
            code = wrapper.key, wrapper.marker
            if code not in seen:  # of relocatable code, all wrappers share one
                seen.add(code)
                yield (wrapper, *_wrapped(wrapper, archives))


def archives_beside(tables: ElfTables, path: str) -> list[str]:
    """Return the archives in folders that the loader would find for the host program at `path`.

    :raises FormatError: a wrapper or marker is broken, or names an archive elsewhere.
    """
    with ExitStack() as stack:
        archives = _Archives(_Folder(path, stack))
        wrappers = marked_wrappers(tables)
        return list(dict.fromkeys(p for one in wrappers for p in archives.there(one.marker)))


def _wrapped(
    wrapper: MarkedWrapper, archives: _Archives
) -> tuple[list[KpackEntry], tuple[str, ...]]:
    entries: dict[str, KpackEntry] = {}
    faults = []
    paths = archives.there(wrapper.marker)
    for path in paths:
        try:
            source, archive, images = archives.open(path)
        except (ContentError, FileError) as error:
            faults.append(f"a kpack archive is passed over: {error}")
            continue
        for image in images.get(wrapper.key, ()):
            if image.target_id in entries:
                continue
            if image.target_id in archive.target_ids:
                entries[image.target_id] = _entry(source, archive, image, str(source.path))
            else:
                faults.append(f"'{path}' has code for {image.target_id} that it does not list")
    if not paths:
        names = ", ".join(wrapper.marker.search_paths)
        faults.append(f"there is no kpack archive {names} {archives.around.where}")
    elif not entries and not faults:
        count = "the kpack archive has" if len(paths) == 1 else f"none of {len(paths)} archives has"
        faults.append(f"{count} code for '{wrapper.key}': is it of another build? ({paths[0]})")
    return list(entries.values()), tuple(faults)


class _Folder:
    """The folder that a file is in, links followed, as the loader does."""

    where = "from its folder"

    def __init__(self, path: str, stack: ExitStack) -> None:
        self.path = path
        self.folder = os.path.dirname(os.path.realpath(path))
        self._stack = stack
        self._names: dict[str, list[str]] = {}
        """By the folders that are looked into."""

    def has(self, path: str) -> bool:
        if not os.path.isfile(path):
            return False
        if not self._is_beside(path) and (how := allowed_outside("kpack_outside")):
            message = f"names the kpack archive '{path}', which is neither in '{self.folder}', its "
            message += f"folder, nor in a folder {FOLDER} above; if that is meant, {how}"
            raise FormatError(message, path=self.path)
        return True

    def _is_beside(self, path: str) -> bool:
        place, name = os.path.split(os.path.dirname(os.path.realpath(path)))
        return is_within(path, self.folder) or (name == FOLDER and is_within(self.folder, place))

    def like(self, before: str, behind: str) -> list[str]:
        folder, begin = posixpath.split(before)
        end, slash, inner = behind.partition("/")
        if folder in self._names:
            current().member(folder, len(self._names[folder]))
        else:
            try:
                self._names[folder] = sorted(os.listdir(folder))
            except (OSError, ValueError):  # a name with a NUL
                self._names[folder] = []
        names = self._names[folder]
        least = len(begin) + len(end)
        found = (n for n in names if n.startswith(begin) and n.endswith(end) and len(n) >= least)
        return [f"{posixpath.join(folder, n)}{slash}{inner}" for n in found]

    def open(self, path: str) -> InputFile:
        return self._stack.enter_context(InputFile(path))


class _OpenArchive(NamedTuple):
    source: InputFile
    archive: KpackArchive
    images: dict[str, list[KpackImage]]
    """By their keys."""


class _Archives:
    """The archives of one program: each is found and read once."""

    def __init__(self, around: Neighbours) -> None:
        self.around = around
        self._there: dict[tuple[str, ...], list[str]] = {}
        self._open: dict[str, _OpenArchive] = {}

    def there(self, marker: KpackMarker) -> list[str]:
        """Return the archives that the loader would find for some device.

        :raises FormatError: one is elsewhere than beside the program.
        """
        paths = marker.search_paths
        if paths not in self._there:
            found = (path for name in dict.fromkeys(paths) for path in self._named(name))
            self._there[paths] = list(dict.fromkeys(found))
        return self._there[paths]

    def _named(self, name: str) -> Iterator[str]:
        whole = posixpath.normpath(posixpath.join(self.around.folder, name))
        before, placeholder, behind = whole.partition(PLACEHOLDER)
        if not placeholder:
            yield from [whole] if self.around.has(whole) else []
            return
        for found in self.around.like(before, behind):
            target = found[len(before) : len(found) - len(behind)]
            if target.startswith(_TARGETS) and self.around.has(found):
                yield found

    def open(self, path: str) -> _OpenArchive:
        if path not in self._open:
            source = self.around.open(path)
            archive = read_kpack(source.data, path=str(source.path))
            self._open[path] = _OpenArchive(source, archive, images_by_key(archive))
        return self._open[path]
