"""Find the containers of device images with a `walk`, and read their images.

::

    bundle                      binary, text or object layout, compressed or not; several in a
                                file, with zeros between
    offload binary              compressed or not; several in a file
    ELF, COFF object            .hip_fatbin            bundles
    ELF program, library          (COFF: .hip_fat)
                                .llvm.offloading       offload binaries
                                __CLANG_OFFLOAD_BUNDLE__*   an object bundle
                                .nv_fatbin, __nv_relfatbin  CUDA fat binaries
                                  (COFF: .nv_fatb, __nv_rel)
                                any section without code    CUDA fat binaries, at any offset
    LLVM bitcode of a host      offload binaries that it embeds
    kpack archive               the images under each key
    ELF with .hipFatBinSegment  for each marked wrapper, its images in the archives
    CUDA fat binary             see `offload_tool.formats.cuda.fatbin`
    AMD code object, cubin      the file itself: an image without a container

Containers come one at a time. The decompressed data of one is freed when the next one is requested,
so memory does not grow with their number.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate, chain, islice, pairwise

from offload_tool.containers.entries import CudaContent, PayloadCache, StoredEntry, read_bundles
from offload_tool.containers.file_format import FileFormat, recognise
from offload_tool.containers.walk import (
    FORGET_AFTER,
    OFFLOADING_SECTION,
    Location,
    Policy,
    Region,
    Walk,
)
from offload_tool.errors import ContentError, NoContainerError, OffloadError, UnsupportedError
from offload_tool.formats.bundle.object_file import is_object_file
from offload_tool.formats.cuda import object_section
from offload_tool.formats.cuda.fatbin import (
    CudaFatbin,
    cuda_fatbin_size,
    find_cuda_fatbin,
    read_cuda_fatbin,
)
from offload_tool.formats.hip_fatbin import SECTION as HIP_SECTION
from offload_tool.formats.hip_fatbin import WRAPPER_SECTION, WRAPPER_SIZE
from offload_tool.formats.magic import OFFLOAD_BINARY, begins, next_content
from offload_tool.formats.objects.coff import CoffSection
from offload_tool.formats.objects.device_elf import read_code_object
from offload_tool.formats.objects.elf import reader as elf
from offload_tool.formats.offload_binary import iter_offload_binaries, unpacked
from offload_tool.formats.targets import triple
from offload_tool.formats.targets.bundle_entry_id import BundleEntryID, OffloadKind
from offload_tool.io import InputFile, StrPath
from offload_tool.io.limits import effective_budget
from offload_tool.util.frozen import frozen, replaced

_COFF_NAME = 8  # bytes; longer section names are cut in a linked PE image
CUDA_SECTION_NAMES = (
    *object_section.SECTIONS,
    *(name[:_COFF_NAME] for name in object_section.SECTIONS),
)
"""Sections that hold only fat binaries, in ELF and PE files."""
_FULL_NAMES = {
    name[:_COFF_NAME].encode(): name.encode()
    for name in (HIP_SECTION, OFFLOADING_SECTION, *object_section.SECTIONS)
}
_SHT_PROGBITS, _SHF_EXECINSTR = 1, 4
_STUB = 4096  # bytes; a cubin without code and data has about 1000
_CUDA_TRIPLE = "nvptx64-nvidia-cuda-unknown"
_WRAPPERS = WRAPPER_SECTION.encode()
_KNOWN = (
    "a bundle (__CLANG_OFFLOAD_BUNDLE__ or CCOB), an offload binary, an archive, a zip file, or an "
    "ELF or COFF file that embeds one of these"
)


@frozen
class FoundImage:
    """One image of a container, or its host entry."""

    id: str
    """Bundle entry ID as stored, or composed if the container has none."""
    kind: str
    triple: str
    target_id: str
    content: StoredEntry
    image_kind: str | None = None
    """Kind of the content in the container: ``object``, ``bitcode``, ``ptx``, ..."""
    unpacked_size: int | None = None
    """Bytes after decompression, if the image itself is compressed (CUDA)."""

    @property
    def is_host(self) -> bool:
        """Whether it is a bundle's host entry."""
        return self.kind == OffloadKind.HOST

    @property
    def entry_id(self) -> BundleEntryID:
        """The parsed ID."""
        return BundleEntryID(self.kind, self.triple, self.target_id)

    def refusal(self, label: str) -> UnsupportedError | None:
        """Return why the bytes of the image `label` are unavailable; None if they are available."""
        if self.content.cuda is None or self.content.cuda.image.is_readable:
            return None
        message = f"{self.id} cannot be unpacked: how is not publicly known"
        return UnsupportedError(message, path=label, offset=self.content.offset)

    @property
    def size(self) -> int:
        """Bytes; 0 for the host entry that represents the whole object file."""
        if self.content.is_host_object:
            return 0
        return self.content.size if self.unpacked_size is None else self.unpacked_size


