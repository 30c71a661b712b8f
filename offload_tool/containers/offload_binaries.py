"""Find offload binaries in any file.

The format of the file decides where to look (as in llvm-offload-binary 22.1.8):

======================  ===============================================================
offload binary          the file itself, and binaries directly after it
ELF object, program,    in sections of the type SHT_LLVM_OFFLOADING, whatever their name
library
COFF object             in sections whose name begins with ``.llvm.offloading``
LLVM bitcode            in constants that its metadata lists for ``.llvm.offloading``
archive (thin too)      in its members, also those of archives in it
anything else           none
======================  ===============================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import cache, partial
from typing import TYPE_CHECKING

from offload_tool.containers.file_format import FileFormat
from offload_tool.containers.walk import OFFLOADING_SECTION, Location, Policy, Region, Walk
from offload_tool.errors import ContentError
from offload_tool.formats.magic import DOS, begins
from offload_tool.formats.objects.coff import CoffSection
from offload_tool.formats.offload_binary import OffloadBinary, iter_offload_binaries, unpacked
from offload_tool.io import InputFile
from offload_tool.io.spool import Spool
from offload_tool.util.frozen import frozen

if TYPE_CHECKING:
    from offload_tool.formats.objects.ar import ArchiveMember
    from offload_tool.formats.objects.elf.reader import ElfTables

_ELF_HEADER = 64  # bytes
_ELF_TYPES = frozenset({1, 2, 3})  # ET_REL, ET_EXEC, ET_DYN


@frozen
class FoundBinary:
    """An offload binary of a file."""

    binary: OffloadBinary
    """Its offsets count from the beginning of `source`."""
    source: InputFile
    """Open until the next binary is requested."""
    member: str | None
    """Name of the innermost archive member that contains it."""
    opened: Callable[[], AbstractContextManager[InputFile]]
    """Returns `source` for a block, reopened because the search may have moved on."""


def found_binary(
    binary: OffloadBinary,
    source: InputFile,
    label: str,
    member: str | None,
    opened: Callable[[], AbstractContextManager[InputFile]],
) -> FoundBinary:
    """Return a binary of `source`; the images of a compressed one are in another file."""
    if binary.packed is None:
        return FoundBinary(binary, source, member, opened)
    content, inner = unpacked(source.data, binary, path=label)
    unpack = partial(InputFile.from_data, f"{label} (decompressed)", content)
    return FoundBinary(inner, unpack(), member, unpack)


@contextmanager
def find_offload_binaries(
    source: InputFile, *, padding: bool = True
) -> Iterator[Iterator[FoundBinary]]:
    """Yield the offload binaries in `source`, in order, while the block runs; raise ContentError.

    `padding` allows zeros around binaries, which LLVM 22 rejects.
    """
    with ExitStack() as stack:

        @cache
        def spool() -> Spool:  # what is in it is valid until the search ends
            return stack.enter_context(Spool())

        def read(region: Region) -> Iterator[FoundBinary]:
            location = region.location
            label, reopen = location.label, None
            if not location.files:
                label = f"{label} (embedded object)"
                reopen = partial(spool().read, label)
            elif len(location.files) > 1:
                reopen = partial(InputFile, location.files[-1])
            whole, start, size = location.source.range(region.start, region.end - region.start)
            member = location.names[-1] if location.names else None
            for binary in iter_offload_binaries(
                whole.data, start, start + size, path=label, padding=padding
            ):
                opened = reopen or (lambda: nullcontext(whole))
                yield found_binary(binary, whole, label, member, opened)

        walk = Walk(_PackagerPolicy(), read, spool=lambda: nullcontext(spool()))
        yield walk.search(Location.of(source, str(source.path)))


class _PackagerPolicy(Policy):
    """Searches the files that llvm-offload-binary searches; offsets in messages are the file's."""

    confined = False  # as in LLVM's program: the user named the archive for its members
    trusts_coff_magic = True
    object_bundles = False

    def opens(self, location: Location, file_format: FileFormat) -> bool:
        begin = location.source.data[:_ELF_HEADER]
        if file_format is FileFormat.ELF:
            from offload_tool.formats.objects.elf.reader import is_elf_header

            return is_elf_header(begin)
        if file_format is FileFormat.COFF:
            return not begins(begin, DOS)
        return file_format in (FileFormat.OFFLOAD_BINARY, FileFormat.BITCODE, FileFormat.ARCHIVE)

    def members(self, location: Location) -> Iterable[ArchiveMember]:
        try:
            return list(super().members(location))
        except ContentError as error:
            _, start, _ = location.source.range(0, 0)
            at = None if error.offset is None else start + error.offset
            raise type(error)(
                error.message, path=location.label, offset=at, field=error.field
            ) from error

    def elf_section(self, tables: ElfTables, number: int) -> FileFormat | None:
        from offload_tool.formats.objects.elf.reader import SHT_LLVM_OFFLOADING

        is_wanted = tables.sections[number].sh_type == SHT_LLVM_OFFLOADING
        is_wanted = is_wanted and tables.header.e_type in _ELF_TYPES
        return FileFormat.OFFLOAD_BINARY if is_wanted else None

    def coff_section(self, data: memoryview, section: CoffSection) -> FileFormat | None:  # noqa: ARG002
        is_wanted = section.name.startswith(OFFLOADING_SECTION.encode())
        return FileFormat.OFFLOAD_BINARY if is_wanted else None
