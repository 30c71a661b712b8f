"""Extract device images from the offload binaries of any file.

The selection follows LLVM 22, or on request 23:

======================  ============================  ===============================
situation               22                            23
======================  ============================  ===============================
no filters              extracts nothing              extracts every image
generated names         a dash before an empty arch   no such dash
an offload binary as    is written unchanged          is unpacked if the output has no
an image                                              name
``member`` in a filter  a string like others          name of the archive member or
                                                      file
SPIR-V                  no extension                  ``.spv``
======================  ============================  ===============================
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from offload_tool.containers.offload_binaries import (
    FoundBinary,
    find_offload_binaries,
    found_binary,
)
from offload_tool.errors import FormatError, UsageError
from offload_tool.formats.magic import OFFLOAD_BINARY, begins
from offload_tool.formats.offload_binary import (
    Dialect,
    ImageKind,
    OffloadImage,
    iter_offload_binaries,
    offload_kind_name,
)
from offload_tool.io import STDOUT, InputFile, StrPath, replace_all
from offload_tool.io.write_plan import FilePlan, Unopened
from offload_tool.operations.package import Generation, kind_number
from offload_tool.util.frozen import frozen, replaced

if TYPE_CHECKING:
    from offload_tool.formats.objects.ar import NewMember

_AT_ONCE = 200  # outputs open at once; each needs a descriptor, and a process has about 1000
_MAX_DEPTH = 8  # nesting depth of offload binaries


class SeveralImagesError(UsageError):
    """Several images match an output that can hold only one."""


@frozen
class ImageFilter:
    """Selection of images, and their output."""

    strings: Mapping[str, str] = MappingProxyType({})
    """Required values of the image's strings; an absent string counts as empty."""
    kind: str | None = None
    """The offload kind; None: any."""
    output: StrPath | None = None
    """None: files named ``<stem of the input>-<triple>-<arch>.<number>.<extension>``."""
    label: str = ""
    """Names the filter in messages."""
    member: str | None = None
    """The archive member's name, or the file's, without folders; None: any."""
    triple: str | None = None
    """Compared by meaning, while `strings` are compared as texts; None: any."""


@frozen
class ExtractOptions:
    """How `extract_images` reads and writes; see the module for `generation`."""

    name: str | None = None
    """Replaces the input's name in generated names (default: its path)."""
    folder: StrPath = ""
    """For files with generated names."""
    archive: bool = False
    """Whether an output is an archive of all matches; else it is the last match."""
    one_each: bool = False
    """Whether several matches for one output are an error, without `archive`."""
    padding: bool = True
    """As for `find_offload_binaries`."""
    dialect: Dialect | None = None
    """The numbering of offload kinds (default: LLVM 22's, with 3 as the older hip)."""
    generation: Generation = 22
    """The LLVM version to follow."""


@frozen
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
    options: ExtractOptions = ExtractOptions(),
    keep_equal: bool = False,
    warn: Callable[[str], None] | None = None,
    extracted: Callable[[str], None] | None = None,
) -> list[str]:
    """Write the images in the file at `path` that match each of `filters`; return their files.

    A filter without a match writes nothing. `options` say how images become files; see
    `ExtractOptions`. `warn` is called for a filter without a match, an
    unknown kind (which counts as none), and several matches for one output. `extracted` is called
    with each generated name, when all files are written.

    Outputs are replaced only when all of them (if more than 200: of each 200) are complete;
    with `keep_equal`, those that already have the same bytes are left untouched.

    :raises SeveralImagesError: with `one_each`, several images match one output.
    :raises UsageError: with `archive`, a filter without an output; an unknown kind and no `warn`.
    :raises FormatError: the file is broken, or a string cannot be part of a file name.
    :raises UnsupportedError, FileError: a file is not supported, or cannot be read or written.
    """
    with InputFile(path) as source, find_offload_binaries(source, padding=options.padding) as found:
        selected = [
            _Selected(binary, image)
            for binary in found
            for image in binary.binary.images
            if image.has_image
        ]
        if options.generation == 23 and not filters:
            filters, options = [ImageFilter()], replaced(options, archive=False)
        job = _ImageOutputs(path, selected, options, warn, generated=[], outputs={})
        for wanted in filters:
            if options.archive:
                job.add_archive(wanted)
            else:
                job.add(wanted)
        job.write(keep_equal=keep_equal)
        if extracted is not None:
            for generated in job.generated:
                extracted(generated)
        return [str(output) for output, _ in job.outputs.values()]


