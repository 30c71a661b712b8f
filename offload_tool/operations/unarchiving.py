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
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from offload_tool.errors import FormatError, OffloadError, UsageError
from offload_tool.files import InputFile, OutputFile, replace_all
from offload_tool.formats.archive import NewMember, is_archive, iter_members, plan_archive
from offload_tool.formats.entry_id import (
    BundleEntryID,
    first_conflict,
    has_all_fields,
    is_compatible,
)
from offload_tool.formats.processors import BUNDLER_NAMES
from offload_tool.formats.symbol_index import member_symbols
from offload_tool.operations.opening import open_bundle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from offload_tool.files import StrPath
    from offload_tool.formats.archive import ArchiveMember
    from offload_tool.operations.opening import OpenedBundle, StoredEntry

__all__ = ["MissingCodeObjectError", "unbundle_archive"]

_FORGET_AFTER = 32 << 20
"""Bytes of the archive after which what was mapped of it is given back."""


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
    opened: Callable[[OpenedBundle], None] | None = None,
    warn: Callable[[str], None] | None = None,
) -> None:
    """Write each target's device-specific archive of the archive at `path` to its file.

    One pass over the archive; all outputs are written or none. With `allow_missing`, a
    target without code objects gets an empty archive; with `check`, the composition of
    each member is checked first. `opened` is called with each bundle, `warn` with what
    could not be read of a code object's symbols.

    :raises FormatError: not an archive, or it or one of its members is broken.
    :raises MissingCodeObjectError: a target without code objects.
    :raises UsageError: no targets.
    :raises FileError: a file cannot be read or written.
    """
    if not outputs:
        raise UsageError("no targets to unbundle: give at least one bundle entry ID")
    with InputFile(path) as source, _Spool() as spool:
        if not is_archive(source.data):
            raise OffloadError("file too small to be an archive")
        walk = _Walk(source, spool, list(outputs), hip_openmp=hip_openmp, warn=warn)
        if check:
            walk.check_composition()
        collected = walk.collect(opened)
        for target, members in zip(outputs, collected, strict=True):
            if not members and not allow_missing:
                raise MissingCodeObjectError(path, target)
        with replace_all(list(outputs.values())) as files:
            for members, file in zip(collected, files, strict=True):
                _write(file, members)


class _Member(NamedTuple):
    """A member of a DSA: its name, its symbols, and where its content is."""

    name: str
    symbols: bytes | None
    source: InputFile
    offset: int
    size: int


def _write(out: OutputFile, members: Sequence[_Member]) -> None:
    layout = plan_archive([NewMember(m.name, m.size, m.symbols) for m in members])
    out.reserve(layout.size)
    for before, member in zip(layout.before, members, strict=True):
        out.write(before)
        out.copy(member.source, member.offset, member.size)
    out.write(layout.end)


@dataclass(frozen=True, slots=True)
class _Piece:
    """Bytes of an input: `data`, which is at `offset` of `source`."""

    source: InputFile
    offset: int
    data: memoryview


class _Spool:
    """A file without a name for contents that are no range of the archive itself."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - see __exit__
        descriptor = self._file.fileno()
        self._out = OutputFile("temporary file", descriptor, seekable=True)
        self.source = InputFile.from_descriptor("temporary file", descriptor)

    def add(self, entry: StoredEntry) -> _Piece:
        """Copy an entry's content here; its bytes are in memory until they are not used."""
        offset = self._out.position
        entry.write_to(self._out)
        data = os.pread(self._file.fileno(), self._out.position - offset, offset)
        return _Piece(self.source, offset, memoryview(data))

    def __enter__(self) -> _Spool:
        return self

    def __exit__(self, *_: object) -> None:
        self.source.close()
        self._file.close()


