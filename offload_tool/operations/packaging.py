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
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from offload_tool.containers.file_format import FileFormat
from offload_tool.containers.places import Place
from offload_tool.containers.walk import OFFLOADING_SECTION, Policy, Walk
from offload_tool.errors import ContentError, FormatError, UsageError
from offload_tool.files import STDOUT, InputFile, replace_all, replace_file
from offload_tool.files.plan import Unopened, reopened
from offload_tool.files.spool import Spool
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

    from offload_tool.containers.walk import Spot
    from offload_tool.files import FileRange, OutputFile, StrPath
    from offload_tool.files.plan import FilePlan
    from offload_tool.formats.objects.archive import ArchiveMember, NewMember
    from offload_tool.formats.objects.coff_edit import CoffSection
    from offload_tool.formats.objects.elf import ElfTables
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

_ELF_HEADER = 64  # bytes
_PE_MAGIC = b"MZ"
_ELF_TYPES = frozenset({1, 2, 3})
"""ET_REL, ET_EXEC, ET_DYN."""
_AT_ONCE = 200
"""Outputs that are open together; each needs a descriptor, and a process has about 1000."""
_KINDS = "openmp, cuda, hip, sycl or none"


# -- packaging ---------------------------------------------------------------------------
_MAX_DEPTH = 8
"""Offload binaries one inside the other."""


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
    images: Iterable[PackagedImage],
    output: StrPath,
    *,
    dialect: Dialect = "llvm22",
    generation: Generation = 22,
    keep_equal: bool = False,
    warn: Callable[[str], None] | None = None,
) -> None:
    """Write one offload binary for each of `images` to `output`, one directly behind the other.

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
        rows: list[PlannedImage] = []
        contents: list[FileRange | FilePlan] = []
        for image, offload_kind in images:
            source = InputFile(image.path)
            stack.callback(source.close)
            image_kind, size = _image_kind(image, source, 23), len(source)
            rows.append(PlannedImage(size, image_kind, offload_kind, image.strings))
            if few:
                contents.append(source.range(0, size))
            else:
                source.close()
                contents.append(reopened(image.path, size))
        plan_shared_offload_binary(rows).plan(contents).write_to(out)


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
        size = len(source)
        layout = plan_offload_binary(
            size, image_kind=image_kind, offload_kind=offload_kind, strings=image.strings
        )
        layout.plan([source.range(0, size)]).write_to(out)


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
    :raises UnsupportedError: it is of a version or sort that is not read.
    :raises FileError: a member of a thin archive cannot be read.
    """
    with ExitStack() as stack:
        reader = _SpotReader(stack, padding=padding)
        walk = Walk(_PackagerPolicy(), reader.read, spool=lambda: nullcontext(reader.spool))
        yield walk.look(Place.of(source, str(source.path)))


class _PackagerPolicy(Policy):
    """What is looked into as llvm-offload-binary does it; messages count from the file's begin."""

    confined = False  # as LLVM's program has it: the user named the archive for its members
    believes_coff = True
    object_bundles = False

    def label(self, place: Place, name: str) -> str:
        return f"{place.label}({name})"

    def opens(self, place: Place, file_format: FileFormat) -> bool:
        begin = place.source.data[:_ELF_HEADER]
        if file_format is FileFormat.ELF:
            from offload_tool.formats.objects.elf import is_elf_header

            return is_elf_header(begin)
        if file_format is FileFormat.COFF:
            return begin[: len(_PE_MAGIC)] != _PE_MAGIC
        return file_format in (FileFormat.OFFLOAD_BINARY, FileFormat.BITCODE, FileFormat.ARCHIVE)

    def members(self, place: Place) -> Iterable[ArchiveMember]:
        try:
            return list(super().members(place))
        except ContentError as error:
            _, start, _ = place.source.range(0, 0)
            at = None if error.offset is None else start + error.offset
            raise type(error)(
                error.message, path=place.label, offset=at, field=error.field
            ) from error

    def elf_section(self, tables: ElfTables, number: int) -> FileFormat | None:
        from offload_tool.formats.objects.elf import SHT_LLVM_OFFLOADING

        is_wanted = tables.sections[number].sh_type == SHT_LLVM_OFFLOADING
        return (
            FileFormat.OFFLOAD_BINARY if is_wanted and tables.header.e_type in _ELF_TYPES else None
        )

    def coff_section(self, data: memoryview, section: CoffSection) -> FileFormat | None:  # noqa: ARG002
        is_wanted = section.name.startswith(OFFLOADING_SECTION.encode())
        return FileFormat.OFFLOAD_BINARY if is_wanted else None


