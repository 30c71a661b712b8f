"""Walk through files to the containers in them.

::

    folder                      every regular file below it; links are not followed
    zip file (a wheel)          every member
    archive (thin too)          every member, also of nested archives
    ELF, COFF                   the sections that hold containers, and the object bundle
    LLVM bitcode of a host      the offload binaries that it embeds
    anything else               a container itself, or nothing

A `Policy` selects the files and sections to search, and the messages. Modules for rarer files are
imported lazily. Only one file is open at a time, besides the files that contain it.
"""

from __future__ import annotations

import bisect
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

from offload_tool.containers.file_format import FileFormat, find_strays, recognise
from offload_tool.errors import (
    ContentError,
    FileError,
    FormatError,
    OffloadError,
    UnexpectedError,
    UnsupportedError,
    UsageError,
    shortage,
)
from offload_tool.formats.magic import BUNDLE, DOS
from offload_tool.io import InputFile, StrPath
from offload_tool.io.limits import effective_budget, how_to_allow, run_budget
from offload_tool.io.paths import is_within
from offload_tool.io.spool import Spool

if TYPE_CHECKING:
    import zipfile
    from contextlib import AbstractContextManager

    from offload_tool.formats.bitcode.module import EmbeddedObject
    from offload_tool.formats.objects.ar import ArchiveMember, ArchiveReader
    from offload_tool.formats.objects.coff import CoffSection
    from offload_tool.formats.objects.elf.reader import ElfTables

_T = TypeVar("_T")
OFFLOADING_SECTION = ".llvm.offloading"
OBJECT_BUNDLE_SECTIONS = f"{BUNDLE.decode()}*"
_FORGET_AFTER = 32 << 20
"""Bytes of a file after which the walk releases mapped pages."""


class Neighbours(Protocol):
    """The files around one in `folder`; of a zip file, its members."""

    folder: str
    where: str
    """A phrase for messages that describes where paths are resolved."""

    def has(self, path: str, /) -> bool:
        """Return whether a file exists at a path."""

    def like(self, before: str, behind: str, /) -> Iterable[str]:
        """Return the sorted paths without a slash between `before` and `behind`."""

    def open(self, path: str, /) -> InputFile:
        """Open an existing file, which is valid while this one is.

        :raises ContentError: the file is broken.
        :raises FileError: the file cannot be read.
        """


class Place(NamedTuple):
    """Bytes to search: a file, or a part of one."""

    path: str
    """The file that the user named, or a file of the folder."""
    source: InputFile
    label: str
    """Name for messages."""
    files: tuple[str, ...] = ()
    """The file at `path`, then the members of thin archives that lead to the bytes, which are in
    the last. Empty if the bytes are unpacked and in no file: thin archives cannot name files
    there."""
    names: tuple[str, ...] = ()
    """Names of the enclosing members, outermost first."""
    base: int | None = 0
    """Offset of the bytes in the file at `path`; None if they are not in it."""
    beside: Neighbours | None = None
    """The files around a member of a zip file."""

    @classmethod
    def of(cls, source: InputFile, label: str) -> Place:
        """Return the place of a whole file."""
        return cls(label, source, label, (label,))

    @property
    def member(self) -> str | None:
        """Member of an archive or zip file: ``a.o``, ``lib/x.so``, ``lib/y.a(a.o)``."""
        return member_path(self.names) if self.names else None


def member_path(names: tuple[str, ...]) -> str:
    """Return the name of a member from its own and the enclosing names, outermost first."""
    first, *others = names
    return first + "".join(f"({name})" for name in others)


class Spot(NamedTuple):
    """A range of bytes with containers of one format."""

    place: Place
    file_format: FileFormat
    start: int
    """Bytes from the beginning of the place; so is `end`."""
    end: int
    section: str | None = None
    """Name of the section that contains them."""
    is_stray: bool = False
    """Whether only the container at `start` counts, which no table refers to."""


