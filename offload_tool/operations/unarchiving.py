"""A heterogeneous device archive (HDA) becomes one device-specific archive (DSA) per target.

::

    HDA                          DSA of gfx906                DSA of gfx90a:xnack+
    a.o = bundle of              a-<ID of the entry>a.bc      a-<ID of the entry>a.bc
      host, gfx906, gfx90a       b-<ID of the entry>b.bc      ...
    b.o = bundle of ...

Every compatible entry of every member goes into a target's archive, in the HDA's order.
Members may be object bundles, binary bundles, or compressed bundles; others are passed
over. Source: the ClangOffloadBundler documentation ("Archive Unbundling"); names and
bytes as clang-offload-bundler 22.1.8 writes them. Of several entries of one binary
bundle for one target, that program takes the order from a hash table; here it is the file's.
"""

from __future__ import annotations

import os
import posixpath
from contextlib import ExitStack, contextmanager
from functools import cached_property
from threading import Thread
from typing import TYPE_CHECKING, TypeAlias

from offload_tool.containers.places import Place
from offload_tool.containers.walk import OFFLOADING_SECTION, Policy, open_member
from offload_tool.errors import FormatError, OffloadError, UsageError
from offload_tool.files import FileRange, InputFile, replace_all
from offload_tool.files.budget import Budget, running
from offload_tool.files.spool import Spool
from offload_tool.formats.bundles.binary import TableForm
from offload_tool.formats.magics import COMPRESSED_BUNDLE
from offload_tool.formats.names.entry_id import (
    BundleEntryID,
    first_conflict,
    has_all_fields,
    is_compatible,
)
from offload_tool.formats.names.processors import PROCESSORS
from offload_tool.formats.objects.archive import (
    ArchiveMember,
    NewMember,
    is_archive,
    plan_archive,
)
from offload_tool.formats.objects.elf import is_elf
from offload_tool.formats.objects.symbol_index import member_symbols
from offload_tool.frozen import frozen
from offload_tool.operations.opening import Container, OpenedBundle, open_bundle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from offload_tool.containers.read import StoredEntry
    from offload_tool.errors import FileError
    from offload_tool.files import OutputFile, StrPath
    from offload_tool.files.plan import FilePlan

__all__ = ["MissingCodeObjectError", "NotAnArchiveError", "unbundle_archive"]

_FORGET_AFTER = 8 << 20
"""Bytes of the archive after which what was mapped of it is given back."""
_PADDING, _DARWIN_ALIGNMENT = b"\n", 8
_PARALLEL = 8 << 20
"""Bytes of all outputs from which on threads are worth their start."""
_THREADS = 4
"""At most; copying is soon bounded by the memory, not by the processors."""


class NotAnArchiveError(FormatError):
    """The file at `path` does not begin as archives do."""

    def __init__(self, path: StrPath, found: bytes) -> None:
        super().__init__(f"expected an archive, found {found!r}", path=path, offset=0)


class MissingCodeObjectError(OffloadError):
    """No member of an archive has an entry that serves `target`."""

    def __init__(self, path: StrPath, target: BundleEntryID) -> None:
        self.target = target
        super().__init__(f"'{path}': no member has a code object for '{target}'")