@frozen
class _ImageOutputs:
    """Plans by output file; a later plan for the same file replaces an earlier one."""

    path: StrPath
    images: Sequence[_Selected]
    options: ExtractOptions
    warn: Callable[[str], None] | None
    generated: list[str]
    """The names generated from strings, in order."""
    outputs: dict[str, tuple[StrPath, FilePlan]]

    @property
    def name(self) -> str:
        return os.fspath(self.path) if self.options.name is None else self.options.name

    def add(self, wanted: ImageFilter) -> None:
        matches = self._matches(wanted)
        if wanted.output is not None:
            if len(matches) > 1:
                if self.options.one_each:
                    raise self._several(wanted.output, matches)
                output = "-" if wanted.output == STDOUT else wanted.output
                self._warn(f"Multiple inputs match to a single file, '{output}'")
            if matches:
                self._store(wanted.output, matches[-1].content)
            return
        if self.options.generation == 23:
            matches = [leaf for match in matches for leaf in self._leaves(match, 0)]
        for number, match in enumerate(matches):
            name = self._name(match.image, number)
            self.generated.append(name)
            self._store(Path(self.options.folder, name), match.content)

    def _several(self, output: StrPath, matches: Sequence[_Selected]) -> SeveralImagesError:
        offsets = [
            f"{row.found.member or self.name} at {row.image.offset:#x} ({row.image.size} bytes)"
            for row in matches
        ]
        image = matches[0].image
        return SeveralImagesError(
            f"'{self.path}': {len(matches)} images with triple {image.triple} and arch "
            f"{image.arch or '(none)'} match the one file '{output}': {', '.join(offsets)}"
        )

    def _leaves(self, match: _Selected, depth: int) -> Iterator[_Selected]:
        start, end = match.image.offset, match.image.offset + match.image.size
        with match.found.opened() as source:
            if not begins(source.data, OFFLOAD_BINARY, start) or not match.image.size:
                yield match
                return
            label = f"{source.path} (image)"
            if depth == _MAX_DEPTH:
                message = f"expected at most {_MAX_DEPTH} nested offload binaries"
                raise FormatError(message, path=label, offset=start)
            found = [
                found_binary(binary, source, label, match.found.member, match.found.opened)
                for binary in iter_offload_binaries(
                    source.data, start, end, path=label, padding=self.options.padding
                )
            ]
        for inner in found:
            for image in inner.binary.images:
                if image.has_image:
                    yield from self._leaves(_Selected(inner, image), depth + 1)

    def add_archive(self, wanted: ImageFilter) -> None:
        matches = self._matches(wanted)
        if matches:
            if wanted.output is None:
                raise UsageError("Image must have a 'file' argument.")
            from offload_tool.formats.objects.ar import plan_archive

            self._store(wanted.output, plan_archive([self._member(match) for match in matches]))

    def write(self, *, keep_equal: bool) -> None:
        outputs = list(self.outputs.values())
        for start in range(0, len(outputs), _AT_ONCE):
            batch = outputs[start : start + _AT_ONCE]
            paths = [path for path, _ in batch]
            with replace_all(paths, keep_equal=keep_equal) as files:
                for file, (_, plan) in zip(files, batch, strict=True):
                    plan.write_to(file)

    def _warn(self, message: str) -> None:
        if self.warn is not None:
            self.warn(message)

    def _store(self, output: StrPath, plan: FilePlan) -> None:
        real = os.path.realpath(output)
        self.outputs.pop(real, None)
        self.outputs[real] = output, plan

    def _matches(self, wanted: ImageFilter) -> list[_Selected]:
        kind = None
        if wanted.kind is not None:
            dialect = self.options.dialect or "llvm22"
            kind = offload_kind_name(kind_number(wanted.kind, dialect, self.warn), dialect)
        matches = [row for row in self.images if self._is_wanted(row, wanted, kind)]
        if not matches:
            which = f" matches '{wanted.label}'" if wanted.label else " matches"
            none = f"none of its {len(self.images)} images{which}"
            self._warn(f"'{self.path}': {none if self.images else 'it holds no offload images'}")
        return matches

    def _is_wanted(self, row: _Selected, wanted: ImageFilter, kind: str | None) -> bool:
        image = row.image
        if kind not in (None, offload_kind_name(image.offload_kind, self.options.dialect)):
            return False
        if wanted.member not in (None, self._member_name(row).rpartition("/")[2]):
            return False
        if wanted.triple is not None:
            from offload_tool.formats.targets.triple import incompatibility  # rarely needed

            if incompatibility(image.triple, wanted.triple) is not None:
                return False
        return all(image.strings.get(key, "") == value for key, value in wanted.strings.items())

    def _member_name(self, row: _Selected) -> str:
        if row.found.member is not None:
            return row.found.member
        return "<stdin>" if self.name == "-" else self.name

    def _name(self, image: OffloadImage, number: int) -> str:
        base = self.name.rpartition("/")[2]
        stem, dot, _ = base.rpartition(".")  # a leading dot begins an extension, too
        stem = stem if dot and base not in (".", "..") else base
        kind = image.image_kind
        extension = ImageKind(kind).extension if kind in ImageKind.__members__.values() else ""
        arch = f"-{image.arch}"
        if self.options.generation == 23:
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
        from offload_tool.formats.objects.ar import NewMember, member_symbols

        name = self._member_name(match)

        def warn(reason: str) -> None:
            self._warn(f"'{name}': {reason}")

        with match.found.opened() as source:
            content, offset = match.image.content(source.data), match.image.offset
            symbols = member_symbols(content, path=source.path, offset=offset, warn=warn)
        return NewMember(name, match.content, symbols)
