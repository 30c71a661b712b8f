"""Recognise files with relocatable device code, which no device link has linked yet."""

from __future__ import annotations

from offload_tool.containers.find import FoundContainer, find_containers
from offload_tool.containers.walk import OBJECT_BUNDLE_SECTIONS, OFFLOADING_SECTION
from offload_tool.errors import ContentError
from offload_tool.formats.cuda.object_section import RELOCATABLE_SECTION
from offload_tool.formats.objects.elf.reader import ET_REL, is_elf, read_elf_tables
from offload_tool.io import StrPath

_SECTIONS = (OBJECT_BUNDLE_SECTIONS, OFFLOADING_SECTION, RELOCATABLE_SECTION)


def has_relocatable_code(path: StrPath) -> bool:
    """Return whether `relocatable_kinds` gives any.

    :raises FileError: it cannot be read.
    """
    return bool(relocatable_kinds(path))


def relocatable_kinds(path: StrPath) -> frozenset[str]:
    """Return the offload kinds, of ``hip`` and ``cuda``, of which a file has relocatable code.

    An object, or a member of an archive, of either offload driver, or of nvcc. What is broken,
    or no such file at all, is for the link to complain of.

    :raises FileError: it cannot be read.
    """
    try:
        return frozenset(
            image.kind
            for found in find_containers(path)
            if found.section in _SECTIONS and not _is_linked(found)
            for image in found.images
            if image.kind in ("hip", "cuda")
        )
    except ContentError:
        return frozenset()


def _is_linked(found: FoundContainer) -> bool:
    """Return whether a container is in a program or shared library, where no link takes it from.

    Those of nvcc keep the section of what they were linked of.
    """
    data = found.place.source.data
    return is_elf(data) and read_elf_tables(data, path=found.label).header.e_type != ET_REL
