"""Device code apart from the host: finished libraries, programs, folders and wheels cut apart.

What has a loader at run time, HIP, becomes kpack archives, one for each target ID::

    libx.so            ->  DIR/libx.so                   without device code, with a marker
                           DIR/.kpack/libx.so_gfx942.kpack
    folder F           ->  DIR/...                       all of F; markers lead to the root
                           DIR/.kpack/F_gfx942.kpack
      in parts         ->  DIR/F_host/...                to be laid over one another
                           DIR/F_gfx942/.kpack/F_gfx942.kpack
    wheel x-1-T.whl    ->  DIR/x-1-T.whl                 extras device-gfx942, device-all
                           DIR/x_device_gfx942-1-T.whl   x/.kpack/x_gfx942.kpack, ...

What has none, CUDA and OpenMP, is thinned: ``DIR/sm_90/`` has the file, folder or wheel for that
target ID (see `thin`). Where there is HIP code, other code stays with the host, which is told.

A kernel key is the file's path from the root that the archive is for, and the index that
`offload_tool.formats.kpack.wrappers` gives.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from offload_tool.containers.file_format import FileFormat, recognise
from offload_tool.containers.find import FoundContainer, FoundImage, containers_in
from offload_tool.containers.walk import Place
from offload_tool.errors import (
    FormatError,
    NoContainerError,
    OffloadError,
    UnsupportedError,
    UsageError,
)
from offload_tool.formats.hip.fatbin_section import SECTION
from offload_tool.formats.kpack.archive import (
    FOLDER,
    SCHEMES,
    ZSTD,
    NewKpackImage,
    archive_name,
    kernel_key,
    write_kpack,
)
from offload_tool.formats.kpack.marker import PLACEHOLDER, KpackMarker, pack_marker
from offload_tool.formats.kpack.wrappers import LinkedWrappers, plan_marked
from offload_tool.formats.objects.elf.reader import ET_REL, read_elf_tables
from offload_tool.formats.objects.elf.shrink_section import Replacement
from offload_tool.formats.target.bundle_entry_id import OffloadKind
from offload_tool.formats.target.compatibility import SPIRV_PROCESSOR
from offload_tool.formats.target.target_id import TargetID
from offload_tool.formats.wheel import WheelName, in_file_name, installed_path, is_wheel
from offload_tool.io import FileRange, InputFile, OutputFile, StrPath
from offload_tool.io.output_folder import OutputFolder, new_folder
from offload_tool.io.spool import Spool
from offload_tool.io.write_plan import FilePlan
from offload_tool.operations.match import Device
from offload_tool.operations.thin import COMPILED_LATER, check_only_bundles, section_of
from offload_tool.operations.tree import (
    FolderTree,
    FolderWriter,
    Tree,
    TreeFile,
    WheelTree,
    WheelWriter,
    is_inside,
)

_UNSAFE = re.compile(r"[^A-Za-z0-9._+-]+")


class SplitPart(NamedTuple):
    """A file or folder that was written."""

    path: Path
    target_id: str | None
    """None: the host's."""
    size: int
    """Bytes of the file; 0 of a folder."""
    images: int
    """Device images in it; of a thinned one, those that were kept."""


@dataclass(frozen=True, slots=True)
class SplitReport:
    """What splitting did."""

    parts: tuple[SplitPart, ...]
    marked: tuple[str, ...]
    """The files that lost their device code, by their names in the input."""
    left: tuple[tuple[str, int], ...]
    """Files with device images that no runtime would load from elsewhere, and how many."""


class WheelOptions(NamedTuple):
    """How the wheels of device code are made."""

    prefix: str | None = None
    """Of their names; default: that of the wheel, and ``-device``."""
    overlay_root: str | None = None
    """The folder in the wheel that has ``.kpack``; default: its one package."""
    requires: Sequence[str] = ()
    """Requirements of theirs; ``@GFXARCH@`` stands for the target in each."""


