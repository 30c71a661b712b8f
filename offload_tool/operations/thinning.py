"""Take images of other targets out of a file: the same file, for fewer devices.

Of each container, what the devices to keep may load stays (see `matching.may_load`), and so
do host entries. What is made::

    bundle (any layout),      the same layout, with the alignment that it had; compressed ones
    several in a file         are compressed again, in the same version, by the same method
    offload binary            whole binaries go; one of several images is laid out anew, and
                              compressed again if it was
    archive                   member by member, with a new symbol index
    ELF with .hip_fatbin      every bundle stays at its address (`elf_shrink`)
    object with               a shorter section
    .llvm.offloading

Everything else is refused with its reason.
"""

from __future__ import annotations

import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from offload_tool.containers.found import containers_in
from offload_tool.containers.kinds import Kind, recognise, text_comment
from offload_tool.containers.walk import OBJECT_BUNDLE_SECTIONS, OFFLOADING_SECTION
from offload_tool.errors import FormatError, UsageError
from offload_tool.files import InputFile, replace_file
from offload_tool.files.plan import FilePlan, Literal, Range
from offload_tool.files.spool import Spool
from offload_tool.formats.bundles.alignment import find_alignment
from offload_tool.formats.bundles.binary import MAGIC, plan_bundle, read_bundle
from offload_tool.formats.bundles.text import start_marker
from offload_tool.formats.names.entry_id import OffloadKind
from offload_tool.formats.objects.archive import NewMember, iter_members, plan_archive
from offload_tool.formats.objects.elf_tables import read_elf_tables
from offload_tool.operations.matching import NoImageError, explained, may_load

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from offload_tool.containers.found import Found
    from offload_tool.files import FileRange, StrPath
    from offload_tool.formats.bundles.compressed_stream import Method
    from offload_tool.formats.objects.elf_shrink import Replacement
    from offload_tool.formats.objects.elf_tables import ElfTables
    from offload_tool.operations.matching import Device, Load

__all__ = ["ThinReport", "thin_file"]

_ET_REL = 1
_SECTION_PREFIX = MAGIC
_NOT_ZERO = re.compile(rb"[^\0]")
_END_OF_LINE = re.compile(rb"\n[^\n]*\n?")
_HIGH_LEVEL = 19
_BINARY_ALIGNMENT = 8
"""Of offload binaries; the size of a compressed one is without the zeros at its end."""


@dataclass(frozen=True, slots=True)
class ThinReport:
    """What thinning did."""

    size_before: int
    """Bytes of the file."""
    size_after: int
    kept: int
    """Device images."""
    removed: int
    loads: tuple[tuple[str, Load], ...]
    """What the devices to keep would load: each device as it was given, with each image."""


def thin_file(path: StrPath, output: StrPath, keep: Sequence[Device]) -> ThinReport:
    """Write the file at `path` to `output` with only the images that `keep` would load.

    `output` may be `path`. Memory does not grow with the file.

    :raises NoImageError: there is no image for one of `keep`.
    :raises FormatError: the file is broken, has no container, or cannot be thinned safely.
    :raises UsageError: no devices, or a folder or zip file.
    :raises FileError: a file cannot be read or written.
    """
    if not keep:
        raise UsageError("no devices to keep: give at least one target ID")
    if Path(path).is_dir():
        raise UsageError(f"'{path}' is a folder: thin its files one by one")
    with InputFile(path) as source, Spool() as spool:
        thinner = _Thinner(keep, spool)
        plan = thinner.plan(source, str(path))
        thinner.check(path)
        with replace_file(output) as out:
            (plan or FilePlan.of([source.range(0, len(source))])).write_to(out)
            if (mode := _mode(path)) is not None and out.seekable:
                out.set_mode(mode)
            size = out.position
        return ThinReport(len(source), size, thinner.kept, thinner.removed, tuple(thinner.loads))


def _mode(path: StrPath) -> int | None:
    status = Path(path).stat()
    return stat.S_IMODE(status.st_mode) if stat.S_ISREG(status.st_mode) else None


