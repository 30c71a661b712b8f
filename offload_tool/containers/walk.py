"""The one way through files to the containers in them.

::

    folder                      every regular file in it, at any depth; links are not followed
    zip file (a wheel)          every member
    archive (thin too)          every member, in nested archives as well
    ELF, COFF                   the sections that hold containers, and the object bundle
    LLVM bitcode of a host      the offload binaries that it embeds
    anything else               it is a container, or nothing

What is looked into, and what messages say, is a `Policy`. Modules for rarer files are imported
where they are used. One file at a time is open, besides those that it is in.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from offload_tool.containers.kinds import Kind, recognise
from offload_tool.containers.places import MAX_DEPTH, Place, member_path
from offload_tool.errors import FileError, FormatError, OffloadError
from offload_tool.files import InputFile
from offload_tool.files.spool import Spool

if TYPE_CHECKING:
    import zipfile
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager

    from offload_tool.files import StrPath
    from offload_tool.formats.bitcode.embedded_objects import EmbeddedObject
    from offload_tool.formats.objects.archive import ArchiveMember
    from offload_tool.formats.objects.coff_edit import CoffSection
    from offload_tool.formats.objects.elf_tables import ElfTables

__all__ = [
    "OBJECT_BUNDLE_SECTIONS",
    "OFFLOADING_SECTION",
    "Policy",
    "Spot",
    "Walk",
    "open_members",
]

_T = TypeVar("_T")
OFFLOADING_SECTION = ".llvm.offloading"
OBJECT_BUNDLE_SECTIONS = "__CLANG_OFFLOAD_BUNDLE__*"
_PE_MAGIC = b"MZ"
_FORGET_AFTER = 32 << 20
"""Bytes of a file after which what was mapped of it is given back."""


class Spot(NamedTuple):
    """A range of bytes with containers of one kind."""

    place: Place
    kind: Kind
    start: int
    """Bytes from the beginning of the place; so is `end`."""
    end: int
    section: str | None = None
    """Name of the section that they are in."""


class Policy:
    """What a walk looks into, and what it says of what it refuses.

    Each verb that is to be as one of LLVM's programs has its own.
    """

    too_deep = f"expected at most {MAX_DEPTH} files one inside the other, found more"
    contains_itself = "this archive contains itself"
    irregular = "'{path}' is no regular file, as members must be"
    believes_coff = False
    """Whether two bytes make a COFF object even of a broken file that nobody named."""
    object_bundles = True

    def label(self, place: Place, name: str) -> str:
        """Name a member of the file at `place` for messages."""
        return f"{place.path}({member_path((*place.names, name))})"

    def opens(self, place: Place, kind: Kind) -> bool:  # noqa: ARG002
        """Tell whether the file at `place`, which is of a known kind, is looked into."""
        return True

    def members(self, place: Place) -> Iterable[ArchiveMember]:
        """Read an archive's members."""
        from offload_tool.formats.objects.archive import iter_members

        folder = Path(place.files[-1]).parent if place.files else None
        return iter_members(place.source.data, path=place.label, folder=folder)

    def elf_section(self, tables: ElfTables, number: int) -> Kind | None:  # noqa: ARG002
        """Tell what is in a section of an ELF file."""
        return None

    def coff_section(self, data: memoryview, section: CoffSection) -> Kind | None:  # noqa: ARG002
        """Tell what is in a section of a COFF file."""
        return None

    def refusal(self, place: Place, member: ArchiveMember, message: str) -> FormatError:
        """Make the error that a thin archive's member cannot be one."""
        return FormatError(message, path=self.label(place, member.name))

    def unreadable(self, place: Place, member: ArchiveMember, error: FileError) -> OffloadError:  # noqa: ARG002
        """Make the error that a thin archive's member cannot be read."""
        return error


