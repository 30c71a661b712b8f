"""The kernels of device images, whatever kind of file these are in, and what they need."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from offload_tool.containers.find import FoundContainer, FoundImage
from offload_tool.errors import ContentError, OffloadError
from offload_tool.formats.kernel_info.reader import read_kernels, silent_code
from offload_tool.formats.target.bundle_entry_id import OffloadKind
from offload_tool.io import StrPath
from offload_tool.io.limits import running
from offload_tool.operations.listing.list_images import DeviceImage, listed_images
from offload_tool.operations.match import Device
from offload_tool.util.frozen import frozen

if TYPE_CHECKING:
    from offload_tool.formats.kernel_info.kernel import Kernel

_BEGIN = 64
"""Bytes; enough for an ELF header."""


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

    `devices`, `scan`, and the order: as of `listing.list_images.iter_images`. `skipped` is
    called with what cannot be read, images with broken metadata among it; without it, the
    first one ends this. `strays` is told of stray containers, and of images that list no
    kernels (bitcode), which are not given.

    :raises ContentError: see `list_images`; or an image's metadata cannot be read.
    :raises OffloadError: at the end, there was no image for one of `devices`.
    :raises FileError: it cannot be read.
    :raises LimitError: there are more kernels than this run may look at.
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
    """Read the kernels of an image of the container `found`, as `iter_kernels` does.

    None for host entries, what lists no kernels, which `silent` is told of, and what cannot be
    read, with which `skipped` is called.

    :raises ContentError: the image's metadata cannot be read, and there is no `skipped`.
    :raises LimitError: there are more kernels than this run may look at.
    """
    if image.kind == OffloadKind.HOST:
        return None
    label = f"{found.label}, {image.id}"
    try:
        if why := silent_code(image.content.begin(_BEGIN), image.image_kind):
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
    if budget := running():
        budget.member(label, len(kernels))
    return kernels