class _Thinner:
    """One run; what is compressed anew goes to the spool."""

    def __init__(self, keep: Sequence[Device], spool: Spool) -> None:
        self.keep = keep
        self.spool = spool
        self.served: set[Device] = set()
        self.present: dict[str, None] = {}
        """The IDs of all device images."""
        self.loads: dict[tuple[str, Load], None] = {}
        self.kept = 0
        self.removed = 0

    def check(self, path: StrPath) -> None:
        """Refuse a run that found no image for a device."""
        unserved = [device for device in self.keep if device not in self.served]
        if unserved:
            raise NoImageError(path, unserved, self.present)

    def plan(self, source: InputFile, label: str) -> FilePlan | None:
        """Plan the new file; None if it is the old one."""
        kind = recognise(source.data, anywhere=True)
        if kind is Kind.ARCHIVE:
            return self._plan_archive(source, label)
        if kind in (Kind.BUNDLE, Kind.OFFLOAD_BINARY):
            return self._plan_sequence(source, label)
        if kind is Kind.TEXT_BUNDLE:
            return self._plan_text(source, label)
        if kind is Kind.ELF:
            return self._plan_elf(source, label)
        if kind is Kind.COFF:
            return self._plan_coff(source, label)
        if kind is Kind.ZIP:
            message = "is a zip file: unpack it, thin the files in it, and pack it again"
            raise UsageError(f"'{label}' {message} (a wheel: with `wheel unpack` and `wheel pack`)")
        if kind in (Kind.CUDA_FATBIN, Kind.BITCODE):
            for found in containers_in(source, label):
                if self._kept(found) is not None:
                    message = f"images cannot be taken out of {kind.value}"
                    raise FormatError(f"cannot be thinned: {message}", path=label)
        return None

    # -- what stays ------------------------------------------------------------------

    def _kept(self, found: Found) -> list[int] | None:
        """Give the indexes of the images that stay; None if all of them do."""
        kept = {at for at, image in enumerate(found.images) if image.kind == OffloadKind.HOST}
        hosts = len(kept)
        for device in self.keep:
            loads = explained(found.images, device)
            if loads:
                self.served.add(device)
            self.loads.update({(device.text, load): None for load in loads.values()})
            kept |= may_load(found.images, device)
        device_images = [image for image in found.images if image.kind != OffloadKind.HOST]
        self.present.update(dict.fromkeys(image.id for image in device_images))
        self.kept += len(kept) - hosts
        self.removed += len(found.images) - len(kept)
        if len(kept) == len(found.images):
            return None
        if found.container is Kind.CUDA_FATBIN:
            message = "a CUDA fat binary cannot be thinned; link the program again for fewer GPUs"
            raise FormatError(message, path=found.label, offset=found.offset)
        return sorted(kept)

    def _thin(
        self, source: InputFile, found: Found, *, limit: int | None = None
    ) -> FilePlan | None:
        """Plan what becomes of a container of the binary layouts; None if it stays.

        `limit` is how many bytes there are for one that is compressed.
        """
        kept = self._kept(found)
        if kept is None:
            return None
        if found.container is Kind.BUNDLE:
            return _thin_bundle(source, found, kept)
        if found.container is Kind.COMPRESSED_BUNDLE:
            return self._thin_compressed(source, found, kept, limit)
        return self._thin_offload_binary(source, found, kept) if kept else FilePlan((), 0)

    def _thin_offload_binary(
        self, source: InputFile, found: Found, kept: Sequence[int]
    ) -> FilePlan:
        """Lay out a binary of several images for those that stay; compressed as it was."""
        from offload_tool.formats.offload_binary import (
            plan_shared_offload_binary,
            planned_image,
            read_offload_binary,
            write_compressed_offload_binary,
        )

        data, binary, method = read_offload_binary(source.data, found.offset, path=found.label)
        images = [binary.images[at] for at in kept]
        rows = [planned_image(image) for image in images]
        if method is None:
            layout = plan_shared_offload_binary(rows)
            return layout.plan([source.range(image.offset, image.size) for image in images])
        layout = plan_shared_offload_binary(rows, version=3)
        start = self.spool.out.position
        write_compressed_offload_binary(
            self.spool.out, layout, [image.content(data) for image in images], method=method
        )
        return FilePlan.of([self.spool.since(start)])

    def _thin_compressed(
        self, source: InputFile, found: Found, kept: Sequence[int], limit: int | None
    ) -> FilePlan:
        from offload_tool.formats.bundles.compressed import read_compressed_header

        header = read_compressed_header(source.data, found.offset, path=found.label)
        if header.version == 1:
            message = "compressed bundles of version 1 can be read, but not written; unbundle it, "
            message += "and bundle its files again"
            raise FormatError(message, path=found.label, offset=found.offset)
        content = found.images[0].content.source
        ids = {found.images[at].id for at in kept}
        plan = _thin_content(content, ids, found.label)
        parts = list(plan.chunks())
        packed = self._compress(parts, header.version, header.method, None)
        if limit is not None and packed.size > limit:
            packed = self._compress(parts, header.version, header.method, _HIGH_LEVEL)
        return FilePlan.of([packed])

    def _compress(
        self, parts: Sequence[bytes | memoryview], version: int, method: Method, level: int | None
    ) -> FileRange:
        from offload_tool.formats.bundles.compressed import compress_bundle

        start = self.spool.out.position
        compress_bundle(self.spool.out, parts, version=version, method=method, level=level)
        return self.spool.since(start)

    # -- kinds of files --------------------------------------------------------------

    def _plan_archive(self, source: InputFile, label: str) -> FilePlan | None:
        from offload_tool.formats.objects.symbol_index import member_symbols

        new, plans, contents = [], [], []
        for member in iter_members(source.data, path=label):
            if member.path is not None:
                message = "is a thin archive: thin the files that are its members"
                raise UsageError(f"'{label}' {message}")
            name = f"{label}({member.name})"
            content = source.part(name, member.offset, member.size)
            plan = self.plan(content, name)
            symbols = member_symbols(content.data, path=name)  # thinning changes none of them
            size = member.size if plan is None else plan.size
            new.append(NewMember(member.name, size, symbols))
            plans.append(plan)
            contents.append(plan or content.range(0, member.size))
        if all(plan is None for plan in plans):
            return None
        layout = plan_archive(new)
        return layout.plan(contents)

    def _plan_sequence(self, source: InputFile, label: str) -> FilePlan | None:
        """Plan a file of bundles or offload binaries, one after the other."""
        parts: list[FilePlan | FileRange | int] = []
        position = end = 0
        changed = False
        for found in containers_in(source, label):
            if found.offset > end and found.size:
                gap = -position % min(found.offset & -found.offset, 4096)
                parts.append(gap)
                position += gap
            end = found.offset + found.size
            new = self._thin(source, found)
            changed = changed or new is not None
            parts.append(new or source.range(found.offset, found.size))
            position += new.size if new else found.size
        return FilePlan.of(parts) if changed else None

    def _plan_text(self, source: InputFile, label: str) -> FilePlan | None:
        (found,) = containers_in(source, label)
        kept = self._kept(found)
        if kept is None:
            return None
        return _thin_content(source, {found.images[at].id for at in kept}, label)

    def _plan_coff(self, source: InputFile, label: str) -> FilePlan | None:
        plan = None
        for found in containers_in(source, label):
            kept = self._kept(found)
            if kept is not None:
                if found.section != OBJECT_BUNDLE_SECTIONS:
                    message = f"images in section {found.section} of a COFF file cannot be removed"
                    raise FormatError(message, path=label, offset=found.offset)
                plan = _thin_content(source, {found.images[at].id for at in kept}, label)
        return plan

    def _plan_elf(self, source: InputFile, label: str) -> FilePlan | None:
        tables = read_elf_tables(source.data, path=label)
        changes: list[tuple[int, Replacement]] = []
        binaries: dict[int, list[tuple[Found, FilePlan | None]]] = {}
        changed = False
        plan = None
        for found in containers_in(source, label):
            if found.section == OBJECT_BUNDLE_SECTIONS:
                kept = self._kept(found)
                if kept is not None:
                    plan = _thin_content(source, {found.images[at].id for at in kept}, label)
                continue
            if found.container is Kind.CUDA_FATBIN:
                self._kept(found)  # raises if something would have to go
                continue
            new = self._thin(source, found, limit=found.size)
            changed = changed or new is not None
            number = _section_of(tables, found)
            if found.container is Kind.OFFLOAD_BINARY:
                binaries.setdefault(number, []).append((found, new))
            else:
                changes.append((number, _replacement(source, found, new)))
        if plan is not None and changed:
            raise FormatError(
                "cannot be thinned: it is an object bundle, and embeds bundles as well", path=label
            )
        if not changed:
            return plan
        from offload_tool.formats.objects.elf_shrink import plan_shrunk_elf

        for number, rows in binaries.items():
            if any(new is not None for _, new in rows):
                changes.append((number, _shorter_section(source, tables, number, rows)))
        _check_only_bundles(tables, changes)
        return plan_shrunk_elf(source.data, changes, path=label).bound(source)