def open_members(place: Place, policy: Policy) -> Iterator[tuple[ArchiveMember, Place]]:
    """Give an archive's members; the file of a thin one's is open until the next.

    :raises FormatError: the archive is broken, or a thin archive's member cannot be one.
    :raises FileError: the file of a thin archive's member cannot be read.
    """
    for member in policy.members(place):
        if member.path is None:
            label = _label(place, member.name, policy)
            source = place.source.part(label, member.offset, member.size)
            base = None if place.base is None else place.base + member.offset
            names = (*place.names, member.name)
            yield member, Place(place.path, source, label, place.files, names, base)
            continue
        if not place.files:
            message = "expected an archive with its members in it, found a thin one"
            raise FormatError(message, path=place.label, offset=0)
        label = _label(place, member.name, policy)
        with _open_member(place, member, member.path, policy) as source:
            files, names = (*place.files, str(member.path)), (*place.names, member.name)
            yield member, Place(place.path, source, label, files, names, None)


def _label(place: Place, name: str, policy: Policy) -> str:
    label = policy.label(place, name)
    if len(place.names) >= MAX_DEPTH:
        raise FormatError(policy.too_deep, path=label)
    return label


def _open_member(place: Place, member: ArchiveMember, path: Path, policy: Policy) -> InputFile:
    """Open the file that is a thin archive's member."""
    try:
        status = path.stat()
        if any(_is_file(other, status) for other in place.files):
            raise policy.refusal(place, member, policy.contains_itself)
        if not stat.S_ISREG(status.st_mode):
            raise policy.refusal(place, member, policy.irregular.format(path=path))
        return InputFile(path)
    except OSError as error:
        raise policy.unreadable(place, member, FileError(path, error)) from error
    except FileError as error:
        raise policy.unreadable(place, member, error) from error


