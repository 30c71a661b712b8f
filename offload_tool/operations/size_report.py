"""Sum the bytes of device images by target ID, file, container and location.

A location is an archive member, or a file that is not an archive. There are two sizes, in bytes:
`size` is the code that a device loads, `stored` its share of the file. They differ in compressed
containers, and by tables and padding, which belong to a container but to no image.

Host entries are not device code; `SizeReport.host` counts them separately.
"""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

from offload_tool.containers.file_format import FileFormat
from offload_tool.containers.find import FoundContainer, FoundImage
from offload_tool.errors import ContentError, OffloadError
from offload_tool.formats.magic import ZIP_MEMBER, begins
from offload_tool.formats.objects.elf.reader import ET_REL, ElfTables, is_elf_header
from offload_tool.io import InputFile, StrPath
from offload_tool.operations.list_images import DeviceImage, counted, listed_images
from offload_tool.util.frozen import frozen, replaced


@frozen
class SizeRow:
    """Sums for a target ID, a file, a member, a container, or a target in one of these."""

    images: int
    size: int
    stored: int
    """Bytes in their files: for a target, without tables and padding; else of whole containers."""
    file: str = ""
    """'' in rows of targets and of folded cells, see `fold_smallest`."""
    member: str | None = None
    index: int | None = None
    """Number of the container in the file."""
    container: str = ""
    target: str = ""
    """Target ID, or the triple if the images have none."""
    kinds: tuple[str, ...] = ()
    containers: int = 0


@frozen
class SizeReport:
    """The sums; each table is sorted by falling size, then by name."""

    images: int
    size: int
    stored: int
    """Bytes of all containers, including host entries and overhead."""
    overhead: int
    """Container bytes that belong to no image: headers, tables, padding."""
    host: int
    """Container bytes of host entries."""
    targets: tuple[SizeRow, ...]
    files: tuple[SizeRow, ...]
    members: tuple[SizeRow, ...]
    """Members of archives and zip files."""
    containers: tuple[SizeRow, ...]
    cells: tuple[SizeRow, ...]
    """One row for each target ID in each location: the tiles of the picture."""


def images_under(
    paths: Iterable[StrPath], *, skipped: Callable[[OffloadError], None] | None = None
) -> Iterator[tuple[DeviceImage, FoundImage, FoundContainer]]:
    """Yield the images under all `paths`, each file once; see `list_images.iter_images`."""
    seen: set[str] = set()
    for path in paths:
        files: dict[str, str] = {}
        for image, source, found in listed_images(path, skipped=skipped):
            if image.file not in files:
                files[image.file] = os.path.realpath(image.file)
            if files[image.file] not in seen:
                yield image, source, found
        seen.update(files.values())


def summarise(images: Sequence[DeviceImage]) -> SizeReport:
    """Return the sums per target ID, file, container and (location, target ID)."""
    images = counted(images)
    device = [
        SizeRow(
            *(1, image.size, image.stored_size, image.file, image.member),
            target=image.target_id or image.triple,
            kinds=(image.kind,),
        )
        for image in images
        if not image.is_host
    ]
    groups: defaultdict[tuple[str, str | None, int], list[DeviceImage]] = defaultdict(list)
    for image in images:
        groups[image.file, image.member, image.index].append(image)
    containers = []
    for location, group in groups.items():
        sizes = [image.size for image in group if not image.is_host]
        sums = len(sizes), sum(sizes), group[0].container_size
        containers.append(SizeRow(*sums, *location, group[0].container))
    stored = sum(row.stored for row in containers)
    return SizeReport(
        images=len(device),
        size=sum(row.size for row in device),
        stored=stored,
        overhead=stored - sum(image.stored_size for image in images),
        host=sum(image.stored_size for image in images if image.is_host),
        targets=_summed(device, "target"),
        files=_summed(containers, "file"),
        members=_summed((row for row in containers if row.member is not None), "file", "member"),
        containers=tuple(sorted(containers, key=_by_size)),
        cells=_summed(device, "file", "member", "target"),
    )


def fold_smallest(cells: Sequence[SizeRow], limit: int) -> list[SizeRow]:
    """Return the `limit` largest cells, and the others' sum for each target ID."""
    return [*cells[:limit], *_summed(cells[limit:], "target")]


def _summed(rows: Iterable[SizeRow], *names: str) -> tuple[SizeRow, ...]:
    """Return one row for each combination of values of `names`, with the sizes summed."""
    groups: defaultdict[tuple[object, ...], list[SizeRow]] = defaultdict(list)
    for row in rows:
        groups[tuple(getattr(row, name) for name in names)].append(row)
    added = []
    for values, group in groups.items():
        images, size, stored = (
            sum(getattr(row, name) for row in group) for name in ("images", "size", "stored")
        )
        kinds = tuple(sorted({kind for row in group for kind in row.kinds}))
        row = SizeRow(images, size, stored, kinds=kinds, containers=len(group))
        added.append(replaced(row, **dict(zip(names, values, strict=True))))
    return tuple(sorted(added, key=_by_size))


def _by_size(row: SizeRow) -> tuple[object, ...]:
    """Sort key: the largest first; equal sizes by name, None before any name."""
    names = row.file, row.member, row.index, row.target
    return (-row.size, *((name is not None, name) for name in names))


_CODE_OBJECT, _CONTAINER, _OBJECT, _RESULT = range(4)


class Intermediates:
    """The images of a folder, by content; `files` returns the build's intermediates."""

    def __init__(self) -> None:
        self._stages: dict[str, int] = {}
        self._images: dict[str, set[bytes]] = {}

    def add(self, image: DeviceImage, source: FoundImage, found: FoundContainer) -> None:
        """Add an image; call before the next one is requested."""
        if image.is_host:
            return
        if image.file not in self._stages:
            self._stages[image.file] = _stage_of(image, found)
        images = self._images.setdefault(image.file, set())
        try:
            if source.refusal(found.label) is None:
                images.add(hashlib.blake2b(source.content.view(), digest_size=20).digest())
                return
        except ContentError:
            pass
        self._stages[image.file] = _RESULT  # an unreadable image cannot be compared: count it

    def files(self) -> list[str]:
        """Return the intermediate files, in the order in which they were found."""
        later: set[bytes] = set()
        found: set[str] = set()
        for stage in (_RESULT, _OBJECT, _CONTAINER, _CODE_OBJECT):
            files = [file for file, one in self._stages.items() if one == stage]
            if stage != _RESULT:
                found.update(file for file in files if self._images[file] <= later)
            later.update(digest for file in files for digest in self._images[file])
        return [file for file in self._stages if file in found]


def _stage_of(image: DeviceImage, found: FoundContainer) -> int:
    """Return how late a build makes the file; -1 for a zip file."""
    with InputFile(image.file) as source:
        if begins(source.data, ZIP_MEMBER):
            return -1
        header = ElfTables(source.data).header if is_elf_header(source.data) else None
    if image.member is not None:  # EMBED of several sources makes an archive, too
        return _OBJECT if image.file.endswith((".o", ".os", ".obj")) else _RESULT
    if image.section is not None:
        return _OBJECT if header is not None and header.e_type == ET_REL else _RESULT
    return _CODE_OBJECT if found.container is FileFormat.CODE_OBJECT else _CONTAINER
