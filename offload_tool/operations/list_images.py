"""List the device images in a file of any supported kind, with their kernels and bytes.

With devices, only the images that these would load are listed (see `match`). File ranges are
mapped; compressed images are unpacked in memory, or in a temporary file without a name. A view
stays valid while it is referenced, so a program that keeps many views also keeps their memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager

from offload_tool.containers.file_format import FileFormat
from offload_tool.containers.find import FoundContainer, FoundImage, find_containers, shares
from offload_tool.errors import ContentError, FileError, OffloadError
from offload_tool.formats.kernel import Kernel
from offload_tool.formats.kernel_info.reader import read_kernels, why_no_kernels
from offload_tool.formats.targets.bundle_entry_id import OffloadKind
from offload_tool.formats.targets.processors import find_processor
from offload_tool.io import InputFile, StrPath
from offload_tool.io.limits import run_budget
from offload_tool.operations.match import BEGIN_SIZE, Device, Load, RequestedDevices
from offload_tool.util.frozen import frozen


@frozen
class DeviceImage:
    """One image of one container; the fields are the keys of ``offload-tool list --json``."""

    file: str
    """The file's path; for a folder, that of the file inside."""
    member: str | None
    """Archive or zip file member, or None: ``a.o``, ``lib/x.so``, ``lib/y.a(a.o)``."""
    container: str
    """``bundle``, ``compressed-bundle``, ``offload-binary``, ``cuda-fatbin``, ``code-object``
    for device code outside of containers, ``kpack``, or ``kpack-marker`` for a host program's
    images in kpack archives."""
    index: int
    """Number of the container in the file, from 0."""
    id: str
    """Bundle entry ID as stored; composed if the container stores none."""
    kind: str
    triple: str
    target_id: str
    offset: int | None
    """Offset in the file in bytes; None if the image is not a range of it: in compressed data,
    in another file, or the host entry that stands for a whole object file."""
    size: int
    """Bytes, decompressed; 0 for the host entry that stands for a whole object file. In CUDA's fat
    binaries, includes up to 8 bytes of padding, which are not extracted."""
    stored_size: int
    """Bytes in the file: `size`, or in a compressed container, the image's share of the
    container's bytes in proportion to `size`, so that the shares add up to the container."""
    container_offset: int | None
    """Offset of its container, like `offset`; in an object bundle, of the first section."""
    container_size: int
    """Bytes of its container as stored, with table, header and padding between images."""
    section: str | None
    """Name of the section that holds the container, or None."""
    image_kind: str | None
    """The kind that an offload binary (``object``, ``bitcode``, ``cubin``, ...) or CUDA's fat
    binary (``ptx``, ``elf``) stores; None for bundles, which store none."""
    image_index: int
    """Number of the image in the container, from 0."""
    covers: tuple[str, ...] = ()
    """For generic AMD GPU code: the processors that it runs on."""
    loads: tuple[tuple[str, Load], ...] = ()
    """The requested devices that would load it, each as it was given, and the reason."""

    @property
    def is_host(self) -> bool:
        """Whether it is a bundle's host entry, not a device image."""
        return self.kind == OffloadKind.HOST


def list_images(path: StrPath) -> list[DeviceImage]:
    """Return the images of all containers in the file at `path`, in file order.

    See `offload_tool.containers.find` for the supported formats. The list includes host
    entries, because the container stores them.

    :raises NoContainerError: the file holds no container of device images.
    :raises FormatError, UnsupportedError, FileError: the file is broken, unsupported or unusable.
    """
    return list(iter_images(path))


