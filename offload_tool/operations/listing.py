"""List the device images in a file, whatever kind of file it is."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from offload_tool.errors import FormatError
from offload_tool.files import InputFile
from offload_tool.formats.bundle import MAGIC, is_bundle
from offload_tool.formats.compressed_bundle import MAGIC as COMPRESSED_MAGIC
from offload_tool.formats.compressed_bundle import is_compressed_bundle
from offload_tool.formats.elf import is_elf, read_elf
from offload_tool.formats.entry_id import BundleEntryID
from offload_tool.formats.hip_fatbin import SECTION
from offload_tool.operations.opening import open_bundle

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
    """``bundle`` or ``compressed-bundle``."""
    index: int
    """Which container of the file, from 0."""
    id: str
    """Bundle entry ID as stored."""
    kind: str
    triple: str
    target_id: str
    offset: int | None
    """Bytes from the beginning of the file; None inside of compressed data."""
    size: int
    """Bytes."""


def list_images(path: StrPath) -> list[DeviceImage]:
    """List the entries of all bundles in the file at `path`, in file order.

    Read are bundles of the binary layout, compressed or not, one or several in a file,
    and ELF files (objects, programs, libraries) with a section ``.hip_fatbin``. Host
    entries are listed as well: they are part of what the file says it holds.

    :raises FormatError: the file holds no bundle, or a broken one.
    :raises FileError: it cannot be read.
    """
    with InputFile(path) as source:
        return list(_images(source))


def _images(source: InputFile) -> Iterator[DeviceImage]:
    data, path = source.data, source.path
    if is_bundle(data) or is_compressed_bundle(data):
        yield from _bundled(source, 0, itertools.count())
    elif is_elf(data):
        sections = [s for s in read_elf(data, path=path).sections if s.name == SECTION]
        if not sections:
            raise FormatError(
                f"expected device images, found an ELF file without a {SECTION} section", path=path
            )
        index = itertools.count()
        for section in sections:
            end = section.offset + section.size if section.has_content else section.offset
            part = InputFile.from_data(path, data[:end])
            yield from _bundled(part, section.offset, index)
    else:
        raise FormatError(
            f"expected a bundle ({MAGIC.decode()} or {COMPRESSED_MAGIC.decode()}) or an ELF file "
            f"that embeds one, found {bytes(data[:8])!r}",
            path=path,
            offset=0,
        )


def _bundled(source: InputFile, start: int, index: Iterator[int]) -> Iterator[DeviceImage]:
    for container in open_bundle(source, "bc", start=start).containers:
        number = next(index)
        compressed = container.report is not None
        for entry in container.entries:
            entry_id = BundleEntryID.read(entry.id)
            yield DeviceImage(
                file=str(source.path),
                member=None,
                container="compressed-bundle" if compressed else "bundle",
                index=number,
                id=entry.id,
                kind=entry_id.kind,
                triple=entry_id.triple,
                target_id=entry_id.target_id,
                offset=None if compressed else entry.offset,
                size=entry.size,
            )
