"""Unbundle a heterogeneous device archive (HDA) into one device-specific archive (DSA) per target.

::

    HDA                          DSA of gfx906                DSA of gfx90a:xnack+
    a.o = bundle of              a-<ID of the entry>a.bc      a-<ID of the entry>a.bc
      host, gfx906, gfx90a       b-<ID of the entry>b.bc      ...
    b.o = bundle of ...

A target's archive receives every compatible entry of every member, in the HDA's order.
Members may be object bundles, binary bundles, or compressed bundles; others are skipped.
Source: the ClangOffloadBundler documentation ("Archive Unbundling"); names and bytes as
clang-offload-bundler 22.1.8 writes them. If a binary bundle has several entries for a target,
that program orders them by a hash table; this package keeps the order of the file.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property, partial
from threading import Thread
from typing import TYPE_CHECKING

from offload_tool.containers.entries import OpenedBundle, StoredEntry, open_bundle
from offload_tool.containers.walk import OFFLOADING_SECTION, Location, Policy, open_member
from offload_tool.errors import FileError, FormatError, OffloadError, UsageError
from offload_tool.formats.bundle.binary import TableForm
from offload_tool.formats.magic import COMPRESSED_BUNDLE, begins
from offload_tool.formats.objects import ar
from offload_tool.formats.objects.elf.reader import is_elf
from offload_tool.formats.targets.bundle_entry_id import (
    BundleEntryID,
    first_conflict,
    has_all_fields,
    is_compatible,
)
from offload_tool.formats.targets.compile_target import GPUS
from offload_tool.formats.targets.processors import PROCESSORS
from offload_tool.io import FileRange, InputFile, OutputFile, StrPath, replace_all
from offload_tool.io.limits import effective_budget
from offload_tool.io.spool import Spool
from offload_tool.util.cores import usable_cores
from offload_tool.util.frozen import frozen, replaced

if TYPE_CHECKING:
    from offload_tool.containers.find import FoundImage

_FORGET_AFTER = 8 << 20  # after so many bytes of the archive, its mapped pages are released
_AT_ONCE, _BYTES_AT_ONCE = 4096, 8 << 20  # members, after which other work gets a turn
_PARALLEL = 8 << 20  # bytes of all outputs from which on threads are worth their start
_THREADS = 4  # at most; more would wait for the memory, not for processors
_PADDING, _DARWIN_ALIGNMENT = b"\n", 8


class NotAnArchiveError(FormatError):
    """The file at `path` does not begin with the magic of an archive."""

    def __init__(self, path: StrPath, found: bytes) -> None:
        super().__init__(f"expected an archive, found {found!r}", path=path, offset=0)


class MissingCodeObjectError(OffloadError):
    """No member of an archive has an entry that serves `target`."""

    def __init__(self, path: StrPath, target: BundleEntryID) -> None:
        self.target = target
        super().__init__(f"'{path}': no member has a code object for '{target}'")


@frozen
class ArchiveOptions:
    """Which members and entries `unbundle_archive` accepts."""

    allow_missing: bool = False
    """Whether a target without code objects gets an empty archive."""
    hip_openmp: bool = False
    """Whether hip and openmp entries serve each other."""
    check: bool = False
    """Whether the combination of IDs in each member is checked first."""
    offload_binaries: bool = False
    """Whether members that are not bundles contribute relocatable code of the new offload driver
    (section ``.llvm.offloading``), and a single object is read like an archive of it. LLVM's
    program supports neither."""


def unbundle_archive(
    path: StrPath,
    outputs: Mapping[BundleEntryID, StrPath],
    *,
    options: ArchiveOptions = ArchiveOptions(),
    keep_equal: bool = False,
    opened: Callable[[OpenedBundle], None] | None = None,
    warn: Callable[[str], None] | None = None,
) -> None:
    """Write the device-specific archive of each target in `outputs` from the archive at `path`.

    The archive is read once; all outputs are written or none. `options` say what is taken; see
    `ArchiveOptions`. `keep_equal` leaves an equal file untouched. `opened` is called with each
    bundle, `warn` if the symbols of a code object cannot be read.

    :raises NotAnArchiveError: the file does not have the magic of an archive.
    :raises FormatError: the archive or a member is broken, or a thin archive's member is missing.
    :raises MissingCodeObjectError: there are no code objects for a target.
    :raises UsageError: there are no targets.
    :raises UnsupportedError, FileError: a file is not supported, or cannot be read or written.
    """
    if not outputs:
        raise UsageError("no targets to unbundle; give at least one bundle entry ID")
    with InputFile(path) as source, ExitStack() as stack:
        if not ar.is_archive(source.data) and not (
            options.offload_binaries and _is_object(source.data)
        ):
            raise NotAnArchiveError(path, bytes(source.data[:8]))
        walk = _Walk(source, stack, list(outputs), options, warn)
        if options.check:
            walk.check_composition()
        archives = walk.collect(opened)
        for target, archive in zip(outputs, archives, strict=True):
            if not len(archive) and not options.allow_missing:
                raise MissingCodeObjectError(path, target)
        with replace_all(list(outputs.values()), keep_equal=keep_equal) as files:
            _write_all(files, archives)


def _write_all(files: Sequence[OutputFile], archives: Sequence[ar.GrowingArchive]) -> None:
    """Write the archives, large ones in threads: four of 240 MiB take 0.14 s, not 0.23 s."""
    size = sum(archive.size for archive in archives)
    # An output that is not a regular file, such as standard output, may be given twice.
    if size < _PARALLEL or not all(file.seekable for file in files):
        count = 1
    else:
        count = min(len(files), usable_cores(), _THREADS)
    waiting = iter(list(zip(files, archives, strict=True)))
    errors: list[BaseException] = []

    def work() -> None:
        try:
            for file, archive in waiting:
                archive.write_to(file)
        except BaseException as error:  # the calling thread raises it
            errors.append(error)
            list(waiting)  # the other archives need not be written

    # Importing a thread pool takes longer than writing some of these archives.
    threads = []
    for _ in range(count - 1):
        thread = Thread(target=work)
        try:
            thread.start()
        except RuntimeError:  # no memory for a thread, or too many: the others do its work
            break
        threads.append(thread)
    work()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


class _Walk:
    def __init__(
        self,
        source: InputFile,
        stack: ExitStack,
        targets: Sequence[BundleEntryID],
        options: ArchiveOptions,
        warn: Callable[[str], None] | None,
    ) -> None:
        self.source = source
        self.stack = stack
        self.targets = targets
        self.options = options
        self.warn = warn
        self.location = Location.of(source, str(source.path))
        self.budget = effective_budget()
        self.uses: dict[str, EntryUse] = {}
        """By ID as stored; members of an archive share a few IDs."""
        self.archives = [ar.GrowingArchive() for _ in targets]
        """One archive for each target."""
        self.ids: tuple[str, ...] = ()
        """IDs of the last opened bundle that is uncompressed in the archive."""
        self.form: TableForm | None = None
        """That bundle's, which other members may have, too."""
        self.wanted: list[tuple[int, EntryUse, list[ar.GrowingArchive]]] = []
        """The entries to take of it, by their index."""
        self.forgotten = 0
        """Offset up to which the archive's pages were released, in bytes."""

    @cached_property
    def spool(self) -> Spool:
        """Holds contents that are not ranges of the archive; closed with the stack."""
        return self.stack.enter_context(Spool())

    def check_composition(self) -> None:
        """Reject members that set a feature in one entry and leave it open in another."""
        for member in self._members():
            with self._open(member) as bundle:
                ids = {BundleEntryID.read(entry.id): entry.id for entry in bundle.entries}
            if conflict := first_conflict(ids):
                first, other = (ids[entry_id] for entry_id in conflict)
                raise FormatError(
                    f"conflicting TargetIDs [{first}, {other}] found in {member.name} of "
                    f"{self.source.path}"
                )

    def collect(self, opened: Callable[[OpenedBundle], None] | None) -> list[ar.GrowingArchive]:
        for member in self._members(at_once=opened is None):
            with self._open(member) as bundle:
                if opened is not None:
                    opened(bundle)
                for entry in bundle.entries:
                    use = self.uses.get(entry.id) or self._use_of(member, entry)
                    if use.targets:
                        self._add(member, entry, use)
                self._start_fast_path(member, bundle)
        return self.archives

    def _start_fast_path(self, member: ar.ArchiveMember, bundle: OpenedBundle) -> None:
        """Record the IDs of an uncompressed bundle for the fast path."""
        ids = tuple(entry.id for entry in bundle.entries)
        if member.path is None and bundle.reports == [None] and ids != self.ids:
            self.ids, self.form = ids, TableForm(ids)
            self.wanted = [
                (index, use, [self.archives[target] for target in use.targets])
                for index, use in enumerate(self.uses[name] for name in ids)
                if use.targets
            ]

    @contextmanager
    def _open(self, member: ar.ArchiveMember) -> Iterator[OpenedBundle]:
        with open_member(self.location, member, _POLICY) as inner:
            content = _without_padding(inner) if member.path is None else inner.source
            bundle = open_bundle(content, "o", wanted=lambda _: True)
            if self.options.offload_binaries and not bundle.entries and _is_object(content.data):
                bundle = _offload_binaries(content)
            yield bundle

    def _members(self, *, at_once: bool = False) -> Iterator[ar.ArchiveMember]:
        """Yield the members; `at_once` takes similar members by the fast path instead."""
        if not ar.is_archive(self.source.data):
            yield ar.ArchiveMember(posixpath.basename(self.location.path), 0, len(self.source), 0)
            return
        self.forgotten = 0
        reader = _POLICY.archive_reader(self.location)
        for member in reader:
            self._check_name(member)
            yield member
            self._forget(reader.position)
            while at_once and (count := self._take_similar(reader)):
                self.budget.member(self.source.path, count)
                self._forget(reader.position)

    def _take_similar(self, reader: ar.ArchiveReader) -> int:
        """Take members of the last one's form from `reader`, up to a limit; return their number."""
        data, form, plain = self.source.data, self.form, reader.read_plain
        position, count = reader.position, 0
        last = position + _BYTES_AT_ONCE
        while form is not None and count < _AT_ONCE and position < last:
            found = plain(position)
            if found is None:
                break
            name, start, size = found
            rows = form.read(data, start, start + size)
            if rows is None or name.find(b"..") >= 0 or _NUL in name:
                break
            try:
                self._add_similar(data, name, rows)
            except FormatError:  # opening the member reports it
                break
            count += 1
            position = ar.next_header(position, size)
        reader.skip(count, position)
        return count

    def _add_similar(self, data: memoryview, name: bytes, rows: Sequence[tuple[int, int]]) -> None:
        """Add the wanted entries of a member, all or none; raise FormatError."""
        made = []
        reasons: list[tuple[bytes, str]] = []
        for index, use, archives in self.wanted:
            new = use.name(name)
            offset, size = rows[index]
            symbols = None
            if size and data[offset] in ar.OBJECTS_BEGIN:
                failures: list[str] = []
                symbols = ar.member_symbols(data[offset : offset + size], warn=failures.append)
                reasons += [(new, reason) for reason in failures]
            made.append((archives, new, offset, size, symbols))
        for new, reason in reasons:
            self._warn(new, reason)
        for archives, new, offset, size, symbols in made:
            for archive in archives:
                archive.add(new, self.source, offset, size, symbols)

    def _forget(self, position: int) -> None:
        if position - self.forgotten > _FORGET_AFTER:
            self.forgotten = position
            self.source.forget()

    def _check_name(self, member: ar.ArchiveMember) -> None:
        """Reject names that could lead out of a folder; archivers write these only on request."""
        name = member.name
        if member.path is None and ("\0" in name or (".." in name and ".." in name.split("/"))):
            message = "expected a name without '..' and NUL; put the file in under a plain name"
            raise _POLICY.refusal(self.location, member, message)

    def _use_of(self, member: ar.ArchiveMember, entry: StoredEntry) -> EntryUse:
        if not has_all_fields(entry.id):
            message = f"expected <kind>-<triple>[-<target ID>] as an entry's ID, found {entry.id!r}"
            raise _POLICY.refusal(self.location, member, message)
        parsed = BundleEntryID.read(entry.id)
        targets = tuple(
            index
            for index, target in enumerate(self.targets)
            if is_compatible(parsed, target, hip_openmp=self.options.hip_openmp)
        )
        extension = None
        if parsed.target_id.partition(":")[0] in PROCESSORS:
            extension = b".bc" if "gfx" in parsed.target_id else extension
            extension = b".cubin" if "sm_" in parsed.target_id else extension
        infix = f"-{entry.id}".encode("utf-8", "surrogateescape")
        use = self.uses[entry.id] = EntryUse(targets, infix, extension)
        return use

    def _add(self, member: ar.ArchiveMember, entry: StoredEntry, use: EntryUse) -> None:
        content = self._content(member, entry)
        try:
            name = use.name(member.name.encode("utf-8", "surrogateescape"))
        except FormatError as error:
            raise _POLICY.refusal(self.location, member, error.message) from error
        symbols = ar.member_symbols(
            content.data,
            path=entry.source.path,
            offset=entry.offset,
            warn=partial(self._warn, name),
        )
        for target in use.targets:
            self.archives[target].add(name, *content, symbols)

    def _warn(self, name: bytes, reason: str) -> None:
        if self.warn is not None:
            self.warn(f"'{name.decode('utf-8', 'surrogateescape')}': {reason}")

    def _content(self, member: ar.ArchiveMember, entry: StoredEntry) -> FileRange:
        """Return an entry's content as a range of the archive, or of the spool."""
        if member.path is not None or entry.is_host_object or entry.is_decompressed:
            return self.spool.append(entry.write_to)
        return entry.range