def unbundle_archive(
    path: StrPath,
    outputs: Mapping[BundleEntryID, StrPath],
    *,
    allow_missing: bool = False,
    hip_openmp: bool = False,
    check: bool = False,
    keep_equal: bool = False,
    offload_binaries: bool = False,
    opened: Callable[[OpenedBundle], None] | None = None,
    warn: Callable[[str], None] | None = None,
) -> None:
    """Write the device-specific archive of each target in `outputs`, of the archive at `path`.

    One pass over the archive; all outputs are written or none. With `allow_missing`, a target
    without code objects gets an empty archive; with `check`, the composition of each member is
    checked first; with `hip_openmp`, hip and openmp entries serve each other; with
    `keep_equal`, a file that already has the very bytes is left untouched. With
    `offload_binaries`, relocatable code of the new offload driver (section
    ``.llvm.offloading``) is taken from members that are not bundles, and an object that is not
    an archive is taken for one of it alone; LLVM's program does neither. `opened` is called
    with each bundle, `warn` with what could not be read of a code object's symbols.

    :raises NotAnArchiveError: the file has not the magic of an archive.
    :raises FormatError: the archive or one of its members is broken, or is not there (thin).
    :raises UnsupportedError: one of them is of a version or sort that is not read.
    :raises MissingCodeObjectError: a target without code objects.
    :raises UsageError: no targets.
    :raises FileError: a file cannot be read or written.
    """
    if not outputs:
        raise UsageError("no targets to unbundle: give at least one bundle entry ID")
    with InputFile(path) as source, ExitStack() as stack:
        if not is_archive(source.data) and not (offload_binaries and is_elf(source.data)):
            raise NotAnArchiveError(path, bytes(source.data[:8]))
        walk = _Walk(source, stack, list(outputs), hip_openmp=hip_openmp, warn=warn)
        walk.offload_binaries = offload_binaries
        if check:
            walk.check_composition()
        plans = []
        for target, members in zip(outputs, walk.collect(opened), strict=True):
            if not members and not allow_missing:
                raise MissingCodeObjectError(path, target)
            layout = plan_archive([member for member, _ in members])
            plans.append(layout.plan([content for _, content in members]))
        with replace_all(list(outputs.values()), keep_equal=keep_equal) as files:
            _write_all(files, plans)


def _write_all(files: Sequence[OutputFile], archives: Sequence[FilePlan]) -> None:
    """Write the archives, large ones at the same time: the kernel's copying is all the work."""
    size = sum(archive.size for archive in archives)
    # What is not a regular file, standard output say, may be given twice.
    if size < _PARALLEL or not all(file.seekable for file in files):
        count = 1
    else:
        count = min(len(files), os.cpu_count() or 1, _THREADS)
    waiting = iter(list(zip(files, archives, strict=True)))
    errors: list[BaseException] = []

    def work() -> None:
        try:
            for file, archive in waiting:
                archive.write_to(file)
        except BaseException as error:  # whatever it is, the caller is to know
            errors.append(error)
            list(waiting)  # nobody needs to write the others

    # A pool's module alone would take longer to import than some of these archives to write.
    threads = [Thread(target=work) for _ in range(count - 1)]
    for thread in threads:
        thread.start()
    work()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@frozen
class _Service:
    """What an entry's ID means for this run."""

    targets: tuple[int, ...]
    """Those that it serves, by their number."""
    infix: str
    """What stands in a DSA's member's name behind the stem of the HDA's member."""
    extension: str | None
    """Of the DSA's member; None: that of the HDA's member."""


_Made: TypeAlias = tuple[_Service, tuple[NewMember, FileRange]]
"""What is made of an entry: a member, and where its content is."""