def _replacement(source: InputFile, found: Found, new: FilePlan | None) -> Replacement:
    from offload_tool.formats.objects.elf_shrink import Replacement

    plan = new or FilePlan.of([source.range(found.offset, found.size)])
    return Replacement(found.offset, found.size, plan)


def _shorter_section(
    source: InputFile, tables: ElfTables, number: int, rows: Sequence[tuple[Found, FilePlan | None]]
) -> Replacement:
    """Replace all of a section of offload binaries: LLVM wants no bytes between them."""
    from offload_tool.formats.objects.elf_shrink import Replacement

    if tables.header.e_type != _ET_REL:
        message = f"a linked program has pointers to the images in {OFFLOADING_SECTION}"
        raise FormatError(f"{message}; link it again for fewer targets", path=tables.path)
    section = tables.sections[number]
    plan = FilePlan.of(
        new or source.range(found.offset, found.size + -found.size % _BINARY_ALIGNMENT)
        for found, new in rows
    )
    return Replacement(section.sh_offset, section.sh_size, plan)


def _section_of(tables: ElfTables, found: Found) -> int:
    for number, row in enumerate(tables.sections):
        inside = row.sh_offset <= found.offset < row.sh_offset + row.sh_size
        name = tables.names[number].decode("utf-8", "backslashreplace")
        if row.has_content and inside and name == found.section:
            return number
    raise FormatError(f"expected a section at offset {found.offset}", path=tables.path)