class _Walk:
    """The pass over an archive's members."""

    def __init__(
        self,
        source: InputFile,
        spool: _Spool,
        targets: Sequence[BundleEntryID],
        *,
        hip_openmp: bool,
        warn: Callable[[str], None] | None,
    ) -> None:
        self.source = source
        self.spool = spool
        self.targets = targets
        self.hip_openmp = hip_openmp
        self.warn = warn
        self.served: dict[str, list[int]] = {}
        """By ID as stored: which targets an entry serves."""

    def check_composition(self) -> None:
        """Refuse members that set a feature in one entry and leave it open in another."""
        for member, bundle in self._bundles():
            ids = {BundleEntryID.read(entry.id): entry.id for entry in bundle.entries}
            if conflict := first_conflict(ids):
                first, other = (ids[entry_id] for entry_id in conflict)
                raise FormatError(
                    f"conflicting TargetIDs [{first}, {other}] found in {member.name} of "
                    f"{self.source.path}"
                )

    def collect(self, opened: Callable[[OpenedBundle], None] | None) -> list[list[_Member]]:
        """Give the members of each target's archive."""
        collected: list[list[_Member]] = [[] for _ in self.targets]
        for member, bundle in self._bundles():
            if opened is not None:
                opened(bundle)
            for entry in bundle.entries:
                indexes = self._serves(entry.id)
                if not indexes:
                    continue
                made = self._member(member, entry)
                for index in indexes:
                    collected[index].append(made)
        return collected

    def _bundles(self) -> Iterator[tuple[ArchiveMember, OpenedBundle]]:
        forgotten = 0
        for member in iter_members(self.source.data, path=self.source.path):
            name = f"{self.source.path}({member.name})"
            if member.path is None:
                content = InputFile.from_data(name, member.content(self.source.data))
            else:
                content = InputFile(member.path)
            yield member, open_bundle(content, "o", wanted=lambda _: True)
            if member.path is not None:
                content.close()
            if member.offset + member.size - forgotten > _FORGET_AFTER:
                forgotten = member.offset + member.size
                self.source.forget()

    def _serves(self, entry_id: str) -> list[int]:
        if entry_id not in self.served:
            if not has_all_fields(entry_id):
                raise FormatError("Invalid bundle id read from code object")
            parsed = BundleEntryID.read(entry_id)
            self.served[entry_id] = [
                index
                for index, target in enumerate(self.targets)
                if is_compatible(parsed, target, hip_openmp=self.hip_openmp)
            ]
        return self.served[entry_id]

    def _member(self, member: ArchiveMember, entry: StoredEntry) -> _Member:
        piece = self._piece(member, entry)
        name = _member_name(member.name, entry.id)
        if "/" in name or "\0" in name or "\n" in name:
            raise FormatError(
                f"expected a plain name for a member, found {name!r}",
                path=self.source.path,
                offset=member.header_offset,
            )

        def warn(reason: str) -> None:
            if self.warn is not None:
                self.warn(f"'{name}': {reason}")

        path = f"{self.source.path}({member.name})"
        symbols = member_symbols(piece.data, path=path, offset=entry.offset, warn=warn)
        return _Member(name, symbols, piece.source, piece.offset, len(piece.data))

    def _piece(self, member: ArchiveMember, entry: StoredEntry) -> _Piece:
        """Find an entry's content in the archive; what is not there goes to the spool."""
        stored = member.path is None and not entry.is_host_object and not entry.is_decompressed
        if not stored:
            return self.spool.add(entry)
        data = entry.source.data[entry.offset : entry.offset + entry.size]
        return _Piece(self.source, member.offset + entry.offset, data)


def _member_name(member: str, entry_id: str) -> str:
    """Name a DSA's member, as LLVM does: the stem twice, with the entry's ID between."""
    stem, extension = _split(posixpath.basename(member))
    target_id = BundleEntryID.read(entry_id).target_id
    if target_id.partition(":")[0] in BUNDLER_NAMES:
        extension = ".bc" if "gfx" in target_id else extension
        extension = ".cubin" if "sm_" in target_id else extension
    return f"{stem}-{entry_id}{stem}{extension}".replace(":", "_")


def _split(name: str) -> tuple[str, str]:
    """Split off the last extension; unlike Python's splitext, ``.x`` is all extension."""
    stem, dot, extension = name.rpartition(".")
    return (stem, dot + extension) if dot and name not in (".", "..") else (name, "")
