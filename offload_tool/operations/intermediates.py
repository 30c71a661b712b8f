"""Files of a build folder whose device images a later file of the build has, too.

::

    k.gfx90a.co     a code object alone         not counted
    k.hipfb         a bundle alone              not counted
    k.o             a relocatable object        not counted
    libk.so         a program, library, archive counted

A file is an intermediate if files of a later sort have all its images, byte for byte. Zip files are
no later sort: a wheel and the library beside it both count.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from offload_tool.errors import ContentError
from offload_tool.formats.objects.elf.reader import ET_REL, is_elf
from offload_tool.formats.target.bundle_entry_id import OffloadKind
from offload_tool.io import InputFile

if TYPE_CHECKING:
    from offload_tool.containers.find import FoundContainer, FoundImage
    from offload_tool.operations.listing.list_images import DeviceImage

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
