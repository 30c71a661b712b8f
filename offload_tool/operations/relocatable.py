"""Tell files with relocatable HIP device code, which a device link is yet to take its part of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from offload_tool.errors import FormatError
from offload_tool.formats.bundle import MAGIC
from offload_tool.operations.finding import OFFLOADING_SECTION, find_containers

if TYPE_CHECKING:
    from offload_tool.files import StrPath

__all__ = ["has_relocatable_code"]

_SECTIONS = (f"{MAGIC.decode()}*", OFFLOADING_SECTION)


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
