"""Which image of a container a device would load.

A device is named by a target ID (``gfx90a:xnack+``) or by a bundle entry ID, which also
says the offload kind and triple. In one container it loads, for each offload kind (hip and
hipv4 are one) and triple, the image with its very ID, else the compatible one that sets
the most features, else the first in the file. Source: `entry_id.best_match`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from offload_tool.errors import OffloadError
from offload_tool.formats import triple as triples
from offload_tool.formats.entry_id import (
    BundleEntryID,
    OffloadKind,
    best_match,
    incompatibility,
)
from offload_tool.formats.target_id import TargetID
from offload_tool.operations.finding import find_containers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from offload_tool.files import StrPath
    from offload_tool.operations.finding import FoundImage

__all__ = ["Device", "Match", "NoImageError", "match_images", "served_by"]


@dataclass(frozen=True, slots=True)
class Device:
    """A device as a user names it."""

    text: str
    target: TargetID | BundleEntryID

    @classmethod
    def parse(cls, text: str) -> Device:
        """Read a target ID or a bundle entry ID.

        :raises TargetIDError: it is neither.
        """
        kind, dash, _ = text.partition("-")
        if kind in OffloadKind.ALL and dash:
            return cls(text, BundleEntryID.parse(text))
        return cls(text, TargetID.parse(text, allow_unknown=True))

    def asks(self, image: BundleEntryID) -> BundleEntryID:
        """Give the entry ID that this device would look for, to compare it with `image`."""
        if isinstance(self.target, BundleEntryID):
            return self.target
        kind = OffloadKind.HIPV4 if image.kind in OffloadKind.ANY_HIP else image.kind
        return BundleEntryID(kind, image.triple, str(self.target))


class NoImageError(OffloadError):
    """No image of a file serves the devices asked for."""

    def __init__(self, path: StrPath, devices: Iterable[Device], present: Iterable[str]) -> None:
        names = ", ".join(device.text for device in devices)
        found = ", ".join(present) or "none"
        super().__init__(f"'{path}': no image for {names}; images found: {found}")


@dataclass(frozen=True, slots=True)
class Match:
    """What a device would load from one container."""

    file: str
    member: str | None
    container: str
    index: int
    """Which container of the file, from 0."""
    section: str | None
    ids: tuple[str, ...]
    """Of the images that it would load: one for each offload kind; none if it is empty."""
    reasons: tuple[tuple[str, str], ...]
    """If `ids` is empty: each device image's ID, and why it does not serve."""


def served_by(images: Sequence[FoundImage], device: Device) -> list[int]:
    """Give the indexes of the images that `device` would load, in their order.

    A host entry is given only to who asks for it by its entry ID.
    """
    groups: dict[tuple[object, ...], list[int]] = {}
    for index, image in enumerate(images):
        if image.kind == OffloadKind.HOST and not isinstance(device.target, BundleEntryID):
            continue
        asked = device.asks(image.entry_id)
        groups.setdefault((asked.kind, triples.meaning(asked.triple)), []).append(index)
    chosen = []
    for group in groups.values():
        candidates = [images[index].entry_id for index in group]
        best = best_match(candidates, device.asks(candidates[0]))
        if best is not None:
            chosen.append(group[best])
    return sorted(chosen)


def match_images(
    path: StrPath, device: Device, *, skipped: Callable[[OffloadError], None] | None = None
) -> Iterator[Match]:
    """Say for each container of a file, folder or zip file what `device` would load.

    Containers without device images are left out. `skipped` is called as for `iter_images`.

    :raises FormatError: a broken file, or one without a container.
    :raises FileError: it cannot be read.
    """
    for found in find_containers(path, skipped=skipped):
        images = [image for image in found.images if image.kind != OffloadKind.HOST]
        if not images:
            continue
        chosen = served_by(images, device)
        reasons = () if chosen else tuple(_reasons(images, device))
        yield Match(
            file=found.path,
            member=found.member,
            container=found.container,
            index=found.index,
            section=found.section,
            ids=tuple(images[at].id for at in chosen),
            reasons=reasons,
        )


def _reasons(images: Sequence[FoundImage], device: Device) -> Iterator[tuple[str, str]]:
    for image in images:
        reason = incompatibility(image.entry_id, device.asks(image.entry_id))
        yield image.id, reason or ""