class _Walk:
    """The pass over an archive's members."""

    def __init__(
        self,
        source: InputFile,
        stack: ExitStack,
        targets: Sequence[BundleEntryID],
        *,
        hip_openmp: bool,
        warn: Callable[[str], None] | None,
    ) -> None:
        self.source = source
        self.stack = stack
        self.targets = targets
        self.hip_openmp = hip_openmp
        self.warn = warn
        self.offload_binaries = False
        self.place = Place.of(source, str(source.path))
        self.budget = running() or Budget()
        self.services: dict[str, _Service] = {}
        """By ID as stored; an archive's members have few different ones."""
        self.ids: tuple[str, ...] = ()
        """Of the last bundle that was opened and is in the archive as it is."""
        self.form: TableForm | None = None

    @cached_property
    def spool(self) -> Spool:
        """Where contents go that are not ranges of the archive; closed with the stack."""
        return self.stack.enter_context(Spool())

    def check_composition(self) -> None:
        """Refuse members that set a feature in one entry and leave it open in another."""
        for member in self._members():
            with self._open(member) as bundle:
                ids = {BundleEntryID.read(entry.id): entry.id for entry in bundle.entries}
            if conflict := first_conflict(ids):
                first, other = (ids[entry_id] for entry_id in conflict)
                raise FormatError(
                    f"conflicting TargetIDs [{first}, {other}] found in {member.name} of "
                    f"{self.source.path}"
                )

    def collect(
        self, opened: Callable[[OpenedBundle], None] | None
    ) -> list[list[tuple[NewMember, FileRange]]]:
        """Give the members of each target's archive, and where their contents are."""
        collected: list[list[tuple[NewMember, FileRange]]] = [[] for _ in self.targets]
        for member in self._members():
            made = None if opened is not None else self._like_the_last(member)
            if made is None:
                made = self._made(member, opened)
            for service, new in made:
                for index in service.targets:
                    collected[index].append(new)
        return collected

    def _made(
        self, member: ArchiveMember, opened: Callable[[OpenedBundle], None] | None
    ) -> list[_Made]:
        """Give what is made of a member, whatever it is."""
        with self._open(member) as bundle:
            if opened is not None:
                opened(bundle)
            self._learn(member, bundle)
            made = []
            for entry in bundle.entries:
                service = self.services.get(entry.id) or self._serve(member, entry)
                if service.targets:
                    content = self._content(member, entry)
                    path, offset = entry.source.path, entry.offset
                    made.append(self._made_of(member, service, content, path, offset))
            return made

    def _learn(self, member: ArchiveMember, bundle: OpenedBundle) -> None:
        """Note the form of a bundle that is in the archive as it is: more of it may follow."""
        ids = tuple(entry.id for entry in bundle.entries)
        is_plain = len(bundle.containers) == 1 and bundle.containers[0].report is None
        if member.path is None and is_plain and ids != self.ids:
            self.ids, self.form = ids, TableForm(ids)

    def _like_the_last(self, member: ArchiveMember) -> list[_Made] | None:
        """Give what is made of a bundle that has the IDs of the last one; None if in doubt.

        An archive of small bundles is read many times faster so.
        """
        if self.form is None or member.path is not None:
            return None
        found = self.form.read(self.source.data, member.offset, member.offset + member.size)
        if found is None:
            return None
        self.budget.member(self.source.path)
        made = []
        for name, (offset, size) in zip(self.ids, found, strict=True):
            service = self.services[name]
            if service.targets:
                content = FileRange(self.source, offset, size)
                try:
                    made.append(self._made_of(member, service, content))
                except FormatError:
                    return None  # which is said of the member that was opened
        return made

    @contextmanager
    def _open(self, member: ArchiveMember) -> Iterator[OpenedBundle]:
        with open_member(self.place, member, _POLICY) as inner:
            content = _without_padding(inner) if member.path is None else inner.source
            bundle = open_bundle(content, "o", wanted=lambda _: True)
            if self.offload_binaries and not bundle.entries and is_elf(content.data):
                bundle = _offload_binaries(content)
            yield bundle

    def _members(self) -> Iterator[ArchiveMember]:
        if not is_archive(self.source.data):
            yield ArchiveMember(posixpath.basename(self.place.path), 0, len(self.source), 0)
            return
        forgotten = 0
        for member in _POLICY.members(self.place):
            self._check_name(member)
            yield member
            if member.offset + member.size - forgotten > _FORGET_AFTER:
                forgotten = member.offset + member.size
                self.source.forget()

    def _check_name(self, member: ArchiveMember) -> None:
        """Refuse names that no archiver gives, unless asked to: what can lead out of a folder."""
        name = member.name
        if member.path is None and ("\0" in name or (".." in name and ".." in name.split("/"))):
            message = "expected a name without '..' and NUL; put the file in under a plain name"
            raise self._error(member, message)

    def _error(self, member: ArchiveMember, message: str) -> FormatError:
        return _member_error(self.source.path, member, message)

    def _serve(self, member: ArchiveMember, entry: StoredEntry) -> _Service:
        if not has_all_fields(entry.id):
            message = f"expected <kind>-<triple>[-<target ID>] as an entry's ID, found {entry.id!r}"
            raise self._error(member, message)
        parsed = BundleEntryID.read(entry.id)
        targets = tuple(
            index
            for index, target in enumerate(self.targets)
            if is_compatible(parsed, target, hip_openmp=self.hip_openmp)
        )
        extension = None
        if parsed.target_id.partition(":")[0] in PROCESSORS:
            extension = ".bc" if "gfx" in parsed.target_id else extension
            extension = ".cubin" if "sm_" in parsed.target_id else extension
        service = self.services[entry.id] = _Service(targets, f"-{entry.id}", extension)
        return service

    def _made_of(
        self,
        member: ArchiveMember,
        service: _Service,
        content: FileRange,
        path: StrPath | None = None,
        offset: int = 0,
    ) -> _Made:
        """Make a name for a DSA's member, and find its symbols; `path`, `offset` for messages."""
        stem, extension = _split(member.name.rpartition("/")[2])
        suffix = extension if service.extension is None else service.extension
        # The stem stands there twice, as LLVM has it.
        name = f"{stem}{service.infix}{stem}{suffix}".replace(":", "_")
        if "/" in name or "\0" in name or "\n" in name:
            message = f"has an entry for which a member with the name {name!r} would be made"
            raise self._error(member, message)

        def warn(reason: str) -> None:
            if self.warn is not None:
                self.warn(f"'{name}': {reason}")

        symbols = member_symbols(content.data, path=path, offset=offset, warn=warn)
        return service, (NewMember(name, content.size, symbols), content)

    def _content(self, member: ArchiveMember, entry: StoredEntry) -> FileRange:
        """Find an entry's content in the archive; what is not there goes to the spool."""
        if member.path is not None or entry.is_host_object or entry.is_decompressed:
            return self.spool.added(entry.write_to)
        return entry.range


