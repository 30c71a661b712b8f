"""The containers of device images that are on the way of a `walk`, and what is in them.

::

    bundle                      binary, text or object layout, compressed or not; several in a
                                file, with zeros between
    offload binary              compressed or not; several in a file
    ELF, COFF object            .hip_fatbin            bundles
    ELF program, library          (COFF: .hip_fat)
                                .llvm.offloading       offload binaries
                                __CLANG_OFFLOAD_BUNDLE__*   an object bundle
                                .nv_fatbin, __nv_relfatbin  CUDA fat binaries
    LLVM bitcode of a host      offload binaries that it embeds
    CUDA fat binary             see `offload_tool.formats.cuda_fatbin`

Containers come one at a time, and what one of them was decompressed to goes when the next
one is asked for: memory does not grow with their number.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from offload_tool.containers.kinds import Kind, next_content, recognise, text_comment
from offload_tool.containers.places import Place
from offload_tool.containers.read import (
    StoredEntry,
    binary_bundle,
    decompressed,
    object_entries,
    text_entries,
)
from offload_tool.containers.walk import OFFLOADING_SECTION, Policy, Walk
from offload_tool.errors import FormatError
from offload_tool.files import InputFile
from offload_tool.formats.bundles.binary import is_bundle
from offload_tool.formats.bundles.compressed import is_compressed_bundle
from offload_tool.formats.bundles.objects import is_object_file
from offload_tool.formats.cuda_fatbin import SECTIONS as CUDA_SECTIONS
from offload_tool.formats.cuda_fatbin import read_cuda_fatbin
from offload_tool.formats.hip_fatbin import SECTION as HIP_SECTION
from offload_tool.formats.names import triple
from offload_tool.formats.names.entry_id import BundleEntryID
from offload_tool.formats.objects.elf_tables import SHT_LLVM_OFFLOADING, is_elf_header
from offload_tool.formats.offload_binary import (
    inflated,
    is_offload_binary,
    iter_offload_binaries,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from offload_tool.containers.walk import Spot
    from offload_tool.errors import OffloadError
    from offload_tool.files import StrPath
    from offload_tool.formats.objects.coff_edit import CoffSection
    from offload_tool.formats.objects.elf_tables import ElfTables

__all__ = ["Found", "FoundImage", "containers_in", "find_containers"]

_COFF_HIP_SECTION = HIP_SECTION[:8]  # a linked image has no room for more
_CUDA_TRIPLE = "nvptx64-nvidia-cuda-unknown"
_EMPTY: dict[Kind | None, str] = {Kind.ARCHIVE: "an archive", Kind.BITCODE: "bitcode"}
_KNOWN = (
    "a bundle (__CLANG_OFFLOAD_BUNDLE__ or CCOB), an offload binary, an archive, a zip file, or an "
    "ELF or COFF file that embeds one of these"
)


@dataclass(frozen=True, slots=True)
class FoundImage:
    """One image of a container, or its host entry."""

    id: str
    """Bundle entry ID as stored; composed of its parts where the container has none."""
    kind: str
    triple: str
    target_id: str
    content: StoredEntry
    """Where its bytes are."""
    image_kind: str | None = None
    """What the container says of the content: ``object``, ``bitcode``, ``ptx``, ..."""
    unpacked_size: int | None = None
    """Bytes after decompression, of an image that is compressed by itself (CUDA's)."""

    @property
    def entry_id(self) -> BundleEntryID:
        """The parts of the ID."""
        return BundleEntryID(self.kind, self.triple, self.target_id)

    @property
    def size(self) -> int:
        """Bytes; 0 for the host entry that stands for the whole object file."""
        if self.content.is_host_object:
            return 0
        return self.content.size if self.unpacked_size is None else self.unpacked_size


@dataclass(frozen=True, slots=True)
class Found:
    """A container; its images can be read until the next one is asked for."""

    place: Place
    container: Kind
    """A bundle, compressed or not, an offload binary or a CUDA fat binary."""
    offset: int
    """In the place, as the images' offsets."""
    size: int
    """Bytes in the file."""
    images: tuple[FoundImage, ...]
    section: str | None = None
    """Name of the section that holds it."""
    index: int = 0
    """Which container of the file, from 0."""

    @property
    def path(self) -> str:
        """The file; in a folder, that file of it."""
        return self.place.path

    @property
    def member(self) -> str | None:
        """Which member of an archive or zip file, see `Place.member`."""
        return self.place.member

    @property
    def label(self) -> str:
        """Names file and member, for messages."""
        return self.place.label

    def in_file(self, offset: int) -> int | None:
        """Give where an offset of the place is in the file; None: it is not there."""
        return None if self.place.base is None else self.place.base + offset


class _Everything(Policy):
    """Every container that is known is looked into."""

    def elf_section(self, tables: ElfTables, number: int) -> Kind | None:
        row = tables.sections[number]
        if not row.has_content or not row.sh_size:
            return None
        if row.sh_type == SHT_LLVM_OFFLOADING:
            return Kind.OFFLOAD_BINARY
        return _by_name(tables.data, tables.names[number], row.sh_offset)

    def coff_section(self, data: memoryview, section: CoffSection) -> Kind | None:
        return _by_name(data, section.name, section.offset) if section.size else None


def _by_name(data: memoryview, name: bytes, start: int) -> Kind | None:
    section = name.decode("utf-8", "backslashreplace")
    if section in (HIP_SECTION, _COFF_HIP_SECTION):
        return Kind.BUNDLE
    # In a linked program it is of an ordinary type, and may hold bare images.
    if section.startswith(OFFLOADING_SECTION) and is_offload_binary(data, start):
        return Kind.OFFLOAD_BINARY
    return Kind.CUDA_FATBIN if section in CUDA_SECTIONS else None


def find_containers(
    path: StrPath, *, skipped: Callable[[OffloadError], None] | None = None
) -> Iterator[Found]:
    """Find the containers of the file, folder or zip file at `path`, in file order.

    In a folder or a zip file, files come in the order of their names or of the zip file;
    those without images are passed over, and those that cannot be read go to `skipped`
    (default: they end the search).

    :raises FormatError: a broken file, or, if it is no folder or zip file, one without a
        container.
    :raises FileError: it cannot be read.
    """
    index, last = -1, None
    for found in _find(path, Walk(_Everything(), _containers, skipped)):
        index, last = (index + 1 if found.path == last else 0), found.path
        yield replace(found, index=index)


def _find(path: StrPath, walk: Walk[Found]) -> Iterator[Found]:
    if Path(path).is_dir():
        yield from walk.folder(path)
        return
    with InputFile(path) as source:
        empty = True
        for found in walk.look(Place.of(source, str(path)), named=True):
            empty = False
            yield found
        if empty and recognise(source.data) is not Kind.ZIP:
            raise _no_images(source.data, path)


def containers_in(source: InputFile, label: str) -> Iterator[Found]:
    """Find the containers in a file that is no folder, zip file or archive.

    `label` names it in messages.

    :raises FormatError: a broken file.
    """
    yield from Walk(_Everything(), _containers).look(Place.of(source, label), named=True)


def _no_images(data: memoryview, path: StrPath) -> FormatError:
    if is_elf_header(data):
        sections = f"{HIP_SECTION}, {OFFLOADING_SECTION} or {', '.join(CUDA_SECTIONS)}"
        message = f"expected device images, found an ELF file without a {HIP_SECTION} section "
        message += f"(nor {sections.partition(', ')[2]})"
        return FormatError(message, path=path)
    name = _EMPTY.get(recognise(data)) or ("an object file" if is_object_file(data) else None)
    if name:
        return FormatError(f"expected device images, found {name} without any", path=path)
    return FormatError(f"expected {_KNOWN}, found {bytes(data[:8])!r}", path=path, offset=0)


# -- what is at a spot -----------------------------------------------------------------


def _containers(spot: Spot) -> Iterator[Found]:
    place = spot.place
    if spot.kind is Kind.BUNDLE:
        yield from _bundles(spot)
    elif spot.kind is Kind.OFFLOAD_BINARY:
        yield from _offload_binaries(spot)
    elif spot.kind is Kind.CUDA_FATBIN:
        yield from _cuda_fatbins(spot)
    elif spot.kind is Kind.TEXT_BUNDLE:
        entries = text_entries(place.source, text_comment(place.source.data), path=place.label)
        yield Found(place, Kind.BUNDLE, 0, spot.end, _images(entries))
    elif entries := object_entries(place.source, path=place.label):
        start = min(entry.offset for entry in entries)
        size = sum(entry.size for entry in entries)
        yield Found(place, Kind.BUNDLE, start, size, _images(entries), spot.section)


def _images(entries: Iterable[StoredEntry]) -> tuple[FoundImage, ...]:
    return tuple(_image(BundleEntryID.read(entry.id), entry) for entry in entries)


def _image(
    parts: BundleEntryID, entry: StoredEntry, kind: str | None = None, size: int | None = None
) -> FoundImage:
    return FoundImage(entry.id, parts.kind, parts.triple, parts.target_id, entry, kind, size)


def _bundles(spot: Spot) -> Iterator[Found]:
    """Give the bundles at a spot; zeros may be between them."""
    place = spot.place
    data = place.source.data[: spot.end]
    last: Kind | None = None
    position = next_content(data, spot.start)
    while position is not None:
        if is_bundle(data, position):
            last = Kind.BUNDLE
            bundle, entries = binary_bundle(place.source, position, spot.end, path=place.label)
            size = bundle.size
        elif is_compressed_bundle(data, position):
            last = Kind.COMPRESSED_BUNDLE
            content, report = decompressed(place.source, position, spot.end, path=place.label)
            entries = [replace(e, is_decompressed=True) for e in _packed_entries(content)]
            size = report.end - position
        elif last is Kind.BUNDLE:
            return  # LLVM accepts anything behind an uncompressed bundle
        else:
            what = "zeros or another bundle after a compressed one" if last else "a bundle"
            message = f"expected {what}, found {bytes(data[position : position + 8])!r}"
            raise FormatError(message, path=place.label, offset=position)
        yield Found(place, last, position, size, _images(entries), spot.section)
        position = next_content(data, position + size)


def _packed_entries(content: InputFile) -> list[StoredEntry]:
    """Give the entries of what was compressed: a bundle of any layout."""
    path = content.path
    if is_bundle(content.data):
        return binary_bundle(content, path=path)[1]
    kind = recognise(content.data, anywhere=True)
    if kind is Kind.TEXT_BUNDLE:
        return text_entries(content, text_comment(content.data), path=path)
    return object_entries(content, path=path) if kind in (Kind.ELF, Kind.COFF) else []


def _offload_binaries(spot: Spot) -> Iterator[Found]:
    place = spot.place
    data = place.source.data
    for binary in iter_offload_binaries(data, spot.start, spot.end, path=place.label):
        images = []
        source, rows, is_packed = place.source, binary.images, binary.packed is not None
        if is_packed:
            content = inflated(data, binary, path=place.label)
            source = InputFile.from_data(f"{place.label} (decompressed)", content)
            rows = next(iter_offload_binaries(content, path=source.path)).images
        for row in rows:
            name = f"{row.offload_kind_name}-{_four_fields(row.triple)}-{row.arch}"
            parts = BundleEntryID.read(name)
            entry = StoredEntry(str(parts), source, row.offset, row.size, is_decompressed=is_packed)
            images.append(_image(parts, entry, row.image_kind_name))
        rest = (binary.offset, binary.size, tuple(images), spot.section)
        yield Found(place, Kind.OFFLOAD_BINARY, *rest)


def _four_fields(text: str) -> str:
    """Give a triple as bundle entry IDs have it; what cannot be one stays as it is."""
    return triple.emitted(text) if text.isprintable() and text else "---"


def _cuda_fatbins(spot: Spot) -> Iterator[Found]:
    place = spot.place
    data = place.source.data[: spot.end]
    position = next_content(data, spot.start)
    while position is not None:
        fatbin = read_cuda_fatbin(data, position, path=place.label)
        images = []
        for row in fatbin.entries:
            parts = BundleEntryID("cuda", _CUDA_TRIPLE, row.processor)
            entry = StoredEntry(str(parts), place.source, row.offset, row.stored_size)
            unpacked = row.size if row.is_compressed else None
            images.append(_image(parts, entry, row.kind, unpacked))
        yield Found(place, Kind.CUDA_FATBIN, position, fatbin.size, tuple(images), spot.section)
        position = next_content(data, position + fatbin.size)
