"""Put device images into offload binaries, find these in any file, and take images out.

Where they are found, by what a file begins like (as llvm-offload-binary 22.1.8 does it):

======================  ===============================================================
offload binary          it, and those directly behind it
ELF object, program,    in sections of the type SHT_LLVM_OFFLOADING, whatever their name
library
COFF object             in sections whose name begins with ``.llvm.offloading``
LLVM bitcode            in constants that its metadata lists for ``.llvm.offloading``
archive (thin too)      in its members, also those of archives in it
anything else           none
======================  ===============================================================

What is written, and which files are extracted, is as in LLVM 22, or on request as in 23:

======================  ============================  ===============================
of                      22                            23
======================  ============================  ===============================
what is written         one binary for each image     one of all images (version 2)
no filters              nothing is extracted          every image is
names that are made     a dash before an empty arch   none
an offload binary as    is written as it is           what it holds is, if the output
an image                                              is not named
``member`` in a filter  a string like others          name of the archive member or
                                                      file
SPIR-V                  image kind 0, no extension    image kind 6, ``.spv``
======================  ============================  ===============================
"""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from offload_tool.errors import FormatError, UsageError
from offload_tool.files import STDOUT, InputFile, replace_all, replace_file
from offload_tool.files.spool import Spool
from offload_tool.formats.bitcode import is_bitcode
from offload_tool.formats.offload_binary import (
    ImageKind,
    PlannedImage,
    guess_image_kind,
    inflated,
    is_offload_binary,
    iter_offload_binaries,
    offload_kind_name,
    offload_kind_number,
    plan_offload_binary,
    plan_shared_offload_binary,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from offload_tool.files import OutputFile, StrPath
    from offload_tool.formats.archive import ArchiveMember
    from offload_tool.formats.bitcode_objects import EmbeddedObject
    from offload_tool.formats.offload_binary import Dialect, OffloadBinary, OffloadImage

Generation: TypeAlias = Literal[22, 23]

__all__ = [
    "FoundBinary",
    "Generation",
    "ImageFilter",
    "PackagedImage",
    "extract_images",
    "find_offload_binaries",
    "package_images",
]

SECTION = ".llvm.offloading"
_SHT_LLVM_OFFLOADING = 0x6FFF4C0B
_ELF_MAGIC = b"\x7fELF"
_PE_MAGIC = b"MZ"
_ELF_TYPES = frozenset({1, 2, 3})
"""ET_REL, ET_EXEC, ET_DYN."""
_MAX_DEPTH = 8
_FORGET_AFTER = 32 << 20
"""Bytes of a file after which what was mapped of it is given back."""
_AT_ONCE = 200
"""Outputs that are open together; each needs a descriptor, and a process has about 1000."""
_KINDS = "openmp, cuda, hip, sycl or none"


# -- packaging ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PackagedImage:
    """A file to package, and what to say of it."""

    path: StrPath
    strings: Mapping[str, str] = field(default_factory=dict)
    """``triple``, ``arch``, ``feature``, ...; stored as they are."""
    kind: str = "none"
    """Offload kind: ``openmp``, ``cuda``, ``hip``, ``sycl``."""
    image_kind: int | None = None
    """See `ImageKind`; None: told by the file's first bytes and its extension."""


def package_images(
    output: StrPath,
    images: Iterable[PackagedImage],
    *,
    dialect: Dialect = "llvm22",
    generation: Generation = 22,
    keep_equal: bool = False,
    warn: Callable[[str], None] | None = None,
) -> None:
    """Write one offload binary per image to `output`, one directly behind the other.

    With `generation` 23, one of all of them, which nothing older than LLVM 23 can read.
    `dialect` is whose numbers the offload kinds get. An unknown kind becomes 0, as in LLVM,
    if there is a `warn` to be told so. With `keep_equal`, a file that already has the very
    bytes is left untouched. Files are opened one at a time and copied in the kernel; equal
    inputs give equal bytes.

    :raises UsageError: an unknown offload kind and no `warn`, or a string with a NUL.
    :raises FileError: a file cannot be read or written.
    """
    with replace_file(output, keep_equal=keep_equal) as out:
        if generation == 23:
            _append_shared(out, [(row, _kind_number(row.kind, dialect, warn)) for row in images])
            return
        for image in images:
            _append(out, image, _kind_number(image.kind, dialect, warn))


def _append_shared(out: OutputFile, images: Sequence[tuple[PackagedImage, int]]) -> None:
    with ExitStack() as stack:
        few = len(images) <= _AT_ONCE  # else they are opened a second time
        rows, files = [], []
        for image, offload_kind in images:
            source = InputFile(image.path)
            stack.callback(source.close)
            kind = _image_kind(image, source, 23)
            rows.append(PlannedImage(len(source), kind, offload_kind, image.strings))
            files.append(source)
            if not few:
                source.close()
        layout = plan_shared_offload_binary(rows)
        out.reserve(layout.size)
        start = out.position
        out.write(layout.head)
        for source, row in zip(files, rows, strict=True):
            with source if few else InputFile(source.path) as again:
                if len(again) != row.size:
                    message = f"expected {row.size} bytes as before, found {len(again)}"
                    raise FormatError(f"{message}; it was changed meanwhile", path=again.path)
                out.copy(again, 0, row.size)
        out.pad_to(start + layout.size)


def _image_kind(image: PackagedImage, source: InputFile, generation: Generation) -> int:
    if image.image_kind is not None:
        return image.image_kind
    name = os.fspath(image.path)
    if generation == 23 and name.endswith(".spv"):
        return ImageKind.SPIRV
    return guess_image_kind(name, source.data[:4])


def _append(out: OutputFile, image: PackagedImage, offload_kind: int) -> None:
    with InputFile(image.path) as source:
        image_kind = _image_kind(image, source, 22)
        start, size = out.position, len(source)
        layout = plan_offload_binary(
            size, image_kind=image_kind, offload_kind=offload_kind, strings=image.strings
        )
        out.reserve(layout.size)
        out.write(layout.head)
        out.copy(source, 0, size)
        out.pad_to(start + layout.size)


def _kind_number(name: str, dialect: Dialect, warn: Callable[[str], None] | None) -> int:
    number = offload_kind_number(name, dialect)
    if number is None:
        message = f"unknown offload kind '{name}', expected {_KINDS}"
        if warn is None:
            raise UsageError(message)
        warn(f"{message}; it counts as none")
    return number or 0


# -- finding -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FoundBinary:
    """An offload binary of a file."""

    binary: OffloadBinary
    """Its offsets count from the beginning of `source`."""
    source: InputFile
    """Open until the next one is asked for; `opened` opens it again."""
    member: str | None = None
    """Name of the archive member that has it, the innermost one."""
    reopen: Callable[[], InputFile] | None = None
    """None: `source` is the input itself."""

    @property
    def is_in_file(self) -> bool:
        """Whether its offsets are such in the input."""
        return self.reopen is None

    @contextmanager
    def opened(self) -> Iterator[InputFile]:
        """Give `source`, also when the search has gone on."""
        if self.reopen is None:
            yield self.source
            return
        with self.reopen() as source:
            yield source


def _found(
    binary: OffloadBinary,
    source: InputFile,
    label: str,
    member: str | None,
    reopen: Callable[[], InputFile] | None,
) -> FoundBinary:
    """Give a binary of `source` with its images, which are somewhere else if it is compressed."""
    if binary.packed is None:
        return FoundBinary(binary, source, member, reopen)
    content = inflated(source.data, binary, path=label)
    label += " (decompressed)"

    def opened() -> InputFile:
        return InputFile.from_data(label, content)

    (inner,) = iter_offload_binaries(content, path=label)
    return FoundBinary(inner, opened(), member, opened)


@contextmanager
def find_offload_binaries(
    source: InputFile, *, padding: bool = True
) -> Iterator[Iterator[FoundBinary]]:
    """Give the offload binaries in `source`, in file order, while the block runs.

    `padding` allows zeros around binaries, which LLVM 22 refuses. Objects embedded in
    bitcode are copied to a file without a name.

    :raises FormatError: the file, or what is in it, is broken.
    :raises FileError: a member of a thin archive cannot be read.
    """
    with ExitStack() as stack:
        finder = _Finder(source, stack, padding=padding)
        yield finder.look(_Place(source, 0, len(source), str(source.path)))


@dataclass(frozen=True, slots=True)
class _Place:
    """Bytes to look at: from `start` to `end` of a source."""

    source: InputFile
    start: int
    end: int
    label: str
    """For messages."""
    member: str | None = None
    reopen: Callable[[], InputFile] | None = None
    files: tuple[str, ...] = ()
    """The thin archives' members around."""
    depth: int = 0

    @property
    def data(self) -> memoryview:
        return self.source.data[self.start : self.end]


def _spool(spool: Spool, embedded: EmbeddedObject, source: InputFile) -> tuple[int, int]:
    """Append an object of a source; give where it begins and ends."""
    out = spool.out
    start = forgotten = out.position
    for chunk in embedded.chunks():
        out.write(chunk)
        if out.position - forgotten > _FORGET_AFTER:
            forgotten = out.position
            source.forget()
    return start, out.position


class _Finder:
    """One search through one input."""

    def __init__(self, source: InputFile, stack: ExitStack, *, padding: bool) -> None:
        self.source = source
        self.stack = stack
        self.padding = padding

    @cached_property
    def spool(self) -> Spool:
        """For what is no range of a file; rarely needed."""
        return self.stack.enter_context(Spool())

    def look(self, place: _Place) -> Iterator[FoundBinary]:
        data = place.data
        if is_offload_binary(data):
            yield from self._binaries(place, place.start, place.end)
        elif data[:4] == _ELF_MAGIC:
            yield from self._in_elf(place)
        elif is_bitcode(data):
            yield from self._in_bitcode(place)
        else:
            from offload_tool.formats.archive import is_archive
            from offload_tool.formats.coff_edit import is_coff

            if is_archive(data):
                yield from self._in_archive(place)
            elif is_coff(data) and data[:2].tobytes() != _PE_MAGIC:
                yield from self._in_coff(place)

    def _binaries(self, place: _Place, start: int, end: int) -> Iterator[FoundBinary]:
        data = place.source.data
        for binary in iter_offload_binaries(
            data, start, end, path=place.label, padding=self.padding
        ):
            yield _found(binary, place.source, place.label, place.member, place.reopen)

    def _in_elf(self, place: _Place) -> Iterator[FoundBinary]:
        from offload_tool.formats.elf_tables import is_elf_header, read_elf_tables

        data = place.data
        if not is_elf_header(data):
            return
        tables = read_elf_tables(data, path=place.label)
        if tables.header.e_type not in _ELF_TYPES:
            return
        for row in tables.sections:
            if row.sh_type == _SHT_LLVM_OFFLOADING:
                start = place.start + row.sh_offset
                yield from self._binaries(place, start, start + row.sh_size)

    def _in_coff(self, place: _Place) -> Iterator[FoundBinary]:
        from offload_tool.formats.coff_edit import read_coff_sections

        for section in read_coff_sections(place.data, path=place.label):
            if section.name.startswith(SECTION.encode()):
                start = place.start + section.offset
                yield from self._binaries(place, start, start + section.size)

    def _in_bitcode(self, place: _Place) -> Iterator[FoundBinary]:
        from offload_tool.formats.bitcode_objects import find_embedded_objects

        source = place.source
        for embedded in find_embedded_objects(
            place.data, SECTION, path=place.label, forget=source.forget
        ):
            start, end = _spool(self.spool, embedded, source)
            label = f"{place.label} (embedded object)"

            def reopen(label: str = label) -> InputFile:
                return self.spool.read(label)

            with reopen() as spooled:
                stored = _Place(spooled, start, end, label, place.member, reopen)
                yield from self._binaries(stored, start, end)

    def _in_archive(self, place: _Place) -> Iterator[FoundBinary]:
        for member in self._members(place):
            label = f"{place.label}({member.name})"
            if place.depth >= _MAX_DEPTH:
                message = f"expected at most {_MAX_DEPTH} archives one inside the other"
                raise FormatError(message, path=label)
            if member.path is not None:
                yield from self._in_file(place, member, label)
                continue
            start = place.start + member.offset
            inner = (start, start + member.size, label, member.name, place.reopen, place.files)
            yield from self.look(_Place(place.source, *inner, place.depth + 1))

    def _members(self, place: _Place) -> list[ArchiveMember]:
        from offload_tool.formats.archive import iter_members

        # A thin archive's members are relative to its file, also inside of another archive.
        path = place.files[-1] if place.files else self.source.path
        try:
            return list(iter_members(place.data, path=path))
        except FormatError as error:
            offset = None if error.offset is None else place.start + error.offset
            raise FormatError(
                error.message, path=place.label, offset=offset, field=error.field
            ) from error

    def _in_file(self, place: _Place, member: ArchiveMember, label: str) -> Iterator[FoundBinary]:
        """Look into the file that is a thin archive's member."""
        path = str(member.path)
        real = os.path.realpath(path)
        if real in (*map(os.path.realpath, place.files), os.path.realpath(self.source.path)):
            raise FormatError("this archive contains itself", path=label)

        def reopen() -> InputFile:
            return InputFile(path)

        with reopen() as source:
            files = (*place.files, path)
            inner = (len(source), label, member.name, reopen, files, place.depth + 1)
            yield from self.look(_Place(source, 0, *inner))


# -- extracting --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ImageFilter:
    """Which images to extract, and where to."""

    strings: Mapping[str, str] = field(default_factory=dict)
    """What the image's strings must be; an absent one counts as empty."""
    kind: str | None = None
    """The offload kind; None: any."""
    output: StrPath | None = None
    """None: files named ``<stem of the input>-<triple>-<arch>.<number>.<extension>``."""
    label: str = ""
    """Names the filter in messages."""
    member: str | None = None
    """The archive member's name, or the file's, without folders; None: any."""


@dataclass(frozen=True, slots=True)
class _Selected:
    found: FoundBinary
    image: OffloadImage


def extract_images(
    path: StrPath,
    filters: Sequence[ImageFilter],
    *,
    name: str | None = None,
    folder: StrPath = "",
    archive: bool = False,
    padding: bool = True,
    dialect: Dialect | None = None,
    generation: Generation = 22,
    keep_equal: bool = False,
    warn: Callable[[str], None] | None = None,
    extracted: Callable[[str], None] | None = None,
) -> list[str]:
    """Write the images of the file at `path` that match each filter; give the files written.

    Of several images for one output, the last is written; with `archive`, an archive of all.
    A filter that nothing matches writes nothing. Names made from strings are put into
    `folder`; `name` is what the file is called in them (default: `path`). `padding` is as for
    `find_offload_binaries`; `dialect` says what the numbers of offload kinds mean (default:
    LLVM 22's, and 3 is the older hip). `warn` is called with what is worth knowing: no match,
    an unknown kind (which counts as none), several matches for one output. `generation` says
    whose way of extracting is meant, see the module's documentation; `extracted` is called
    with each name that was made, when all files are written.

    Outputs are replaced only when all of them (of more than 200: of each 200) are complete;
    with `keep_equal`, those that already have the very bytes are left untouched.

    :raises UsageError: with `archive`, a filter without an output; an unknown kind and no `warn`.
    :raises FormatError: the file is broken, or its strings are no part of a file name.
    :raises FileError: a file cannot be read or written.
    """
    with InputFile(path) as source, find_offload_binaries(source, padding=padding) as found:
        selected = [
            _Selected(binary, image)
            for binary in found
            for image in binary.binary.images
            if image.has_image
        ]
        job = _Extraction(path, name, selected, folder, dialect, warn, generation, padding=padding)
        if generation == 23 and not filters:
            filters, archive = [ImageFilter()], False
        for wanted in filters:
            if archive:
                job.add_archive(wanted)
            else:
                job.add(wanted)
        job.write(keep_equal=keep_equal)
        if extracted is not None:
            for made in job.made:
                extracted(made)
        return [str(output) for output, _ in job.outputs.values()]


class _Extraction:
    """What goes where; of two things for one file, the later one."""

    def __init__(
        self,
        path: StrPath,
        name: str | None,
        images: Sequence[_Selected],
        folder: StrPath,
        dialect: Dialect | None,
        warn: Callable[[str], None] | None,
        generation: Generation,
        *,
        padding: bool,
    ) -> None:
        self.path = path
        self.name = os.fspath(path) if name is None else name
        self.images = images
        self.folder = folder
        self.dialect = dialect
        self.warn = warn
        self.generation = generation
        self.padding = padding
        self.made: list[str] = []
        """The names that were made from strings, in order."""
        self.outputs: dict[str, tuple[StrPath, Callable[[OutputFile], None]]] = {}

    def add(self, wanted: ImageFilter) -> None:
        """Add the files of one filter."""
        matches = self._matches(wanted)
        if wanted.output is not None:
            if len(matches) > 1:
                output = "-" if wanted.output == STDOUT else wanted.output
                self._tell(f"Multiple inputs match to a single file, '{output}'")
            if matches:
                self._put(wanted.output, matches[-1])
            return
        if self.generation == 23:
            matches = [leaf for match in matches for leaf in self._leaves(match, 0)]
        for number, match in enumerate(matches):
            name = self._name(match.image, number)
            self.made.append(name)
            self._put(Path(self.folder, name), match)

    def _leaves(self, match: _Selected, depth: int) -> Iterator[_Selected]:
        """Give the images in an image that is offload binaries; else the image itself."""
        start, end = match.image.offset, match.image.offset + match.image.size
        with match.found.opened() as source:
            if not is_offload_binary(source.data, start) or not match.image.size:
                yield match
                return
            label = f"{source.path} (image)"
            if depth == _MAX_DEPTH:
                message = f"expected at most {_MAX_DEPTH} offload binaries one inside the other"
                raise FormatError(message, path=label, offset=start)
            found = [
                _found(binary, source, label, match.found.member, match.found.reopen)
                for binary in iter_offload_binaries(
                    source.data, start, end, path=label, padding=self.padding
                )
            ]
        for inner in found:
            for image in inner.binary.images:
                if image.has_image:
                    yield from self._leaves(_Selected(inner, image), depth + 1)

    def add_archive(self, wanted: ImageFilter) -> None:
        """Add the archive of one filter."""
        matches = self._matches(wanted)
        if matches:
            if wanted.output is None:
                raise UsageError("Image must have a 'file' argument.")
            members = [self._member(match) for match in matches]
            self._store(wanted.output, lambda out: _write_archive(out, members))

    def write(self, *, keep_equal: bool) -> None:
        """Write all files."""
        outputs = list(self.outputs.values())
        for start in range(0, len(outputs), _AT_ONCE):
            batch = outputs[start : start + _AT_ONCE]
            paths = [path for path, _ in batch]
            with replace_all(paths, keep_equal=keep_equal) as files:
                for file, (_, write) in zip(files, batch, strict=True):
                    write(file)

    def _tell(self, message: str) -> None:
        if self.warn is not None:
            self.warn(message)

    def _store(self, output: StrPath, write: Callable[[OutputFile], None]) -> None:
        real = os.path.realpath(output)
        self.outputs.pop(real, None)
        self.outputs[real] = output, write

    def _put(self, output: StrPath, match: _Selected) -> None:
        self._store(output, lambda out: _write_image(out, match))

    def _matches(self, wanted: ImageFilter) -> list[_Selected]:
        kind = None
        if wanted.kind is not None:
            dialect = self.dialect or "llvm22"
            kind = offload_kind_name(_kind_number(wanted.kind, dialect, self.warn), dialect)
        matches = [row for row in self.images if self._is_wanted(row, wanted, kind)]
        if not matches:
            which = f" matches '{wanted.label}'" if wanted.label else " matches"
            none = f"none of its {len(self.images)} images{which}"
            self._tell(f"'{self.path}': {none if self.images else 'it holds no offload images'}")
        return matches

    def _is_wanted(self, row: _Selected, wanted: ImageFilter, kind: str | None) -> bool:
        image = row.image
        if kind not in (None, offload_kind_name(image.offload_kind, self.dialect)):
            return False
        if wanted.member not in (None, self._member_name(row).rpartition("/")[2]):
            return False
        return all(image.strings.get(key, "") == value for key, value in wanted.strings.items())

    def _member_name(self, row: _Selected) -> str:
        if row.found.member is not None:
            return row.found.member
        return "<stdin>" if self.name == "-" else self.name

    def _name(self, image: OffloadImage, number: int) -> str:
        """Name a file after an image, as LLVM does."""
        stem = _stem(self.name.rpartition("/")[2])
        kind = image.image_kind
        extension = ImageKind(kind).extension if kind in ImageKind.__members__.values() else ""
        arch = f"-{image.arch}"
        if self.generation == 23:
            arch = arch if image.arch else ""
            extension = "spv" if kind == ImageKind.SPIRV else extension
        name = f"{stem}-{image.triple}{arch}.{number}.{extension}"
        if "/" in name or "\0" in name:
            raise FormatError(
                f"expected a part of a file name, found triple {image.triple!r} and arch "
                f"{image.arch!r}, which could lead out of the folder; name the output",
                path=self.path,
                offset=image.offset,
            )
        return name

    def _member(self, match: _Selected) -> _Member:
        from offload_tool.formats.symbol_index import member_symbols

        name = self._member_name(match)

        def warn(reason: str) -> None:
            self._tell(f"'{name}': {reason}")

        with match.found.opened() as source:
            content, offset = match.image.content(source.data), match.image.offset
            symbols = member_symbols(content, path=source.path, offset=offset, warn=warn)
        return _Member(name, symbols, match)


@dataclass(frozen=True, slots=True)
class _Member:
    """A member of an archive to write."""

    name: str
    symbols: bytes | None
    match: _Selected


def _write_image(out: OutputFile, match: _Selected) -> None:
    with match.found.opened() as source:
        out.reserve(match.image.size)
        out.copy(source, match.image.offset, match.image.size)


def _write_archive(out: OutputFile, members: Sequence[_Member]) -> None:
    from offload_tool.formats.archive import NewMember, plan_archive

    rows = [NewMember(row.name, row.match.image.size, row.symbols) for row in members]
    layout = plan_archive(rows)
    out.reserve(layout.size)
    for before, member in zip(layout.before, members, strict=True):
        out.write(before)
        _write_image(out, member.match)
    out.write(layout.end)


def _stem(name: str) -> str:
    """Take the last extension away; a dot at the beginning begins one too."""
    stem, dot, _ = name.rpartition(".")
    return stem if dot and name not in (".", "..") else name