class Walk(Generic[_T]):
    """One search, under a `policy`: it gives what `read` makes of each spot.

    `skipped` takes what is broken in a folder or zip file (default: it ends the search);
    `spool` opens a file for what is a range of none.
    """

    def __init__(
        self,
        policy: Policy,
        read: Callable[[Spot], Iterable[_T]],
        skipped: Callable[[OffloadError], None] | None = None,
        spool: Callable[[], AbstractContextManager[Spool]] = Spool,
    ) -> None:
        self.policy = policy
        self.read = read
        self.skipped = skipped
        self.spool = spool

    def folder(self, folder: StrPath) -> Iterator[_T]:
        """Give what is in the files of a folder, in the order of their names."""
        for path in _files(folder, self._skip):
            try:
                with InputFile(path) as source:
                    yield from self.look(Place.of(source, path))
            except OffloadError as error:
                self._skip(error)

    def look(self, place: Place, *, named: bool = False) -> Iterator[_T]:
        """Give what is in one file; `named`: by the user, so a text is searched."""
        kind = recognise(place.source.data, anywhere=named)
        if kind is None or not self.policy.opens(place, kind):
            return
        if kind is Kind.ARCHIVE:
            for _, inner in open_members(place, self.policy):
                yield from self.look(inner)
        elif kind is Kind.ZIP:
            yield from self._in_zip(place)
        elif kind is Kind.ELF:
            yield from self._in_elf(place)
        elif kind is Kind.COFF:
            yield from self._in_coff(place, named=named)
        elif kind is Kind.BITCODE:
            yield from self._in_bitcode(place)
        else:
            yield from self.read(Spot(place, kind, 0, len(place.source)))

    def _skip(self, error: OffloadError) -> None:
        if self.skipped is None:
            raise error
        self.skipped(error)

    # -- zip files -------------------------------------------------------------------

    def _in_zip(self, place: Place) -> Iterator[_T]:
        from offload_tool.containers.zips import open_zip

        with open_zip(place.source, place.label) as archive:
            for row in archive.infolist():
                if row.is_dir():
                    continue
                try:
                    yield from self._in_zip_member(place, archive, row)
                except OffloadError as error:
                    self._skip(error)

    def _in_zip_member(
        self, place: Place, archive: zipfile.ZipFile, row: zipfile.ZipInfo
    ) -> Iterator[_T]:
        from offload_tool.containers.zips import open_zip_member

        label = f"{place.label}({row.filename})"
        with open_zip_member(archive, row, place.source, label, _is_known) as member:
            if member is not None:
                source, offset = member
                known = place.base is not None and offset is not None
                base = (place.base or 0) + (offset or 0) if known else None
                names = (*place.names, row.filename)
                inner = _label(place, row.filename, self.policy)
                yield from self.look(Place(place.path, source, inner, (), names, base))

    # -- object files ----------------------------------------------------------------

    def _in_elf(self, place: Place) -> Iterator[_T]:
        from offload_tool.formats.objects.elf_tables import read_elf_tables

        tables = read_elf_tables(place.source.data, path=place.label)
        for number, (name, row) in enumerate(zip(tables.names, tables.sections, strict=True)):
            if kind := self.policy.elf_section(tables, number):
                yield from self._section(place, kind, name, row.sh_offset, row.sh_size)
        yield from self._object_bundle(place)

    def _in_coff(self, place: Place, *, named: bool) -> Iterator[_T]:
        from offload_tool.formats.objects.coff_edit import read_coff_sections

        data = place.source.data
        try:
            sections = read_coff_sections(data, path=place.label)
        except FormatError:
            if named or self.policy.believes_coff or bytes(data[:2]) == _PE_MAGIC:
                raise
            return  # two bytes tell a COFF object, and other files may begin with them too
        for row in sections:
            if kind := self.policy.coff_section(data, row):
                yield from self._section(place, kind, row.name, row.offset, row.size)
        yield from self._object_bundle(place)

    def _section(
        self, place: Place, kind: Kind, name: bytes, start: int, size: int
    ) -> Iterable[_T]:
        section = name.decode("utf-8", "backslashreplace")
        return self.read(Spot(place, kind, start, start + size, section))

    def _object_bundle(self, place: Place) -> Iterator[_T]:
        if self.policy.object_bundles:
            end = len(place.source)
            yield from self.read(Spot(place, Kind.OBJECT_BUNDLE, 0, end, OBJECT_BUNDLE_SECTIONS))

    def _in_bitcode(self, place: Place) -> Iterator[_T]:
        from offload_tool.formats.bitcode.embedded_objects import find_embedded_objects

        source = place.source
        for embedded in find_embedded_objects(
            source.data, OFFLOADING_SECTION, path=place.label, forget=source.forget
        ):
            with self.spool() as spool:  # it begins at any bit, so is no range
                start, end = _unpack(embedded, spool, source)
                with spool.read(place.label) as whole:
                    part = whole.part(place.label, start, end - start)
                    inner = Place(place.path, part, place.label, (), place.names, None)
                    rest = (0, len(part), OFFLOADING_SECTION)
                    yield from self.read(Spot(inner, Kind.OFFLOAD_BINARY, *rest))


def _unpack(embedded: EmbeddedObject, spool: Spool, source: InputFile) -> tuple[int, int]:
    """Append an object of `source` to a spool; give where it begins and ends."""
    start = forgotten = spool.out.position
    for chunk in embedded.chunks():
        spool.out.write(chunk)
        if spool.out.position - forgotten > _FORGET_AFTER:
            forgotten = spool.out.position
            source.forget()
    return start, spool.out.position


def _is_known(begin: memoryview) -> bool:
    return recognise(begin) is not None


def _is_file(path: str, status: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(path), status)  # noqa: PTH116
    except OSError:
        return False


def _files(folder: StrPath, skip: Callable[[OffloadError], None]) -> Iterator[str]:
    def failed(error: OSError) -> None:
        skip(FileError(error.filename or folder, error))

    for parent, folders, names in os.walk(folder, onerror=failed):
        folders.sort()
        for name in sorted(names):
            path = str(Path(parent, name))
            try:
                mode = os.lstat(path).st_mode
            except OSError as error:
                failed(error)
                continue
            if stat.S_ISREG(mode):
                yield path
