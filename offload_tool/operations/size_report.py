"""Where the bytes of device images are: sums per target ID, file, container and place.

A place is a member of an archive, or a file that is none. Sizes are in bytes, of two sorts:
`size` is what a device loads, `stored` what the file spends on it. They differ in compressed
containers, and by the tables and padding that belong to a container but to no image.

Host entries are not device code: they are counted apart, in `SizeReport.host`.
"""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from offload_tool.containers.find import FoundContainer, FoundImage
from offload_tool.errors import ContentError, OffloadError
from offload_tool.formats.objects.elf.reader import ET_REL, is_elf
from offload_tool.formats.target.bundle_entry_id import OffloadKind
from offload_tool.io import InputFile, StrPath
from offload_tool.operations.list_images import DeviceImage, counted, listed_images
from offload_tool.util.frozen import frozen

_T = TypeVar("_T")
_K = TypeVar("_K")


@frozen
class TargetRow:
    """All images for one target ID."""

    target: str
    """Target ID, or the triple of images that have none."""
    kinds: tuple[str, ...]
    images: int
    size: int
    stored: int
    """Bytes of the images in their files, without tables and padding."""


@frozen
class PlaceRow:
    """All containers in one file, or in one member of it."""

    file: str
    member: str | None
    containers: int
    images: int
    size: int
    stored: int
    """Bytes of the containers, with all that is in them."""


@frozen
class ContainerRow:
    """One bundle or offload binary."""

    file: str
    member: str | None
    index: int
    container: str
    images: int
    size: int
    stored: int
    """Bytes of the container, with all that is in it."""


@frozen
class Cell:
    """All images for one target ID in one place: a tile of the picture."""

    file: str
    """'' for the rest, see `fold_smallest`."""
    member: str | None
    target: str
    images: int
    size: int
    stored: int


@frozen
class SizeReport:
    """The sums; the rows of each table by falling size, then by name."""

    images: int
    size: int
    stored: int
    """Bytes of all containers, with all that is in them."""
    overhead: int
    """Bytes of them that belong to no image: headers, tables, padding."""
    host: int
    """Bytes of them that are host entries."""
    targets: tuple[TargetRow, ...]
    files: tuple[PlaceRow, ...]
    members: tuple[PlaceRow, ...]
    """Those of archives and zip files."""
    containers: tuple[ContainerRow, ...]
    cells: tuple[Cell, ...]


def collect_images(
    paths: Iterable[StrPath],
    *,
    skipped: Callable[[OffloadError], None] | None = None,
    each: Callable[[DeviceImage, FoundImage, FoundContainer], None] | None = None,
) -> list[DeviceImage]:
    """List the images under all `paths`; a file that two of them lead to counts once.

    `skipped` and errors: as `list_images.iter_images`. `each` is called with
    every image while it can be read.
    """
    images: list[DeviceImage] = []
    seen: set[str] = set()
    for path in paths:
        files: dict[str, str] = {}
        for image, source, found in listed_images(path, skipped=skipped):
            if image.file not in files:
                files[image.file] = os.path.realpath(image.file)
            if files[image.file] in seen:
                continue
            images.append(image)
            if each is not None:
                each(image, source, found)
        seen.update(files.values())
    return images


def summarise(images: Sequence[DeviceImage]) -> SizeReport:
    """Add the sizes up per target ID, file, container and (place, target ID)."""
    images = counted(images)
    device = [image for image in images if image.kind != OffloadKind.HOST]
    containers = _containers(images)
    stored = sum(row.stored for row in containers)
    return SizeReport(
        images=len(device),
        size=sum(image.size for image in device),
        stored=stored,
        overhead=stored - sum(image.stored_size for image in images),
        host=sum(image.stored_size for image in images if image.kind == OffloadKind.HOST),
        targets=_targets(device),
        files=_places(containers, lambda row: (row.file, None)),
        members=_places(
            (row for row in containers if row.member is not None),
            lambda row: (row.file, row.member),
        ),
        containers=containers,
        cells=_cells(device),
    )


def fold_smallest(cells: Sequence[Cell], limit: int) -> list[Cell]:
    """Keep the `limit` largest cells, the first ones; add the rest up per target ID.

    For a picture of many thousand images, most of them too small to be seen. The sums of
    sizes stay what they are.
    """
    rest = _grouped(cells[limit:], lambda cell: cell.target)
    folded = [Cell("", None, target, *_sums(group)) for target, group in rest.items()]
    return [*cells[:limit], *sorted(folded, key=_by_size)]


def _targets(device: Iterable[DeviceImage]) -> tuple[TargetRow, ...]:
    rows = [
        TargetRow(target, tuple(sorted({image.kind for image in group})), *_image_sums(group))
        for target, group in _grouped(device, _target).items()
    ]
    return tuple(sorted(rows, key=_by_size))