def split_file(
    path: StrPath,
    directory: StrPath,
    *,
    group: str | None = None,
    scheme: str = ZSTD,
    in_parts: bool = False,
    wheel: WheelOptions | None = None,
    keep_equal: bool = False,
) -> SplitReport:
    """Split the library, program, folder or wheel at `path` into `directory`.

    `group` is the first part of the archives' names, by default the input's; `scheme` one of
    `kpack.SCHEMES`. `in_parts` gives of a folder a folder for the host, and one for each target ID;
    `wheel` says how wheels of device code are made of one.
    The directory is made if it is not there; files of the same names in it are replaced, or with
    `keep_equal` left untouched where they already have the very bytes. All are written, or none.

    :raises NoContainerError: there is no device code.
    :raises FormatError: something is broken.
    :raises UnsupportedError: something cannot be split, or is signed.
    :raises UsageError: options that do not fit the input, or names that archives cannot hold.
    :raises FileError: a file cannot be read or written.
    """
    if scheme not in SCHEMES:
        raise UsageError(f"expected the scheme {' or '.join(SCHEMES)}, found {scheme!r}")
    source = Path(path)
    if group is not None and (not group or _UNSAFE.search(group)):
        raise UsageError(
            f"the group {group!r} is to be a part of file names; use letters, digits, and . _ + -"
        )
    if source.is_dir():
        if is_inside(directory, source):
            raise UsageError(
                f"the output '{directory}' is in the folder to be split, '{path}'; write elsewhere"
            )
        run: _Splitting = _SplitFolder(source, group, scheme, in_parts=in_parts)
    elif is_wheel(path):
        run = _SplitWheel(source, group, scheme, wheel or WheelOptions())
    else:
        run = _SplitFile(source, group, scheme)
    if in_parts and not isinstance(run, _SplitFolder):
        raise UsageError(f"'{path}' is no folder: its parts are files already; leave --parts out")
    if wheel is not None and not isinstance(run, _SplitWheel):
        raise UsageError(
            f"'{path}' is no wheel: options of wheels mean nothing for it; leave them out"
        )
    with new_folder(directory, keep_equal=keep_equal) as folder, Spool() as run.spool:
        parts = run.write(folder)
        if not parts:
            parts = _thinned(source, folder, run)
    moved = tuple(part._replace(path=Path(directory, part.path)) for part in parts)
    return SplitReport(moved, tuple(run.marked), tuple(run.left.items()))


def _thinned(source: Path, folder: OutputFolder, run: _Splitting) -> list[SplitPart]:
    """Return a thinned one for each target ID of an input without HIP code."""
    from offload_tool.operations.thin import thin_file

    targets = sorted(run.others)
    if not targets:
        raise NoContainerError("expected device code of one target ID at least", path=source)
    parts = []
    for target_id in targets:
        inner = _safe(target_id)
        folder.folder(inner)  # where nothing is yet, a whole output is written by its path
        path = Path(inner, source.name)
        out = folder.temporary / path
        report = thin_file(source, out, keep=[Device.parse(target_id)])
        size = 0 if out.is_dir() else report.size_after
        parts.append(SplitPart(path, target_id, size, report.kept))
    run.left.clear()
    return parts


def _safe(text: str) -> str:
    return _UNSAFE.sub("_", text)


