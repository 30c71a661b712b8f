"""Tell files with relocatable HIP device code, which a device link is yet to take its part of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from offload_tool.containers.found import find_containers
from offload_tool.containers.walk import OBJECT_BUNDLE_SECTIONS, OFFLOADING_SECTION
from offload_tool.errors import FormatError

if TYPE_CHECKING:
    from offload_tool.files import StrPath

__all__ = ["has_relocatable_code"]

_SECTIONS = (OBJECT_BUNDLE_SECTIONS, OFFLOADING_SECTION)


def has_relocatable_code(path: StrPath) -> bool:
    """Tell whether an object, or a member of an archive, has such code of either offload driver.

    What is broken, or no such file at all, is for the link to complain of.

    :raises FileError: it cannot be read.
    """
    try:
        return any(
            found.section in _SECTIONS and any(image.kind == "hip" for image in found.images)
            for found in find_containers(path)
        )
    except FormatError:
        return False
