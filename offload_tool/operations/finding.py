"""Find the containers of device images in any file, folder or zip file.

::

    folder                      every regular file in it, at any depth; links are not followed
    zip file (a wheel)          every member
    archive (thin too)          every member, in nested archives as well
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

import os
import re
import stat
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from offload_tool.errors import FileError, FormatError, OffloadError
from offload_tool.files import InputFile
from offload_tool.files.spool import Spool
from offload_tool.formats import triple
from offload_tool.formats.archive import is_archive, iter_members
from offload_tool.formats.bitcode import is_bitcode
from offload_tool.formats.bundle import MAGIC, is_bundle, read_bundle
from offload_tool.formats.coff_edit import is_coff, read_coff_sections
from offload_tool.formats.compressed_bundle import MAGIC as COMPRESSED_MAGIC
from offload_tool.formats.compressed_bundle import is_compressed_bundle, read_compressed_header
from offload_tool.formats.cuda_fatbin import SECTIONS as CUDA_SECTIONS
from offload_tool.formats.cuda_fatbin import is_cuda_fatbin, read_cuda_fatbin
from offload_tool.formats.elf_tables import is_elf_header, read_elf_tables
from offload_tool.formats.entry_id import BundleEntryID
from offload_tool.formats.hip_fatbin import SECTION as HIP_SECTION
from offload_tool.formats.object_bundle import is_object_file, read_object_bundle
from offload_tool.formats.offload_binary import (
    inflated,
    is_offload_binary,
    iter_offload_binaries,
)
from offload_tool.formats.text_bundle import COMMENT_MARKS, read_text_bundle
from offload_tool.operations.opening import StoredEntry
from offload_tool.operations.unzipping import ZIP_MAGICS, open_zip, open_zip_member

if TYPE_CHECKING:
    import zipfile
    from collections.abc import Callable, Iterator

    from offload_tool.files import StrPath

__all__ = [
    "OFFLOADING_SECTION",
    "Found",
    "FoundImage",
    "containers_in",
    "find_containers",
    "recognise",
    "text_comment",
]

_ELF = b"\x7fELF"
_SHT_LLVM_OFFLOADING = 0x6FFF4C0B
OFFLOADING_SECTION = ".llvm.offloading"
_COFF_HIP_SECTION = HIP_SECTION[:8]  # a linked image has no room for more
_TEXT_START = re.compile(
    b"\n("
    + b"|".join(sorted({mark.encode() for mark in COMMENT_MARKS.values()}))
    + b") __CLANG_OFFLOAD_BUNDLE____START__ "
)
_NOT_ZERO = re.compile(rb"[^\0]")
_CUDA_TRIPLE = "nvptx64-nvidia-cuda-unknown"
_MAX_DEPTH = 8
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

    path: str
    """The file; in a folder, that file of it."""
    member: str | None
    """Which member of an archive or zip file: ``a.o``, ``lib/x.so``, ``lib/y.a(a.o)``."""
    container: str
    """``bundle``, ``compressed-bundle``, ``offload-binary`` or ``cuda-fatbin``."""
    section: str | None
    """Name of the section that holds it."""
    base: int | None
    """What to add to an offset in `InputFile`s to have one in the file; None: it is not there."""
    offset: int
    """In the `InputFile`, as the images' offsets."""
    size: int
    """Bytes in the file."""
    images: tuple[FoundImage, ...]
    label: str = ""
    """Names file and member, for messages."""
    index: int = 0
    """Which container of the file, from 0."""


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
    for found in _find(path, _Finder(skipped)):
        index, last = (index + 1 if found.path == last else 0), found.path
        yield replace(found, index=index)


def _find(path: StrPath, finder: _Finder) -> Iterator[Found]:
    if Path(path).is_dir():
        yield from finder.in_folder(path)
        return
    with InputFile(path) as source:
        place = _Place(str(path), None, source, 0, str(path))
        empty = True
        for found in finder.look(place, named=True):
            empty = False
            yield found
        if empty and source.data[:4] not in ZIP_MAGICS:
            raise _no_images(source.data, path)


def containers_in(source: InputFile, label: str) -> Iterator[Found]:
    """Find the containers in a file that is no folder, zip file or archive.

    `label` names it in messages.

    :raises FormatError: a broken file.
    """
    yield from _Finder(None).look(_Place(label, None, source, 0, label), named=True)