class _Splitting:
    """One run."""

    spool: Spool

    def __init__(self, path: Path, group: str | None, scheme: str) -> None:
        self.path = path
        self.group = group
        self.scheme = scheme
        self.images: dict[str, list[NewKpackImage]] = {}
        """By target ID."""
        self.marked: list[str] = []
        self.left: Counter[str] = Counter()
        self.others: set[str] = set()
        """Target IDs of code that is not HIP's."""

    def write(self, folder: OutputFolder) -> list[SplitPart]:
        """Write the parts; none if there is no code for kpack archives."""
        raise NotImplementedError

    # -- one file ----------------------------------------------------------------------

    def plan(self, place: Place, name: str, root: str, archives: str) -> FilePlan | None:
        """Plan a file of the name `name` without its HIP code; None if it has none.

        Its kernel keys count from the folder `root`, which has `archives`, the archives' path with
        a placeholder.
        """
        source, label = place.source, place.label
        if recognise(source.data) is not FileFormat.ELF:
            self._look(place, name)
            return None
        tables = read_elf_tables(source.data, path=label)
        if not any(
            found == SECTION.encode() and row.has_content and row.sh_size
            for found, row in zip(tables.names, tables.sections, strict=True)
        ):
            self._look(place, name)
            return None
        if tables.header.e_type == ET_REL:
            self._look(place, name)
            self.refuse(label, "is an object: split what is linked of it")
            return None
        kernel_name = posixpath.relpath(name, root)
        wrappers = LinkedWrappers(tables)
        if any(row.is_marked for row in wrappers.rows):
            message = "cannot be split: some of its device code is in kpack archives already"
            raise UnsupportedError(message, path=label)
        self._take(place, name, wrappers, kernel_name)
        search = posixpath.relpath(posixpath.join(root, archives), posixpath.dirname(name) or ".")
        marker = pack_marker(KpackMarker(kernel_name, (search,)))
        self.marked.append(name)
        return plan_marked(wrappers, marker).bound(source)

    def _take(self, place: Place, name: str, wrappers: LinkedWrappers, kernel_name: str) -> None:
        """Keep the images of a file for the archives."""
        tables, label = wrappers.tables, place.label
        indexes = wrappers.indexes()
        bundles: list[tuple[int, Replacement]] = []
        for found in containers_in(place.source, label):
            if found.section != SECTION:
                self._leave(found, name)
                continue
            number = section_of(tables, found)
            row = tables.sections[number]
            address = row.sh_addr + found.offset - row.sh_offset
            size = FilePlan((), found.size)
            bundles.append((number, Replacement(found.offset, found.size, size)))
            index = indexes.pop(address, None)
            if index is None:
                message = "cannot be split: no wrapper leads to this bundle, so nothing loads it"
                raise UnsupportedError(message, path=label, offset=found.offset)
            self._take_images(found, kernel_key(kernel_name, index))
        for address in indexes:
            message = f"expected a bundle at address {address:#x}, to which a wrapper leads"
            raise FormatError(message, path=label)
        check_only_bundles(tables, bundles)

    def _take_images(self, found: FoundContainer, key: str) -> None:
        for image in found.images:
            if image.kind == OffloadKind.HOST:
                continue
            target_id = _target_id(found, image)
            rows = self.images.setdefault(target_id, [])
            if rows and rows[-1].key == key:
                message = f"two images of one bundle are for {target_id}"
                raise UnsupportedError(f"cannot be split: {message}", path=found.label)
            rows.append(NewKpackImage(key, target_id, self._kept(image)))

    def _kept(self, image: FoundImage) -> FileRange:
        """Return an image as it can be read until the end."""
        return self.spool.added(image.content.write_to)

    def _look(self, place: Place, name: str) -> None:
        """Note what device code there is in another file."""
        for found in containers_in(place.source, place.label):
            self._leave(found, name)

    def _leave(self, found: FoundContainer, name: str) -> None:
        if found.container in (FileFormat.KPACK, FileFormat.KPACK_MARKER):
            return
        for image in found.images:
            if image.kind == OffloadKind.HOST:
                continue
            self.left[name] += 1
            if image.kind not in OffloadKind.ANY_HIP and image.image_kind not in COMPILED_LATER:
                self.others.add(image.target_id)

    def refuse(self, label: str, message: str) -> None:
        """Report that one file cannot be split, which may be all that there is."""

    # -- archives ----------------------------------------------------------------------

    def archive(self, group: str, target_id: str) -> Callable[[OutputFile], None]:
        """Return what writes the archive of a target ID."""

        def write(out: OutputFile) -> None:
            write_kpack(
                out,
                self._forgetting(self.images[target_id]),
                group=group,
                target_ids=[target_id],
                scheme=self.scheme,
            )

        return write

    def _forgetting(self, images: Sequence[NewKpackImage]) -> Iterator[NewKpackImage]:
        for image in images:
            yield image
            image.content.source.forget()

    def targets(self) -> list[str]:
        """Return the target IDs that have an archive."""
        return sorted(self.images)