class _UnbundlerPolicy(Policy):
    """How members are opened: as ``list`` does it, in other words."""

    confined = False  # as LLVM's program has it: the user named the archive for its members

    contains_itself = "this thin archive has itself as a member; take it out"

    def refusal(self, place: Place, member: ArchiveMember, message: str) -> FormatError:
        return _member_error(place.label, member, message)

    def unreadable(self, place: Place, member: ArchiveMember, error: FileError) -> FormatError:
        return self.refusal(
            place, member, f"{error}; a thin archive needs the files of its members"
        )


_POLICY = _UnbundlerPolicy()


def _member_error(path: StrPath, member: ArchiveMember, message: str) -> FormatError:
    field = f"member {member.name!r}"
    return FormatError(message, path=path, offset=member.header_offset, field=field)


def _offload_binaries(object_file: InputFile) -> OpenedBundle:
    """Give the images in the section ``.llvm.offloading`` of an object, as entries of a bundle."""
    from offload_tool.containers.found import containers_in

    containers = tuple(
        Container(tuple(image.content for image in found.images))
        for found in containers_in(object_file, str(object_file.path))
        if found.section == OFFLOADING_SECTION
    )
    return OpenedBundle(object_file, containers)


def _without_padding(place: Place) -> InputFile:
    """Take off the line ends that Darwin's archivers add, up to a multiple of 8 bytes.

    Only a compressed bundle must end where it says; version 1 says nothing.
    """
    source = place.source
    content = source.data
    compressed = (
        content[: len(COMPRESSED_BUNDLE)] == COMPRESSED_BUNDLE and len(content) >= _DARWIN_ALIGNMENT
    )
    if not compressed or content[-1:] != _PADDING:
        return source
    from offload_tool.formats.bundles.compressed import read_compressed_header

    size = read_compressed_header(content, path=place.label).total_size or len(content)
    rest = bytes(content[size : size + _DARWIN_ALIGNMENT])
    is_padding = len(rest) < _DARWIN_ALIGNMENT and not rest.strip(_PADDING)
    return source.part(place.label, 0, size) if is_padding else source


def _split(name: str) -> tuple[str, str]:
    """Split off the last extension; unlike Python's splitext, ``.x`` is all extension."""
    stem, dot, extension = name.rpartition(".")
    return (stem, dot + extension) if dot and name not in (".", "..") else (name, "")
