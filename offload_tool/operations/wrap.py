"""Wrap device images into a module that registers them when the host program starts.

A compiler makes bitcode of the images' bytes as text, with 12 to 15 bytes of memory for each. It
makes an object around placeholders, and the kernel copies the bytes from file to file: memory use
does not depend on their size.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import Protocol

from offload_tool.errors import FormatError, UnsupportedError, UsageError
from offload_tool.formats.bitcode import llvmlite
from offload_tool.formats.magic import OFFLOAD_BINARY, begins
from offload_tool.formats.objects.device_elf import plan_elf_with_notes
from offload_tool.formats.objects.elf.reader import is_elf_header
from offload_tool.formats.objects.splice_images import plan_object_with_images
from offload_tool.formats.offload_binary import iter_offload_binaries, unpacked
from offload_tool.formats.registration_ir import (
    REGISTERED_KINDS,
    Generation,
    RegisteredImage,
    RegisteredKind,
    Registration,
    bitcode_text,
    object_text,
)
from offload_tool.formats.targets import triple as triples
from offload_tool.formats.targets.target_id import TargetID
from offload_tool.io import InputFile, StrPath
from offload_tool.io.spool import Spool
from offload_tool.io.write_plan import FilePlan
from offload_tool.util.frozen import frozen


class Compiler(Protocol):
    """What compiles a module, from its LLVM IR and triple."""

    def assemble(self, text: Iterable[str], triple: str, /) -> bytes:
        """Return the module's bitcode."""

    def compile_object(self, text: str, triple: str, /) -> bytes:
        """Return the module's object."""


_OBJECT_SUFFIXES = (".o", ".obj")
_ELF_ARCHES = """
aarch64 aarch64_be arm armeb i386 loongarch64 mips64 mips64el powerpc powerpc64 powerpc64le
riscv32 riscv64 s390x sparc sparc64 thumb x86_64
"""
MAX_IMAGE_SIZE = (1 << 32) - 1
"""Bytes; bitcode counts them in 32 bits."""
_MEMORY = 12  # bytes that llvmlite needs for each byte of an image in bitcode; clang, 15
ELF_HOSTS = frozenset(_ELF_ARCHES.split())
"""Architectures supported for ELF objects."""
_ELF_SYSTEMS = frozenset(("", "freebsd", "linux", "netbsd", "openbsd"))


def default_triple() -> str:
    """Return this machine's host triple, as Debian's LLVM spells it."""
    machine = platform.machine()
    return "x86_64-pc-linux-gnu" if machine == "x86_64" else f"{machine}-unknown-linux-gnu"


@frozen
class WrapOptions:
    """What the module of `wrap_images` registers, and how."""

    generation: Generation = 22
    """The layout of the host objects' entries: 22 for clang 21 and later, 15 for older ones (OpenMP
    only), 23 for LLVM 23, which has 22's layout and supports relocatable images."""
    is_relocatable: bool = False
    """Whether the images are relocatable (generation 23)."""
    finds_entries: bool = False
    """Whether an OpenMP module of generation 22 serves objects of either layout."""
    target_ids: Sequence[str] = ()
    """For OpenMP, one for each image: registered in canonical form with runtimes that support
    them."""
    allow_unknown: bool = False
    """Whether `target_ids` may have processors that are not in our table."""
    add_notes: bool = False
    """Whether ELF images get a note section that marks them as OpenMP."""
    as_object: bool | None = None
    """Whether the result is an object file, ready to link, or LLVM bitcode, which takes 12 to 15
    times the memory of the images. None: it is an object if its name ends in ``.o`` or ``.obj``."""


def wrap_images(
    images: Sequence[StrPath],
    output: StrPath,
    *,
    kind: RegisteredKind,
    triple: str | None = None,
    options: WrapOptions = WrapOptions(),
    keep_equal: bool = False,
    compiler: Compiler = llvmlite,
    warn: Callable[[str], None] = lambda _: None,
) -> None:
    """Write the module `output`, which registers `images` of `kind` in programs for `triple`.

    OpenMP takes any number of images; for offload binaries, the images inside are registered. CUDA
    takes one fat binary, HIP one bundle. Without `triple`, the host is this machine. The `options`
    are described at `WrapOptions`; `compiler` makes the module. `keep_equal` leaves an equal file
    untouched. `warn` is called for images that get no notes, because they are not ELF files.

    :raises TargetIDError: one of the target IDs is invalid.
    :raises UsageError: there are no images or too many, an argument does not fit the others,
        llvmlite is missing, or such objects cannot be written; also errors of `compiler`.
    :raises FormatError: an offload binary is broken.
    :raises UnsupportedError: an image is too large for the format, or for bitcode in memory.
    :raises FileError: a file cannot be read or written.
    """
    triple = default_triple() if triple is None else triple
    if not triple.isprintable():
        raise UsageError(f"{triple!r}: expected a triple, found a character that is not printable")
    as_object = options.as_object
    if as_object is None:
        as_object = os.fspath(output).endswith(_OBJECT_SUFFIXES)
    with ExitStack() as stack:
        files = [stack.enter_context(InputFile(image)) for image in images]
        _check(images, kind, options)
        ids: list[str | None] = [None] * len(files)
        if options.target_ids:
            unknown = options.allow_unknown
            ids = [registered_id(each, allow_unknown=unknown) for each in options.target_ids]
        generation = options.generation
        if kind == "openmp" and generation != 15:
            groups = [_apart(file, stack) for file in files]
            files = [file for group in groups for file in group]
            ids = [row for row, group in zip(ids, groups, strict=True) for _ in group]
        if options.add_notes:
            files = [stack.enter_context(_with_notes(file, warn)) for file in files]
        registration = Registration(
            kind,
            triple,
            [
                RegisteredImage(_ranges(file, kind, generation), target_id)
                for file, target_id in zip(files, ids, strict=True)
            ],
            generation,
            options.is_relocatable,
            options.finds_entries,
        )
        if as_object:
            plan = _plan_object(registration, files, compiler)
        else:
            plan = _plan_bitcode(registration, files, compiler)
        plan.write(output, keep_equal=keep_equal)