def _target_id(found: FoundContainer, image: FoundImage) -> str:
    """Return the target ID as a runtime asks for it.

    :raises UnsupportedError: no runtime does.
    """
    message = ""
    if image.kind not in OffloadKind.ANY_HIP:
        message = f"{image.id} is no code of HIP, though it is in {SECTION}"
    elif image.target_id == SPIRV_PROCESSOR or not image.target_id:
        message = f"no runtime loads {image.id} from a kpack archive; take it out with 'thin', or "
        message += "build without it"
    if message:
        raise UnsupportedError(
            f"cannot be split: {message}", path=found.label, offset=image.content.offset
        )
    try:
        text = str(TargetID.parse(image.target_id, allow_unknown=True))
    except OffloadError as error:
        message = f"cannot be split: {error}"
        raise UnsupportedError(message, path=found.label, offset=image.content.offset) from error
    return text


class _SplitFile(_Splitting):
    """Of a library or program."""

    def write(self, folder: OutputFolder) -> list[SplitPart]:
        name = self.path.name
        group = self.group or _safe(name)
        with InputFile(self.path) as source:
            if recognise(source.data) is FileFormat.ZIP:
                raise UsageError(
                    f"'{self.path}' is a zip file, but no wheel; unpack it, and split the folder"
                )
            place = Place.of(source, str(self.path))
            archives = f"{FOLDER}/{archive_name(group, PLACEHOLDER)}"
            plan = self.plan(place, name, "", archives)
            if plan is None:
                if self.left and not self.others:
                    self.refuse(
                        str(self.path),
                        "holds HIP code that is not linked into an ELF program or library",
                    )
                return []
            mode = self.path.stat().st_mode & 0o777
            size = folder.write(name, plan, mode)
            parts = [SplitPart(Path(name), None, size, self.left.total())]
            return [*parts, *self.archives(folder, group)]

    def _kept(self, image: FoundImage) -> FileRange:
        content = image.content
        return super()._kept(image) if content.is_decompressed else content.range

    def refuse(self, label: str, message: str) -> None:
        raise UnsupportedError(f"cannot be split: it {message}", path=label)

    def archives(self, folder: OutputFolder, group: str) -> Iterator[SplitPart]:
        """Write the archives."""
        for target_id in self.targets():
            path = Path(FOLDER, archive_name(group, target_id))
            with folder.file(str(path)) as out:
                self.archive(group, target_id)(out)
                size = out.position
            yield SplitPart(path, target_id, size, len(self.images[target_id]))


class _SplitTree(_Splitting):
    """Of many files."""

    def walk(
        self, tree: Tree, root: str, archives: str
    ) -> Iterator[tuple[TreeFile, FilePlan | None]]:
        """Take the device code out of all files; give each with what it becomes, or None."""
        for file in tree.files:
            if file.kind != "file":
                yield file, None
                continue
            with tree.open(file) as place:
                installed = tree.installed(file)
                yield file, None if place is None else self.plan(place, installed, root, archives)


