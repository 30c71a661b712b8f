"""Walk through files to the containers in them.

::

    folder                      every regular file below it; links are not followed, but those that
                                lead elsewhere are reported
    zip file (a wheel)          every member
    archive (thin too)          every member, also of nested archives
    ELF, COFF                   the sections that hold containers, and the object bundle
    LLVM bitcode of a host      the offload binaries that it embeds
    anything else               a container itself, or nothing

A `Policy` selects the files and sections to search, and the messages. Modules for rarer files are
imported lazily. Only one file is open at a time, besides the files that contain it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
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
from offload_tool.formats.magic import BUNDLE, DOS, begins
from offload_tool.formats.objects.coff import CoffSection, read_coff_sections
from offload_tool.io import InputFile, StrPath
from offload_tool.io.limits import effective_budget, how_to_allow, run_budget
from offload_tool.io.paths import is_same_file, is_within
from offload_tool.io.spool import Spool

if TYPE_CHECKING:
    from offload_tool.formats.objects.ar import ArchiveMember, ArchiveReader
    from offload_tool.formats.objects.elf.reader import ElfTables

_T = TypeVar("_T")
OFFLOADING_SECTION = ".llvm.offloading"
OBJECT_BUNDLE_SECTIONS = f"{BUNDLE.decode()}*"
FORGET_AFTER = 32 << 20
"""Bytes of a file to search before mapped pages are released."""


class Neighbours(Protocol):
    """The files around one in `folder`; of a zip file, its members."""

    folder: str
    where: str
    """A phrase for messages that describes where paths are resolved."""

    def has(self, path: str, /) -> bool:
        """Return whether a file exists at a path."""

    def matching(self, prefix: str, suffix: str, /) -> Iterable[str]:
        """Return the sorted paths without a slash between `prefix` and `suffix`."""

    def open(self, path: str, /) -> InputFile:
        """Open an existing file, valid while this one is; raise ContentError or FileError."""


class Location(NamedTuple):
    """Bytes to search: a file, or a part of one."""

    path: str
    """The file that the user named, or a file of the folder."""
    source: InputFile
    label: str
    files: tuple[str, ...] = ()
    """The file at `path`, then the members of thin archives that lead to the bytes, which are in
    the last. Empty if the bytes are unpacked and in no file: thin archives cannot name files
    there."""
    names: tuple[str, ...] = ()
    """Names of the enclosing members, outermost first."""
    base: int | None = 0
    """Offset of the bytes in the file at `path`; None if they are not in it."""
    neighbours: Neighbours | None = None
    """The files around a member of a zip file."""

    @classmethod
    def of(cls, source: InputFile, label: str) -> Location:
        """Return a whole file."""
        return cls(label, source, label, (label,))

    @property
    def member(self) -> str | None:
        """Member of an archive or zip file: ``a.o``, ``lib/x.so``, ``lib/y.a(a.o)``."""
        return member_path(self.names) if self.names else None

    def in_file(self, offset: int) -> int | None:
        """Return the offset in the file at `path` for one here; None if it is not in the file."""
        return None if self.base is None else self.base + offset

    def label_of(self, name: str) -> str:
        """Return the name of a member of the file here, for messages: ``x.zip(lib/y.a(a.o))``."""
        return f"{self.path}({member_path((*self.names, name))})"


def member_path(names: tuple[str, ...]) -> str:
    """Return the name of a member from its own and the enclosing names, outermost first."""
    first, *others = names
    return first + "".join(f"({name})" for name in others)


class Region(NamedTuple):
    """A range of bytes with containers of one format."""

    location: Location
    file_format: FileFormat
    start: int
    """Offset in the bytes at `location`; so is `end`."""
    end: int
    section: str | None = None
    is_stray: bool = False
    """Whether only the container at `start` counts, which no table refers to."""


class Policy:
    """The rules of a walk, and its messages; each operation that mimics LLVM has its own."""

    contains_itself = "this archive contains itself"
    trusts_coff_magic = False
    """Whether two bytes identify a COFF object, even a broken one that the user did not name."""
    object_bundles = True
    confined = True
    """Whether members of a thin archive must be in its folder, unless the run allows others."""
    code_objects = False
    """Whether device code without a container is reported."""

    def opens(self, location: Location, file_format: FileFormat) -> bool:  # noqa: ARG002
        """Return whether to search the file at `location`, whose format is known."""
        return True

    def members(self, location: Location) -> Iterable[ArchiveMember]:
        """Read an archive's members."""
        return self.archive_reader(location)

    def archive_reader(self, location: Location) -> ArchiveReader:
        """Return the reader of an archive."""
        from offload_tool.formats.objects.ar import ArchiveReader

        folder = Path(location.files[-1]).parent if location.files else None
        return ArchiveReader(location.source.data, location.label, folder)

    def elf_section(self, tables: ElfTables, number: int) -> FileFormat | None:  # noqa: ARG002
        """Return the format of the containers in a section of an ELF file."""
        return None

    def coff_section(self, data: memoryview, section: CoffSection) -> FileFormat | None:  # noqa: ARG002
        """Return the format of the containers in a section of a COFF file."""
        return None

    def refusal(self, location: Location, member: ArchiveMember, message: str) -> FormatError:
        """Return the error that a thin archive's member is invalid."""
        return FormatError(message, path=location.label_of(member.name))

    def unreadable(self, _: Location, __: ArchiveMember, error: FileError) -> OffloadError:
        """Return the error that a thin archive's member cannot be read."""
        return error