def registered_id(text: str, *, allow_unknown: bool = False) -> str:
    """Return a canonical target ID or a CPU's architecture; raise TargetIDError for others."""
    return text if text in ELF_HOSTS else str(TargetID.parse(text, allow_unknown=allow_unknown))


def _check(images: Sequence[StrPath], kind: RegisteredKind, options: WrapOptions) -> None:
    generation, target_ids = options.generation, options.target_ids
    if kind not in REGISTERED_KINDS:
        raise UsageError(
            f"unknown offload kind '{kind}': expected one of {', '.join(REGISTERED_KINDS)}"
        )
    if not images:
        raise UsageError("expected at least one device image to wrap")
    if kind != "openmp":
        if len(images) > 1:
            raise UsageError("CUDA / HIP offloading uses a single fatbinary or offload bundle")
        if generation == 15:
            raise UsageError(
                f"the interface of LLVM {generation} is for openmp, not for {kind}; "
                "write the module for LLVM 22"
            )
        if target_ids:
            raise UsageError(
                f"target IDs are registered for openmp, not for {kind}; leave them out"
            )
    if target_ids and len(target_ids) != len(images):
        raise UsageError(
            f"expected one target ID for each of {len(images)} images, found {len(target_ids)}"
        )
    if options.is_relocatable and generation != 23:
        raise UsageError(
            f"relocatable images are of generation 23, not {generation}; "
            "write them for generation 23"
        )


def _with_notes(file: InputFile, warn: Callable[[str], None]) -> InputFile:
    if not is_elf_header(file.data):
        warn(f"{file.path} is not an ELF image, so notes cannot be added to it.")
        return file
    plan = plan_elf_with_notes(file.data, path=file.path)
    with Spool(file.path) as spool:
        plan.bound(file).write_to(spool.out)
        return spool.read()


def _apart(file: InputFile, stack: ExitStack) -> list[InputFile]:
    """Return the images of offload binaries of version 2 and later, aligned, as files."""
    if not begins(file.data, OFFLOAD_BINARY):
        return [file]
    binaries = list(iter_offload_binaries(file.data, path=file.path))
    if all(binary.version == 1 for binary in binaries):
        return [file]
    images = []
    for binary in binaries:
        data, stored = unpacked(file.data, binary, path=file.path)
        images += [image.content(data) for image in stored.images if image.has_image]
    if not images:
        raise _no_image(file)
    return [stack.enter_context(InputFile.from_data(file.path, image)) for image in images]


def _no_image(file: InputFile) -> FormatError:
    return FormatError("expected a device image in this offload binary", path=file.path)


def _ranges(
    file: InputFile, kind: RegisteredKind, generation: Generation
) -> tuple[tuple[int, int], ...]:
    """Return the ranges of a file to register: the whole file, or the images inside."""
    if kind != "openmp" or generation == 15 or not begins(file.data, OFFLOAD_BINARY):
        return ((0, len(file)),)
    found = tuple(
        (image.offset, image.offset + image.size)
        for binary in iter_offload_binaries(file.data, path=file.path)
        for image in binary.images
    )
    if not found:
        raise _no_image(file)
    return found


def _plan_bitcode(
    registration: Registration, files: Sequence[InputFile], compiler: Compiler
) -> FilePlan:
    for file in files:
        if len(file) > MAX_IMAGE_SIZE:
            raise UnsupportedError(
                f"expected less than 4 GiB for an image in bitcode, found {len(file)} bytes; "
                "write an object (.o) instead",
                path=file.path,
            )
    needed = _MEMORY * sum(map(len, files))
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > memory:  # LLVM would abort, or be killed
        raise UnsupportedError(
            f"these images in bitcode need about {needed} bytes of memory, found {memory}; "
            "write an object (.o) instead",
            path=files[0].path,
        )
    text = bitcode_text(registration, [file.data for file in files])
    return FilePlan.of([compiler.assemble(text, registration.triple)])


def _plan_object(
    registration: Registration, files: Sequence[InputFile], compiler: Compiler
) -> FilePlan:
    meaning = triples.meaning(registration.triple)
    is_elf = meaning.object_format == "elf" and meaning.system in _ELF_SYSTEMS
    if not is_elf or meaning.arch not in ELF_HOSTS:  # LLVM's code generator may crash
        raise UsageError(
            f"cannot make an object for '{registration.triple}' "
            f"({meaning.object_format}, {meaning.arch or 'no architecture'}, "
            f"{meaning.system or 'no system'}): expected a host such as "
            "x86_64-unknown-linux-gnu; write bitcode (.bc) and compile that"
        )
    module = compiler.compile_object(object_text(registration), registration.triple)
    return plan_object_with_images(module, files)