class Policy:
    """The rules of a walk: files and sections to search, and messages.

    Each operation that mimics one of LLVM's programs has its own.
    """

    contains_itself = "this archive contains itself"
    believes_coff = False
    """Whether two bytes identify a COFF object, even a broken one that the user did not name."""
    object_bundles = True
    confined = True
    """Whether members of a thin archive must be in its folder, unless the run allows others."""
    code_objects = False
    """Whether device code without a container is reported."""

    def label(self, place: Place, name: str) -> str:
        """Return the name of a member of the file at `place`, for messages."""
        return f"{place.path}({member_path((*place.names, name))})"

    def opens(self, place: Place, file_format: FileFormat) -> bool:  # noqa: ARG002
        """Return whether to search the file at `place`, whose format is known."""
        return True

    def members(self, place: Place) -> Iterable[ArchiveMember]:
        """Read an archive's members."""
        return self.archive_reader(place)

    def archive_reader(self, place: Place) -> ArchiveReader:
        """Return the reader of an archive."""
        from offload_tool.formats.objects.ar import ArchiveReader

        folder = Path(place.files[-1]).parent if place.files else None
        return ArchiveReader(place.source.data, place.label, folder)

    def elf_section(self, tables: ElfTables, number: int) -> FileFormat | None:  # noqa: ARG002
        """Return the format of the containers in a section of an ELF file."""
        return None

    def coff_section(self, data: memoryview, section: CoffSection) -> FileFormat | None:  # noqa: ARG002
        """Return the format of the containers in a section of a COFF file."""
        return None

    def holds_only(self, name: bytes, file_format: FileFormat) -> bool:  # noqa: ARG002
        """Return whether a section holds only containers of that format."""
        return True

    def refusal(self, place: Place, member: ArchiveMember, message: str) -> FormatError:
        """Return the error that a thin archive's member is invalid."""
        return FormatError(message, path=self.label(place, member.name))

    def unreadable(self, place: Place, member: ArchiveMember, error: FileError) -> OffloadError:  # noqa: ARG002
        """Return the error that a thin archive's member cannot be read."""
        return error


class CopyPolicy(Policy):
    """For operations that rewrite an archive and reject thin ones; `advice` is for the message."""

    def __init__(self, advice: str) -> None:
        self.advice = advice

    def label(self, place: Place, name: str) -> str:
        """Return the name of a member behind those around it."""
        return f"{place.label}({name})"

    def members(self, place: Place) -> Iterator[ArchiveMember]:
        """Read an archive's members.

        :raises UsageError: the archive is thin.
        """
        for member in super().members(place):
            if member.path is not None:
                raise UsageError(f"'{place.label}' is a thin archive: {self.advice}")
            yield member


def open_members(place: Place, policy: Policy) -> Iterator[tuple[ArchiveMember, Place]]:
    """Yield an archive's members; the file of a thin archive's member is open until the next.

    :raises FormatError: the archive is broken, or a thin archive's member is invalid.
    :raises UnsupportedError: a thin archive is inside another file.
    :raises FileError: the file of a thin archive's member cannot be read.
    """
    for member in policy.members(place):
        with open_member(place, member, policy) as inner:
            yield member, inner


@contextmanager
def open_member(place: Place, member: ArchiveMember, policy: Policy) -> Iterator[Place]:
    """Open one archive member; raises the errors of `open_members`."""
    if member.path is not None and not place.files:
        message = "expected an archive with its members in it, found a thin one"
        raise UnsupportedError(message, path=place.label, offset=0)
    label, names = _label(place, member.name, policy), (*place.names, member.name)
    if member.path is None:
        source = place.source.part(label, member.offset, member.size)
        base = None if place.base is None else place.base + member.offset
        yield Place(place.path, source, label, place.files, names, base, place.beside)
        return
    with _open_member(place, member, member.path, policy) as source:
        files = (*place.files, str(member.path))
        yield Place(place.path, source, label, files, names, None)


def open_file_or_members(path: StrPath) -> Iterator[Place]:
    """Yield the place of a file, or of each member of an archive; each is open until the next.

    :raises FormatError: as `open_members`, like the other errors.
    :raises FileError: the file cannot be read.
    """
    with InputFile(path) as source:
        whole = Place.of(source, str(path))
        if recognise(source.data) is not FileFormat.ARCHIVE:
            yield whole
            return
        for _, place in open_members(whole, Policy()):
            yield place