@frozen
class FoundContainer:
    """A container; its images are readable until the next container is requested."""

    location: Location
    container: FileFormat
    """Its format, regardless of compression."""
    offset: int
    """Offset in the bytes at `location`; so are the images' offsets."""
    size: int
    images: tuple[FoundImage, ...]
    section: str | None = None
    index: int = 0
    """Index among the containers of the file, from 0."""
    faults: tuple[str, ...] = ()
    """Reasons why a host program's wrapper lacks device code that its marker names."""
    linked: tuple[FoundImage, ...] = ()
    """For a source's relocatable CUDA code in a program: the images that are linked of it. Devices
    that load one of them do not load this container."""
    sources: tuple[tuple[FoundImage, ...], ...] = ()
    """For CUDA code that is linked of several sources: the images of each source in the program.
    Devices without a linked image link those."""
    is_stub: bool = False
    """Whether it is what nvcc links of no relocatable code: cubins without code and data."""

    @property
    def path(self) -> str:
        """The file; in a folder, the file of the folder."""
        return self.location.path

    @property
    def member(self) -> str | None:
        """Member of an archive or zip file, see `Location.member`."""
        return self.location.member

    @property
    def label(self) -> str:
        """File and member, for messages."""
        return self.location.label

    @property
    def device_images(self) -> list[FoundImage]:
        """The images without host entries."""
        return [image for image in self.images if not image.is_host]


class _FindPolicy(Policy):
    """Searches for every known container."""

    code_objects = True

    def __init__(self, *, markers: bool = False, confined: bool = True) -> None:
        self.confined = confined
        self.markers = markers
        """Whether to report images that host programs have in kpack archives."""

    def elf_section(self, tables: elf.ElfTables, number: int) -> FileFormat | None:
        row = tables.sections[number]
        if not row.has_content or not row.sh_size:
            return None
        if row.sh_type == elf.SHT_LLVM_OFFLOADING:
            return FileFormat.OFFLOAD_BINARY
        if tables.names[number] == _WRAPPERS and self.markers:
            from offload_tool.formats.kpack.marker import is_marked

            if is_marked(tables, number):
                return FileFormat.KPACK_MARKER
        kind = _section_format(tables.data, tables.names[number], row.sh_offset)
        if kind is FileFormat.CUDA_FATBIN and tables.content(number) == object_section.PLACEHOLDER:
            return None  # a host object of this package, which gets its fat binary later
        is_data = row.sh_type == _SHT_PROGBITS and not row.sh_flags & _SHF_EXECINSTR
        return FileFormat.CUDA_FATBIN if kind is None and is_data else kind

    def coff_section(self, data: memoryview, section: CoffSection) -> FileFormat | None:
        if not section.size:
            return None
        name = _FULL_NAMES.get(section.name, section.name)
        return _section_format(data, name, section.offset) or FileFormat.CUDA_FATBIN


def _section_format(data: memoryview, name: bytes, start: int) -> FileFormat | None:
    section = name.decode("utf-8", "backslashreplace")
    if section == HIP_SECTION:
        return FileFormat.BUNDLE
    # In a linked program the section has an ordinary type, and may hold bare images.
    if section.startswith(OFFLOADING_SECTION) and begins(data, OFFLOAD_BINARY, start):
        return FileFormat.OFFLOAD_BINARY
    return FileFormat.CUDA_FATBIN if section in CUDA_SECTION_NAMES else None