def _check_only_bundles(tables: ElfTables, changes: Iterable[tuple[int, Replacement]]) -> None:
    """Refuse sections that hold something else: nobody knows who needs it."""
    ends: dict[int, int] = {}
    for number, change in sorted(changes, key=lambda item: item[1].start):
        _check_zeros(tables, number, ends.get(number), change.start)
        ends[number] = change.start + change.size
    for number, end in ends.items():
        section = tables.sections[number]
        _check_zeros(tables, number, end, section.sh_offset + section.sh_size)


def _check_zeros(tables: ElfTables, number: int, start: int | None, end: int) -> None:
    start = tables.sections[number].sh_offset if start is None else start
    if found := _NOT_ZERO.search(tables.data, start, max(start, end)):
        message = f"expected bundles and zeros in {tables.label(number)}, found something else"
        raise FormatError(message, path=tables.path, offset=found.start())


def _thin_bundle(source: InputFile, found: Found, kept: Sequence[int]) -> FilePlan:
    bundle = read_bundle(source.data, found.offset, path=found.label)
    images = [found.images[at] for at in kept]
    if not images:
        return FilePlan.of([MAGIC + bytes(8)])
    rows = [(image.id, image.content.size) for image in images]
    layout = plan_bundle(rows, find_alignment([bundle]))
    contents = [
        Range(entry.offset, *image.content.range)
        for image, entry in zip(images, layout.entries, strict=True)
    ]
    return FilePlan((Literal(0, layout.header), *contents), layout.size)


def _thin_content(source: InputFile, kept: set[str], label: str) -> FilePlan:
    """Plan a bundle that is a file of its own, of any layout, with the `kept` entries."""
    kind = recognise(source.data, anywhere=True)
    found = next(containers_in(source, label))
    if kind is Kind.BUNDLE:
        stays = [at for at, image in enumerate(found.images) if image.id in kept]
        return _thin_bundle(source, found, stays)
    if kind is Kind.TEXT_BUNDLE:
        return _thin_text(source, found, kept)
    names = {_SECTION_PREFIX + entry_id.encode("utf-8", "surrogateescape") for entry_id in kept}
    if kind is Kind.COFF:
        from offload_tool.formats.objects.coff_edit import plan_coff as plan_sections
    else:
        from offload_tool.formats.objects.elf_edit import plan_elf as plan_sections

    def removed(name: bytes) -> bool:
        return name.startswith(_SECTION_PREFIX) and name not in names

    return plan_sections(source.data, removed=removed, path=label).bound(source)


def _thin_text(source: InputFile, found: Found, kept: set[str]) -> FilePlan:
    """Take entries out with their markers; text between entries stays."""
    parts: list[FileRange] = []
    start = 0
    comment_size = len(text_comment(source.data))
    for image in found.images:
        if image.id in kept:
            continue
        first, size = image.content.offset, image.content.size
        begin = first - len(start_marker("", image.id)) - comment_size
        end = _END_OF_LINE.match(source.data, first + size)
        parts.append(source.range(start, begin - start))
        start = end.end() if end else first + size
    parts.append(source.range(start, len(source) - start))
    return FilePlan.of(parts)
