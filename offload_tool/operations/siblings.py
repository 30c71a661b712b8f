"""Find targets with the same device code, and the bytes that a shared image would save.

::

    container 1    gfx1030: code A    gfx1031: code A    gfx1100: code B
    container 2    gfx1030: code C    gfx1031: code C'   gfx1100: code D
    siblings       gfx1030, gfx1031: the same code in 1 of 2 containers

Code is the part of an image that a device loads (`kernel_info.reader`), so the processor's number
and name in headers and metadata do not count. The file is not changed: HIP's runtime accepts an
image for the device's own processor, or for a generic one that covers it.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import combinations

from offload_tool.containers.find import FoundContainer, find_containers
from offload_tool.errors import ContentError, OffloadError
from offload_tool.formats.kernel_info.reader import read_machine_code
from offload_tool.formats.objects.elf.reader import is_elf
from offload_tool.formats.targets.bundle_entry_id import OffloadKind
from offload_tool.formats.targets.compatibility import GENERIC_OF, SPIRV_PROCESSOR
from offload_tool.formats.targets.processors import find_processor
from offload_tool.io import StrPath
from offload_tool.util.frozen import frozen


@frozen
class Siblings:
    """Targets that have the same code in at least one container of a file."""

    path: str
    """The file, and the member of an archive or zip file."""
    targets: tuple[str, ...]
    """Target IDs in order."""
    equal: int
    """Number of containers in which all these targets have the same code."""
    containers: int
    """Number of containers with images for at least two of these targets."""
    equal_saves: int
    """Bytes saved by a shared image in the containers with the same code."""
    generic: str
    """The generic processor that covers all of these targets; empty if there is none."""
    generic_saves: int
    """Bytes saved by one image of the largest one's size in all containers."""

    def __str__(self) -> str:
        text = (
            f"{self.path}: {', '.join(self.targets)}: the same code in {self.equal:,} of "
            f"{self.containers:,} containers; one image there would save {self.equal_saves:,} bytes"
        )
        if self.generic:
            text += f", {self.generic} in place of all about {self.generic_saves:,}"
        return text


def find_siblings(
    path: StrPath, *, skipped: Callable[[OffloadError], None] | None = None
) -> Iterator[Siblings]:
    """Yield the siblings among the targets of each file under `path`.

    :raises ContentError, FileError: one cannot be read; images go to `skipped` if it is given.
    """
    by_file: defaultdict[str, dict[object, dict[str, tuple[bytes, int]]]] = defaultdict(dict)
    for found in find_containers(path, skipped=skipped):
        if images := _code_of(found, skipped):
            is_part = len(images) == 1 and found.section  # offload binaries with one image each
            key = found.section if is_part else found.index
            by_file[found.label].setdefault(key, {}).update(images)
    for name, containers in by_file.items():
        yield from _siblings_of(name, list(containers.values()))


def _code_of(
    found: FoundContainer, skipped: Callable[[OffloadError], None] | None
) -> dict[str, tuple[bytes, int]]:
    """Return a code digest and the size in bytes of each target's image."""
    codes = {}
    for image in found.images:
        if image.kind == OffloadKind.HOST or image.entry_id.target_id in ("", SPIRV_PROCESSOR):
            continue
        try:
            data = image.content.view()
            if not is_elf(data):
                continue
            digest = hashlib.blake2b()
            _, loaded = read_machine_code(data, path=found.label)
            for part in loaded:
                digest.update(len(part).to_bytes(8, "little"))
                digest.update(part)
        except ContentError as error:
            if skipped is None:
                raise
            skipped(error)
            continue
        codes[image.entry_id.target_id] = digest.digest(), image.content.size
    return codes


def _siblings_of(path: str, containers: list[dict[str, tuple[bytes, int]]]) -> Iterator[Siblings]:
    for group in _groups(containers):
        sizes = [[codes[t][1] for t in group if t in codes] for codes in containers]
        same = [len({codes[t][0] for t in group if t in codes}) == 1 for codes in containers]
        several = [at for at, found in enumerate(sizes) if len(found) > 1]
        equal = [at for at in several if same[at]]
        yield Siblings(
            path,
            group,
            len(equal),
            len(several),
            sum(sum(sizes[at]) - max(sizes[at]) for at in equal),
            _generic_of(group),
            sum(sum(sizes[at]) - max(sizes[at]) for at in several),
        )


def _groups(containers: list[dict[str, tuple[bytes, int]]]) -> list[tuple[str, ...]]:
    group_of: dict[str, set[str]] = {}
    for codes in containers:
        alike = defaultdict(set)
        for target, (digest, _) in codes.items():
            alike[digest].add(target)
        for targets in alike.values():
            for one, other in combinations(targets, 2):
                merged = group_of.get(one, {one}) | group_of.get(other, {other})
                group_of.update(dict.fromkeys(merged, merged))
    return sorted({tuple(sorted(group)) for group in group_of.values()})


def _generic_of(targets: tuple[str, ...]) -> str:
    """Return the generic processor for all targets; "" if there is none or they set features."""
    names = set()
    for target in targets:
        processor = find_processor(target)
        generic = None if processor is None else GENERIC_OF.get(processor.name)
        names.add(generic.name if generic is not None else "")
    return names.pop() if len(names) == 1 else ""