def _places(
    containers: Iterable[ContainerRow], place: Callable[[ContainerRow], tuple[str, str | None]]
) -> tuple[PlaceRow, ...]:
    rows = [
        PlaceRow(file, member, len(group), *_sums(group))
        for (file, member), group in _grouped(containers, place).items()
    ]
    return tuple(sorted(rows, key=_by_size))


def _containers(images: Iterable[DeviceImage]) -> tuple[ContainerRow, ...]:
    rows = []
    groups = _grouped(images, lambda image: (image.file, image.member, image.index))
    for (file, member, index), group in groups.items():
        device = [image for image in group if image.kind != OffloadKind.HOST]
        size = sum(image.size for image in device)
        first = group[0]
        rows.append(
            ContainerRow(
                file, member, index, first.container, len(device), size, first.container_size
            )
        )
    return tuple(sorted(rows, key=_by_size))


def _cells(device: Iterable[DeviceImage]) -> tuple[Cell, ...]:
    groups = _grouped(device, lambda image: (image.file, image.member, _target(image)))
    rows = [Cell(*place, *_image_sums(group)) for place, group in groups.items()]
    return tuple(sorted(rows, key=_by_size))


def _target(image: DeviceImage) -> str:
    return image.target_id or image.triple


def _grouped(items: Iterable[_T], key: Callable[[_T], _K]) -> dict[_K, list[_T]]:
    groups: defaultdict[_K, list[_T]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return groups


def _image_sums(images: Sequence[DeviceImage]) -> tuple[int, int, int]:
    size = sum(image.size for image in images)
    return len(images), size, sum(image.stored_size for image in images)


def _sums(rows: Sequence[ContainerRow] | Sequence[Cell]) -> tuple[int, int, int]:
    size = sum(row.size for row in rows)
    return sum(row.images for row in rows), size, sum(row.stored for row in rows)


def _by_size(row: TargetRow | PlaceRow | ContainerRow | Cell) -> tuple[object, ...]:
    """Sort key: the largest first; equal sizes by name, with None before any name."""
    names = (getattr(row, name, None) for name in ("file", "member", "index", "target"))
    return (-row.size, *((name is not None, name) for name in names))


_CODE_OBJECT, _CONTAINER, _OBJECT, _RESULT = range(4)
_ZIP = b"PK\x03\x04"
_E_TYPE = slice(16, 18)
_EI_DATA, _BIG_ENDIAN = 5, 2


class Intermediates:
    """The images of a folder, by content; `files` says which of its files are intermediates."""

    def __init__(self) -> None:
        self._sorts: dict[str, int] = {}
        self._images: dict[str, set[bytes]] = {}

    def add(self, image: DeviceImage, source: FoundImage, found: FoundContainer) -> None:
        """Add an image, which can be read until the next one is asked for."""
        if image.kind == OffloadKind.HOST:
            return
        if image.file not in self._sorts:
            self._sorts[image.file] = _sort_of(image, found)
        images = self._images.setdefault(image.file, set())
        try:
            if source.refusal(found.label) is None:
                images.add(hashlib.blake2b(source.content.view(), digest_size=20).digest())
                return
        except ContentError:
            pass
        self._sorts[image.file] = _RESULT  # what cannot be compared is counted

    def files(self) -> list[str]:
        """Return the intermediates, in the order in which they were found."""
        later: set[bytes] = set()
        found: set[str] = set()
        for sort in (_RESULT, _OBJECT, _CONTAINER, _CODE_OBJECT):
            files = [file for file, one in self._sorts.items() if one == sort]
            if sort != _RESULT:
                found.update(file for file in files if self._images[file] <= later)
            later.update(digest for file in files for digest in self._images[file])
        return [file for file in self._sorts if file in found]


def _sort_of(image: DeviceImage, found: FoundContainer) -> int:
    """Return how late in a build a file is made; -1 for a zip file."""
    with InputFile(image.file) as source:
        head = bytes(source.data[: _E_TYPE.stop])
    if head.startswith(_ZIP):
        return -1
    if image.member is not None:  # what EMBED makes of several sources is an archive, too
        return _OBJECT if image.file.endswith((".o", ".os", ".obj")) else _RESULT
    if image.section is not None:
        is_big = head[_EI_DATA] == _BIG_ENDIAN
        e_type = int.from_bytes(head[_E_TYPE], "big" if is_big else "little")
        return _OBJECT if is_elf(memoryview(head)) and e_type == ET_REL else _RESULT
    return _CODE_OBJECT if found.container.value == "code-object" else _CONTAINER