def find_containers(
    path: StrPath,
    *,
    skipped: Callable[[OffloadError], None] | None = None,
    strays: Callable[[str], None] | None = None,
    scan: bool = False,
    markers: bool | None = None,
    overlay: Sequence[StrPath] = (),
    confined: bool = True,
) -> Generator[FoundContainer, None, None]:
    """Find the containers of the file, folder or zip file at `path`, in file order.

    Files come in the order of their names, or of the zip file; those without images are ignored.
    In a folder, zip file or archive, errors of one file go to `skipped` (default: they end the
    search). `strays` receives a message for each container of an object file that is outside the
    sections a runtime searches, and for each link to a folder or to device code outside of the
    folder. Without it, those to device code go to `skipped`. With `scan` strays are yielded, and
    files of unknown format are searched too. With `markers` (default: unless `path` is a folder,
    which yields the archives), a host program's images in kpack archives are yielded as its own. A
    program in a zip file has its archives there, or in the zip files at `overlay`, which are
    installed over it. Thin archives may name files outside their folder if not `confined`: for
    inputs of links.

    :raises NoContainerError: `path` is neither a folder nor a zip file, and holds no container.
    :raises FormatError, UnsupportedError, FileError: a file is broken, a variant, or unreadable.
    """
    index, last = -1, None
    if markers is None:
        markers = not os.path.isdir(path)
    walk = Walk(
        _FindPolicy(markers=markers, confined=confined),
        containers_of,
        skipped,
        strays=strays,
        scan=scan,
        extent=lambda found: (found.offset, found.offset + max(found.size, 1)),
        overlay=overlay,
    )
    budget = effective_budget()
    for found in _find(path, walk):
        budget.member(found.label, len(found.images))
        index, last = (index + 1 if found.path == last else 0), found.path
        yield replaced(found, index=index)


def _find(path: StrPath, walk: Walk[FoundContainer]) -> Iterator[FoundContainer]:
    if os.path.isdir(path):
        yield from walk.folder(path)
        return
    with InputFile(path) as source:
        empty = True
        for found in walk.search(Location.of(source, str(path)), named=True):
            empty = False
            yield found
        is_silent = walk.has_skipped or recognise(source.data) is FileFormat.ZIP
        if empty and not is_silent:
            raise _no_images(source.data, path)


def containers_in(source: InputFile, label: str) -> Iterator[FoundContainer]:
    """Yield the containers of a file that is no folder, zip file or archive; raise ContentError."""
    yield from Walk(_FindPolicy(), containers_of).search(Location.of(source, label), named=True)


def _no_images(data: memoryview, path: StrPath) -> NoContainerError:
    if elf.is_elf_header(data):
        message = f"expected device images, found an ELF file without a {HIP_SECTION} section "
        message += f"(nor {OFFLOADING_SECTION} or {', '.join(object_section.SECTIONS)})"
        return NoContainerError(message, path=path)
    names = {FileFormat.ARCHIVE: "an archive", FileFormat.BITCODE: "bitcode", None: ""}
    name = names.get(recognise(data), "") or ("an object file" if is_object_file(data) else "")
    if name:
        return NoContainerError(
            f"expected device images, found {name} without any; "
            "'offload-tool list --scan' looks everywhere in a file",
            path=path,
        )
    return NoContainerError(f"expected {_KNOWN}, found {bytes(data[:8])!r}", path=path, offset=0)


# -- the containers of a region -----------------------------------------------------------------


def containers_of(region: Region) -> Iterator[FoundContainer]:
    """Yield the containers of a region; raise ContentError if they are broken or unsupported."""
    location = region.location
    if reader := _READERS.get(region.file_format):
        yield from islice(reader(region), 1 if region.is_stray else None)
    else:
        for bundle in read_bundles(location.source, "o", path=location.label):
            if bundle.entries:
                start = min(entry.offset for entry in bundle.entries)
                size = sum(entry.size for entry in bundle.entries)
                rest = (start, size, _images(bundle.entries), region.section)
                yield FoundContainer(location, FileFormat.BUNDLE, *rest)


def _images(entries: Iterable[StoredEntry]) -> tuple[FoundImage, ...]:
    return tuple(_image(BundleEntryID.read(entry.id), entry) for entry in entries)


def _image(
    parts: BundleEntryID, entry: StoredEntry, image_kind: str | None = None, size: int | None = None
) -> FoundImage:
    return FoundImage(entry.id, parts.kind, parts.triple, parts.target_id, entry, image_kind, size)


