"""Remove images of other targets from a file.

Images that the devices to keep may load stay (see `match.may_load`), and so do host entries.
Outputs by input::

    bundle (any layout),      the same layout and alignment; compressed ones are recompressed
    several in a file         in the same version, by the same method
    offload binary            whole binaries are removed; one of several images is laid out
                              again, and recompressed if it was compressed
    archive                   member by member, with a new symbol index
    ELF with .hip_fatbin,     every bundle or fat binary stays at its address (`segments`)
    CUDA's sections
    kpack archive             its other code objects, without recompression
    CUDA fat binary           its other entries, unchanged; PTX and NVVM stay by default,
                              because later devices need them
    COFF and PE files         unchanged in a folder, wheel or archive; else rejected
    code object               nothing: in a folder, wheel or archive, the file is left out
    object with               a shorter section
    .llvm.offloading

Each file of a folder or wheel is thinned; so is a wheel in a folder.

CUDA fat binaries in other sections stay unchanged, because the surrounding data may depend on
their sizes. All other inputs are rejected with a reason.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack

from offload_tool.containers.file_format import FileFormat, recognise, text_comment
from offload_tool.containers.find import (
    CUDA_SECTION_NAMES,
    FoundContainer,
    FoundImage,
    containers_in,
)
from offload_tool.containers.walk import OBJECT_BUNDLE_SECTIONS, CopyPolicy, Location, open_members
from offload_tool.errors import FormatError, UnsupportedError, UsageError
from offload_tool.formats.bundle.binary import find_alignment, plan_bundle, read_bundle
from offload_tool.formats.bundle.compressed import read_compressed_header
from offload_tool.formats.bundle.text import START, marker
from offload_tool.formats.cuda.fatbin import plan_entries, read_cuda_fatbin
from offload_tool.formats.kpack.archive import copied_image, read_kpack, spooled_kpack
from offload_tool.formats.magic import BUNDLE as MAGIC
from offload_tool.formats.magic import aligned
from offload_tool.formats.objects.ar import NewMember, member_symbols, plan_archive
from offload_tool.formats.objects.device_elf import is_code_object
from offload_tool.formats.objects.elf.edit_sections import plan_elf
from offload_tool.formats.objects.elf.reader import ET_REL, ElfTables, read_elf_tables
from offload_tool.formats.objects.elf.segments import Replacement, plan_shrunk_elf
from offload_tool.formats.offload_binary import read_offload_binary
from offload_tool.formats.wheel import is_wheel
from offload_tool.io import FileRange, InputFile, StrPath
from offload_tool.io.paths import is_same_file
from offload_tool.io.spool import Spool
from offload_tool.io.write_plan import FilePlan
from offload_tool.operations.bundle import Compression, compress_plan
from offload_tool.operations.match import (
    Device,
    Load,
    RequestedDevices,
    candidates_of,
    is_linked_for,
    may_load,
)
from offload_tool.operations.package import plan_images
from offload_tool.operations.tree import FileTree, WheelTree, WheelWriter, check_outside, rewritten
from offload_tool.util.frozen import frozen, replaced

_NOT_ZERO = re.compile(rb"[^\0]")
_END_OF_LINE = re.compile(rb"\n[^\n]*\n?")
_HIGH_LEVEL = 19
_CUBINS = frozenset({"elf", "cubin"})
COMPILED_LATER = frozenset({"ptx", "relocatable ptx", "nvvm", "tile ir"})
"""CUDA image kinds that are kept for later devices."""
_BINARY_ALIGNMENT = 8
"""Alignment of offload binaries; the size of a compressed one excludes the zeros at its end."""


@frozen
class ThinReport:
    """Result of thinning."""

    size_before: int
    """Bytes of the file, or of all files of the folder."""
    size_after: int
    kept: int
    """Number of device images."""
    removed: int
    loads: tuple[tuple[str, Load], ...]
    """Images that the devices to keep would load: each device as it was given, with each image."""
    untouched: tuple[tuple[str, int], ...]
    """Sections whose images all stay, because the surrounding data may depend on their sizes,
    with the number of their device images (also counted in `kept`)."""
    left_out: tuple[str, ...] = ()
    """Files and members left out because all their images were removed."""


def thin_file(
    path: StrPath,
    output: StrPath,
    *,
    keep: Sequence[Device],
    keep_ptx: bool = True,
    keep_equal: bool = False,
) -> ThinReport:
    """Write the file at `path` to `output` with only the images that `keep` would load.

    For a folder or wheel, thin every file in it, update RECORD, and copy other files. `output` may
    be `path`. `keep_equal` leaves an equal file untouched. Memory use does not depend on the file's
    size. Without `keep_ptx`, CUDA's PTX and NVVM are removed too, unless a device to keep loads
    them.

    :raises NoImageError: there is no image for one of `keep`, or no container at all.
    :raises UnsupportedError: the file cannot be thinned safely.
    :raises UsageError: no devices, a zip file that is not a wheel, or an output in the folder.
    :raises FormatError, FileError: a file is broken, or cannot be read or written.
    """
    if not keep:
        raise UsageError("no devices to keep; give at least one target ID")
    if os.path.isdir(path) and not is_same_file(output, path):
        check_outside(output, path, "thinned", "write elsewhere, or to the folder itself")
    with Spool() as spool, ExitStack() as stack:
        thinner = _Thinner(keep, spool, stack, keep_ptx=keep_ptx)
        with rewritten(path, output, spool, keep_equal=keep_equal) as writer:
            thinner.in_tree = not isinstance(writer.tree, FileTree)
            writer.rewrite(thinner.plan)
            thinner.requested.check(path)
        return ThinReport(
            size_before=writer.tree.size,
            size_after=writer.size,
            kept=thinner.kept,
            removed=thinner.removed,
            loads=tuple(thinner.loads),
            untouched=tuple(thinner.untouched.items()),
            left_out=tuple(thinner.left_out),
        )


class _Thinner:
    def __init__(
        self, keep: Sequence[Device], spool: Spool, stack: ExitStack, *, keep_ptx: bool
    ) -> None:
        self.in_tree = False
        self.requested = RequestedDevices(keep)
        self.keep_ptx = keep_ptx
        self.spool = spool
        self.stack = stack
        """Holds the open wheel of a folder."""
        self.loads: dict[tuple[str, Load], None] = {}
        self.untouched: Counter[str] = Counter()
        self.left_out: list[str] = []
        self.kept = 0
        self.removed = 0

    def plan(self, location: Location, _: object = None) -> FilePlan | None:
        """Plan the new file; None if unchanged, empty if it consists of removed images only."""
        if is_code_object(location.source.data):
            return self._plan_sequence(location)
        planners = {
            FileFormat.ARCHIVE: self._plan_archive,
            FileFormat.BUNDLE: self._plan_sequence,
            FileFormat.OFFLOAD_BINARY: self._plan_sequence,
            FileFormat.CUDA_FATBIN: self._plan_sequence,
            FileFormat.KPACK: self._plan_kpack,
            FileFormat.TEXT_BUNDLE: self._plan_text,
            FileFormat.ELF: self._plan_elf,
            FileFormat.COFF: self._keep_coff,
            FileFormat.ZIP: self._plan_zip,
            FileFormat.BITCODE: self._keep_bitcode,
        }
        file_format = recognise(location.source.data, anywhere=True)
        return planners[file_format](location) if file_format in planners else None

    # -- what stays ------------------------------------------------------------------

    def _keep_all(self, found: FoundContainer, why: str) -> None:
        """Keep all images of a container in a tree; reject a single file with images to remove."""
        if self._select(found, whole=self.in_tree) is not None:
            raise UnsupportedError(f"cannot be thinned: {why}", path=found.label)

    def _select(self, found: FoundContainer, *, whole: bool = False) -> list[int] | None:
        """Count the kept images; return their indexes, or None if all are kept, as with `whole`."""
        kept = {at for at, image in enumerate(found.images) if image.is_host}
        hosts = len(kept)
        self.loads.update(dict.fromkeys(load for _, load in self.requested.loads(found)))
        for device in self.requested.devices:
            if not is_linked_for(candidates_of(found.linked), device):
                kept |= may_load(candidates_of(found.images), device)
        if whole or _stays_in_its_section(found):
            where = f"{found.label}, {found.section}" if self.in_tree else str(found.section)
            self.untouched[where] += len(found.images)
            kept = set(range(len(found.images)))
        elif found.container is FileFormat.CUDA_FATBIN:
            kept = self._select_cuda(found, kept)
        self.kept += len(kept) - hosts
        self.removed += len(found.images) - len(kept)
        return sorted(kept) if len(kept) < len(found.images) else None

    def _select_cuda(self, found: FoundContainer, kept: set[int]) -> set[int]:
        """Add images for no specific device, and those that share an entry with a kept one."""
        images = found.images
        removable = _CUBINS if self.keep_ptx else _CUBINS | COMPILED_LATER
        kept = kept | {at for at, i in enumerate(images) if i.image_kind not in removable}
        entries = {number for at in kept if (number := _cuda_entry(images[at])) is not None}
        return kept | {at for at, i in enumerate(images) if _cuda_entry(i) in entries}

    def _thin(
        self, source: InputFile, found: FoundContainer, *, limit: int | None = None
    ) -> FilePlan | None:
        """Plan a container's replacement, of `limit` bytes if compressed; None if it stays."""
        kept = self._select(found)
        if kept is None:
            return None
        if found.container is FileFormat.BUNDLE:
            return _thin_bundle(source, found, kept)
        if found.container is FileFormat.COMPRESSED_BUNDLE:
            return self._thin_compressed(source, found, kept, limit)
        if found.container is FileFormat.CUDA_FATBIN:
            return _thin_cuda(source, found, kept)
        return self._thin_offload_binary(source, found, kept) if kept else FilePlan((), 0)

    def _thin_offload_binary(
        self, source: InputFile, found: FoundContainer, kept: Sequence[int]
    ) -> FilePlan:
        data, binary, method = read_offload_binary(source.data, found.offset, path=found.label)
        images = [binary.images[at] for at in kept]
        contents = [
            image.content(data) if method else source.range(image.offset, image.size)
            for image in images
        ]
        return plan_images(images, contents, method, self.spool)

    def _thin_compressed(
        self, source: InputFile, found: FoundContainer, kept: Sequence[int], limit: int | None
    ) -> FilePlan:
        header = read_compressed_header(source.data, found.offset, path=found.label)
        if header.version == 1:
            raise UnsupportedError(
                "compressed bundles of version 1 can be read, but not written; unbundle it, and "
                "bundle its files again",
                path=found.label,
                offset=found.offset,
            )
        plan = _thin_content(found.images[0].content.source, found, kept)
        form = Compression(header.method, version=header.version)
        packed = self.spool.append(lambda out: compress_plan(out, plan, form))
        if limit is not None and packed.size > limit:
            form = replaced(form, level=_HIGH_LEVEL)
            packed = self.spool.append(lambda out: compress_plan(out, plan, form))
        return FilePlan.of([packed])

    # -- formats of files --------------------------------------------------------------

    def _plan_archive(self, archive: Location) -> FilePlan | None:
        new, plans = [], []
        policy = CopyPolicy("thin the files that are its members")
        for member, location in open_members(archive, policy):
            plan = self.plan(location)
            plans.append(plan)
            if plan is not None and not plan.size:
                continue
            # Thinning does not change symbols.
            symbols = member_symbols(location.source.data, path=location.label)
            content = plan or location.source
            new.append(NewMember(member.name, content, symbols))
        return None if all(plan is None for plan in plans) else plan_archive(new)

    def _plan_zip(self, location: Location) -> FilePlan | None:
        """Plan a wheel in a folder; it stays open until the next one."""
        if not self.in_tree:
            message = "is a zip file, but no wheel by its name; unpack it, and thin the folder"
            raise UsageError(f"'{location.label}' {message}")
        if is_wheel(location.path) and not location.names:
            self.stack.close()
            wheel = WheelWriter(self.stack.enter_context(WheelTree(location.path)), self.spool)
            wheel.rewrite(self.plan)
            wheel.finish()
            return wheel.plan() if wheel.is_changed else None
        if any(True for _ in containers_in(location.source, location.label)):
            message = "cannot be thinned where it is: it is a zip file; thin it by itself before"
            raise UnsupportedError(message, path=location.label)
        return None

    def _keep_bitcode(self, location: Location) -> None:
        for found in containers_in(location.source, location.label):
            if self._select(found) is not None:
                message = "cannot be thinned: images cannot be taken out of bitcode"
                raise UnsupportedError(message, path=location.label)

    def _plan_kpack(self, location: Location) -> FilePlan | None:
        source, label = location.source, location.label
        archive = read_kpack(source.data, path=label)
        stays: set[tuple[str, str]] = set()
        changed = False
        for found in containers_in(source, label):
            selected = self._select(found)
            changed |= selected is not None
            rows = range(len(found.images)) if selected is None else selected
            key = found.location.names[-1]
            stays.update((key, found.images[at].target_id) for at in rows)
        if not changed:
            return None
        archive.check_known(label)
        kept = (row for row in archive.images if (row.key, row.target_id) in stays)
        images = [copied_image(row, source) for row in kept]
        targets = {target for _, target in stays}
        target_ids = [target for target in archive.target_ids if target in targets]
        return spooled_kpack(self.spool, images, archive.group, target_ids, archive.scheme)

    def _plan_sequence(self, location: Location) -> FilePlan | None:
        source = location.source
        parts: list[FilePlan | FileRange | int] = []
        position = end = 0
        changed = False
        for found in containers_in(source, location.label):
            if found.offset > end and found.size:
                gap = -position % min(found.offset & -found.offset, 4096)
                parts.append(gap)
                position += gap
            end = found.offset + found.size
            new = self._thin(source, found)
            changed = changed or new is not None
            parts.append(new or source.range(found.offset, found.size))
            position += new.size if new else found.size
        plan = FilePlan.of(parts) if changed else None
        if plan is not None and not plan.size:
            self.left_out.append(location.label)
        return plan

    def _plan_text(self, location: Location) -> FilePlan | None:
        (found,) = containers_in(location.source, location.label)
        return self._thin_whole(location.source, found)

    def _thin_whole(self, source: InputFile, found: FoundContainer) -> FilePlan | None:
        kept = self._select(found)
        return None if kept is None else _thin_content(source, found, kept)

    def _keep_coff(self, location: Location) -> None:
        for found in containers_in(location.source, location.label):
            self._keep_all(found, "only ELF files are changed; thin its bundles before the link")

    def _plan_elf(self, location: Location) -> FilePlan | None:
        source, label = location.source, location.label
        tables = read_elf_tables(source.data, path=label)
        changes: list[Replacement] = []
        binaries: dict[int, list[tuple[FoundContainer, FilePlan | None]]] = {}
        changed = False
        plan = None
        for found in containers_in(source, label):
            if found.section == OBJECT_BUNDLE_SECTIONS:
                plan = self._thin_whole(source, found)
                continue
            if found.container is FileFormat.OFFLOAD_BINARY and tables.header.e_type != ET_REL:
                why = f"a linked program has pointers to the images in {found.section}; "
                self._keep_all(found, f"{why}link it again for fewer targets")
                continue
            new = self._thin(source, found, limit=found.size)
            if _stays_in_its_section(found):
                continue
            changed = changed or new is not None
            number = section_of(tables, found)
            if found.container is FileFormat.OFFLOAD_BINARY:
                binaries.setdefault(number, []).append((found, new))
            else:
                content = new or FilePlan.of([source.range(found.offset, found.size)])
                changes.append(Replacement(number, found.offset, found.size, content))
        if plan is not None and changed:
            message = "cannot be thinned: it is an object bundle, and embeds bundles as well"
            raise UnsupportedError(message, path=label)
        if not changed:
            return plan
        for number, rows in binaries.items():
            if any(new is not None for _, new in rows):
                changes.append(_shorter_section(source, tables, number, rows))
        check_only_bundles(tables, changes)
        return plan_shrunk_elf(tables, changes).bound(source)