class LinkPolicy(Policy):
    """For inputs of links: as for linkers, thin archives may name any file."""

    confined = False


class CopyPolicy(Policy):
    """For operations that rewrite an archive and reject thin ones; `advice` is for the message."""

    def __init__(self, advice: str) -> None:
        self.advice = advice

    def members(self, location: Location) -> Iterator[ArchiveMember]:
        """Read an archive's members; raise UsageError if it is thin."""
        for member in super().members(location):
            if member.path is not None:
                raise UsageError(f"'{location.label}' is a thin archive: {self.advice}")
            yield member


def open_members(location: Location, policy: Policy) -> Iterator[tuple[ArchiveMember, Location]]:
    """Yield an archive's members, each open until the next; raise ContentError or FileError."""
    for member in policy.members(location):
        with open_member(location, member, policy) as inner:
            yield member, inner


@contextmanager
def open_member(location: Location, member: ArchiveMember, policy: Policy) -> Iterator[Location]:
    """Open one archive member; raises the errors of `open_members`."""
    if member.path is not None and not location.files:
        message = "expected an archive with its members in it, found a thin one"
        raise UnsupportedError(message, path=location.label, offset=0)
    label, names = location.label_of(member.name), (*location.names, member.name)
    _count_member(location, member.name, label)
    if member.path is None:
        source = location.source.part(label, member.offset, member.size)
        base = location.in_file(member.offset)
        yield location._replace(source=source, label=label, names=names, base=base)
        return
    with _open_member(location, member, member.path, policy) as source:
        files = (*location.files, str(member.path))
        yield Location(location.path, source, label, files, names, None)


def open_file_or_members(path: StrPath) -> Iterator[Location]:
    """Yield an input of a link, or each member of an archive, as `open_members` does."""
    with InputFile(path) as source:
        whole = Location.of(source, str(path))
        if recognise(source.data) is FileFormat.ARCHIVE:
            yield from (location for _, location in open_members(whole, LinkPolicy()))
        else:
            yield whole


def _count_member(location: Location, name: str, label: str) -> None:
    budget = effective_budget()
    budget.check_depth(len(location.names) + 1, label)
    budget.member(label)
    budget.reread(len(name), location.label)  # members can share the bytes of a name


