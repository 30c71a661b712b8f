"""Decide which image of a container a device would load.

A device is named by a target ID (``gfx90a:xnack+``) or by a bundle entry ID, which also contains
the offload kind and triple. From a container, it loads one image for each triple and offload kind
(hip and hipv4 count as one). The order of preference is: the image with the same ID, the
compatible image that sets the most features, generic code for AMD GPUs, SPIR-V. For NVIDIA GPUs,
it is the nearest cubin, then PTX. Among equals, the first in the file wins.

A name that leaves a feature open means the devices with each setting of it. No runtime loads code
that sets this feature for the name itself, so each of these devices is served separately.

Source: `offload_tool.formats.targets.compatibility`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TypeAlias

from offload_tool.containers.find import FoundContainer, FoundImage, find_containers
from offload_tool.errors import OffloadError, TargetIDError
from offload_tool.formats.objects.device_elf import generic_version
from offload_tool.formats.targets import compatibility
from offload_tool.formats.targets import triple as triples
from offload_tool.formats.targets.bundle_entry_id import BundleEntryID, OffloadKind, has_all_fields
from offload_tool.formats.targets.processors import product_processor
from offload_tool.formats.targets.target_id import TargetID
from offload_tool.io import StrPath
from offload_tool.util.frozen import frozen, replaced

BEGIN_SIZE = 64
"""Bytes of an image that show its format; enough for an ELF header."""
_EMPTY = "is empty, which HIP's runtime takes for missing"


@frozen
class Device:
    """A device, as named by a user."""

    text: str
    target: TargetID | BundleEntryID

    @classmethod
    def parse(cls, text: str) -> Device:
        """Parse `text`, a target ID or a bundle entry ID as `list` prints it.

        The processor may be one that is not in the table yet, but not a product: ``mi300``.

        :raises TargetIDError: it is neither.
        """
        kind, dash, _ = text.partition("-")
        if (kind in OffloadKind.ALL and dash) or has_all_fields(text):
            return cls(text, BundleEntryID.parse_any_kind(text))
        target = TargetID.parse(text, allow_unknown=True)
        return cls(text, TargetID.parse(text) if product_processor(target.processor) else target)

    @property
    def is_host(self) -> bool:
        """Whether the name is a host entry's ID."""
        return isinstance(self.target, BundleEntryID) and self.target.kind == OffloadKind.HOST

    def entry_id_for(self, image: BundleEntryID) -> BundleEntryID:
        """Return the entry ID of this device that is to be compared with `image`."""
        if isinstance(self.target, BundleEntryID):
            return self.target
        kind = OffloadKind.HIPV4 if image.kind in OffloadKind.ANY_HIP else image.kind
        return BundleEntryID(kind, triples.without_gpu(image.triple), str(self.target))

    def completed(self) -> Iterator[Device]:
        """Yield the devices that this name means: each combination of its unset features."""
        if isinstance(self.target, TargetID):
            for target in compatibility.completions(self.target):
                yield Device(str(target), target)
            return
        try:
            named = TargetID.parse(self.target.target_id, allow_unknown=True)
        except TargetIDError:
            yield self
            return
        for target in compatibility.completions(named):
            entry = BundleEntryID(self.target.kind, self.target.triple, str(target))
            yield Device(str(entry), entry)


class NoImageError(OffloadError):
    """No image of a file serves one of the requested devices."""

    def __init__(self, path: StrPath, devices: Iterable[Device], present: Iterable[str]) -> None:
        names = ", ".join(device.text for device in devices)
        found = ", ".join(present) or "none"
        super().__init__(f"'{path}': no image for {names}; images found: {found}")


@frozen
class Load:
    """An image that a device would load, and the reason."""

    id: str
    """As stored."""
    rule: str
    """``exact``, ``compatible``, ``generic``, ``spirv`` or ``ptx``."""
    reason: str

    def __str__(self) -> str:
        return f"{self.id} ({self.rule}: {self.reason})"

    @property
    def is_native(self) -> bool:
        """Whether the image is code for the device's own processor."""
        return self.rule in (compatibility.EXACT, compatibility.COMPATIBLE)


@frozen
class Match:
    """The images that a device would load from one container."""

    file: str
    member: str | None
    container: str
    index: int
    """Number of the container in the file, from 0."""
    section: str | None
    ids: tuple[str, ...]
    """IDs of the images to load: one for each offload kind; empty if none fits. If no image serves
    the device's name as it is, these are the images for each setting of its open features."""
    loads: tuple[Load, ...]
    """The same images, with reasons."""
    reasons: tuple[tuple[str, str], ...]
    """If `ids` is empty: each device image's ID, and the reason why it does not fit."""