def _shorter_section(
    source: InputFile,
    tables: ElfTables,
    number: int,
    rows: Sequence[tuple[FoundContainer, FilePlan | None]],
) -> Replacement:
    """Replace a whole section of offload binaries: LLVM allows no bytes between them."""
    section = tables.sections[number]
    plan = FilePlan.of(
        new or source.range(found.offset, aligned(found.size, _BINARY_ALIGNMENT))
        for found, new in rows
    )
    return Replacement(number, section.sh_offset, section.sh_size, plan)


def section_of(tables: ElfTables, found: FoundContainer) -> int:
    """Return the number of the section that holds a container; raise FormatError if none."""
    for number, row in enumerate(tables.sections):
        inside = row.sh_offset <= found.offset < row.sh_offset + row.sh_size
        name = tables.names[number].decode("utf-8", "backslashreplace")
        if row.has_content and inside and name == found.section:
            return number
    raise FormatError(f"expected a section at offset {found.offset}", path=tables.path)


def check_only_bundles(tables: ElfTables, changes: Iterable[Replacement]) -> None:
    """Reject sections with other content: its users are unknown."""
    ends: dict[int, int] = {}
    for change in sorted(changes, key=lambda item: item.start):
        start = ends.get(change.section, tables.sections[change.section].sh_offset)
        _check_zeros(tables, change.section, start, change.start)
        ends[change.section] = change.start + change.size
    for number, end in ends.items():
        section = tables.sections[number]
        _check_zeros(tables, number, end, section.sh_offset + section.sh_size)