def _no_images(data: memoryview, path: StrPath) -> FormatError:
    if is_elf_header(data):
        sections = f"{HIP_SECTION}, {OFFLOADING_SECTION} or {', '.join(CUDA_SECTIONS)}"
        message = f"expected device images, found an ELF file without a {HIP_SECTION} section "
        message += f"(nor {sections.partition(', ')[2]})"
        return FormatError(message, path=path)
    names = (
        (is_archive, "an archive"),
        (is_bitcode, "bitcode"),
        (is_object_file, "an object file"),
    )
    for test, name in names:
        if test(data):
            return FormatError(f"expected device images, found {name} without any", path=path)
    return FormatError(f"expected {_KNOWN}, found {bytes(data[:8])!r}", path=path, offset=0)


@dataclass(frozen=True, slots=True)
class _Place:
    """Bytes to look at: a file, or a part of one."""

    path: str
    member: str | None
    source: InputFile
    base: int | None
    """Where the bytes begin in the file at `path`; None if they are not in it."""
    label: str
    """For messages."""
    depth: int = 0

    def inner(self, name: str, source: InputFile, base: int | None) -> _Place:
        """Give the place of a member."""
        member = name if self.member is None else f"{self.member}({name})"
        label = f"{self.path}({member})"
        if self.depth >= _MAX_DEPTH:
            message = f"expected at most {_MAX_DEPTH} files one inside the other, found more"
            raise FormatError(message, path=label)
        return _Place(self.path, member, source, base, label, self.depth + 1)

    def found(
        self,
        container: str,
        offset: int,
        size: int,
        images: tuple[FoundImage, ...],
        section: str | None = None,
    ) -> Found:
        """Make a container of this place."""
        return Found(
            *(self.path, self.member, container, section, self.base, offset, size, images),
            self.label,
        )


class _Finder:
    """One search; `skipped` takes what is broken in a folder or zip file."""

    def __init__(self, skipped: Callable[[OffloadError], None] | None) -> None:
        self.skipped = skipped

    def in_folder(self, folder: StrPath) -> Iterator[Found]:
        for path in _files(folder, self._skip):
            try:
                with InputFile(path) as source:
                    yield from self.look(_Place(path, None, source, 0, path))
            except OffloadError as error:
                self._skip(error)

    def look(self, place: _Place, *, named: bool = False) -> Iterator[Found]:
        """Give the containers in one file; `named`: by the user, so a text is searched."""
        data = place.source.data
        kind = recognise(data, anywhere=named)
        if kind == "zip":
            yield from self._in_zip(place)
        elif kind == "archive":
            yield from self._in_archive(place)
        elif kind == "bundle":
            yield from _bundles(place, 0, len(data))
        elif kind == "offload-binary":
            yield from _offload_binaries(place, 0, len(data))
        elif kind == "cuda-fatbin":
            yield from _cuda_fatbins(place, 0, len(data))
        elif kind == "elf":
            yield from _in_elf(place)
        elif kind == "bitcode":
            yield from _in_bitcode(place)
        elif kind == "coff":
            yield from self._in_coff(place, named=named)
        elif kind == "text":
            images = tuple(_text_images(place.source, place.label))
            yield place.found("bundle", 0, len(data), images)

    def _skip(self, error: OffloadError) -> None:
        if self.skipped is None:
            raise error
        self.skipped(error)

    @staticmethod
    def _in_coff(place: _Place, *, named: bool) -> Iterator[Found]:
        try:
            sections = read_coff_sections(place.source.data, path=place.label)
        except FormatError:
            if named or bytes(place.source.data[:2]) == b"MZ":
                raise
            return  # two bytes tell a COFF object, and other files may begin with them too
        for row in sections:
            section = row.name.decode("utf-8", "backslashreplace")
            if row.size:
                yield from _in_section(place, section, row.offset, row.offset + row.size)
        yield from _object_bundle(place)

    def _in_archive(self, place: _Place) -> Iterator[Found]:
        for member in iter_members(place.source.data, path=place.label):
            if member.path is not None:  # of a thin archive
                if place.member is not None:
                    message = "expected an archive with its members in it, found a thin one"
                    raise FormatError(message, path=place.label, offset=0)
                with InputFile(member.path) as source:
                    yield from self.look(place.inner(member.name, source, None))
                continue
            content = member.content(place.source.data)
            base = None if place.base is None else place.base + member.offset
            name = f"{place.label}({member.name})"
            yield from self.look(place.inner(member.name, InputFile.from_data(name, content), base))

    def _in_zip(self, place: _Place) -> Iterator[Found]:
        with open_zip(place.source, place.label) as archive:
            for row in archive.infolist():
                if row.is_dir():
                    continue
                try:
                    yield from self._in_zip_member(place, archive, row)
                except OffloadError as error:
                    self._skip(error)

    def _in_zip_member(
        self, place: _Place, archive: zipfile.ZipFile, row: zipfile.ZipInfo
    ) -> Iterator[Found]:
        label = f"{place.label}({row.filename})"
        with open_zip_member(archive, row, place.source, label, _is_known) as member:
            if member is not None:
                content, offset = member
                known = place.base is not None and offset is not None
                base = (place.base or 0) + (offset or 0) if known else None
                yield from self.look(place.inner(row.filename, content, base))