# A library has thousands of bundles with the same few IDs.
Candidates: TypeAlias = tuple[tuple[BundleEntryID, bool], ...]
"""The input of image selection: each image's ID, and whether the image is missing."""


def candidates_of(images: Sequence[FoundImage]) -> Candidates:
    """Return the facts about images that stay valid after their container is closed."""
    return tuple((image.entry_id, _is_missing(image)) for image in images)


@functools.lru_cache(maxsize=256)
def _best_fits(
    candidates: Candidates, device: Device, only_sure: bool
) -> dict[int, compatibility.Fit]:
    """Return the indexes of images that `device` would load; an empty HIP image comes last."""
    best: dict[object, tuple[tuple[int, ...], int, compatibility.Fit]] = {}
    for index, (entry, is_missing) in enumerate(candidates):
        if entry.kind == OffloadKind.HOST and not isinstance(device.target, BundleEntryID):
            continue
        wanted = device.entry_id_for(entry)
        fit = compatibility.find_fit(entry, wanted)
        if isinstance(fit, str) or (only_sure and not fit.is_sure):
            continue
        rank = (is_missing, *_rank(entry, wanted, fit), index)
        runtime = _runtime_key(entry, wanted)
        if runtime not in best or rank < best[runtime][0]:
            best[runtime] = (rank, index, fit)
    chosen = {index: fit for _, index, fit in best.values()}
    return {index: chosen[index] for index in sorted(chosen)}


def _runtime_key(image: BundleEntryID, wanted: BundleEntryID) -> object:
    """Return a key; a device loads only one of the images with equal keys."""
    if wanted.kind in OffloadKind.ANY_HIP and compatibility.is_amd(image):
        return OffloadKind.HIP  # ISA code and SPIR-V have different triples
    return wanted.kind, triples.meaning(wanted.triple)


def _rank(entry: BundleEntryID, wanted: BundleEntryID, fit: compatibility.Fit) -> tuple[int, ...]:
    return (
        compatibility.RULES.index(fit.rule),
        fit.rank,
        entry != wanted,
        (entry.kind, entry.target_id) != (wanted.kind, wanted.target_id),
        -entry.target_id.count(":"),
    )


def _is_missing(image: FoundImage) -> bool:
    is_hip = image.kind in OffloadKind.ANY_HIP
    return is_hip and image.content.size == 0 and not image.content.is_host_object


def _fits_of_each(
    candidates: Candidates, device: Device
) -> dict[Device, dict[int, compatibility.Fit]]:
    """Return what each device of that name would load; only `device`, if images serve it."""
    fits = _best_fits(candidates, device, only_sure=False)
    devices = [device] if fits else device.completed()
    return {one: _best_fits(candidates, one, only_sure=False) for one in devices}


def loaded(candidates: Candidates, device: Device) -> dict[Device, list[int]]:
    """Return the indexes of the images that each device of that name would load, if any.

    The devices are `device` itself or all that it means. Missing (empty) images do not count.
    """
    return {
        one: [at for at in fits if not candidates[at][1]]
        for one, fits in _fits_of_each(candidates, device).items()
    }


def unserved(device: Device, served: Collection[Device]) -> list[Device]:
    """Return the devices of that name that are not `served`: `device` itself if none is."""
    if device in served:
        return []
    meant = list(device.completed())
    lacking = [one for one in meant if one not in served]
    return [device] if lacking == meant else lacking


@functools.lru_cache(maxsize=256)
def may_load(candidates: Candidates, device: Device) -> frozenset[int]:
    """Return the indexes of all images that a device of that name may load.

    In addition to what it would load if it were exactly that, these are images for any setting of
    features that the name leaves open, and images for runtimes that skip some generic code. For
    CUDA, they include all cubins for the device's number, and images of the same ID, which the
    runtime links at load time. The result is empty if the device would load none.
    """
    found = set(_best_fits(candidates, device, only_sure=False))
    for completed in device.completed():
        found.update(_best_fits(candidates, completed, only_sure=False))
        found.update(_best_fits(candidates, completed, only_sure=True))
    return frozenset(found | _cuda_companions(candidates, device, found))


def _cuda_companions(candidates: Candidates, device: Device, found: set[int]) -> set[int]:
    loaded = {candidates[index][0] for index in found}
    companions = set()
    for index, (entry, _) in enumerate(candidates):
        if not compatibility.is_cuda(entry):
            continue
        fit = compatibility.find_fit(entry, device.entry_id_for(entry))
        is_exact = isinstance(fit, compatibility.Fit) and fit.rule == compatibility.EXACT
        if entry in loaded or is_exact:
            companions.add(index)
    return companions