def _label(place: Place, name: str, policy: Policy) -> str:
    label = policy.label(place, name)
    budget = effective_budget()
    budget.check_depth(len(place.names) + 1, label)
    budget.member(label)
    budget.reread(len(name), place.label)  # members can share the bytes of a name
    return label


def _open_member(place: Place, member: ArchiveMember, path: Path, policy: Policy) -> InputFile:
    """Open the file of a thin archive's member."""
    try:
        status = path.stat()
        if any(_is_file(other, status) for other in place.files):
            raise policy.refusal(place, member, policy.contains_itself)
        if not stat.S_ISREG(status.st_mode):
            message = f"'{path}' is not a regular file, as members must be"
            raise policy.refusal(place, member, message)
        folder = Path(place.files[0]).parent
        is_inside = not policy.confined or is_within(path, folder)
        if not is_inside and (how := how_to_allow("thin_outside")):
            message = f"names a file outside of '{folder}', the folder of the archive"
            raise policy.refusal(place, member, f"{message}; if that is meant, {how}")
        return InputFile(path)
    except OSError as error:
        raise policy.unreadable(place, member, FileError(path, error)) from error
    except FileError as error:
        raise policy.unreadable(place, member, error) from error


class Walk(Generic[_T]):
    """A search under a `policy`; it yields the results of `read` for each spot.

    Errors in a file of a folder, zip file or archive go to `skipped`, and the walk continues
    (default: an error ends it). `strays` receives a message for each container outside the known
    sections of an object file. `scan` returns the size of a container; with it, the walk yields
    strays too, and searches files of unknown format. The zip files at `overlay` are installed over
    the searched one. `spool` opens a file for bytes that are not a range of one.
    """

    def __init__(
        self,
        policy: Policy,
        read: Callable[[Spot], Iterable[_T]],
        skipped: Callable[[OffloadError], None] | None = None,
        spool: Callable[[], AbstractContextManager[Spool]] = Spool,
        *,
        strays: Callable[[str], None] | None = None,
        scan: Callable[[_T], int] | None = None,
        overlay: Sequence[StrPath] = (),
    ) -> None:
        self.overlay = overlay
        self.strays = strays
        self.scan = scan
        self.policy = policy
        self.read = read
        self.skipped = skipped
        self.in_folder = False
        self.has_skipped = False
        """Whether a broken file was skipped."""
        self.spool = spool

    def folder(self, folder: StrPath) -> Iterator[_T]:
        """Yield the results for the files of a folder, in the order of their names."""
        budget = effective_budget()
        self.in_folder = True
        for path in _files(folder, self._skip):
            with self._isolated(path):
                budget.next_file()
                budget.file(path)
                with InputFile(path) as source:
                    yield from self.look(Place.of(source, path))

    @contextmanager
    def _isolated(self, label: str) -> Iterator[None]:
        """Continue the walk after a file, whatever error it raised."""
        try:
            yield
        except OffloadError as error:
            self._skip(error)
        except Exception as error:
            if lacking := shortage(error):
                self._skip(FileError(label, lacking))
            elif self.skipped is None:
                raise
            else:
                self._skip(UnexpectedError(label, error))

    def look(self, place: Place, *, named: bool = False) -> Iterator[_T]:
        """Yield the results for one file; if the user `named` it, text is searched."""
        file_format = recognise(place.source.data, anywhere=named)
        if file_format is None:
            if self.scan:
                yield from self._scanned(place, [], [])
            return
        if not self.policy.opens(place, file_format):
            return
        if file_format is FileFormat.ZIP:
            yield from self._in_zip(place)
            return
        if budget := run_budget():
            budget.reread(len(place.source), place.label)
        yield from self._in_known(place, file_format, named=named)

    def _in_known(self, place: Place, file_format: FileFormat, *, named: bool) -> Iterator[_T]:
        if file_format is FileFormat.ARCHIVE:
            for _, inner in open_members(place, self.policy):
                with self._isolated(inner.label):
                    yield from self.look(inner)
        elif file_format is FileFormat.ELF:
            yield from self._in_elf(place)
        elif file_format is FileFormat.COFF:
            yield from self._in_coff(place, named=named)
        elif file_format is FileFormat.BITCODE:
            yield from self._in_bitcode(place)
        else:
            yield from self.read(Spot(place, file_format, 0, len(place.source)))

    def _skip(self, error: OffloadError) -> None:
        if self.skipped is None:
            raise error
        self.has_skipped = True
        self.skipped(error)

    # -- zip files -------------------------------------------------------------------

    def _wheels_beside(self, place: Place) -> list[Path]:
        """Return the other wheels of the walked folder, which are installed together."""
        from offload_tool.formats.wheel import is_wheel

        path = Path(place.path)
        if not self.in_folder or not is_wheel(path):
            return []
        return sorted(other for other in path.parent.iterdir() if is_wheel(other) and other != path)

    def _in_zip(self, place: Place) -> Iterator[_T]:
        from offload_tool.containers.zip_members import ZipFolder, ZipOverlay, open_zip

        others = () if place.names else (*self.overlay, *self._wheels_beside(place))
        with (
            open_zip(place.source, place.label) as archive,
            ZipOverlay(archive, place.source, place.label, others) as overlay,
        ):
            for row in archive.infolist():
                if not row.filename.endswith("/"):
                    with self._isolated(f"{place.label}({row.filename})"):
                        beside = ZipFolder(overlay, row.filename)
                        yield from self._in_zip_member(place, archive, row, beside)

    def _in_zip_member(
        self, place: Place, archive: zipfile.ZipFile, row: zipfile.ZipInfo, beside: Neighbours
    ) -> Iterator[_T]:
        from offload_tool.containers.zip_members import open_zip_member

        label = f"{place.label}({row.filename})"
        inner = _label(place, row.filename, self.policy)

        def wanted(begin: memoryview) -> bool:
            return self.scan is not None or recognise(begin) is not None

        with open_zip_member(archive, row, place.source, label, wanted) as member:
            if member is not None:
                source, offset = member
                base = None if place.base is None or offset is None else place.base + offset
                names = (*place.names, row.filename)
                yield from self.look(Place(place.path, source, inner, (), names, base, beside))

    # -- object files ----------------------------------------------------------------

    def _in_elf(self, place: Place) -> Iterator[_T]:
        from offload_tool.formats.objects.device_elf import is_code_object
        from offload_tool.formats.objects.elf.reader import read_elf_tables

        if self.policy.code_objects and is_code_object(place.source.data):
            yield from self.read(Spot(place, FileFormat.CODE_OBJECT, 0, len(place.source)))
            return
        tables = read_elf_tables(place.source.data, path=place.label)
        rows = zip(tables.names, tables.sections, strict=True)
        yield from self._in_sections(
            place,
            (
                (name, row.sh_offset, row.sh_size, self.policy.elf_section(tables, number))
                for number, (name, row) in enumerate(rows)
                if row.has_content
            ),
        )

    def _in_coff(self, place: Place, *, named: bool) -> Iterator[_T]:
        from offload_tool.formats.objects.coff import read_coff_sections

        data = place.source.data
        try:
            sections = read_coff_sections(data, path=place.label)
        except ContentError:
            if named or self.policy.believes_coff or data[: len(DOS)] == DOS:
                raise
            return  # a COFF magic has two bytes, with which other files can begin
        yield from self._in_sections(
            place,
            (
                (row.name, row.offset, row.size, self.policy.coff_section(data, row))
                for row in sections
            ),
        )

    def _in_sections(
        self, place: Place, sections: Iterable[tuple[bytes, int, int, FileFormat | None]]
    ) -> Iterator[_T]:
        """Search the sections that hold containers, and the bytes outside them.

        A section is its name, start, size, and the format of its containers by the policy.
        """
        known: list[tuple[int, int]] = []
        searched: list[tuple[int, int]] = []
        """Sections that were searched for CUDA fat binaries, and may hold other containers."""
        for name, start, size, file_format in sections:
            if file_format is not None:
                whole = self.policy.holds_only(name, file_format)
                (known if whole else searched).append((start, start + size))
                section = name.decode("utf-8", "backslashreplace")
                yield from self.read(Spot(place, file_format, start, start + size, section))
            elif name.startswith(BUNDLE):
                known.append((start, start + size))
        if self.policy.object_bundles:
            rest = (0, len(place.source), OBJECT_BUNDLE_SECTIONS)
            yield from self.read(Spot(place, FileFormat.OBJECT_BUNDLE, *rest))
        if self.scan:
            yield from self._scanned(place, known, searched)
        elif self.strays is not None:
            for at, file_format in _strays(place.source, known, searched):
                what = f"what looks like a {file_format.value} is at offset {at:#x}"
                where = "outside of every known section; see it with --scan"
                self.strays(f"'{place.label}': {what}, {where}")

    def _scanned(
        self,
        place: Place,
        known: Sequence[tuple[int, int]],
        searched: Sequence[tuple[int, int]],
    ) -> Iterator[_T]:
        """Yield containers outside the `known` ranges, but none inside another container."""
        behind = 0
        for at, file_format in _strays(place.source, known, searched):
            if at >= behind:
                end = len(place.source)
                with self._isolated(place.label):
                    for found in self.read(Spot(place, file_format, at, end, is_stray=True)):
                        behind = at + self.scan(found) if self.scan is not None else end
                        yield found

    def _in_bitcode(self, place: Place) -> Iterator[_T]:
        from offload_tool.formats.bitcode.module import find_embedded_objects

        source = place.source
        for embedded in find_embedded_objects(
            source.data, OFFLOADING_SECTION, path=place.label, forget=source.forget
        ):
            with self.spool() as spool:  # it can begin at any bit, so it is not a range
                start, end = _unpack(embedded, spool, source)
                with spool.read(place.label) as whole:
                    part = whole.part(place.label, start, end - start)
                    inner = Place(place.path, part, place.label, (), place.names, None)
                    rest = (0, len(part), OFFLOADING_SECTION)
                    yield from self.read(Spot(inner, FileFormat.OFFLOAD_BINARY, *rest))