def _is_known(begin: memoryview) -> bool:
    return recognise(begin) is not None


def _files(folder: StrPath, skip: Callable[[OffloadError], None]) -> Iterator[str]:
    def failed(error: OSError) -> None:
        skip(FileError(error.filename or folder, error))

    for parent, folders, names in os.walk(folder, onerror=failed):
        folders.sort()
        for name in sorted(names):
            path = str(Path(parent, name))
            try:
                mode = os.lstat(path).st_mode
            except OSError as error:
                failed(error)
                continue
            if stat.S_ISREG(mode):
                yield path


def recognise(data: memoryview, *, anywhere: bool = False) -> str | None:
    """Name what `data` begins like; a text bundle may have text before it if `anywhere`.

    One of ``bundle`` (binary, compressed or not), ``elf``, ``zip``, ``archive``,
    ``offload-binary``, ``cuda-fatbin``, ``bitcode``, ``coff`` and ``text``.
    """
    begin = bytes(data[: len(MAGIC)])
    if is_bundle(data) or begin[: len(COMPRESSED_MAGIC)] == COMPRESSED_MAGIC:
        return "bundle"
    if is_elf_header(data) or begin[:4] == _ELF:
        return "elf"
    if begin[:4] in ZIP_MAGICS:
        return "zip"
    tests = (
        ("archive", is_archive),
        ("offload-binary", is_offload_binary),
        ("cuda-fatbin", is_cuda_fatbin),
        ("bitcode", is_bitcode),
        ("coff", is_coff),
    )
    for kind, test in tests:
        if test(data):
            return kind
    marker = _TEXT_START.search(data) if anywhere else _TEXT_START.match(data)
    return "text" if marker else None


# -- one file --------------------------------------------------------------------------


def _in_elf(place: _Place) -> Iterator[Found]:
    tables = read_elf_tables(place.source.data, path=place.label)
    for name, row in zip(tables.names, tables.sections, strict=True):
        if not row.has_content or not row.sh_size:
            continue
        section = name.decode("utf-8", "backslashreplace")
        start, end = row.sh_offset, row.sh_offset + row.sh_size
        if row.sh_type == _SHT_LLVM_OFFLOADING:
            yield from _offload_binaries(place, start, end, section)
        else:
            yield from _in_section(place, section, start, end)
    yield from _object_bundle(place)


def _in_bitcode(place: _Place) -> Iterator[Found]:
    from offload_tool.formats.bitcode_objects import find_embedded_objects

    data = place.source.data
    for embedded in find_embedded_objects(data, OFFLOADING_SECTION, path=place.label):
        with Spool() as spool:  # it begins at any bit, so is no range
            for chunk in embedded.chunks():
                spool.out.write(chunk)
            with spool.read(place.label) as source:
                inner = replace(place, source=source, base=None)
                yield from _offload_binaries(inner, 0, len(source), OFFLOADING_SECTION)


def _in_section(place: _Place, section: str, start: int, end: int) -> Iterator[Found]:
    if section in (HIP_SECTION, _COFF_HIP_SECTION):
        yield from _bundles(place, start, end, section)
    elif section.startswith(OFFLOADING_SECTION):
        # In a linked program it is of an ordinary type, and may hold bare images.
        if is_offload_binary(place.source.data, start):
            yield from _offload_binaries(place, start, end, section)
    elif section in CUDA_SECTIONS:
        yield from _cuda_fatbins(place, start, end, section)


def _bundles(place: _Place, start: int, end: int, section: str | None = None) -> Iterator[Found]:
    """Give the bundles between two positions; zeros may be between them."""
    data = place.source.data[:end]
    last = None
    while begin := _NOT_ZERO.search(data, start):
        position = begin.start()
        if is_bundle(data, position):
            found = _plain_bundle(place, data, position, section)
        elif is_compressed_bundle(data, position):
            found = _compressed_bundle(place, data, position, section)
        elif last == "bundle":
            return  # LLVM accepts anything behind an uncompressed bundle
        else:
            what = "zeros or another bundle after a compressed one" if last else "a bundle"
            message = f"expected {what}, found {bytes(data[position : position + 8])!r}"
            raise FormatError(message, path=place.label, offset=position)
        yield found
        start, last = found.offset + found.size, found.container