class _UnbundlerPolicy(Policy):
    """Opens members as ``list`` does, with other messages."""

    confined = False  # as in LLVM's program: the user chose the archive for its members

    contains_itself = "this thin archive has itself as a member; take it out"

    def refusal(self, location: Location, member: ar.ArchiveMember, message: str) -> FormatError:
        field = f"member {member.name!r}"
        return FormatError(message, path=location.label, offset=member.header_offset, field=field)

    def unreadable(
        self, location: Location, member: ar.ArchiveMember, error: FileError
    ) -> FormatError:
        return self.refusal(
            location, member, f"{error}; a thin archive needs the files of its members"
        )


_POLICY = _UnbundlerPolicy()


def _is_object(data: memoryview) -> bool:
    """Return whether a file is an object of clang: ELF, or bitcode (``-flto``)."""
    from offload_tool.formats.bitcode.module import is_bitcode  # slow, and rarely needed

    return is_elf(data) or is_bitcode(data)


def _offload_binaries(object_file: InputFile) -> OpenedBundle:
    """Return a bundle with the images in an object's section ``.llvm.offloading``."""
    from offload_tool.containers.find import containers_in

    entries, count = list[StoredEntry](), 0
    for found in containers_in(object_file, str(object_file.path)):
        if found.section == OFFLOADING_SECTION:
            count += 1
            entries += [_lasting_entry(image, object_file) for image in found.images]
    return OpenedBundle(object_file, entries, [None] * count)


