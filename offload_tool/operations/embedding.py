"""Embed device images in host objects, where the host code of each language expects them.

HIP: an object of its own, whose section ``.hip_fatbin`` holds the bundle under the symbols
that the host objects ask for. CUDA: a copy of the host object, with the fat binary in place
of the placeholder that it was compiled with. OpenMP: a copy of the host object with a
section ``.llvm.offloading``, in which clang's link looks for device code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from offload_tool.errors import UsageError
from offload_tool.files import InputFile, replace_file
from offload_tool.formats import cuda_embedding
from offload_tool.formats.archive import is_archive, iter_members
from offload_tool.formats.cuda_fatbin import NewCudaEntry, plan_cuda_fatbin
from offload_tool.formats.elf import is_elf, read_elf
from offload_tool.formats.elf_edit import plan_elf
from offload_tool.formats.file_plan import write_plan
from offload_tool.formats.hip_fatbin import FATBIN_PREFIX, cuid_hash, plan_embedding

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from offload_tool.files import StrPath

__all__ = [
    "embed_bundle",
    "embed_cuda_fatbin",
    "embed_offload_binary",
    "find_wanted_hashes",
    "write_cuda_fatbin",
]

_OFFLOADING_SECTION = b".llvm.offloading"
_SHT_LLVM_OFFLOADING = 0x6FFF4C0B
_OFFLOADING_ALIGNMENT = 8


def embed_bundle(
    output: StrPath,
    bundle: StrPath,
    *,
    host_triple: str,
    cuid: str | None = None,
    host_files: Iterable[StrPath] = (),
    must_be_wanted: bool = True,
    keep_equal: bool = False,
) -> None:
    """Write the object whose section ``.hip_fatbin`` holds the file `bundle`.

    It completes the host object that was compiled with ``-cuid=<cuid>`` and depends on
    nothing else of it; or all `host_files` (objects and archives of them), whose symbols say
    what they ask for: nothing at all is an error if it `must_be_wanted`. The
    bundle's bytes are copied inside the kernel. With `keep_equal`, a
    file that has the same bytes already is left untouched.

    :raises UsageError: the host architecture is not one that this package can write, or no
        host file asks for a bundle.
    :raises FormatError: a broken host file.
    :raises FileError: a file cannot be read or written.
    """
    if cuid is not None:
        hashes = [cuid_hash(cuid)]
    else:
        files = list(host_files)
        hashes = find_wanted_hashes(files)
        if must_be_wanted and not hashes:
            listed = ", ".join(f"'{name}'" for name in files) or "no file"
            raise UsageError(f"no host object asks for a bundle (looked in {listed})")
    with InputFile(bundle) as source:
        layout = plan_embedding(hashes, len(source), host_triple)
        with replace_file(output, keep_equal=keep_equal) as out:
            out.write(layout.head)
            out.pad_to(layout.offset)
            out.copy(source)
            out.write(layout.tail)


def find_wanted_hashes(paths: Iterable[StrPath]) -> list[str]:
    """Give the hashes of the CUIDs whose bundle these objects and archives ask for, sorted.

    :raises FormatError: a broken file.
    :raises FileError: a file cannot be read.
    """
    return sorted({name for path in paths for name in _wanted_in(path)})


def _wanted_in(path: StrPath) -> Iterator[str]:
    with InputFile(path) as source:
        if not is_archive(source.data):
            yield from _undefined(source.data, path)
            return
        for member in iter_members(source.data, path=path):
            name = f"{path}({member.name})"
            if member.path is None:
                yield from _undefined(member.content(source.data), name)
            else:
                with InputFile(member.path) as content:
                    yield from _undefined(content.data, name)


def _undefined(data: memoryview, path: StrPath) -> list[str]:
    if not is_elf(data):
        return []
    symbols = read_elf(data, symbols=True, path=path).symbols
    return [
        symbol.name.removeprefix(FATBIN_PREFIX)
        for symbol in symbols
        if not symbol.defined and symbol.name.startswith(FATBIN_PREFIX)
    ]


def write_cuda_fatbin(output: StrPath, images: Sequence[tuple[str, StrPath]]) -> None:
    """Write CUDA's fat binary of (processor, file) images: PTX and cubins, in their order.

    :raises UsageError: no image, or a processor that such a file cannot name.
    :raises FormatError: a file that is neither PTX nor a cubin.
    :raises FileError: a file cannot be read or written.
    """
    if not images:
        raise UsageError("a CUDA fat binary needs at least one image")
    files = [InputFile(path) for _, path in images]
    try:
        entries = [
            NewCudaEntry(processor, file.data)
            for (processor, _), file in zip(images, files, strict=True)
        ]
        with replace_file(output) as out:
            for piece in plan_cuda_fatbin(entries):
                out.write(piece)
    finally:
        for file in files:
            file.close()


def embed_cuda_fatbin(
    output: StrPath,
    host_object: StrPath,
    fatbin: StrPath,
    *,
    must_be_wanted: bool = True,
    keep_equal: bool = False,
) -> None:
    """Write a copy of a CUDA host object that holds `fatbin` instead of the placeholder.

    One that has no place for it is an error if it `must_be_wanted`, else copied as it is.

    :raises CodeObjectError: the host object was not compiled with the placeholder.
    :raises FormatError: it is no 64-bit little-endian ELF object, or a broken one.
    :raises FileError: a file cannot be read or written.
    """
    with InputFile(host_object) as host, InputFile(fatbin) as images:
        wanted = cuda_embedding.find_placeholder(host.data, path=host_object) is not None
        if not wanted and not must_be_wanted:
            with replace_file(output, keep_equal=keep_equal) as out:
                out.copy(host)
            return
        plan = cuda_embedding.plan_embedding(host.data, len(images), path=host_object)
        with replace_file(output, keep_equal=keep_equal) as out:
            out.copy(host)
            out.pad_to(plan.offset)
            out.copy(images)
            for position, data in plan.patches:
                out.patch(position, data)


def embed_offload_binary(output: StrPath, host_object: StrPath, package: StrPath) -> None:
    """Write a copy of an ELF host object whose section ``.llvm.offloading`` holds `package`.

    :raises FormatError: the host object is no ELF file, or a broken one.
    :raises FileError: a file cannot be read or written.
    """
    with InputFile(host_object) as host, InputFile(package) as images:
        plan = plan_elf(
            host.data,
            [(_OFFLOADING_SECTION, len(images))],
            path=host_object,
            section_type=_SHT_LLVM_OFFLOADING,
            alignment=_OFFLOADING_ALIGNMENT,
        )
        with replace_file(output) as out:
            write_plan(out, plan, host, [images])
