"""List the device images in a file, whatever kind of file it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from offload_tool.errors import FormatError
from offload_tool.files import InputFile
from offload_tool.formats.bundle import MAGIC, is_bundle, iter_bundles
from offload_tool.formats.elf import is_elf, read_elf
from offload_tool.formats.entry_id import BundleEntryID
from offload_tool.formats.hip_fatbin import SECTION

if TYPE_CHECKING:
    from collections.abc import Iterator

    from offload_tool.files import StrPath

__all__ = ["DeviceImage", "list_images"]


@dataclass(frozen=True, slots=True)
class DeviceImage:
    """One image of one container; the fields are the keys of ``offload-tool list --json``."""

    file: str
    member: str | None
    """Archive member, or None."""
    container: str
    """``bundle``."""
    index: int
    """Which container of the file, from 0."""
    id: str
    """Bundle entry ID as stored."""
    kind: str
    triple: str
    target_id: str
    offset: int | None
    """Bytes from the beginning of the file."""
    size: int
    """Bytes."""


def list_images(path: StrPath) -> list[DeviceImage]:
    """List the entries of all bundles in the file at `path`, in file order.

    Read are bundles, concatenated bundles, and ELF files (objects, programs, libraries)
    with a section ``.hip_fatbin``. Host entries are listed as well: they are part of
    what the file says it holds.

    :raises FormatError: the file holds no bundle, or a broken one.
    :raises FileError: it cannot be read.
    """
    with InputFile(path) as source:
        return list(_images(source.data, path))


def _images(data: memoryview, path: StrPath) -> Iterator[DeviceImage]:
    if is_bundle(data):
        yield from _bundled(data, 0, path)
    elif is_elf(data):
        sections = [s for s in read_elf(data, path=path).sections if s.name == SECTION]
        if not sections:
            raise FormatError(
                f"expected device images, found an ELF file without a {SECTION} section", path=path
            )
        for section in sections:
            end = section.offset + section.size if section.has_content else section.offset
            yield from _bundled(data[:end], section.offset, path)
    else:
        raise FormatError(
            f"expected a bundle ({MAGIC.decode()}) or an ELF file that embeds one, "
            f"found {bytes(data[:8])!r}",
            path=path,
            offset=0,
        )


def _bundled(data: memoryview, start: int, path: StrPath) -> Iterator[DeviceImage]:
    for index, bundle in enumerate(iter_bundles(data, start, path=path)):
        for entry in bundle.entries:
            entry_id = BundleEntryID.read(entry.id)
            yield DeviceImage(
                file=str(path),
                member=None,
                container="bundle",
                index=index,
                id=entry.id,
                kind=entry_id.kind,
                triple=entry_id.triple,
                target_id=entry_id.target_id,
                offset=bundle.offset + entry.offset,
                size=entry.size,
            )