def counted(images: Sequence[DeviceImage]) -> list[DeviceImage]:
    """Return the images without programs' references to kpack archives that are listed as well."""
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
    """Yield the images in the file, folder or zip file at `path`, one at a time.

    With `devices`, only the images that these would load. `skipped` is called for each
    unreadable file in a folder, zip file or archive; without it, the first one raises.
    `strays` and `scan`: see `offload_tool.containers.find.find_containers`.

    :raises NoImageError: at the end, there was no image for one of `devices`.
    :raises ContentError: see `list_images`.
    :raises FileError: the path cannot be read.
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
    """Yield images with their source, readable until the next one, and container."""
    requested = RequestedDevices(devices)
    for found in find_containers(path, skipped=skipped, strays=strays, scan=scan):
        loads: dict[int, list[tuple[str, Load]]] = {}
        for index, load in requested.loads(found):
            loads.setdefault(index, []).append(load)
        if strays is not None:
            for fault in found.faults:
                strays(f"'{found.label}': {fault}")
        for image, source in zip(_listed(found, loads), found.images, strict=True):
            if not devices or image.loads:
                yield image, source, found
    requested.check(path)


def _listed(
    found: FoundContainer, loads: Mapping[int, Sequence[tuple[str, Load]]]
) -> Iterator[DeviceImage]:
    """Yield the images of a container; `loads` has the devices of each, by its index."""
    stored = _stored_sizes(found)
    for index, (image, stored_size) in enumerate(zip(found.images, stored, strict=True)):
        processor = find_processor(image.target_id.partition(":")[0])
        is_elsewhere = found.container is FileFormat.KPACK_MARKER
        is_elsewhere |= image.content.is_decompressed or image.content.is_host_object
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
            offset=None if is_elsewhere else found.location.in_file(image.content.offset),
            size=image.size,
            stored_size=stored_size,
            container_offset=found.location.in_file(found.offset),
            container_size=found.size,
            section=found.section,
            image_kind=image.image_kind,
            covers=processor.covers if processor else (),
            loads=tuple(loads.get(index, ())),
        )


def _stored_sizes(found: FoundContainer) -> Sequence[int]:
    """Return each image's share of a compressed container's bytes."""
    if found.container is FileFormat.KPACK_MARKER:  # the images are in other files
        return [0] * len(found.images)
    if found.container is not FileFormat.COMPRESSED_BUNDLE:
        return [0 if i.content.is_host_object else i.content.size for i in found.images]
    return shares(found.size, [image.size for image in found.images])


@frozen
class ImageKernels:
    """The kernels of one image, in the order of its metadata or symbols."""

    image: DeviceImage
    kernels: tuple[Kernel, ...]


def iter_kernels(
    path: StrPath,
    *,
    devices: Sequence[Device] = (),
    skipped: Callable[[OffloadError], None] | None = None,
    strays: Callable[[str], None] | None = None,
    scan: bool = False,
) -> Iterator[ImageKernels]:
    """Read the kernels of the images in the file, folder or zip file at `path`.

    `devices`, `scan` and the order are those of `list_images.iter_images`. `skipped` is called
    for unreadable files and for images with broken metadata; without it, the first one raises.
    `strays` is called for stray containers, and for images that list no kernels (bitcode); the
    latter are left out.

    :raises ContentError: see `list_images`; or an image's metadata cannot be read.
    :raises OffloadError: at the end, there was no image for one of `devices`.
    :raises FileError: the path cannot be read.
    :raises LimitError: there are more kernels than the budget of this run.
    """
    for image, source, found in listed_images(path, devices, skipped, strays, scan=scan):
        kernels = kernels_of(source, found, skipped=skipped, silent=strays)
        if kernels is not None:
            yield ImageKernels(image, kernels)


def kernels_of(
    image: FoundImage,
    found: FoundContainer,
    *,
    skipped: Callable[[OffloadError], None] | None = None,
    silent: Callable[[str], None] | None = None,
) -> tuple[Kernel, ...] | None:
    """Return an image's kernels, or None after a call of `silent` or `skipped` (`iter_kernels`)."""
    if image.is_host:
        return None
    label = f"{found.label}, {image.id}"
    try:
        begin = image.content.begin(BEGIN_SIZE)
        if why := why_no_kernels(begin, image.triple, image.image_kind):
            if silent is not None:
                silent(f"'{label}': {why}")
            return None
        if error := image.refusal(found.label):
            raise error
        content = image.content.view()
        kernels = tuple(read_kernels(content, image_kind=image.image_kind, path=label))
    except ContentError as error:
        if skipped is None:
            raise
        skipped(error)
        return None
    if budget := run_budget():
        budget.member(label, len(kernels))
    return kernels


_CHANGED = "expected the file as it was when it was listed, found it changed; list it again"


def iter_image_data(
    path: StrPath,
    *,
    devices: Sequence[Device] = (),
    skipped: Callable[[OffloadError], None] | None = None,
) -> Iterator[tuple[DeviceImage, memoryview]]:
    """Yield each image that `iter_images` yields for the same arguments, with its bytes.

    This unpacks each container once and is the efficient way to read all images. Host entries of
    bundles are included: see `DeviceImage.is_host`. `path` is a file, folder or zip file; with
    `devices`, only the images that these would load. `skipped` is also called for images that
    cannot be unpacked; without it, the first one raises.

    :raises UnsupportedError: an image is compressed in a way that only NVIDIA's tools know, or the
        host object of a COFF file.
    :raises OffloadError: see `iter_images`.
    """
    for image, source, found in listed_images(path, devices, skipped):
        try:
            if refusal := source.refusal(found.label):
                raise refusal
            content = source.content.view()
        except ContentError as error:
            if skipped is None:
                raise
            skipped(error)
        else:
            yield image, content


@contextmanager
def open_image(image: DeviceImage) -> Iterator[memoryview]:
    """Yield the bytes of the listed `image` while the block runs.

    A host entry that stands for an object file yields that file without the bundle's sections.
    For an image that is not a file range, its container is found and unpacked again.

    :raises UnsupportedError: it is compressed in a way that only NVIDIA's tools know, or the host
        object of a COFF file.
    :raises FileError: the file cannot be read, or has changed since it was listed; for a file
        range, only a file that is now too short is detected.
    """
    if image.offset is not None and image.container != FileFormat.CUDA_FATBIN.value:
        with InputFile(image.file) as source:
            if len(source) < image.offset + image.size:
                raise FileError(image.file, _CHANGED)
            yield source.data[image.offset : image.offset + image.size]
        return
    with closing(find_containers(image.file, skipped=lambda _: None)) as containers:
        for found in containers:
            if found.index != image.index or image.image_index >= len(found.images):
                continue
            listed = found.images[image.image_index]
            if (found.member, listed.id, listed.size) == (image.member, image.id, image.size):
                if error := listed.refusal(found.label):
                    raise error
                yield listed.content.view()
                return
    raise FileError(image.file, _CHANGED)
