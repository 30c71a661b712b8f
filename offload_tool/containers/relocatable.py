"""The device code of objects and archives that no link has taken yet.

::

    __CLANG_OFFLOAD_BUNDLE__*   clang's old offload driver: HIP, OpenMP
    .llvm.offloading            its new driver: HIP, CUDA, OpenMP, SYCL; also in bitcode (-flto)
    __nv_relfatbin              nvcc -rdc=true, CUDA of clang's old driver

A program links it per device and registers the result, or its kernels do not exist. Other device
code is complete: it registers itself. Only the tables of members are read, and these sections.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from offload_tool.containers.file_format import FileFormat
from offload_tool.containers.find import FoundContainer, containers_of
from offload_tool.containers.walk import (
    OFFLOADING_SECTION,
    LinkPolicy,
    Location,
    Region,
    Walk,
    open_file_or_members,
)
from offload_tool.errors import ContentError, FormatError, OffloadError
from offload_tool.formats.cuda.object_section import PLACEHOLDER, RELOCATABLE_SECTION
from offload_tool.formats.host_symbols import CudaHostCode, cuda_host_code, union
from offload_tool.formats.magic import BUNDLE
from offload_tool.formats.objects.elf import reader as elf
from offload_tool.formats.targets.bundle_entry_id import kind_outside_bundles
from offload_tool.io import InputFile, StrPath

_FORMATS = {
    OFFLOADING_SECTION.encode(): FileFormat.OFFLOAD_BINARY,
    RELOCATABLE_SECTION.encode(): FileFormat.CUDA_FATBIN,
}
_LINKED = "__offload_cuda_fatbin_"  # the fat binary of a library with a device link of its own
_SEARCHED = (FileFormat.ARCHIVE, FileFormat.ELF, FileFormat.BITCODE)


class _Policy(LinkPolicy):
    def __init__(self) -> None:
        self.files: dict[str, None] = {}
        """The file, and those of a thin archive's members."""

    def opens(self, location: Location, file_format: FileFormat) -> bool:
        self.files.update(dict.fromkeys(location.files))
        return file_format in _SEARCHED and _may_have_code(location)

    def elf_section(self, tables: elf.ElfTables, number: int) -> FileFormat | None:
        found = _FORMATS.get(tables.names[number])
        is_empty = found is not None and tables.content(number) in (b"", PLACEHOLDER)
        return None if is_empty else found


def _may_have_code(location: Location) -> bool:
    """Return False if an object has no such section; programs are not linked again."""
    data = location.source.data
    if not elf.is_elf(data):
        return True
    tables = elf.ElfTables(data, location.label)
    section = tables.elf_class.section
    raw = data[tables.header_offset(tables.names_index) :][: section.size]
    if tables.header.e_type != elf.ET_REL or len(raw) < section.size:
        return False
    row = elf.SectionHeader(*section.unpack(raw))
    names = bytes(data[row.sh_offset : row.sh_offset + row.sh_size])
    return any(name in names for name in (*_FORMATS, BUNDLE))


def relocatable_kinds(path: StrPath) -> frozenset[str]:
    """Return the offload kinds of relocatable code in an object or archive; raise ContentError."""
    return kinds_and_files(path)[0]


def kinds_and_files(path: StrPath) -> tuple[frozenset[str], list[str]]:
    """Return `relocatable_kinds`, and the files that were read: a thin archive's members, too."""
    policy, broken = _Policy(), list[ContentError]()

    def read(region: Region) -> Iterator[FoundContainer]:
        try:
            yield from containers_of(region)
        except ContentError as error:
            broken.append(error)

    def skipped(error: OffloadError) -> None:
        if not isinstance(error, ContentError):
            raise error

    walk = Walk(policy, read, skipped)
    with InputFile(path) as source:
        location = Location.of(source, str(path))
        kinds = set()
        with suppress(FormatError):  # of the file itself, or of its archive's table
            for found in walk.search(location):
                kinds |= {kind_outside_bundles(image.kind) for image in found.images} - {"host"}
    if broken:
        raise broken[0]
    if "cuda" in kinds and _is_registered(path):
        kinds.remove("cuda")
    return frozenset(kinds), [*policy.files]


def _is_registered(path: StrPath) -> bool:
    """Return whether an archive has the result of a device link, of nvcc's or this package's."""
    found, is_linked = CudaHostCode(), False
    for file in open_file_or_members(path):
        if elf.is_elf(file.source.data):
            tables = elf.read_elf_tables(file.source.data, path=file.label)
            found = union(found, cuda_host_code(tables))
            is_linked |= any(each.name.startswith(_LINKED) for each in tables.named_symbols())
    return (is_linked or bool(found.defined)) and not (found.unresolved or found.has_entries)
