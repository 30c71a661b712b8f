"""Make the parts of a program with separate device code: archives, markers, and wrappers.

::

    a.gfx942.co --+
    b.gfx942.co --+-- .kpack/GROUP_gfx942.kpack        one archive for each target ID

    a.kpackref -- a.fatbin.o --+                       a marker, in place of the bundle
    a.host.o ---- a.kpack.o ---+-- program             its wrapper is changed in 4 bytes

Source: see `formats.kpack.archive`, `formats.kpack.marker` and `formats.hip_fatbin`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from offload_tool.containers.walk import open_file_or_members
from offload_tool.errors import CodeObjectError, UnsupportedError
from offload_tool.formats.bitcode.module import is_bitcode
from offload_tool.formats.hip_fatbin import EMBEDDED, KPACKED, wrappers_of
from offload_tool.formats.kernel_info.amdgpu_metadata import read_amdgpu_arguments
from offload_tool.formats.kpack.archive import ZSTD, NewKpackImage, write_kpack
from offload_tool.formats.kpack.marker import KpackMarker, pack_marker
from offload_tool.formats.objects.elf.reader import is_elf, read_elf_tables
from offload_tool.io import FileRange, InputFile, StrPath, replace_file
from offload_tool.io.write_plan import FilePlan


class CodeFile(NamedTuple):
    """A code object for an archive."""

    key: str
    """See `offload_tool.formats.kpack.archive.kernel_key`."""
    target_id: str
    path: StrPath


def pack_code_objects(
    files: Iterable[CodeFile],
    output: StrPath,
    *,
    group: str,
    target_ids: Sequence[str],
    scheme: str = ZSTD,
) -> None:
    """Write the kpack archive of code objects, by their keys; errors as of `write_kpack`."""
    rows = sorted(files)

    def images() -> Iterator[NewKpackImage]:
        for row in rows:
            with InputFile(row.path) as source:
                yield NewKpackImage(row.key, row.target_id, source.range(0, len(source)))

    with replace_file(output) as out:
        write_kpack(out, images(), group=group, target_ids=target_ids, scheme=scheme)


def write_marker(marker: KpackMarker, output: StrPath) -> None:
    """Write a marker to a file, to be embedded like a bundle; errors as of `pack_marker`."""
    with replace_file(output) as out:
        out.write(pack_marker(marker))


def mark_host_file(path: StrPath, output: StrPath) -> None:
    """Write a copy, of equal size, of host code whose wrappers refer to markers, if it has any.

    :raises UnsupportedError: the file is bitcode, or a thin archive.
    :raises FormatError, FileError: it is broken, or cannot be read or written.
    """
    with InputFile(path) as source:
        parts: list[FileRange | bytes] = []
        done = 0
        for at in sorted(set(_magics_in(path))):
            parts += [source.range(done, at - done), KPACKED]
            done = at + len(KPACKED)
        parts.append(source.range(done, len(source) - done))
        with replace_file(output) as out:
            FilePlan.of(parts).write_to(out)


def interface_of(paths: Sequence[StrPath]) -> str:
    """Return a digest of the kernels' names and arguments, which all code objects must share.

    A program checks with it that it starts kernels with the right arguments.

    :raises CodeObjectError: the code objects differ; the message names a kernel.
    :raises ContentError, FileError: a file cannot be read.
    """
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
        for wrapper in wrappers_of(read_elf_tables(data, path=location.label)):
            if location.base is None:
                raise UnsupportedError(
                    "a thin archive cannot be changed; make an archive of its members ('ar rcs')",
                    path=location.label,
                )
            if wrapper.magic == EMBEDDED:
                yield location.base + wrapper.offset