class _Ranges:
    """Ranges of a file, which may overlap."""

    def __init__(self, ranges: Iterable[tuple[int, int]]) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        """For each start, the largest end of the ranges up to it."""
        for start, end in sorted(ranges):
            self._starts.append(start)
            self._ends.append(max(end, self._ends[-1] if self._ends else 0))

    def __contains__(self, at: int) -> bool:
        number = bisect.bisect_right(self._starts, at)
        return number > 0 and at < self._ends[number - 1]


def _strays(
    source: InputFile, known: Sequence[tuple[int, int]], searched: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, FileFormat]]:
    """Yield the containers outside the `known` ranges of a file."""
    inside = _Ranges(searched)
    position, done = 0, 0
    for start, end in (*sorted(known), (len(source), len(source))):
        for begin in range(position, start, _FORGET_AFTER):
            stop = min(begin + _FORGET_AFTER, start)
            for at, file_format in find_strays(source.data, begin, stop, start):
                found = file_format is FileFormat.CUDA_FATBIN and at in inside
                if at and not found:  # offset 0 is the file itself
                    yield at, file_format
            done += stop - begin
            if done >= _FORGET_AFTER:
                done = 0
                source.forget()
        position = max(position, end)


def _unpack(embedded: EmbeddedObject, spool: Spool, source: InputFile) -> tuple[int, int]:
    """Append an object of `source` to a spool; return its start and end there."""
    start = forgotten = spool.out.position
    for chunk in embedded.chunks():
        spool.out.write(chunk)
        if spool.out.position - forgotten > _FORGET_AFTER:
            forgotten = spool.out.position
            source.forget()
    return start, spool.out.position


def _is_file(path: str, status: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(path), status)
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
