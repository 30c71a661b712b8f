"""The device images of kpack archives, found in the archive or through a host program's markers.

The images of an archive under one key form a container; the key is its member name. The images that
a host program's wrapper finds in the archives of its marker form a container of the host program.
As with a bundle, a device loads one of them.

A marker is untrusted and may name any file. So an archive must be in the folder of its program or
in a folder ``.kpack`` of a parent, as in installed trees, unless the run allows others.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TypeAlias

from offload_tool.containers.entries import PackedFrame, StoredEntry
from offload_tool.containers.walk import Location, Neighbours
from offload_tool.errors import ContentError, FileError, FormatError
from offload_tool.formats.kpack.archive import (
    FOLDER,
    KpackArchive,
    KpackImage,
    images_by_key,
    read_kpack,
)
from offload_tool.formats.kpack.marker import (
    PLACEHOLDER,
    KpackMarker,
    MarkedWrapper,
    marked_wrappers,
)
from offload_tool.formats.objects.elf.reader import ElfTables
from offload_tool.formats.targets.bundle_entry_id import BundleEntryID, OffloadKind
from offload_tool.io import InputFile
from offload_tool.io.limits import effective_budget, how_to_allow
from offload_tool.io.paths import is_within, names_in

_TRIPLE = "amdgcn-amd-amdhsa-"
_TARGETS = ("gfx", "amdgcn")  # prefixes of target names


KpackEntry: TypeAlias = "tuple[BundleEntryID, StoredEntry, int]"
"""A code object and its unpacked size in bytes."""


def entry_id_of(target_id: str) -> BundleEntryID:
    """Return the bundle entry ID for a target ID of an archive."""
    return BundleEntryID(OffloadKind.HIPV4, _TRIPLE, target_id)


def archive_code_objects(source: InputFile, label: str) -> Iterator[tuple[str, list[KpackEntry]]]:
    """Yield each key of an archive with its code objects; raise FormatError or UnsupportedError."""
    for key, group in images_by_key(read_kpack(source.data, path=label)).items():
        yield key, [_entry(source, image, label) for image in group]


def _entry(source: InputFile, image: KpackImage, label: str) -> KpackEntry:
    name = entry_id_of(image.target_id)
    frame = PackedFrame(image, label) if image.is_compressed else None
    stored = image.offset, image.stored_size
    entry = StoredEntry(str(name), source, *stored, is_decompressed=bool(frame), frame=frame)
    return name, entry, image.size


def wrapper_code_objects(
    tables: ElfTables, location: Location
) -> Iterator[tuple[MarkedWrapper, list[KpackEntry], tuple[str, ...]]]:
    """Yield each wrapper of a host program with its code objects, and faults of their archives.

    An entry is readable until the next wrapper. Raises FormatError: a wrapper or marker is broken,
    or names an archive in another folder.
    """
    if location.neighbours is None and not location.files:
        return
    with ExitStack() as stack:
        archives = _Archives(location.neighbours or _Folder(location.files[-1], stack))
        seen = set()
        for wrapper in marked_wrappers(tables):
            code = wrapper.key, wrapper.marker
            if code not in seen:  # in relocatable code, all wrappers share one
                seen.add(code)
                yield (wrapper, *_wrapper_images(wrapper, archives))


def neighbouring_archives(tables: ElfTables, path: str) -> list[str]:
    """Return the archives that the loader would find for a host program; raise FormatError."""
    with ExitStack() as stack:
        archives = _Archives(_Folder(path, stack))
        wrappers = marked_wrappers(tables)
        return list(dict.fromkeys(p for one in wrappers for p in archives.existing(one.marker)))


def _wrapper_images(
    wrapper: MarkedWrapper, archives: _Archives
) -> tuple[list[KpackEntry], tuple[str, ...]]:
    entries: dict[str, KpackEntry] = {}
    faults = []
    paths = archives.existing(wrapper.marker)
    for path in paths:
        try:
            source, archive, images = archives.open(path)
        except (ContentError, FileError) as error:
            faults.append(f"a kpack archive is skipped: {error}")
            continue
        for image in images.get(wrapper.key, ()):
            if image.target_id in entries:
                continue
            if image.target_id in archive.target_ids:
                entries[image.target_id] = _entry(source, image, str(source.path))
            else:
                faults.append(f"'{path}' has code for {image.target_id} that it does not list")
    if not paths:
        names = ", ".join(wrapper.marker.search_paths)
        faults.append(f"there is no kpack archive {names} {archives.neighbours.where}")
    elif not entries and not faults:
        count = "the kpack archive has" if len(paths) == 1 else f"none of {len(paths)} archives has"
        faults.append(f"{count} code for '{wrapper.key}': is it of another build? ({paths[0]})")
    return list(entries.values()), tuple(faults)


class _Folder:
    """The folder of a file, with links resolved as the loader does."""

    where = "from its folder"

    def __init__(self, path: str, stack: ExitStack) -> None:
        self.path = path
        self.folder = os.path.dirname(os.path.realpath(path))
        self._stack = stack
        self._names: dict[str, list[str]] = {}

    def has(self, path: str) -> bool:
        if not os.path.isfile(path):
            return False
        parent, name = os.path.split(os.path.dirname(os.path.realpath(path)))
        is_above = name == FOLDER and is_within(self.folder, parent)
        is_allowed = is_above or is_within(path, self.folder)
        if not is_allowed and (how := how_to_allow("kpack_outside")):
            message = f"names the kpack archive '{path}', which is neither in '{self.folder}', its "
            message += f"folder, nor in a folder {FOLDER} above; if that is meant, {how}"
            raise FormatError(message, path=self.path)
        return True

    def matching(self, prefix: str, suffix: str) -> list[str]:
        folder, begin = posixpath.split(prefix)
        end, slash, inner = suffix.partition("/")
        if folder in self._names:
            effective_budget().member(folder, len(self._names[folder]))
        else:
            self._names[folder] = sorted(names_in(folder))
        names = self._names[folder]
        least = len(begin) + len(end)
        found = (n for n in names if n.startswith(begin) and n.endswith(end) and len(n) >= least)
        return [f"{posixpath.join(folder, n)}{slash}{inner}" for n in found]

    def open(self, path: str) -> InputFile:
        return self._stack.enter_context(InputFile(path))


_OpenArchive: TypeAlias = "tuple[InputFile, KpackArchive, dict[str, list[KpackImage]]]"
"""Its file, its table, and its images by key."""


class _Archives:
    """The archives of one program; each is found and read once."""

    def __init__(self, neighbours: Neighbours) -> None:
        self.neighbours = neighbours
        self._existing: dict[tuple[str, ...], list[str]] = {}
        self._open: dict[str, _OpenArchive] = {}

    def existing(self, marker: KpackMarker) -> list[str]:
        paths = marker.search_paths
        if paths not in self._existing:
            found = (path for name in dict.fromkeys(paths) for path in self._named(name))
            self._existing[paths] = list(dict.fromkeys(found))
        return self._existing[paths]

    def _named(self, name: str) -> Iterator[str]:
        whole = posixpath.normpath(posixpath.join(self.neighbours.folder, name))
        prefix, placeholder, suffix = whole.partition(PLACEHOLDER)
        if not placeholder:
            yield from [whole] if self.neighbours.has(whole) else []
            return
        for found in self.neighbours.matching(prefix, suffix):
            target = found[len(prefix) : len(found) - len(suffix)]
            if target.startswith(_TARGETS) and self.neighbours.has(found):
                yield found

    def open(self, path: str) -> _OpenArchive:
        if path not in self._open:
            source = self.neighbours.open(path)
            archive = read_kpack(source.data, path=str(source.path))
            self._open[path] = source, archive, images_by_key(archive)
        return self._open[path]
