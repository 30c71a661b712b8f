"""List the device images in a file, whatever kind of file it is.

All of them, or with devices those that these would load (see `match`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from offload_tool.containers.file_format import FileFormat
from offload_tool.containers.find import FoundContainer, FoundImage, find_containers
from offload_tool.errors import OffloadError
from offload_tool.formats.target.bundle_entry_id import OffloadKind
from offload_tool.formats.target.processors import find_processor
from offload_tool.io import StrPath
from offload_tool.operations.match import Device, Load, NoImageError, explained
from offload_tool.util.frozen import frozen, replaced


@frozen
class DeviceImage:
    """One image of one container; the fields are the keys of ``offload-tool list --json``."""

    file: str
    """The file; in a folder, that file of it."""
    member: str | None
    """Archive or zip file member, or None: ``a.o``, ``lib/x.so``, ``lib/y.a(a.o)``."""
    container: str
    """``bundle``, ``compressed-bundle``, ``offload-binary``, ``cuda-fatbin``, ``code-object``
    for device code that no container is around, ``kpack``, or ``kpack-marker`` for what a host
    program has in kpack archives."""
    index: int
    """Which container of the file, from 0."""
    id: str
    """Bundle entry ID as stored; where the container has none, composed of its parts."""
    kind: str
    triple: str
    target_id: str
    offset: int | None
    """Bytes from the beginning of the file; None where the image is not a range of it: inside
    of compressed data, in another file, or the host entry that stands for a whole object file."""
    size: int
    """Bytes, decompressed; 0 for the host entry that stands for a whole object file. In CUDA's fat
    binaries, with up to 8 bytes that pad the image, which are not extracted."""
    stored_size: int
    """Bytes that it takes in the file: `size`; in a compressed container, a part of the
    container's bytes in proportion to `size`, so that the parts add up to the container."""
    container_offset: int | None
    """Where its container begins, as `offset`; sections of an object bundle: the first one."""
    container_size: int
    """Bytes of its container, with table, header and padding between images; compressed."""
    section: str | None
    """Name of the section that holds the container, or None."""
    image_kind: str | None
    """What an offload binary (``object``, ``bitcode``, ``cubin``, ...) or CUDA's fat binary
    (``ptx``, ``elf``) says of the content; None for bundles, which say nothing."""
    image_index: int
    """Which image of the container, from 0."""
    covers: tuple[str, ...] = ()
    """Of generic code for AMD GPUs: the processors that it runs on."""
    loads: tuple[tuple[str, Load], ...] = ()
    """The devices asked for that would load it, each as it was given, and why."""

    @property
    def is_host(self) -> bool:
        """Whether it is a bundle's host entry, and no device image."""
        return self.kind == OffloadKind.HOST


def list_images(path: StrPath) -> list[DeviceImage]:
    """List the images of all containers in the file at `path`, in file order.

    See `offload_tool.containers.find` for what is read. Host entries are listed as
    well: they are part of what the file says it holds.

    :raises NoContainerError: the file holds no container of device images.
    :raises FormatError: it or a file in it is broken.
    :raises UnsupportedError: it or a file in it is of a sort that is not read.
    :raises FileError: it cannot be read.
    """
    return list(iter_images(path))


def counted(images: Sequence[DeviceImage]) -> list[DeviceImage]:
    """Leave out what programs have in kpack archives, where archives are listed as well."""
    apart = any(image.container == FileFormat.KPACK.value for image in images)
    marker = FileFormat.KPACK_MARKER.value
    return [image for image in images if not (apart and image.container == marker)]


def iter_images(
    path: StrPath,
    *,
    devices: Sequence[Device] = (),
    skipped: Callable[[OffloadError], None] | None = None,
    strays: Callable[[str], None] | None = None,
    scan: bool = False,
) -> Iterator[DeviceImage]:
    """List the images in the file, folder or zip file at `path`, one after the other.

    With `devices`, only what these would load. `skipped` is called for each file in a folder,
    zip file or archive that cannot be read; without it, the first one ends the listing.
    `strays` and `scan`: see `offload_tool.containers.find.find_containers`.

    :raises NoImageError: at the end, there was no image for one of `devices`.
    :raises ContentError: see `list_images`.
    :raises FileError: it cannot be read.
    """
    found = listed_images(path, devices, skipped, strays, scan=scan)
    return (image for image, _, _ in found)


def listed_images(
    path: StrPath,
    devices: Sequence[Device] = (),
    skipped: Callable[[OffloadError], None] | None = None,
    strays: Callable[[str], None] | None = None,
    *,
    scan: bool = False,
) -> Iterator[tuple[DeviceImage, FoundImage, FoundContainer]]:
    """Yield each image that `iter_images` does, and what was found there.

    It can be read until the next one is asked for.
    """
    unserved = dict.fromkeys(devices)
    present: dict[str, None] = {}
    for found in find_containers(path, skipped=skipped, strays=strays, scan=scan):
        loads: dict[int, list[tuple[str, Load]]] = {}
        for device in devices:
            for index, load in explained(found.images, device).items():
                loads.setdefault(index, []).append((device.text, load))
                unserved.pop(device, None)
        if strays is not None:
            for fault in found.faults:
                strays(f"'{found.label}': {fault}")
        present.update({i.id: None for i in found.images if i.kind != OffloadKind.HOST})
        for index, (image, source) in enumerate(zip(_listed(found), found.images, strict=True)):
            if not devices:
                yield image, source, found
            elif index in loads:
                yield replaced(image, loads=tuple(loads[index])), source, found
    if unserved:
        raise NoImageError(path, unserved, present)


def _listed(found: FoundContainer) -> Iterator[DeviceImage]:
    stored = _stored_sizes(found)
    for index, (image, stored_size) in enumerate(zip(found.images, stored, strict=True)):
        processor = find_processor(image.target_id.partition(":")[0])
        yield DeviceImage(
            file=found.path,
            member=found.member,
            container=found.container.value,
            index=found.index,
            image_index=index,
            id=image.id,
            kind=image.kind,
            triple=image.triple,
            target_id=image.target_id,
            offset=_offset(found, image),
            size=image.size,
            stored_size=stored_size,
            container_offset=found.in_file(found.offset),
            container_size=found.size,
            section=found.section,
            image_kind=image.image_kind,
            covers=processor.covers if processor else (),
        )


def _offset(found: FoundContainer, image: FoundImage) -> int | None:
    content = image.content
    if found.container is FileFormat.KPACK_MARKER:
        return None
    if content.is_decompressed or content.is_host_object:
        return None
    return found.in_file(content.offset)


def _stored_sizes(found: FoundContainer) -> Sequence[int]:
    """Divide a compressed container's bytes among its images."""
    if found.container is FileFormat.KPACK_MARKER:  # they are in other files
        return [0] * len(found.images)
    if found.container is not FileFormat.COMPRESSED_BUNDLE:
        return [0 if i.content.is_host_object else i.content.size for i in found.images]
    total = sum(image.size for image in found.images)
    parts = []
    before = 0
    for image in found.images:
        after = before + image.size
        # By running sums, so that rounding loses nothing.
        parts.append(found.size * after // total - found.size * before // total if total else 0)
        before = after
    return parts