class _SpotReader:
    """Reads the binaries at a spot; what is in a spool can be read until the search ends."""

    def __init__(self, stack: ExitStack, *, padding: bool) -> None:
        self.stack = stack
        self.padding = padding

    @cached_property
    def spool(self) -> Spool:
        return self.stack.enter_context(Spool())

    def read(self, spot: Spot) -> Iterator[FoundBinary]:
        place = spot.place
        label, reopen = place.label, None
        if not place.files:
            label = f"{label} (embedded object)"
            reopen = partial(self.spool.read, label)
        elif len(place.files) > 1:
            reopen = partial(InputFile, place.files[-1])
        source, start, _ = place.source.range(spot.start, 0)
        end = start + spot.end - spot.start
        member = place.names[-1] if place.names else None
        for binary in iter_offload_binaries(
            source.data, start, end, path=label, padding=self.padding
        ):
            yield _found(binary, source, label, member, reopen)


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

    @property
    def content(self) -> FilePlan:
        return Unopened(self.found.opened).range(self.image.offset, self.image.size)


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
    """Write the images of the file at `path` that match each of `filters`; give the files written.

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
    :raises FormatError: the file is broken, or its strings are not part of a file name.
    :raises UnsupportedError: it is of a version or sort that is not read.
    :raises FileError: a file cannot be read or written.
    """
    with InputFile(path) as source, find_offload_binaries(source, padding=padding) as found:
        selected = [
            _Selected(binary, image)
            for binary in found
            for image in binary.binary.images
            if image.has_image
        ]
        job = _ImageOutputs(
            path, name, selected, folder, dialect, warn, generation, padding=padding
        )
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


class _ImageOutputs:
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
        self.outputs: dict[str, tuple[StrPath, FilePlan]] = {}

    def add(self, wanted: ImageFilter) -> None:
        """Add the files of one filter."""
        matches = self._matches(wanted)
        if wanted.output is not None:
            if len(matches) > 1:
                output = "-" if wanted.output == STDOUT else wanted.output
                self._tell(f"Multiple inputs match to a single file, '{output}'")
            if matches:
                self._store(wanted.output, matches[-1].content)
            return
        if self.generation == 23:
            matches = [leaf for match in matches for leaf in self._leaves(match, 0)]
        for number, match in enumerate(matches):
            name = self._name(match.image, number)
            self.made.append(name)
            self._store(Path(self.folder, name), match.content)

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
            from offload_tool.formats.objects.archive import plan_archive

            layout = plan_archive([self._member(match) for match in matches])
            self._store(wanted.output, layout.plan([match.content for match in matches]))

    def write(self, *, keep_equal: bool) -> None:
        """Write all files."""
        outputs = list(self.outputs.values())
        for start in range(0, len(outputs), _AT_ONCE):
            batch = outputs[start : start + _AT_ONCE]
            paths = [path for path, _ in batch]
            with replace_all(paths, keep_equal=keep_equal) as files:
                for file, (_, plan) in zip(files, batch, strict=True):
                    plan.write_to(file)

    def _tell(self, message: str) -> None:
        if self.warn is not None:
            self.warn(message)

    def _store(self, output: StrPath, plan: FilePlan) -> None:
        real = os.path.realpath(output)
        self.outputs.pop(real, None)
        self.outputs[real] = output, plan

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

    def _member(self, match: _Selected) -> NewMember:
        from offload_tool.formats.objects.archive import NewMember
        from offload_tool.formats.objects.symbol_index import member_symbols

        name = self._member_name(match)

        def warn(reason: str) -> None:
            self._tell(f"'{name}': {reason}")

        with match.found.opened() as source:
            content, offset = match.image.content(source.data), match.image.offset
            symbols = member_symbols(content, path=source.path, offset=offset, warn=warn)
        return NewMember(name, match.image.size, symbols)


def _stem(name: str) -> str:
    """Take the last extension away; a dot at the beginning begins one too."""
    stem, dot, _ = name.rpartition(".")
    return stem if dot and name not in (".", "..") else name
