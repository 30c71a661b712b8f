"""Merge files built from the same sources for different targets, on different machines.

::

    bundle (any layout),      one of all entries: the host's first, then by target ID, which is
    compressed or not         the order in which the SCons tool bundles a build of all targets
    offload binaries          all of them, in that order; one of all images, if one has several
    CUDA fat binaries         one of all entries: by target ID, cubins before PTX, which is the
                              order in which the SCons tool writes them
    kpack archives            one of all code objects, without recompression
    archives                  member by member, in the order of the first archive

Only one input may contain a given target, and host entries must be equal in all inputs.
The kernel copies uncompressed inputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack

from offload_tool.containers.file_format import FileFormat, recognise, text_comment
from offload_tool.containers.find import FoundContainer, FoundImage, containers_in
from offload_tool.containers.walk import CopyPolicy, Location, open_members
from offload_tool.errors import FormatError, OffloadError, UsageError
from offload_tool.formats.bundle.binary import find_alignment, plan_bundle, read_bundle
from offload_tool.formats.bundle.compressed import read_compressed_header
from offload_tool.formats.bundle.object_file import HOST_MARKER, plan_host, plan_object_bundle
from offload_tool.formats.bundle.text import plan_text_bundle
from offload_tool.formats.cuda.fatbin import CudaEntry, CudaImage, plan_entries, read_cuda_fatbin
from offload_tool.formats.kpack.archive import copied_image, read_kpack, spooled_kpack
from offload_tool.formats.objects.ar import NewMember, member_symbols, plan_archive
from offload_tool.formats.offload_binary import read_offload_binary
from offload_tool.formats.targets.bundle_entry_id import find_conflicts
from offload_tool.io import FileRange, InputFile, StrPath
from offload_tool.io.spool import Spool
from offload_tool.io.write_plan import FilePlan
from offload_tool.operations.bundle import Compression, compress_plan
from offload_tool.operations.package import plan_images
from offload_tool.util.frozen import frozen

_FORMATS = {
    FileFormat.BUNDLE: "a bundle",
    FileFormat.TEXT_BUNDLE: "a text bundle",
    FileFormat.ELF: "an ELF file",
    FileFormat.COFF: "a COFF file",
    FileFormat.ARCHIVE: "an archive",
    FileFormat.OFFLOAD_BINARY: "offload binaries",
    FileFormat.CUDA_FATBIN: "a CUDA fat binary",
    FileFormat.KPACK: "a kpack archive",
    None: "no container of device images",
}


class MergeError(OffloadError):
    """The inputs contradict each other."""


@frozen
class _Entry:
    input: Location
    image: FoundImage

    @property
    def content(self) -> FileRange:
        return self.image.content.range


def _order(image: FoundImage) -> tuple[bool, str, str, str]:
    return not image.is_host, image.target_id, image.kind, image.triple


def merge_files(paths: Sequence[StrPath], output: StrPath, *, keep_equal: bool = False) -> None:
    """Merge the files at `paths` into `output`, which may be one of them.

    `keep_equal` leaves an equal file untouched.

    :raises MergeError: two files contain the same target, two targets exclude each other, or
        host entries differ; the message names both files.
    :raises UsageError: there are fewer than two files, or their kinds cannot be merged.
    :raises FormatError, UnsupportedError, FileError: a file is broken, unsupported or unusable.
    """
    if len(paths) < 2:
        raise UsageError("expected two or more files to merge; give the builds of all targets")
    with ExitStack() as stack:
        merger = _Merger(stack.enter_context(Spool()))
        files = [stack.enter_context(InputFile(path)) for path in paths]
        merged = merger.merge([Location.of(file, str(file.path)) for file in files])
        merged.write(output, keep_equal=keep_equal)


class _Merger:
    def __init__(self, spool: Spool) -> None:
        self.spool = spool

    def merge(self, inputs: Sequence[Location]) -> FilePlan:
        formats = [recognise(item.source.data, anywhere=True) for item in inputs]
        names = [_FORMATS.get(file_format, "a file") for file_format in formats]
        for item, file_format, name in zip(inputs, formats, names, strict=True):
            if file_format is not formats[0]:
                raise _contradiction(inputs[0], names[0], item, name)
        mergers = {
            FileFormat.ARCHIVE: self._merge_archives,
            FileFormat.OFFLOAD_BINARY: self._merge_offload_binaries,
            FileFormat.CUDA_FATBIN: _merge_cuda,
            FileFormat.BUNDLE: self._merge_bundles,
            FileFormat.TEXT_BUNDLE: self._merge_bundles,
            FileFormat.ELF: self._merge_bundles,
            FileFormat.KPACK: self._merge_kpacks,
        }
        if formats[0] in mergers:
            return mergers[formats[0]](inputs)
        raise UsageError(
            f"'{inputs[0].label}': expected a bundle, offload binaries, CUDA fat binaries or an "
            "archive of these"
        )

    def _merge_kpacks(self, inputs: Sequence[Location]) -> FilePlan:
        """Merge the code objects of one group's archives, in their order."""
        archives = [read_kpack(item.source.data, path=item.label) for item in inputs]
        first, pairs = archives[0], [*zip(inputs, archives, strict=True)]
        for item, archive in pairs:
            archive.check_known(item.label)
            for what in ("group", "scheme"):
                ours, theirs = f"{what} {getattr(first, what)}", f"{what} {getattr(archive, what)}"
                if ours != theirs:
                    raise _contradiction(inputs[0], ours, item, theirs)
        images = [(item, image) for item, archive in pairs for image in archive.images]
        _check_once(
            ((image.key, image.target_id), item, f"{image.key} for {image.target_id}")
            for item, image in images
        )
        listed = dict.fromkeys(target for archive in archives for target in archive.target_ids)
        copied = [copied_image(image, item.source) for item, image in images]
        return spooled_kpack(self.spool, copied, first.group, list(listed), first.scheme)

    # -- bundles ---------------------------------------------------------------------

    def _merge_bundles(self, inputs: Sequence[Location]) -> FilePlan:
        bundles = [(item, _only_bundle(item)) for item in inputs]
        container = bundles[0][1].container
        for item, found in bundles:
            if found.container is not container:
                raise _contradiction(inputs[0], container.value, item, found.container.value)
            if not found.images:
                raise FormatError("expected a bundle with entries, found none", path=item.label)
        entries = _merged_entries(
            [[_Entry(item, image) for image in found.images] for item, found in bundles]
        )
        is_compressed = container is FileFormat.COMPRESSED_BUNDLE
        contents = [
            found.images[0].content.source if is_compressed else item.source
            for item, found in bundles
        ]
        layout = recognise(contents[0].data, anywhere=True)
        if layout is FileFormat.ELF:
            return self._object_bundle(inputs, entries)
        rows = ((entry.image.id, entry.content) for entry in entries)
        if layout is FileFormat.TEXT_BUNDLE:
            plan = plan_text_bundle(rows, text_comment(contents[0].data))
        else:
            tables = [
                read_bundle(content.data, 0, path=item.label)
                for content, item in zip(contents, inputs, strict=True)
            ]
            plan = plan_bundle(rows, find_alignment(tables))
        if is_compressed:
            headers = [read_compressed_header(item.source.data, path=item.label) for item in inputs]
            version = max(2, *(header.version for header in headers))
            form = Compression(headers[0].method, version=version)
            return FilePlan.of([self.spool.append(lambda out: compress_plan(out, plan, form))])
        return plan

    def _object_bundle(self, inputs: Sequence[Location], entries: Sequence[_Entry]) -> FilePlan:
        hosts = []
        for item in inputs:
            plan = plan_host(item.source.data, path=item.label).bound(item.source)
            hosts.append(self.spool.append(plan.write_to))
        for item, host in zip(inputs, hosts, strict=True):
            if host.data != hosts[0].data:
                raise _contradiction(inputs[0], "one host object", item, "another")
        data = hosts[0].data
        rows = [
            (e.image.id, HOST_MARKER if e.image.content.is_host_object else e.content)
            for e in entries
        ]
        return plan_object_bundle(data, rows, path=inputs[0].label).bound(data)

    # -- offload binaries ------------------------------------------------------------

    def _merge_offload_binaries(self, inputs: Sequence[Location]) -> FilePlan:
        """Concatenate binaries, or write one of all; it is compressed if all inputs were."""
        binaries = [
            (item, found) for item in inputs for found in containers_in(item.source, item.label)
        ]
        _check_once(
            (str(image.entry_id), item, f"an image for '{image.id}'")
            for item, found in binaries
            for image in found.images
        )
        if all(len(found.images) == 1 for _, found in binaries):
            binaries.sort(key=lambda row: _order(row[1].images[0]))
            return FilePlan.of(item.source.range(it.offset, it.size) for item, it in binaries)
        rows = []
        methods = []
        for item, found in binaries:
            data, stored, method = read_offload_binary(
                item.source.data, found.offset, path=item.label
            )
            methods.append(method)
            for image, entry in zip(found.images, stored.images, strict=True):
                content = entry.content(data) if method else image.content.range
                rows.append((_order(image), entry, content))
        rows.sort(key=lambda row: row[0])
        planned, contents = [row[1] for row in rows], [row[2] for row in rows]
        return plan_images(planned, contents, methods[0] if all(methods) else None, self.spool)

    # -- archives --------------------------------------------------------------------

    def _merge_archives(self, inputs: Sequence[Location]) -> FilePlan:
        archives = [dict(_members(item)) for item in inputs]
        for item, members in zip(inputs, archives, strict=True):
            for key in {**archives[0], **members}:
                has = [f"a member '{key[0]}'", f"no member '{key[0]}'"]
                if key not in members:
                    raise _contradiction(inputs[0], has[0], item, has[1])
                if key not in archives[0]:
                    raise _contradiction(inputs[0], has[1], item, has[0])
        rows = []
        for key, first in archives[0].items():
            merged = self._merge_members([members[key] for members in archives])
            symbols = member_symbols(first.source.data, path=first.label)
            rows.append(NewMember(key[0], merged, symbols))
        return plan_archive(rows)

    def _merge_members(self, group: Sequence[Location]) -> FilePlan:
        """Merge members of one name; members without images must be equal in all inputs."""
        holding = (
            found.container is not FileFormat.CODE_OBJECT
            for item in group
            for found in containers_in(item.source, item.label)
        )
        if any(holding) or recognise(group[0].source.data) is FileFormat.ARCHIVE:
            return self.merge(group)
        for item in group:
            if item.source.data != group[0].source.data:
                raise _contradiction(group[0], "one content", item, "another")
        source = group[0].source
        return FilePlan.of([source])


