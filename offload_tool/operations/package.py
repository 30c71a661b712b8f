"""Write device images into offload binaries.

The default layout is that of LLVM 22: one binary for each image. LLVM 23's, on request, is one
binary of all images (version 2), in which SPIR-V has its own image kind (6; 0 in LLVM 22).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, TypeAlias

from offload_tool.errors import UsageError
from offload_tool.formats.offload_binary import (
    Dialect,
    ImageKind,
    OffloadImage,
    guess_image_kind,
    offload_kind_number,
    plan_offload_binary,
    plan_shared_offload_binary,
    write_compressed_offload_binary,
)
from offload_tool.io import InputFile, OutputFile, StrPath, replace_file
from offload_tool.io.write_plan import FilePlan, Part, Unopened, file_plan
from offload_tool.util.frozen import frozen

if TYPE_CHECKING:
    from offload_tool.formats.codec import Method
    from offload_tool.io.spool import Spool

Generation: TypeAlias = "Literal[22, 23]"

_OPEN = 200  # inputs open at once; each needs a descriptor, and a process has about 1000
_KINDS = "openmp, cuda, hip, sycl or none"


@frozen
class PackagedImage:
    """A file to package, with its metadata."""

    path: StrPath
    strings: Mapping[str, str] = MappingProxyType({})
    """``triple``, ``arch``, ``feature``, ...; stored unchanged."""
    kind: str = "none"
    """Offload kind: ``openmp``, ``cuda``, ``hip``, ``sycl``."""
    image_kind: int | None = None
    """See `ImageKind`; None: derived from the file's first bytes and its extension."""
    keys: tuple[str, ...] = ()
    """All keys in command-line order, including ``file`` and ``kind`` (see
    `offload_tool.formats.llvm_tables`)."""


def package_images(
    images: Iterable[PackagedImage],
    output: StrPath,
    *,
    dialect: Dialect = "llvm22",
    generation: Generation = 22,
    base: StrPath | None = None,
    keep_equal: bool = False,
    warn: Callable[[str], None] | None = None,
) -> None:
    """Write one offload binary for each of `images` to `output`, without gaps.

    With `generation` 23, write one binary of all images, which only LLVM 23 and later can read.
    `dialect` selects the numbering of offload kinds. An unknown kind becomes 0, as in LLVM, after a
    call of `warn`. The images of a file `base` come first; a given image replaces the one with the
    same kind, triple and arch there. `keep_equal` leaves an equal file untouched. Files are opened
    one at a time and copied by the kernel; equal inputs produce equal bytes.

    :raises UsageError: an offload kind is unknown and there is no `warn`, a string has a NUL, or
        `base` has no images or several to replace by one.
    :raises FormatError: `base` is broken.
    :raises FileError: a file cannot be read or written.
    """
    numbered = ((image, kind_number(image.kind, dialect, warn)) for image in images)
    if base is not None:
        _amend(base, list(numbered), output, keep_equal=keep_equal)
        return
    with replace_file(output, keep_equal=keep_equal) as out:
        if generation == 23:
            _append_shared(out, list(numbered))
            return
        for image, kind in numbered:
            _append(out, image, kind)


def _amend(
    base: StrPath, images: Sequence[tuple[PackagedImage, int]], output: StrPath, *, keep_equal: bool
) -> None:
    from offload_tool.containers.offload_binaries import find_offload_binaries

    with InputFile(base) as source, find_offload_binaries(source) as found:
        kept = [(each, image) for each in found for image in each.binary.images if image.has_image]
        if not kept:
            raise UsageError(f"'{base}': expected offload binaries to add images to, found none")
        added: list[tuple[PackagedImage, int]] = []
        replaced: dict[int, tuple[PackagedImage, int]] = {}
        for row, kind in images:
            wanted = kind, row.strings.get("triple", ""), row.strings.get("arch", "")
            same = [
                at
                for at, (_, image) in enumerate(kept)
                if (image.offload_kind, image.triple, image.arch) == wanted
            ]
            if len(same) > 1:
                raise UsageError(
                    f"'{base}': {len(same)} images of {row.kind} with triple {wanted[1]} and arch "
                    f"{wanted[2] or '(none)'}, of which '{row.path}' could replace each; extract "
                    "them, and package those wanted"
                )
            if same and same[0] not in replaced:
                replaced[same[0]] = row, kind
            else:
                added.append((row, kind))
        with replace_file(output, keep_equal=keep_equal) as out:
            for at, (each, image) in enumerate(kept):
                if at in replaced:
                    _append(out, *replaced[at])
                    continue
                plan_offload_binary(
                    Unopened(each.opened).range(image.offset, image.size),
                    image_kind=image.image_kind,
                    offload_kind=image.offload_kind,
                    strings=image.strings,
                    flags=image.flags,
                ).write_to(out)
            for row, kind in added:
                _append(out, row, kind)


def _append_shared(out: OutputFile, images: Sequence[tuple[PackagedImage, int]]) -> None:
    with ExitStack() as stack:
        few = len(images) <= _OPEN  # else each file is opened a second time
        rows: list[OffloadImage] = []
        contents: list[Part] = []
        for image, offload_kind in images:
            source = InputFile(image.path)
            stack.callback(source.close)
            image_kind, size = _image_kind(image, source, 23), len(source)
            rows.append(OffloadImage(image_kind, offload_kind, 0, image.strings, 0, size))
            if few:
                contents.append(source)
            else:
                source.close()
                contents.append(file_plan(image.path, size))
        plan_shared_offload_binary(rows, contents).write_to(out)


def plan_images(
    images: Sequence[OffloadImage], contents: Sequence[Part], method: Method | None, spool: Spool
) -> FilePlan:
    """Plan one binary of all images; with a `method`, compress it into `spool`."""
    if method is None:
        return plan_shared_offload_binary(images, contents)
    plan = plan_shared_offload_binary(images, contents, version=3)
    write = partial(write_compressed_offload_binary, plan=plan, method=method)
    return FilePlan.of([spool.append(write)])


def _image_kind(image: PackagedImage, source: InputFile, generation: Generation) -> int:
    if image.image_kind is not None:
        return image.image_kind
    name = os.fspath(image.path)
    if generation == 23 and name.endswith(".spv"):
        return ImageKind.SPIRV
    return guess_image_kind(name, source.data[:4])


def _append(out: OutputFile, image: PackagedImage, offload_kind: int) -> None:
    with InputFile(image.path) as source:
        plan_offload_binary(
            source,
            image_kind=_image_kind(image, source, 22),
            offload_kind=offload_kind,
            strings=image.strings,
            keys=image.keys,
        ).write_to(out)


def kind_number(name: str, dialect: Dialect, warn: Callable[[str], None] | None) -> int:
    """Return the number of an offload kind; for an unknown one, `warn` and 0, or UsageError."""
    number = offload_kind_number(name, dialect)
    if number is None:
        message = f"unknown offload kind '{name}', expected {_KINDS}"
        if warn is None:
            raise UsageError(message)
        warn(f"{message}; it counts as none")
    return number or 0