class _SplitFolder(_SplitTree):
    def __init__(self, path: Path, group: str | None, scheme: str, *, in_parts: bool) -> None:
        super().__init__(path, group, scheme)
        self.in_parts = in_parts

    def write(self, folder: OutputFolder) -> list[SplitPart]:
        name = self.path.resolve().name
        group = self.group or _safe(name)
        host = f"{name}_host/" if self.in_parts else ""
        tree = FolderTree(self.path)
        writer = FolderWriter(tree, folder, host)
        kept = []
        for file, plan in self.walk(tree, "", f"{FOLDER}/{archive_name(group, PLACEHOLDER)}"):
            if plan is None:
                kept.append(file)
            else:
                writer.put(file, plan)
        if not self.images:
            return []
        for file in kept:
            writer.keep(file)
        parts = [SplitPart(Path(host), None, 0, self.left.total())]
        for target_id in self.targets():
            inner = f"{FOLDER}/{archive_name(group, target_id)}"
            if any(file.name == inner for file in tree.files):
                message = "is there already; give another group"
                raise UsageError(f"'{tree.path(inner)}' {message}")
            made = FilePlan.of([self.spool.added(self.archive(group, target_id))])
            if self.in_parts:
                path = f"{name}_{_safe(target_id)}/{inner}"
                folder.write(path, made)
            else:
                path = inner
                writer.add(inner, made)
            images = len(self.images[target_id])
            parts.append(SplitPart(Path(path), target_id, made.size, images))
        writer.finish()
        return parts


class _SplitWheel(_SplitTree):
    def __init__(self, path: Path, group: str | None, scheme: str, options: WheelOptions) -> None:
        super().__init__(path, group, scheme)
        self.options = options
        self.wheel = WheelName.parse(path.name)

    def plan(self, place: Place, name: str, root: str, archives: str) -> FilePlan | None:
        plan = super().plan(place, name, root, archives)
        if plan is not None and installed_path(name) is None:
            message = "cannot be split: it is installed outside of the folder of packages"
            raise UnsupportedError(message, path=place.label)
        return plan

    def write(self, folder: OutputFolder) -> list[SplitPart]:
        from offload_tool.operations.split_wheel import DeviceWheels

        with WheelTree(self.path) as tree:
            wheels = DeviceWheels(tree, self.wheel, self.options.prefix, self.options.requires)
            group = self.group or in_file_name(wheels.name)
            root = self._overlay_root(tree)
            writer = WheelWriter(tree, self.spool)
            for file, plan in self.walk(tree, root, f"{FOLDER}/{archive_name(group, PLACEHOLDER)}"):
                if plan is None:
                    writer.keep(file)
                else:
                    writer.put(file, plan)
            if not self.images:
                return []
            parts = []
            bundles: dict[str, list[str]] = {}
            for target_id in self.targets():
                bundles.setdefault(target_id.partition(":")[0], []).append(target_id)
            for bundle, targets in bundles.items():
                made = {
                    posixpath.join(root, FOLDER, archive_name(group, target)): FilePlan.of(
                        [self.spool.added(self.archive(group, target))]
                    )
                    for target in targets
                }
                name, plan = wheels.plan(bundle, made, self.spool)
                size = folder.write(name, plan)
                images = sum(len(self.images[target]) for target in targets)
                parts.append(SplitPart(Path(name), bundle, size, images))
            file, metadata = wheels.host_metadata(list(bundles))
            writer.put(file, metadata)
            writer.finish()
            size = folder.write(self.path.name, writer.plan())
            return [SplitPart(Path(self.path.name), None, size, self.left.total()), *parts]

    def _overlay_root(self, tree: Tree) -> str:
        given = self.options.overlay_root
        folders = {
            first
            for file in tree.files
            for first, slash, _ in [file.name.partition("/")]
            if slash and not first.endswith((".dist-info", ".data", ".libs"))
        }
        if given is not None:
            root = posixpath.normpath(given)
            if root.startswith(("/", "..")) or not (
                root == "." or any(f.name.startswith(f"{root}/") for f in tree.files)
            ):
                raise UsageError(
                    f"the overlay root '{given}' is no folder of '{self.path}'; "
                    "name one of its packages"
                )
            return "" if root == "." else root
        if len(folders) != 1:
            found = ", ".join(sorted(folders)) or "none"
            message = f"expected one package in '{self.path}', found {found}; give the overlay root"
            raise UsageError(f"{message}, the folder that is to have {FOLDER}")
        return folders.pop()