def _check_zeros(tables: ElfTables, number: int, start: int, end: int) -> None:
    if found := _NOT_ZERO.search(tables.data, start, max(start, end)):
        message = f"expected bundles and zeros in {tables.label(number)}, found something else"
        raise UnsupportedError(message, path=tables.path, offset=found.start())


def _stays_in_its_section(found: FoundContainer) -> bool:
    """Return whether the data around a CUDA fat binary may depend on its size."""
    is_cuda = found.container is FileFormat.CUDA_FATBIN
    return is_cuda and found.section not in (None, *CUDA_SECTION_NAMES)


def _cuda_entry(image: FoundImage) -> int | None:
    """Return the index of an image's fat binary entry, if the entry can be removed."""
    return None if image.content.cuda is None else image.content.cuda.image.entry


def _thin_cuda(source: InputFile, found: FoundContainer, kept: Sequence[int]) -> FilePlan:
    stays = {_cuda_entry(found.images[at]) for at in kept}
    fatbin = read_cuda_fatbin(source.data, found.offset, path=found.label)
    entries = [entry for number, entry in enumerate(fatbin.entries) if number in stays]
    return plan_entries([source.range(entry.offset, entry.size) for entry in entries])


def _thin_bundle(source: InputFile, found: FoundContainer, kept: Sequence[int]) -> FilePlan:
    bundle = read_bundle(source.data, found.offset, path=found.label)
    images = [found.images[at] for at in kept]
    if not images:
        return FilePlan.of([MAGIC + bytes(8)])
    rows = ((image.id, image.content.range) for image in images)
    return plan_bundle(rows, find_alignment([bundle]))