def _members(archive: Location) -> Iterator[tuple[tuple[str, int], Location]]:
    """Yield members by name and number, counted among members of that name."""
    counts: dict[str, int] = {}
    for member, location in open_members(archive, CopyPolicy("merge the files in it")):
        number = counts[member.name] = counts.get(member.name, 0) + 1
        yield (member.name, number), location


def _only_bundle(item: Location) -> FoundContainer:
    found = list(containers_in(item.source, item.label))
    embedded = [f"section {one.section}" for one in found if one.section and "*" not in one.section]
    if embedded:
        message = f"it embeds images in {embedded[0]}; merge the bundles before they are linked"
        raise UsageError(f"'{item.label}' cannot be merged: {message}")
    if any(one.container is FileFormat.CODE_OBJECT for one in found):
        message = "is a code object without a bundle around it; bundle the code objects"
        raise UsageError(f"'{item.label}' {message} ('bundler', 'packager')")
    if len(found) != 1:
        raise UsageError(f"'{item.label}': expected one bundle to merge, found {len(found)}")
    return found[0]


def _merged_entries(inputs: Sequence[Sequence[_Entry]]) -> list[_Entry]:
    entries: dict[str, _Entry] = {}
    for group in inputs:
        for entry in group:
            name = str(entry.image.entry_id)
            other = entries.setdefault(name, entry)
            if other is entry:
                continue
            if not entry.image.is_host:
                both = f"'{other.input.label}' and '{entry.input.label}'"
                raise MergeError(f"{both} both have an entry for '{name}'; take one out (thin)")
            # Host objects are compared after extraction.
            are_objects = all(one.image.content.is_host_object for one in (other, entry))
            if not are_objects and other.content.data != entry.content.data:
                raise _contradiction(other.input, "one host entry", entry.input, "another")
    hosts = [{e.image.id for e in group if e.image.is_host} for group in inputs]
    named = [f"host entry {', '.join(sorted(ids))}" if ids else "no host entry" for ids in hosts]
    for group, name in zip(inputs, named, strict=True):
        if name != named[0]:
            raise _contradiction(inputs[0][0].input, named[0], group[0].input, name)
    merged = sorted(entries.values(), key=lambda entry: _order(entry.image))
    if len(inputs[0]) > 1 and inputs[0][-1].image.is_host:
        # In bundles of relocatable device code, the host stays last.
        merged.sort(key=lambda entry: entry.image.is_host)
    spellings = [f"{entry.image.id} ({entry.input.label})" for entry in merged]
    problems = find_conflicts([entry.image.entry_id for entry in merged], spellings)
    if problems:
        raise MergeError("; ".join(problems))
    return merged