def _bundles(region: Region) -> Iterator[FoundContainer]:
    """Yield the bundles in a region, with zeros between them."""
    location = region.location
    start: int | None = region.start
    if region.file_format is not FileFormat.TEXT_BUNDLE:
        start = next_content(location.source.data[: region.end], region.start)
    if start is None:
        return
    for found in read_bundles(
        location.source, None, start=start, end=region.end, path=location.label
    ):
        container = FileFormat.COMPRESSED_BUNDLE if found.report else FileFormat.BUNDLE
        images = _images(found.entries)
        yield FoundContainer(location, container, found.offset, found.size, images, region.section)


def _offload_binaries(region: Region) -> Iterator[FoundContainer]:
    location = region.location
    data = location.source.data
    for binary in iter_offload_binaries(data, region.start, region.end, path=location.label):
        images = []
        source, is_packed = location.source, binary.packed is not None
        content, inner = unpacked(data, binary, path=location.label)
        if is_packed:
            source = InputFile.from_data(f"{location.label} (decompressed)", content)
        for row in inner.images:
            is_usual = row.triple.isprintable() and row.triple
            fields = triple.emitted(row.triple) if is_usual else "---"
            name = f"{row.offload_kind_name}-{fields}-{row.arch}"
            parts = BundleEntryID.read(name)
            entry = StoredEntry(str(parts), source, row.offset, row.size, is_decompressed=is_packed)
            images.append(_image(parts, entry, row.image_kind_name))
        rest = (binary.offset, binary.size, tuple(images), region.section)
        yield FoundContainer(location, FileFormat.OFFLOAD_BINARY, *rest)


def _kpack_images(region: Region) -> Iterator[FoundContainer]:
    from offload_tool.containers.kpack import archive_code_objects

    location = region.location
    for key, entries in archive_code_objects(location.source, location.label):
        member = location._replace(label=location.label_of(key), names=(*location.names, key))
        images = tuple(_image(name, entry, None, size) for name, entry, size in entries)
        offset = min(entry.offset for _, entry, _ in entries)
        size = sum(entry.size for _, entry, _ in entries)
        yield FoundContainer(member, FileFormat.KPACK, offset, size, images)


def _marked_images(region: Region) -> Iterator[FoundContainer]:
    from offload_tool.containers.kpack import wrapper_code_objects

    location = region.location
    tables = elf.read_elf_tables(location.source.data, path=location.label)
    for wrapper, entries, faults in wrapper_code_objects(tables, location):
        at = region.start + WRAPPER_SIZE * wrapper.position
        images = tuple(_image(name, entry, None, size) for name, entry, size in entries)
        rest = (at, WRAPPER_SIZE, images, region.section)
        yield FoundContainer(location, FileFormat.KPACK_MARKER, *rest, faults=faults)


def _code_object(region: Region) -> Iterator[FoundContainer]:
    """Yield a code object, which is a file or in a region, as a container of one image."""
    location, data = region.location, region.location.source.data[region.start : region.end]
    if region.is_stray:  # other data follows
        tables = elf.read_elf_tables(data, path=location.label)
        ends = [row.sh_offset + row.sh_size for row in tables.sections if row.has_content]
        ends += [row.p_offset + row.p_filesz for row in tables.segments]
        data = data[: max(*ends, tables.header_offset(len(tables.sections)), 0)]
    facts = read_code_object(data, path=location.label)
    parts = BundleEntryID(facts.kind, facts.triple, facts.target_id)
    entry = StoredEntry(str(parts), location.source, region.start, len(data))
    images = (_image(parts, entry, facts.image_kind),)
    yield FoundContainer(location, FileFormat.CODE_OBJECT, region.start, len(data), images)


def _cuda_fatbins(region: Region) -> Iterator[FoundContainer]:
    location = region.location
    data = location.source.data[: region.end]
    forgotten = region.start
    linked, sources = _linked_and_sources(region) if elf.is_elf(data) else ({}, ())
    is_source = region.section == object_section.RELOCATABLE_SECTION
    images_linked = tuple(chain.from_iterable(linked.values())) if is_source else ()
    for position in _cuda_offsets(region, data):
        fatbin = read_cuda_fatbin(data, position, path=location.label)
        images = tuple(_cuda_images(location, fatbin))
        is_linked = position in linked
        yield FoundContainer(
            *(location, FileFormat.CUDA_FATBIN, position, fatbin.size, images, region.section),
            linked=images_linked,
            sources=sources if is_linked else (),
            is_stub=is_linked and all(map(_is_empty_cubin, images)),
        )
        if position + fatbin.size - forgotten > FORGET_AFTER:
            forgotten = position + fatbin.size
            location.source.forget()