def _thin_content(source: InputFile, found: FoundContainer, kept: Sequence[int]) -> FilePlan:
    """Plan the content of a bundle, of any layout, which may be compressed in its file."""
    file_format = recognise(source.data, anywhere=True)
    if file_format is FileFormat.BUNDLE:
        return _thin_bundle(source, replaced(found, offset=0), kept)
    ids = {found.images[at].id for at in kept}
    if file_format is FileFormat.TEXT_BUNDLE:
        return _thin_text(source, found, ids)
    names = {MAGIC + entry_id.encode("utf-8", "surrogateescape") for entry_id in ids}

    def removed(name: bytes) -> bool:
        return name.startswith(MAGIC) and name not in names

    return plan_elf(source.data, removed=removed, path=found.label).bound(source)


def _thin_text(source: InputFile, found: FoundContainer, kept: set[str]) -> FilePlan:
    """Plan a text without the removed entries and their markers; text between entries stays."""
    parts: list[FileRange] = []
    start = 0
    comment_size = len(text_comment(source.data))
    for image in found.images:
        if image.id in kept:
            continue
        first, size = image.content.offset, image.content.size
        begin = first - len(marker("", START, image.id)) - comment_size
        end = _END_OF_LINE.match(source.data, first + size)
        parts.append(source.range(start, begin - start))
        start = end.end() if end else first + size
    parts.append(source.range(start, len(source) - start))
    return FilePlan.of(parts)