def _check_once(rows: Iterable[tuple[object, Location, str]]) -> None:
    """Reject a key that occurs in two inputs; each row has a key, its input, and its name."""
    first: dict[object, Location] = {}
    for key, item, what in rows:
        other = first.setdefault(key, item)
        if other is not item:
            raise MergeError(f"'{other.label}' and '{item.label}' both have {what}")


def _merge_cuda(inputs: Sequence[Location]) -> FilePlan:
    rows: list[tuple[Location, CudaEntry]] = []
    for item in inputs:
        for found in containers_in(item.source, item.label):
            fatbin = read_cuda_fatbin(item.source.data, found.offset, path=item.label)
            rows += ((item, entry) for entry in fatbin.entries)
    rows.sort(key=lambda row: _cuda_order(row[1].images))
    _check_once(
        (
            (image.image_kind, image.processor, image.identifier),
            item,
            f"an image for '{image.processor}'",
        )
        for item, entry in rows
        for image in entry.images
    )
    return plan_entries([item.source.range(entry.offset, entry.size) for item, entry in rows])


def _cuda_order(images: Sequence[CudaImage]) -> tuple[str, bool]:
    """Sort key: by target ID as users write it; cubins before code compiled at load time."""
    if not images:
        return "", False
    return f"sm_{images[0].processor.partition('_')[2]}", images[0].image_kind != "elf"


def _contradiction(first: Location, what: str, second: Location, other: str) -> MergeError:
    return MergeError(
        f"cannot merge '{first.label}' and '{second.label}': the first has {what}, "
        f"the second {other}"
    )