def _open_member(
    location: Location, member: ArchiveMember, path: Path, policy: Policy
) -> InputFile:
    try:
        mode = path.stat().st_mode
        if any(is_same_file(other, path) for other in location.files):
            raise policy.refusal(location, member, policy.contains_itself)
        if not stat.S_ISREG(mode):
            message = f"'{path}' is not a regular file, as members must be"
            raise policy.refusal(location, member, message)
        folder = Path(location.files[0]).parent
        is_inside = not policy.confined or is_within(path, folder)
        if not is_inside and (how := how_to_allow("thin_outside")):
            message = f"names a file outside of '{folder}', the folder of the archive"
            raise policy.refusal(location, member, f"{message}; if that is meant, {how}")
        return InputFile(path)
    except OSError as error:
        raise policy.unreadable(location, member, FileError(path, error)) from error
    except FileError as error:
        raise policy.unreadable(location, member, error) from error


class Walk(Generic[_T]):
    """A search under a `policy`; it yields the results of `read` for each region.

    Errors in a file of a folder, zip file or archive go to `skipped`, and the walk continues
    (default: an error ends it). `strays` receives a message for each container outside the known
    sections of an object file, and for each link to a folder or to device code outside of the
    folder. Without `strays`, those to device code go to `skipped`; they never end the walk. With
    `scan`, the walk yields strays too, and searches files of unknown format. Both need `extent`,
    which returns where a result begins and ends. The zip files at `overlay` are installed over the
    searched one. `spool` opens a file for bytes that are not a range of one.
    """

    def __init__(
        self,
        policy: Policy,
        read: Callable[[Region], Iterable[_T]],
        skipped: Callable[[OffloadError], None] | None = None,
        spool: Callable[[], AbstractContextManager[Spool]] = Spool,
        *,
        strays: Callable[[str], None] | None = None,
        scan: bool = False,
        extent: Callable[[_T], tuple[int, int]] | None = None,
        overlay: Sequence[StrPath] = (),
    ) -> None:
        self.overlay = overlay
        self.strays = strays
        self.scan = scan
        self.extent = extent
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
            if os.path.islink(path):
                self._pass_over(path, folder)
                continue
            with self._isolated(path):
                budget.next_file()
                budget.file(path)
                with InputFile(path) as source:
                    yield from self.search(Location.of(source, path))

    def _pass_over(self, link: str, folder: StrPath) -> None:
        """Report a link that leads out of the walked `folder`: to device code, or a folder."""
        is_file = os.path.isfile(link)
        if is_within(link, folder) or not (os.path.isdir(link) or (is_file and self._finds(link))):
            return
        message = f"this link leads to '{os.path.realpath(link)}', outside of '{folder}', and was "
        message += "not followed; name each file, or a copy of the folder without links"
        if self.strays is not None:
            self.strays(f"'{link}': {message}")
        elif self.skipped is not None and is_file:
            self.skipped(FileError(link, message))

    def _finds(self, path: str) -> bool:
        with suppress(OffloadError), InputFile(path) as source:
            return next(self.search(Location.of(source, path)), None) is not None
        return True

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

    def search(self, location: Location, *, named: bool = False) -> Iterator[_T]:
        """Yield the results for one file; if the user `named` it, text is searched."""
        file_format = recognise(location.source.data, anywhere=named)
        if file_format is None:
            if self.scan:
                yield from self._scanned(location, [])
            return
        if not self.policy.opens(location, file_format):
            return
        if file_format is FileFormat.ZIP:
            yield from self._in_zip(location)
            return
        if budget := run_budget():
            budget.reread(len(location.source), location.label)
        yield from self._in_known(location, file_format, named=named)

    def _in_known(
        self, location: Location, file_format: FileFormat, *, named: bool
    ) -> Iterator[_T]:
        if file_format is FileFormat.ARCHIVE:
            for _, inner in open_members(location, self.policy):
                with self._isolated(inner.label):
                    yield from self.search(inner)
        elif file_format is FileFormat.ELF:
            yield from self._in_elf(location)
        elif file_format is FileFormat.COFF:
            yield from self._in_coff(location, named=named)
        elif file_format is FileFormat.BITCODE:
            yield from self._in_bitcode(location)
        else:
            yield from self.read(Region(location, file_format, 0, len(location.source)))

    def _skip(self, error: OffloadError) -> None:
        if self.skipped is None:
            raise error
        self.has_skipped = True
        self.skipped(error)

    # -- zip files -------------------------------------------------------------------

    def _other_wheels(self, location: Location) -> list[Path]:
        """Return the other wheels of the walked folder, which are installed together."""
        from offload_tool.formats.wheel import is_wheel

        path = Path(location.path)
        if not self.in_folder or not is_wheel(path):
            return []
        return sorted(other for other in path.parent.iterdir() if is_wheel(other) and other != path)

    def _in_zip(self, location: Location) -> Iterator[_T]:
        from offload_tool.containers.zip_members import (
            ZipFolder,
            ZipOverlay,
            open_zip,
            open_zip_member,
        )

        def wanted(begin: memoryview) -> bool:
            return self.scan or recognise(begin) is not None

        others = () if location.names else (*self.overlay, *self._other_wheels(location))
        with (
            open_zip(location.source, location.label) as archive,
            ZipOverlay(archive, location.source, location.label, others) as overlay,
        ):
            for row in archive.infolist():
                if row.filename.endswith("/"):
                    continue
                label = location.label_of(row.filename)
                with self._isolated(label):
                    _count_member(location, row.filename, label)
                    names = (*location.names, row.filename)
                    with open_zip_member(archive, row, location.source, label, wanted) as member:
                        if member is None:
                            continue
                        source, offset = member
                        base = None if offset is None else location.in_file(offset)
                        around = ZipFolder(overlay, row.filename)
                        yield from self.search(
                            Location(location.path, source, label, (), names, base, around)
                        )

    # -- object files ----------------------------------------------------------------

    def _in_elf(self, location: Location) -> Iterator[_T]:
        from offload_tool.formats.objects.device_elf import is_code_object
        from offload_tool.formats.objects.elf.reader import ET_DYN, ET_EXEC, read_elf_tables

        if self.policy.code_objects and is_code_object(location.source.data):
            yield from self.read(Region(location, FileFormat.CODE_OBJECT, 0, len(location.source)))
            return
        tables = read_elf_tables(location.source.data, path=location.label)
        if not tables.sections and tables.header.e_type in (ET_EXEC, ET_DYN) and not self.scan:
            self._check_stripped(location)
        rows = enumerate(zip(tables.names, tables.sections, strict=True))
        sections = (
            (name, row.sh_offset, row.sh_size, self.policy.elf_section(tables, number))
            for number, (name, row) in rows
            if row.has_content
        )
        yield from self._in_sections(location, sections)

    def _check_stripped(self, location: Location) -> None:
        """Raise UnsupportedError if a file without section headers holds device code."""
        strays = _strays(location.source, []) if self.policy.code_objects else ()
        for at, file_format in strays:
            message = f"holds what looks like a {file_format.value}, but no section headers, which "
            message += "lead to device code; use the file from before they were stripped, or link "
            message += "it without '-z nosectionheader' ('list --scan' lists its code)"
            raise UnsupportedError(message, path=location.label, offset=at)

    def _in_coff(self, location: Location, *, named: bool) -> Iterator[_T]:
        data = location.source.data
        try:
            rows = read_coff_sections(data, path=location.label)
        except ContentError:
            if named or self.policy.trusts_coff_magic or begins(data, DOS):
                raise
            return  # a COFF magic has two bytes, with which other files can begin
        sections = ((*row, self.policy.coff_section(data, row)) for row in rows)
        yield from self._in_sections(location, sections)

    def _in_sections(
        self, location: Location, sections: Iterable[tuple[bytes, int, int, FileFormat | None]]
    ) -> Iterator[_T]:
        """Search the sections (name, start, size, format) that hold containers, and other bytes."""
        known: list[tuple[int, int]] = []
        for name, start, size, file_format in sections:
            if self.policy.object_bundles and name.startswith(BUNDLE):
                known.append((start, start + size))
            elif file_format is not None:
                section = name.decode("utf-8", "backslashreplace")
                region = Region(location, file_format, start, start + size, section)
                for found in self.read(region):
                    if self.extent is not None:
                        known.append(self.extent(found))
                    yield found
        if self.policy.object_bundles:
            rest = (0, len(location.source), OBJECT_BUNDLE_SECTIONS)
            yield from self.read(Region(location, FileFormat.OBJECT_BUNDLE, *rest))
        if self.scan:
            yield from self._scanned(location, known)
        elif self.strays is not None:
            for at, file_format in _strays(location.source, known):
                what = f"what looks like a {file_format.value} is at offset {at:#x}"
                where = "outside of every known section; see it with --scan"
                self.strays(f"'{location.label}': {what}, {where}")

    def _scanned(self, location: Location, known: Sequence[tuple[int, int]]) -> Iterator[_T]:
        """Yield containers outside the `known` ranges, but none inside another container."""
        last_end = 0
        for at, file_format in _strays(location.source, known):
            if at >= last_end:
                end = len(location.source)
                with self._isolated(location.label):
                    for found in self.read(Region(location, file_format, at, end, is_stray=True)):
                        last_end = self.extent(found)[1] if self.extent is not None else end
                        yield found

    def _in_bitcode(self, location: Location) -> Iterator[_T]:
        from offload_tool.formats.bitcode.module import find_embedded_objects

        source = location.source
        for embedded in find_embedded_objects(
            source.data, OFFLOADING_SECTION, path=location.label, forget=source.forget
        ):
            with self.spool() as spool:  # it can begin at any bit, so it is not a range
                start = forgotten = spool.out.position
                for chunk in embedded.chunks():
                    spool.out.write(chunk)
                    if spool.out.position - forgotten > FORGET_AFTER:
                        forgotten = spool.out.position
                        source.forget()
                with spool.read(location.label) as whole:
                    part = whole.part(location.label, start, len(whole) - start)
                    inner = Location(location.path, part, location.label, (), location.names, None)
                    rest = (0, len(part), OFFLOADING_SECTION)
                    yield from self.read(Region(inner, FileFormat.OFFLOAD_BINARY, *rest))


def _strays(
    source: InputFile, known: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, FileFormat]]:
    """Yield the containers outside the `known` ranges of a file."""
    position, done = 0, 0
    for start, end in (*sorted(known), (len(source), len(source))):
        for begin in range(position, start, FORGET_AFTER):
            stop = min(begin + FORGET_AFTER, start)
            for at, file_format in find_strays(source.data, begin, stop, start):
                if at:  # offset 0 is the file itself
                    yield at, file_format
            done += stop - begin
            if done >= FORGET_AFTER:
                done = 0
                source.forget()
        position = max(position, end)


def _files(folder: StrPath, skip: Callable[[OffloadError], None]) -> Iterator[str]:
    """Yield the regular files and the links below a folder; links are not followed."""

    def failed(error: OSError) -> None:
        skip(FileError(error.filename or folder, error))

    for parent, folders, names in os.walk(folder, onerror=failed):
        folders.sort()
        links = [name for name in folders if os.path.islink(Path(parent, name))]
        for name in sorted([*names, *links]):
            path = str(Path(parent, name))
            try:
                mode = os.lstat(path).st_mode
            except OSError as error:
                failed(error)
                continue
            if stat.S_ISREG(mode) or stat.S_ISLNK(mode):
                yield path
