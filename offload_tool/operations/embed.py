"""Embed device images in host objects, as the host code of each language expects.

HIP: a separate object whose section ``.hip_fatbin`` holds the bundle, under the symbols that
the host objects (or the registration of their entries) refer to. Host code without device code
refers to none and gets no bundle; clang does the same. CUDA: a copy of the host object, with
the fat binary in place of the placeholder that the object was compiled with. OpenMP, and HIP
with the new offload driver: a copy of the host object with a section ``.llvm.offloading``, from
which clang's link step reads the device code.

With kpack archives, a program has its device code apart::

    a.gfx942.co --+
    b.gfx942.co --+-- .kpack/GROUP_gfx942.kpack        one archive for each target ID

    a.kpackref -- a.fatbin.o --+                       a marker, in place of the bundle
    a.host.o ---- a.kpack.o ---+-- program             its wrapper is changed in 4 bytes

Source: see `formats.kpack.archive`, `formats.kpack.marker` and `formats.hip_fatbin`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from offload_tool.containers.walk import OFFLOADING_SECTION, open_file_or_members
from offload_tool.errors import CodeObjectError, UnsupportedError, UsageError
from offload_tool.formats import hip_fatbin, host_symbols
from offload_tool.formats.bitcode.module import is_bitcode
from offload_tool.formats.cuda import object_section
from offload_tool.formats.cuda.fatbin import NewCudaEntry, plan_cuda_fatbin
from offload_tool.formats.objects.ar import NewMember, plan_archive
from offload_tool.formats.objects.elf.edit_sections import plan_elf
from offload_tool.formats.objects.elf.reader import SHT_LLVM_OFFLOADING, is_elf, read_elf_tables
from offload_tool.io import FileRange, InputFile, StrPath, replace_file
from offload_tool.io.write_plan import FilePlan
from offload_tool.util.frozen import frozen

if TYPE_CHECKING:
    from offload_tool.formats.kpack.archive import NewKpackImage
    from offload_tool.formats.kpack.marker import KpackMarker

_OFFLOADING_ALIGNMENT = 8
_MEMBER = "fatbin.o"


@frozen
class EmbedOptions:
    """What the object of `embed_bundle` is for."""

    registers_entries: bool = False
    """Whether another object in the link registers the entries of the host code (see
    `offload_tool.passes.registration`)."""
    is_marker: bool = False
    """Whether the file is a kpack marker instead of a bundle (see
    `offload_tool.operations.embed.write_marker`)."""
    as_archive: bool = False
    """Whether the object becomes the only member of an archive, which a linker loads if a host
    object refers to it."""
    library: str = ""
    """The ID of a library that has a device link of its own: its registration alone follows the
    bundle."""


def embed_bundle(
    bundle: StrPath,
    output: StrPath,
    *,
    host_triple: str,
    cuid: str | None = None,
    host_files: Iterable[StrPath] = (),
    options: EmbedOptions = EmbedOptions(),
    keep_equal: bool = False,
) -> None:
    """Write the object `output` whose section ``.hip_fatbin`` holds the file `bundle`.

    The object completes the host object for `host_triple` that was compiled with ``-cuid=`` and
    `cuid`, and depends on nothing else in it. Alternatively it completes all `host_files` (objects
    and archives of them); their symbols determine what it defines. Host code of the new offload
    driver has entries instead of such symbols. If no host file needs a bundle, the object contains
    none. `options` are described at `EmbedOptions`. The kernel copies the bundle's bytes.
    `keep_equal` leaves an equal file untouched.

    :raises UsageError: this package cannot write objects for the host architecture, no host
        file is an object, or one has entries without `registers_entries`.
    :raises CodeObjectError: a host file has kernels that nothing would register.
    :raises FormatError: a host file is broken.
    :raises FileError: a file cannot be read or written.
    """
    for_all, is_wanted = False, True
    if cuid is not None:
        hashes = [hip_fatbin.cuid_hash(cuid)]
    else:
        code = read_host_files(list(host_files))
        if code.has_entries and not options.registers_entries:
            raise UsageError(
                "the host objects have entries of the new offload driver, which no symbol "
                "registers; link an object that does, or compile with --no-offload-new-driver"
            )
        library = [options.library] if options.library else []
        for_all = (options.registers_entries and not library) or code.needs_program_bundle
        hashes = [*sorted(code.hashes), *library]
        # Registration of entries follows a marker wherever it is linked.
        is_wanted = code.needs_bundle or options.is_marker or code.has_entries
    with InputFile(bundle) as source:
        if is_wanted:
            target = hip_fatbin.EMBEDDED_MARKER if options.is_marker else hip_fatbin.EMBEDDED_BUNDLE
            plan = hip_fatbin.plan_embedding(
                hashes, source, host_triple, for_all=for_all, into=target
            )
        else:
            plan = hip_fatbin.plan_embedding([], b"", host_triple, into=hip_fatbin.NOTHING_EMBEDDED)
        if options.as_archive:
            names = "\0".join([*hip_fatbin.symbol_names(hashes, for_all=for_all), ""]).encode()
            plan = plan_archive([NewMember(_MEMBER, plan, names)])
        plan.write(output, keep_equal=keep_equal)


def embed_tools_marker(marker: StrPath, output: StrPath, *, host_triple: str) -> None:
    """Write the object with a linked file's kpack marker, for AMD's tools; raise UsageError."""
    with InputFile(marker) as source:
        plan = hip_fatbin.plan_embedding([], source, host_triple, into=hip_fatbin.TOOLS_MARKER)
        plan.write(output)


def read_host_files(paths: Sequence[StrPath]) -> host_symbols.HipHostCode:
    """Return the symbols and entries of the host files that one bundle completes; some add none.

    Raises UsageError without an object, CodeObjectError for kernels that nothing would register.
    """
    found, has_objects = host_symbols.HipHostCode(), False
    for path in paths:
        for name, code in _host_code_in(path):
            has_objects = True
            if code.unregistered:
                raise CodeObjectError(
                    f"'{name}': no code registers the kernel {min(code.unregistered)}: expected an "
                    f"undefined symbol {hip_fatbin.FATBIN}_<hash>, or a section "
                    f"{host_symbols.ENTRY_SECTION} with an entry for it, found neither; was it "
                    "compiled as HIP, by clang alone?"
                )
            found = host_symbols.union(found, code)
    if not has_objects:
        listed = ", ".join(f"'{name}'" for name in paths) or "no file"
        raise UsageError(
            f"no host object to embed a bundle for (looked in {listed}); "
            "give the objects of sources with device code"
        )
    return found


def _host_code_in(path: StrPath) -> Iterator[tuple[str, host_symbols.HipHostCode]]:
    for location in open_file_or_members(path):
        data, name = location.source.data, location.label
        if is_bitcode(data):  # a host object of -flto
            yield name, host_symbols.bitcode_host_code(data)
        elif is_elf(data):
            yield name, host_symbols.hip_host_code(read_elf_tables(data, path=name))


def write_cuda_fatbin(
    images: Sequence[tuple[str, StrPath]],
    output: StrPath,
    *,
    options: str = "",
    may_be_empty: bool = False,
    level: int | None = None,
) -> None:
    """Write CUDA's fat binary of (processor, file) images, as ``fatbinary`` writes it.

    The images are PTX and cubins, relocatable or not, and keep their order. They are compressed
    with zstd at `level`, or not at all (None); `options` are passed to ptxas when the CUDA driver
    compiles PTX. With `may_be_empty`, there may be no image: a program then has only the PTX of its
    sources, which the CUDA driver links, or a source has none.

    :raises UsageError: there is no image, or a cubin is for another processor.
    :raises FormatError, FileError: a file is neither PTX nor a cubin, or cannot be read or written.
    """
    if not images and not may_be_empty:
        raise UsageError("a CUDA fat binary needs at least one image")
    with ExitStack() as stack:
        entries = [
            NewCudaEntry(processor, stack.enter_context(InputFile(path)).data, options=options)
            for processor, path in images
        ]
        plan_cuda_fatbin(entries, level=level).write(output)


def embed_cuda_fatbin(
    host_object: StrPath, fatbin: StrPath, output: StrPath, *, keep_equal: bool = False
) -> None:
    """Write a copy of a CUDA host object that holds `fatbin` instead of the placeholder.

    A host object without kernels and device variables has no placeholder and is copied unchanged.
    `keep_equal` leaves an equal file untouched.

    :raises CodeObjectError: the object has kernels, but was compiled without the placeholder.
    :raises ContentError, FileError: it is no ELF object, or a file cannot be read or written.
    """
    with InputFile(host_object) as host, InputFile(fatbin) as images:
        has_placeholder = object_section.find_placeholder(host.data, path=host_object) is not None
        tables = read_elf_tables(host.data, path=host_object)
        if not has_placeholder and not host_symbols.hip_host_code(tables).unregistered:
            with replace_file(output, keep_equal=keep_equal) as out:
                out.copy(host)
            return
        plan = object_section.plan_embedding(host.data, images, path=host_object)
        plan.bound(host).write(output, keep_equal=keep_equal)


def embed_offload_binary(
    host_object: StrPath, package: StrPath, output: StrPath, *, keep_equal: bool = False
) -> None:
    """Write a copy of a host object with `package` in ``.llvm.offloading``; raise FormatError."""
    with InputFile(host_object) as host, InputFile(package) as images:
        plan = plan_elf(
            host.data,
            [(OFFLOADING_SECTION.encode(), images)],
            path=host_object,
            section_type=SHT_LLVM_OFFLOADING,
            alignment=_OFFLOADING_ALIGNMENT,
        )
        plan.bound(host).write(output, keep_equal=keep_equal)


# -- kpack archives ----------------------------------------------------------------------
# What they alone need is imported in their functions: most programs have none.


def pack_code_objects(
    files: Iterable[tuple[str, StrPath]],
    output: StrPath,
    *,
    group: str,
    target_id: str,
    scheme: str,
) -> None:
    """Write the kpack archive of code objects for one target ID; errors as of `write_kpack`.

    `files` are pairs of a kernel key (see `formats.kpack.archive.kernel_key`) and a file.
    """
    from offload_tool.formats.kpack.archive import NewKpackImage, write_kpack

    rows = sorted(files)

    def images() -> Iterator[NewKpackImage]:
        for key, path in rows:
            with InputFile(path) as source:
                yield NewKpackImage(key, target_id, source.range(0, len(source)))

    with replace_file(output) as out:
        write_kpack(out, images(), group=group, target_ids=[target_id], scheme=scheme)


def write_marker(marker: KpackMarker, output: StrPath) -> None:
    """Write a marker to a file, to be embedded like a bundle; errors as of `pack_marker`."""
    from offload_tool.formats.kpack.marker import pack_marker

    with replace_file(output) as out:
        out.write(pack_marker(marker))


def mark_host_file(path: StrPath, output: StrPath) -> None:
    """Write a copy, of equal size, of host code with marked wrappers; raise ContentError."""
    with InputFile(path) as source:
        parts: list[FileRange | bytes] = []
        done = 0
        for at in sorted(set(_magics_in(path))):
            parts += [source.range(done, at - done), hip_fatbin.KPACKED]
            done = at + len(hip_fatbin.KPACKED)
        parts.append(source.range(done, len(source) - done))
        FilePlan.of(parts).write(output)


def interface_of(paths: Sequence[StrPath]) -> str:
    """Return a digest of the kernels' names and arguments, which all code objects must share.

    A program checks with it that it starts kernels with the right arguments. Raises CodeObjectError
    if the code objects differ.
    """
    import hashlib

    from offload_tool.formats.kernel_info.amdgpu_metadata import read_amdgpu_arguments

    first: dict[str, tuple[str, ...]] = {}
    for path in paths:
        with InputFile(path) as source:
            found = read_amdgpu_arguments(source.data, path=path)
        if path == paths[0]:
            first = found
        elif found != first:
            name = min(name for name in {*found, *first} if found.get(name) != first.get(name))
            raise CodeObjectError(
                f"'{paths[0]}' and '{path}': the kernel '{name}' has not the same arguments in "
                "both, or is in one of them alone; OFFLOAD_KPACK_INTERFACE needs them equal"
            )
    rows = sorted((name, *arguments) for name, arguments in first.items())
    return hashlib.sha256(repr(rows).encode(errors="surrogateescape")).hexdigest()[:16]


def _magics_in(path: StrPath) -> Iterator[int]:
    for location in open_file_or_members(path):
        data = location.source.data
        if is_bitcode(data):
            message = "expected a host object, found bitcode (-flto), in which no wrapper can be "
            raise UnsupportedError(message + "changed; compile it without", path=location.label)
        if not is_elf(data):
            continue
        for wrapper in hip_fatbin.wrappers_of(read_elf_tables(data, path=location.label)):
            if location.base is None:
                raise UnsupportedError(
                    "a thin archive cannot be changed; make an archive of its members ('ar rcs')",
                    path=location.label,
                )
            if wrapper.magic == hip_fatbin.EMBEDDED:
                yield location.base + wrapper.offset