def _plain_bundle(place: _Place, data: memoryview, position: int, section: str | None) -> Found:
    bundle = read_bundle(data, position, path=place.label)
    # Of equal IDs in one bundle, LLVM takes the last, at the place of the first.
    rows = {entry.id: entry for entry in bundle.entries}
    images = tuple(
        _image(StoredEntry(row.id, place.source, position + row.offset, row.size))
        for row in rows.values()
    )
    return place.found("bundle", position, bundle.size, images, section)


def _compressed_bundle(
    place: _Place, data: memoryview, position: int, section: str | None
) -> Found:
    from offload_tool.formats.decompression import decompress

    header = read_compressed_header(data, position, path=place.label)
    unpacked = decompress(data, header, path=place.label)
    content = InputFile.from_data(place.label, unpacked.data)
    images = tuple(
        replace(image, content=replace(image.content, is_decompressed=True))
        for image in _packed_images(content, place.label)
    )
    size = unpacked.report.end - position
    return place.found("compressed-bundle", position, size, images, section)


def _packed_images(content: InputFile, label: str) -> Iterator[FoundImage]:
    """Give the images of what was compressed: a bundle of any layout."""
    kind = recognise(content.data, anywhere=True)
    if is_bundle(content.data):
        bundle = read_bundle(content.data, path=label)
        rows = {entry.id: entry for entry in bundle.entries}
        for row in rows.values():
            yield _image(StoredEntry(row.id, content, row.offset, row.size))
    elif kind == "text":
        yield from _text_images(content, label)
    elif kind in ("elf", "coff"):
        yield from _object_images(content, label)


def text_comment(data: memoryview) -> str:
    """Give the line comment with which a text bundle is marked; empty if it is none."""
    marker = _TEXT_START.search(data)
    return marker[1].decode() if marker else ""


def _text_images(source: InputFile, label: str) -> Iterator[FoundImage]:
    for entry in read_text_bundle(source.data, text_comment(source.data), path=label):
        yield _image(StoredEntry(entry.id, source, entry.offset, entry.size))


def _object_images(source: InputFile, label: str) -> Iterator[FoundImage]:
    for entry in read_object_bundle(source.data, path=label):
        host = entry.is_host_marker
        yield _image(StoredEntry(entry.id, source, entry.offset, entry.size, host))


def _object_bundle(place: _Place) -> Iterator[Found]:
    images = tuple(_object_images(place.source, place.label))
    if images:
        start = min(image.content.offset for image in images)
        size = sum(image.content.size for image in images)
        yield place.found("bundle", start, size, images, f"{MAGIC.decode()}*")


def _image(entry: StoredEntry) -> FoundImage:
    parts = BundleEntryID.read(entry.id)
    return FoundImage(entry.id, parts.kind, parts.triple, parts.target_id, entry)


def _offload_binaries(
    place: _Place, start: int, end: int, section: str | None = None
) -> Iterator[Found]:
    for binary in iter_offload_binaries(place.source.data, start, end, path=place.label):
        images = []
        source, rows, is_packed = place.source, binary.images, binary.packed is not None
        if is_packed:
            content = inflated(source.data, binary, path=place.label)
            source = InputFile.from_data(f"{place.label} (decompressed)", content)
            rows = next(iter_offload_binaries(content, path=source.path)).images
        for row in rows:
            kind = row.offload_kind_name
            parts = BundleEntryID.read(f"{kind}-{_four_fields(row.triple)}-{row.arch}")
            entry = StoredEntry(str(parts), source, row.offset, row.size, is_decompressed=is_packed)
            image = FoundImage(entry.id, kind, parts.triple, parts.target_id, entry)
            images.append(replace(image, image_kind=row.image_kind_name))
        yield place.found("offload-binary", binary.offset, binary.size, tuple(images), section)


def _four_fields(text: str) -> str:
    """Give a triple as bundle entry IDs have it; what cannot be one stays as it is."""
    return triple.emitted(text) if text.isprintable() and text else "---"


def _cuda_fatbins(
    place: _Place, start: int, end: int, section: str | None = None
) -> Iterator[Found]:
    data = place.source.data[:end]
    while begin := _NOT_ZERO.search(data, start):
        start = begin.start()
        fatbin = read_cuda_fatbin(data, start, path=place.label)
        images = []
        for row in fatbin.entries:
            parts = BundleEntryID("cuda", _CUDA_TRIPLE, row.processor)
            entry = StoredEntry(str(parts), place.source, row.offset, row.stored_size)
            unpacked = row.size if row.is_compressed else None
            image = FoundImage(entry.id, parts.kind, parts.triple, parts.target_id, entry)
            images.append(replace(image, image_kind=row.kind, unpacked_size=unpacked))
        yield place.found("cuda-fatbin", start, fatbin.size, tuple(images), section)
        start += fatbin.size
