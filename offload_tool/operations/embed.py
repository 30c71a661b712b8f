"""Embed device images in host objects, where the host code of each language expects them.

HIP: an object of its own, whose section ``.hip_fatbin`` holds the bundle under the symbols
that the host objects ask for, or that the registration of their entries asks for. Host code
without device code asks for nothing and gets no bundle, as from clang. CUDA: a
copy of the host object, with the fat binary in place of the placeholder that it was compiled
with. OpenMP, and HIP with the new offload driver: a copy of the host object with a section
``.llvm.offloading``, in which clang's link looks for device code.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack

from offload_tool.containers.walk import OFFLOADING_SECTION, open_file_or_members
from offload_tool.errors import CodeObjectError, UsageError
from offload_tool.formats.bitcode.module import is_bitcode
from offload_tool.formats.cuda import object_section
from offload_tool.formats.cuda.fatbin import FatbinStyle, NewCudaEntry, plan_cuda_fatbin
from offload_tool.formats.hip.fatbin_section import (
    BUNDLE_PLACE,
    FATBIN,
    MARKER_PLACE,
    NO_PLACE,
    TOOLS_PLACE,
    cuid_hash,
    plan_embedding,
    symbol_names,
)
from offload_tool.formats.host_symbols import (
    ENTRY_SECTION,
    HipHostCode,
    bitcode_host_code,
    hip_host_code,
)
from offload_tool.formats.objects.ar import NewMember, plan_archive
from offload_tool.formats.objects.elf.edit_sections import plan_elf
from offload_tool.formats.objects.elf.reader import SHT_LLVM_OFFLOADING, is_elf, read_elf_tables
from offload_tool.io import InputFile, StrPath, replace_file

_OFFLOADING_ALIGNMENT = 8
_MEMBER = "fatbin.o"


def embed_bundle(
    bundle: StrPath,
    output: StrPath,
    *,
    host_triple: str,
    cuid: str | None = None,
    host_files: Iterable[StrPath] = (),
    registers_entries: bool = False,
    is_marker: bool = False,
    as_archive: bool = False,
    keep_equal: bool = False,
) -> None:
    """Write the object `output` whose section ``.hip_fatbin`` holds the file `bundle`.

    It completes the host object for `host_triple` that was compiled with ``-cuid=`` and `cuid`,
    and depends on nothing else of it. Or it completes all `host_files` (objects and archives of
    them), whose symbols say what they ask for. Host code of the new offload driver asks for
    nothing, but has entries: `registers_entries` says that an object which registers them is
    linked beside this one (see `offload_tool.passes.registration`). If none of the host files
    asks for a bundle or has entries, the object is one without it. If it `is_marker`, the file is
    a kpack marker in the place of a bundle (see `offload_tool.operations.kpack`). With
    `as_archive`, the object is the one member of an archive, from which a linker takes it where a
    host object asks for it. The bundle's bytes are copied inside the kernel. With `keep_equal`, a
    file that already has the very bytes is left untouched.

    :raises UsageError: the host architecture is not one that this package can write, no host
        file is an object, or has entries without `registers_entries`.
    :raises CodeObjectError: a host file has kernels that nothing would register.
    :raises FormatError: a broken host file.
    :raises FileError: a file cannot be read or written.
    """
    for_all, is_wanted = False, True
    if cuid is not None:
        hashes = [cuid_hash(cuid)]
    else:
        code = read_host_files(list(host_files))
        if code.has_entries and not registers_entries:
            raise UsageError(
                "the host objects have entries of the new offload driver, which no symbol "
                "registers; link an object that does, or compile with --no-offload-new-driver"
            )
        for_all = registers_entries or code.asks_without_cuid
        hashes = sorted(code.hashes)
        # Registration of entries follows a marker wherever it is linked.
        is_wanted = code.asks or is_marker or code.has_entries
    with InputFile(bundle) as source:
        if is_wanted:
            place = MARKER_PLACE if is_marker else BUNDLE_PLACE
            plan = plan_embedding(hashes, len(source), host_triple, for_all=for_all, place=place)
        else:
            plan = plan_embedding([], 0, host_triple, place=NO_PLACE)
        if as_archive:
            names = "\0".join([*symbol_names(hashes, for_all=for_all), ""]).encode()
            plan = plan_archive([NewMember(_MEMBER, plan.size, names)]).plan([plan])
        with replace_file(output, keep_equal=keep_equal) as out:
            plan.bound(b"", [source] if is_wanted else [b""]).write_to(out)


def embed_tools_marker(
    marker: StrPath, output: StrPath, *, host_triple: str, keep_equal: bool = False
) -> None:
    """Write the object with the kpack marker of a linked file, which AMD's tools look for.

    :raises UsageError: the host architecture is not one that this package can write.
    :raises FileError: a file cannot be read or written.
    """
    with InputFile(marker) as source:
        plan = plan_embedding([], len(source), host_triple, place=TOOLS_PLACE)
        with replace_file(output, keep_equal=keep_equal) as out:
            plan.bound(b"", [source]).write_to(out)


def read_host_files(paths: Sequence[StrPath]) -> HipHostCode:
    """Read what objects and archives of them, whose code one bundle completes, say of it.

    Of no device code, and of functions for device code alone, there is nothing to say: they are
    valid.

    :raises UsageError: none of them is an object, or an archive with one.
    :raises CodeObjectError: one has kernels and no way to register them.
    :raises FormatError: a broken file.
    :raises FileError: a file cannot be read.
    """
    found, has_objects = HipHostCode(), False
    for path in paths:
        for name, code in _host_code_in(path):
            has_objects = True
            if code.lost_kernels:
                raise CodeObjectError(
                    f"'{name}': nobody registers the kernel {min(code.lost_kernels)}: expected an "
                    f"undefined symbol {FATBIN}_<hash>, or a section {ENTRY_SECTION} with an "
                    "entry for it, found neither; was it compiled as HIP, by clang alone?"
                )
            found |= code
    if not has_objects:
        listed = ", ".join(f"'{name}'" for name in paths) or "no file"
        raise UsageError(
            f"no host object to embed a bundle for (looked in {listed}); "
            "give the objects of sources with device code"
        )
    return found


def _host_code_in(path: StrPath) -> Iterator[tuple[str, HipHostCode]]:
    """Yield the ELF objects of a file: what they are called in messages, and what they say."""
    for place in open_file_or_members(path):
        data, name = place.source.data, place.label
        if is_bitcode(data):  # a host object of -flto
            yield name, bitcode_host_code(data)
        elif is_elf(data):
            yield name, hip_host_code(read_elf_tables(data, path=name))


def write_cuda_fatbin(
    images: Sequence[tuple[str, StrPath]],
    output: StrPath,
    *,
    style: FatbinStyle | None = None,
    identifier: str = "",
    options: str = "",
    may_be_empty: bool = False,
    keep_equal: bool = False,
) -> None:
    """Write CUDA's fat binary of (processor, file) images, as ``fatbinary`` writes it.

    They are PTX and cubins, relocatable or not, in their order. `style` says how they are
    compressed and for what host (default: not, Linux); `identifier` names them for people, and
    `options` are those for ptxas, when the driver compiles PTX. One that `may_be_empty` is for a
    program that has nothing but the PTX of its sources, which the driver links. With
    `keep_equal`, a file that already has the very bytes is left untouched.

    :raises UsageError: no image, a processor that such a file cannot name, or one that a
        cubin is not for.
    :raises FormatError: a file that is neither PTX nor a cubin.
    :raises FileError: a file cannot be read or written.
    """
    if not images and not may_be_empty:
        raise UsageError("a CUDA fat binary needs at least one image")
    with ExitStack() as stack:
        entries = [
            NewCudaEntry(processor, stack.enter_context(InputFile(path)).data, identifier, options)
            for processor, path in images
        ]
        with replace_file(output, keep_equal=keep_equal) as out:
            for piece in plan_cuda_fatbin(entries, style or FatbinStyle()):
                out.write(piece)


def embed_cuda_fatbin(
    host_object: StrPath,
    fatbin: StrPath,
    output: StrPath,
    *,
    keep_equal: bool = False,
) -> None:
    """Write a copy of a CUDA host object that holds `fatbin` instead of the placeholder.

    Of a source without kernels and device variables, it has none and is copied as it is.
    With `keep_equal`, a file that already has the very bytes is left untouched.

    :raises CodeObjectError: it has kernels, and was not compiled with the placeholder.
    :raises FormatError: it is not an ELF object, or a broken one.
    :raises UnsupportedError: it is not 64-bit little-endian.
    :raises FileError: a file cannot be read or written.
    """
    with InputFile(host_object) as host, InputFile(fatbin) as images:
        has_place = object_section.find_placeholder(host.data, path=host_object) is not None
        tables = read_elf_tables(host.data, path=host_object)
        if not has_place and not hip_host_code(tables).lost_kernels:
            with replace_file(output, keep_equal=keep_equal) as out:
                out.copy(host)
            return
        plan = object_section.plan_embedding(host.data, len(images), path=host_object)
        with replace_file(output, keep_equal=keep_equal) as out:
            plan.bound(host, [images]).write_to(out)


def embed_offload_binary(
    host_object: StrPath, package: StrPath, output: StrPath, *, keep_equal: bool = False
) -> None:
    """Write a copy of an ELF host object whose section ``.llvm.offloading`` holds `package`.

    With `keep_equal`, a file that already has the very bytes is left untouched.

    :raises FormatError: the host object is not an ELF file, or a broken one.
    :raises FileError: a file cannot be read or written.
    """
    with InputFile(host_object) as host, InputFile(package) as images:
        plan = plan_elf(
            host.data,
            [(OFFLOADING_SECTION.encode(), len(images))],
            path=host_object,
            section_type=SHT_LLVM_OFFLOADING,
            alignment=_OFFLOADING_ALIGNMENT,
        )
        with replace_file(output, keep_equal=keep_equal) as out:
            plan.bound(host, [images]).write_to(out)