def _lasting_entry(image: FoundImage, object_file: InputFile) -> StoredEntry:
    """Return an image's entry, a copy if the image is not a range of the file: in bitcode."""
    content = image.content
    if is_elf(object_file.data) or content.is_decompressed:
        return replaced(content, id=_plain_id(image))
    source = InputFile.from_data(object_file.path, memoryview(bytes(content.view())))
    return StoredEntry(_plain_id(image), source, 0, content.size, is_decompressed=True)


def _plain_id(image: FoundImage) -> str:
    """Return an image's entry ID; code for one processor (``-march=native``) serves its CPU."""
    is_gpu = image.triple.partition("-")[0] in GPUS
    return image.id if is_gpu else image.id.removesuffix(image.target_id)


def _without_padding(location: Location) -> InputFile:
    """Remove Darwin's padding, as a compressed bundle of version 1 does not store its size."""
    source = location.source
    content = source.data
    compressed = begins(content, COMPRESSED_BUNDLE) and len(content) >= _DARWIN_ALIGNMENT
    if not compressed or content[-1:] != _PADDING:
        return source
    from offload_tool.formats.bundle.compressed import read_compressed_header

    size = read_compressed_header(content, path=location.label).total_size or len(content)
    rest = bytes(content[size : size + _DARWIN_ALIGNMENT])
    is_padding = len(rest) < _DARWIN_ALIGNMENT and not rest.strip(_PADDING)
    return source.part(location.label, 0, size) if is_padding else source


_SLASH, _NUL, _LINE_END = b"/\0\n"  # numbers: searching bytes for bytes is much slower


@frozen
class EntryUse:
    """The use of one entry ID in this run."""

    targets: tuple[int, ...]
    """Indexes of the targets that the ID serves."""
    infix: bytes
    """Follows the old member's stem in the new member's name."""
    extension: bytes | None
    """Extension of the new member; None: that of the old one."""

    def name(self, member: bytes) -> bytes:
        """Return the new member's name for an entry; raise FormatError if no member can have it."""
        base = member.rpartition(b"/")[2]
        stem, dot, rest = base.rpartition(b".")
        if not dot or base in (b".", b".."):
            stem, dot, rest = base, b"", b""  # unlike Python's splitext, ``.x`` is all extension
        extension = dot + rest if self.extension is None else self.extension
        # LLVM repeats the stem.
        name = stem + self.infix + stem + extension
        if _SLASH in name or _NUL in name or _LINE_END in name:
            text = name.decode("utf-8", "surrogateescape").replace(":", "_")
            message = f"has an entry for which a member with the name {text!r} would be made"
            raise FormatError(message)
        return name.replace(b":", b"_")
