"""Write the device images of any file into a folder.

A file name consists of the input's name, the member's path, the number of the container and the
image's ID, in portable characters::

    libfoo.so.0.hipv4-amdgcn-amd-amdhsa--gfx90a_xnack+.co
    libfoo.a_a.o_.1.openmp-nvptx64-nvidia-cuda-unknown-sm_90.bc

No input can make a name lead out of the folder or through an existing link. Either all images are
written, or none.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from offload_tool.containers.find import FoundContainer, FoundImage, find_containers
from offload_tool.errors import OffloadError, UnsupportedError
from offload_tool.formats.magic import BITCODES, SPIRVS, begins
from offload_tool.formats.objects.elf.reader import EM_AMDGPU, EM_CUDA, ElfTables, is_elf_header
from offload_tool.io import StrPath
from offload_tool.io.output_folder import new_folder
from offload_tool.operations.match import BEGIN_SIZE, Device, Load, RequestedDevices
from offload_tool.util.frozen import frozen

_UNSAFE = re.compile(r"[^A-Za-z0-9._+-]+")
_MAX_NAME = 180  # characters; file systems allow 255 bytes, and a number or an extension may follow
_MACHINE_EXTENSIONS = {EM_AMDGPU: ".co", EM_CUDA: ".cubin"}
_CUDA_EXTENSIONS = {"ptx": ".ptx", "relocatable ptx": ".ptx", "elf": ".cubin", "nvvm": ".ltoir"}
_MAGIC_EXTENSIONS = (
    *((magic, ".bc") for magic in BITCODES),
    *((magic, ".spv") for magic in SPIRVS),
)


@frozen
class ExtractedImage:
    """A written file and the image in it."""

    path: Path
    file: str
    member: str | None
    index: int
    """Number of the container in the file, from 0."""
    id: str
    size: int
    """Bytes."""
    loads: tuple[tuple[str, Load], ...] = ()
    """The requested devices that would load it, each as it was given, and the reason."""


def extract_device_images(
    path: StrPath,
    directory: StrPath,
    *,
    devices: Sequence[Device] = (),
    keep_equal: bool = False,
    skipped: Callable[[OffloadError], None] | None = None,
) -> list[ExtractedImage]:
    """Write the device images of the file, folder or zip file at `path` into `directory`.

    With `devices`, write only the images that these would load from each container (see
    `match`). The directory is created if needed. Existing files of the same names are replaced;
    with `keep_equal`, those that already have the same bytes are left untouched. Images of
    CUDA's fat binaries are unpacked. `skipped` is called for unreadable files in a folder or
    zip file, and once for all images of one ID that only NVIDIA can unpack.

    :raises NoImageError: there is no image for one of `devices`.
    :raises NoContainerError: the file holds no container of device images.
    :raises UnsupportedError: the format is not supported, or an image cannot be unpacked.
    :raises FormatError, FileError: a file is broken, or cannot be read or written.
    """
    requested = RequestedDevices(devices)
    names: set[str] = set()
    written: list[ExtractedImage] = []
    unreadable: Counter[tuple[str, str]] = Counter()  # by file and ID
    with new_folder(directory, keep_equal=keep_equal) as folder:
        for found in find_containers(path, skipped=skipped):
            loads = _loads(found, requested)
            for image in found.images:
                if image.id not in loads:
                    continue
                if image.refusal(found.label):
                    unreadable[found.label, image.id] += 1
                    continue
                name = _unused_name(Path(path), found, image, names)
                with folder.file(name) as out:
                    image.content.write_to(out)
                    size = out.position
                location = (found.path, found.member, found.index, image.id)
                written.append(
                    ExtractedImage(folder.path / name, *location, size, tuple(loads[image.id]))
                )
        requested.check(path)
        for (label, image_id), count in unreadable.items():
            message = f"{count} of the images {image_id} cannot be unpacked: how is not publicly "
            error = UnsupportedError(message + "known; 'list' names their places", path=label)
            if skipped is None:
                raise error
            skipped(error)
        return written


def _loads(found: FoundContainer, requested: RequestedDevices) -> dict[str, list[tuple[str, Load]]]:
    """Return the wanted images by their IDs, each with the devices that load it."""
    if not requested.devices:
        return {image.id: [] for image in found.device_images}
    loads: dict[str, list[tuple[str, Load]]] = {}
    for _, (device, load) in requested.loads(found):
        loads.setdefault(load.id, []).append((device, load))
    return loads


def _unused_name(path: Path, found: FoundContainer, image: FoundImage, names: set[str]) -> str:
    """Return the name of an image's file, and add it to `names`."""
    inner = os.path.relpath(found.path, path) if os.path.isdir(path) else path.name
    where = inner if found.member is None else f"{inner}_{found.member}"
    stem = _UNSAFE.sub("_", f"{where}.{found.index}.{image.id}").lstrip(".-")[-_MAX_NAME:]
    extension = _extension(image)
    number = 1
    name = f"{stem}{extension}"
    while name.lower() in names:  # some file systems ignore case
        number += 1
        name = f"{stem}.{number}{extension}"
    names.add(name.lower())
    return name


def _extension(image: FoundImage) -> str:
    content = image.content
    if content.cuda is not None:
        return _CUDA_EXTENSIONS.get(image.image_kind or "", "")
    begin = content.begin(BEGIN_SIZE)
    if content.is_host_object:
        return ".o"
    if is_elf_header(begin):
        return _MACHINE_EXTENSIONS.get(ElfTables(begin).header.e_machine, ".o")
    for magic, extension in _MAGIC_EXTENSIONS:
        if begins(begin, magic):
            return extension
    return ""