def _linked_and_sources(
    region: Region,
) -> tuple[dict[int, tuple[FoundImage, ...]], tuple[tuple[FoundImage, ...], ...]]:
    """Return a program's images linked of several sources, by offset, and those of each source."""
    location, name = region.location, object_section.RELOCATABLE_SECTION
    data = location.source.data

    def images(offset: int) -> tuple[FoundImage, ...]:
        return tuple(_cuda_images(location, read_cuda_fatbin(data, offset, path=location.label)))

    if region.section not in object_section.SECTIONS:
        return {}, ()
    tables = elf.read_elf_tables(data, path=location.label)
    rows = [tables.sections[number] for number in tables.named(name)]
    linked = {at: images(at) for at in object_section.linked_fatbins(tables)}
    if not linked or region.section == name:
        return linked, ()
    ends = [(row.sh_offset, row.sh_offset + row.sh_size) for row in rows]
    parts = (Region(location, FileFormat.CUDA_FATBIN, *each, name) for each in ends)
    offsets = (at for part in parts for at in _cuda_offsets(part, data[: part.end]))
    return linked, tuple(map(images, offsets))


def _is_empty_cubin(image: FoundImage) -> bool:
    if image.image_kind != "elf" or image.size > _STUB:
        return False
    with suppress(ContentError):
        sections = elf.read_elf_tables(image.content.view()).sections
        return bool(sections) and not any(row.sh_flags & elf.SHF_ALLOC for row in sections)
    return False


def _cuda_offsets(region: Region, data: memoryview) -> Iterator[int]:
    """Yield the offsets of fat binaries: consecutive, or scattered over other data."""
    if region.section is None or region.section in CUDA_SECTION_NAMES:
        position = next_content(data, region.start)
        while position is not None:
            yield position
            position = next_content(data, position + cuda_fatbin_size(data, position))
        return
    start = region.start
    while start < region.end:
        stop = min(start + FORGET_AFTER, region.end)
        at = find_cuda_fatbin(data, start, stop, region.end)
        if at is None:
            region.location.source.forget()
            start = stop
        else:
            yield at
            start = at + cuda_fatbin_size(data, at)


def _cuda_images(location: Location, fatbin: CudaFatbin) -> Iterator[FoundImage]:
    payloads = PayloadCache(location.source, location.label)
    for entry in fatbin.entries:
        stored = [image.stored_size for image in entry.images]
        if len(stored) > 1:  # they share one payload
            stored = shares(stored[0], [image.size for image in entry.images])
        for image, stored_size in zip(entry.images, stored, strict=True):
            parts = BundleEntryID("cuda", _CUDA_TRIPLE, image.processor)
            content = StoredEntry(
                str(parts),
                location.source,
                image.offset,
                stored_size,
                is_decompressed=len(entry.images) > 1,
                cuda=CudaContent(image, payloads),
            )
            unpacked = image.size if image.is_compressed else None
            yield _image(parts, content, image.image_kind, unpacked)


def shares(whole: int, sizes: Sequence[int]) -> list[int]:
    """Divide stored bytes in proportion to sizes; running sums lose nothing to rounding."""
    total = sum(sizes) or 1
    ends = [whole * end // total for end in accumulate(sizes, initial=0)]
    return [end - start for start, end in pairwise(ends)]


_READERS = {
    **dict.fromkeys(
        (FileFormat.BUNDLE, FileFormat.COMPRESSED_BUNDLE, FileFormat.TEXT_BUNDLE), _bundles
    ),
    FileFormat.CODE_OBJECT: _code_object,
    FileFormat.KPACK: _kpack_images,
    FileFormat.KPACK_MARKER: _marked_images,
    FileFormat.OFFLOAD_BINARY: _offload_binaries,
    FileFormat.CUDA_FATBIN: _cuda_fatbins,
}