def is_linked_for(linked: Candidates, device: Device) -> bool:
    """Return whether a device loads an image of its own from those `linked` of a source's code."""
    fits = _best_fits(linked, device, only_sure=False).values()
    return any(fit.rule in (compatibility.EXACT, compatibility.COMPATIBLE) for fit in fits)


def links_sources(sources: Sequence[Candidates], device: Device) -> bool:
    """Return whether a device without a linked image has code of each of the sources to link."""
    return bool(sources) and all(all(loaded(each, device).values()) for each in sources)


def explain_loads(found: FoundContainer, device: Device) -> dict[int, Load]:
    """Return the images that `device` would load, with readable reasons and warnings."""
    images = found.images
    if is_linked_for(candidates_of(found.linked), device):
        return {}
    candidates = candidates_of(images)
    served: dict[int, compatibility.Fit] = {}
    for fits in _fits_of_each(candidates, device).values():
        served |= fits
    is_native = all(
        fit.rule in (compatibility.EXACT, compatibility.COMPATIBLE) for fit in served.values()
    )
    others = set() if is_native else may_load(candidates, device) - set(served)
    loads = {}
    for index, fit in served.items():
        notes = [fit.reason]
        content = images[index].content
        if fit.rule == compatibility.GENERIC and generic_version(content.begin(BEGIN_SIZE)) == 0:
            notes.append("its ELF header has no generic version, so that the loader refuses it")
        if needed := _settings_needed(images[index], device):
            notes.append(needed)
        if fit.rule in (compatibility.GENERIC, compatibility.SPIRV):
            for other in (images[at] for at in sorted(others)):
                if needed := _settings_needed(other, device):
                    notes.append(f"{other.id} {needed}")
        loads[index] = Load(images[index].id, fit.rule, "; ".join(notes))
    return loads


class RequestedDevices:
    """The requested devices: selects their images, and checks that each device has one."""

    def __init__(self, devices: Sequence[Device]) -> None:
        self.devices = devices
        self._served: set[Device] = set()
        self._present: dict[str, None] = {}

    def loads(self, found: FoundContainer) -> list[tuple[int, tuple[str, Load]]]:
        """Return the images that the devices load: index, device, and reason."""
        self._present.update((image.id, None) for image in found.device_images)
        loads = []
        candidates = candidates_of(found.images)
        for device in self.devices:
            if own := explain_loads(found, device):
                fits = _fits_of_each(candidates, device)
                self._served.update(one for one, found_fits in fits.items() if found_fits)
            loads += [(index, (device.text, load)) for index, load in own.items()]
        return loads

    def check(self, path: StrPath) -> None:
        """Raise NoImageError if a device had no image in the containers so far."""
        lacking = [one for device in self.devices for one in unserved(device, self._served)]
        if lacking:
            raise NoImageError(path, lacking, self._present)


def match_images(
    path: StrPath, device: Device, *, skipped: Callable[[OffloadError], None] | None = None
) -> Iterator[Match]:
    """Yield the match of `device` for each container in the file, folder or zip at `path`.

    Containers without device images or code are left out. So is a source's relocatable CUDA code if
    the device loads what is linked of it, and the latter if the device links the former. `skipped`
    is called as for `iter_images`.

    :raises NoContainerError: the file holds no container of device images.
    :raises FormatError, UnsupportedError, FileError: the file is broken, unsupported or unusable.
    """
    for found in find_containers(path, skipped=skipped):
        images = [i for i in found.images if not i.is_host or device.is_host]
        if not images or found.is_stub or is_linked_for(candidates_of(found.linked), device):
            continue
        explained = explain_loads(replaced(found, images=tuple(images)), device)
        each = loaded(candidates_of(images), device).values()
        served = set().union(*each) if all(each) else ()
        if not served and links_sources([candidates_of(one) for one in found.sources], device):
            continue
        loads = tuple(load for at, load in explained.items() if at in served)
        yield Match(
            file=found.path,
            member=found.member,
            container=found.container.value,
            index=found.index,
            section=found.section,
            ids=tuple(load.id for load in loads),
            loads=loads,
            reasons=() if loads else tuple(_reasons(images, device)),
        )


def _reasons(images: Sequence[FoundImage], device: Device) -> Iterator[tuple[str, str]]:
    for image in images:
        fit = compatibility.find_fit(image.entry_id, device.entry_id_for(image.entry_id))
        yield image.id, fit if isinstance(fit, str) else _EMPTY


def _settings_needed(image: FoundImage, device: Device) -> str:
    """Return which settings, of features that `device` leaves open, an image needs."""
    known = device.entry_id_for(image.entry_id).target_id.split(":")
    needed = [feature for feature in image.target_id.split(":")[1:] if feature not in known]
    return f"where the device has {' and '.join(needed)}" if needed else ""
