"""Read the bytes of device images, wherever they are: in nested files, and compressed too.

What is a range of a file is mapped; what is compressed is unpacked in memory, or in a temporary
file without a name. A view stays valid as long as it is used, so that a program that keeps many
of them keeps their memory, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager

from offload_tool.containers.file_format import FileFormat
from offload_tool.containers.find import FoundContainer, FoundImage, find_containers
from offload_tool.errors import FileError, OffloadError
from offload_tool.io import InputFile, StrPath
from offload_tool.operations.listing.list_images import DeviceImage, listed_images
from offload_tool.operations.match import Device

_CHANGED = "expected the file as it was when it was listed, found it changed; list it again"


def iter_image_data(
    path: StrPath,
    *,
    devices: Sequence[Device] = (),
    skipped: Callable[[OffloadError], None] | None = None,
) -> Iterator[tuple[DeviceImage, memoryview]]:
    """Yield the images that `iter_images` gives for the same arguments, each with its bytes.

    Host entries of bundles are among them: see `DeviceImage.is_host`.

    `path` is a file, folder or zip file; with `devices`, only what these would load. This
    unpacks each container once, and is the way to read all images. `skipped` is also called
    with images that cannot be unpacked; without it, the first one ends this.

    :raises UnsupportedError: an image is compressed in a way that only NVIDIA's tools know.
    :raises OffloadError: see `iter_images`.
    """
    for image, source, found in listed_images(path, devices, skipped):
        if error := source.refusal(found.label):
            if skipped is None:
                raise error
            skipped(error)
            continue
        yield image, source.content.view()


@contextmanager
def open_image(image: DeviceImage) -> Iterator[memoryview]:
    """Yield the bytes of `image`, one that was listed, while the block runs.

    The host entry that stands for an object file gives that file without the bundle's sections.
    An image that is not a range of its file is looked for again, and its container unpacked again.

    :raises UnsupportedError: it is compressed in a way that only NVIDIA's tools know.
    :raises FileError: the file cannot be read, or was changed since it was listed: of a range, this
        is seen only where the file has become too short.
    """
    if image.offset is not None and image.container != FileFormat.CUDA_FATBIN.value:
        with InputFile(image.file) as source:
            if len(source) < image.offset + image.size:
                raise FileError(image.file, _CHANGED)
            yield source.data[image.offset : image.offset + image.size]
        return
    with closing(find_containers(image.file, skipped=lambda _: None)) as containers:
        found, listed = _find(containers, image)
        if error := listed.refusal(found.label):
            raise error
        yield listed.content.view()


def _find(
    containers: Iterable[FoundContainer], image: DeviceImage
) -> tuple[FoundContainer, FoundImage]:
    for found in containers:
        if found.index == image.index and image.image_index < len(found.images):
            listed = found.images[image.image_index]
            if (found.member, listed.id, listed.size) == (image.member, image.id, image.size):
                return found, listed
    raise FileError(image.file, _CHANGED)
