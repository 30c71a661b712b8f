"""Split device code from the host in finished libraries, programs, folders and wheels.

HIP code, which a runtime can load from elsewhere, becomes kpack archives, one per target ID::

    libx.so            ->  DIR/libx.so                   without device code, with a marker
                           DIR/.kpack/libx.so_gfx942.kpack
    folder F           ->  DIR/...                       all of F; markers lead to the root
                           DIR/.kpack/F_gfx942.kpack
      in parts         ->  DIR/F_host/...                to be laid over one another
                           DIR/F_gfx942/.kpack/F_gfx942.kpack
    wheel x-1-T.whl    ->  DIR/x-1-T.whl                 extras device-gfx942, device-all
                           DIR/x_device_gfx942-1-T.whl   x/.kpack/x_gfx942.kpack, ...

CUDA and OpenMP code is thinned: ``DIR/sm_90/`` has the file, folder or wheel for that target ID
(see `thin`). If the input has HIP code, other code stays with the host; the report lists it.

A kernel key consists of the file's path from the archive's root folder, and the index from
`offload_tool.formats.kpack.marker`.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from offload_tool.containers.file_format import FileFormat, recognise
from offload_tool.containers.find import FoundContainer, FoundImage, containers_in
from offload_tool.containers.walk import Location
from offload_tool.errors import (
    FormatError,
    NoContainerError,
    OffloadError,
    UnsupportedError,
    UsageError,
)
from offload_tool.formats.hip_fatbin import SECTION
from offload_tool.formats.kpack import archive as kpack
from offload_tool.formats.kpack.archive import ZSTD
from offload_tool.formats.kpack.marker import (
    PLACEHOLDER,
    KpackMarker,
    LinkedWrappers,
    pack_marker,
    plan_marked,
)
from offload_tool.formats.objects.elf.reader import ET_REL, read_elf_tables
from offload_tool.formats.objects.elf.segments import Replacement
from offload_tool.formats.targets.bundle_entry_id import OffloadKind
from offload_tool.formats.targets.compatibility import SPIRV_PROCESSOR
from offload_tool.formats.targets.target_id import TargetID
from offload_tool.formats.wheel import WheelName, in_file_name, installed_path, is_wheel
from offload_tool.io import StrPath
from offload_tool.io.limits import effective_budget
from offload_tool.io.output_folder import OutputFolder, new_folder
from offload_tool.io.spool import Spool
from offload_tool.io.write_plan import FilePlan
from offload_tool.operations.match import Device
from offload_tool.operations.split_wheel import DeviceWheels
from offload_tool.operations.thin import COMPILED_LATER, check_only_bundles, section_of, thin_file
from offload_tool.operations.tree import (
    FileTree,
    FolderTree,
    FolderWriter,
    TreeFile,
    WheelTree,
    WheelWriter,
    check_outside,
)

_UNSAFE = re.compile(r"[^A-Za-z0-9._+-]+")


class SplitPart(NamedTuple):
    """A written file or folder."""

    path: Path
    target_id: str | None
    """None for the host's part; the entry ID for images without a target ID."""
    size: int
    """Bytes of the file; 0 for a folder."""
    images: int
    """Number of device images in it; after thinning, of kept images."""


@dataclass(frozen=True, slots=True)
class SplitReport:
    """Result of splitting."""

    parts: tuple[SplitPart, ...]
    marked: tuple[str, ...]
    """Files whose device code was removed, by their names in the input."""
    left: tuple[tuple[str, int], ...]
    """Files with device images that no runtime would load from elsewhere, with their counts."""


class WheelOptions(NamedTuple):
    """Options for wheels of device code."""

    prefix: str | None = None
    """Prefix of their names; default: the wheel's name and ``-device``."""
    overlay_root: str | None = None
    """The folder in the wheel for ``.kpack``; default: its only package."""
    requires: Sequence[str] = ()
    """Their requirements; ``@GFXARCH@`` is replaced by each wheel's target."""


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

    `group` is the first part of the archives' names (default: the input's name); `scheme` is one
    of `kpack.SCHEMES`. With `in_parts`, a folder becomes one folder for the host and one for each
    target ID. `wheel` has the options for wheels of device code. The directory is created if
    needed. Existing files of the same names are replaced; with `keep_equal`, those that already
    have the same bytes are left untouched. All outputs are written, or none.

    :raises NoContainerError: there is no device code.
    :raises UnsupportedError: an input cannot be split, or is signed.
    :raises UsageError: an option does not fit the input, or archives cannot hold a name.
    :raises FormatError, FileError: a file is broken, or cannot be read or written.
    """
    if scheme not in kpack.SCHEMES:
        raise UsageError(f"expected the scheme {' or '.join(kpack.SCHEMES)}, found {scheme!r}")
    source = Path(path)
    if group is not None and (not group or _UNSAFE.search(group)):
        raise UsageError(
            f"the group {group!r} is to be a part of file names; use letters, digits, and . _ + -"
        )
    is_folder = os.path.isdir(source)
    is_whl = not is_folder and is_wheel(path)
    if in_parts and not is_folder:
        raise UsageError(f"'{path}' is no folder: its parts are files already; leave --parts out")
    if wheel is not None and not is_whl:
        raise UsageError(f"'{path}' is not a wheel; wheel options do not apply: leave them out")
    if is_folder:
        check_outside(directory, source, "split")
    with ExitStack() as stack:
        folder = stack.enter_context(new_folder(directory, keep_equal=keep_equal))
        run = _Splitting(source, group, scheme, stack.enter_context(Spool()))
        if is_whl:
            parts = _split_wheel(run, folder, wheel or WheelOptions())
        else:
            opened: FileTree | FolderTree = FolderTree(path) if is_folder else FileTree(path)
            stack.enter_context(opened)
            parts = _split_tree(run, folder, opened, in_parts=in_parts)
        parts = parts or _thinned(source, folder, run)
    moved = tuple(part._replace(path=Path(directory, part.path)) for part in parts)
    return SplitReport(moved, tuple(run.marked), tuple(run.left.items()))


def _thinned(source: Path, folder: OutputFolder, run: _Splitting) -> list[SplitPart]:
    """Write a thinned copy for each target ID of an input without HIP code."""
    targets = sorted(run.others)
    if not targets:
        raise NoContainerError("expected device code of one target ID at least", path=source)
    parts = []
    for target_id in targets:
        inner = _safe(target_id)
        folder.folder(inner)  # a new output is written as a whole, by its path
        path = Path(inner, source.name)
        out = folder.temporary / path
        effective_budget().next_file()  # each part reads the input again
        report = thin_file(source, out, keep=[Device.parse(target_id)])
        size = 0 if os.path.isdir(out) else report.size_after
        parts.append(SplitPart(path, target_id, size, report.kept))
    run.left.clear()
    return parts


def _safe(text: str) -> str:
    return _UNSAFE.sub("_", text)


class _Splitting:
    """One run: removes device code from files, and collects it for archives."""

    def __init__(self, path: Path, group: str | None, scheme: str, spool: Spool) -> None:
        self.path = path
        self.spool = spool
        self.is_file = not os.path.isdir(path) and not is_wheel(path)
        self.group = group
        self.scheme = scheme
        self.images: dict[str, list[kpack.NewKpackImage]] = {}
        """By target ID."""
        self.marked: list[str] = []
        self.left: Counter[str] = Counter()
        self.others: set[str] = set()
        """Target IDs of non-HIP code; the entry ID of an image without one."""

    def plan(self, location: Location, name: str, root: str, archives: str) -> FilePlan | None:
        """Plan a file without its HIP code; keys are relative to `root`, `archives` to it."""
        source, label = location.source, location.label
        is_elf = recognise(source.data) is FileFormat.ELF
        tables = read_elf_tables(source.data, path=label) if is_elf else None
        has_code = tables is not None and any(
            found == SECTION.encode() and row.has_content and row.sh_size
            for found, row in zip(tables.names, tables.sections, strict=True)
        )
        if tables is None or not has_code or tables.header.e_type == ET_REL:
            for found in containers_in(source, label):
                self._record_left(found, name)
            if has_code and self.is_file:
                message = "cannot be split: it is an object: split what is linked of it"
                raise UnsupportedError(message, path=label)
            return None
        kernel_name = posixpath.relpath(name, root)
        wrappers = LinkedWrappers(tables)
        if any(row.is_marked for row in wrappers.rows):
            message = "cannot be split: some of its device code is in kpack archives already"
            raise UnsupportedError(message, path=label)
        self._collect(location, name, wrappers, kernel_name)
        search = posixpath.relpath(posixpath.join(root, archives), posixpath.dirname(name) or ".")
        marker = pack_marker(KpackMarker(kernel_name, (search,)))
        self.marked.append(name)
        return plan_marked(wrappers, marker).bound(source)

    def _collect(
        self, location: Location, name: str, wrappers: LinkedWrappers, kernel_name: str
    ) -> None:
        tables, label = wrappers.tables, location.label
        indexes = wrappers.indexes()
        bundles: list[Replacement] = []
        for found in containers_in(location.source, label):
            if found.section != SECTION:
                self._record_left(found, name)
                continue
            number = section_of(tables, found)
            row = tables.sections[number]
            address = row.sh_addr + found.offset - row.sh_offset
            size = FilePlan((), found.size)
            bundles.append(Replacement(number, found.offset, found.size, size))
            index = indexes.pop(address, None)
            if index is None:
                message = "cannot be split: no wrapper leads to this bundle, so nothing loads it"
                raise UnsupportedError(message, path=label, offset=found.offset)
            self._collect_images(found, kpack.kernel_key(kernel_name, index))
        for address in indexes:
            message = f"expected a bundle at address {address:#x}, to which a wrapper leads"
            raise FormatError(message, path=label)
        check_only_bundles(tables, bundles)

    def _collect_images(self, found: FoundContainer, key: str) -> None:
        for image in found.device_images:
            target_id = _target_id(found, image)
            rows = self.images.setdefault(target_id, [])
            if rows and rows[-1].key == key:
                message = f"two images of one bundle are for {target_id}"
                raise UnsupportedError(f"cannot be split: {message}", path=found.label)
            content = image.content
            stays = self.is_file and not content.is_decompressed  # a tree's files get closed
            kept = content.range if stays else self.spool.append(content.write_to)
            rows.append(kpack.NewKpackImage(key, target_id, kept))

    def _record_left(self, found: FoundContainer, name: str) -> None:
        if found.container in (FileFormat.KPACK, FileFormat.KPACK_MARKER):
            return
        for image in found.device_images:
            self.left[name] += 1
            if image.kind not in OffloadKind.ANY_HIP and image.image_kind not in COMPILED_LATER:
                self.others.add(image.target_id or image.id)

    def archives(self, group: str) -> Iterator[tuple[str, str, FilePlan]]:
        """Yield each target ID with the name and plan of its archive."""
        for target_id in sorted(self.images):
            name = f"{kpack.FOLDER}/{kpack.archive_name(group, target_id)}"
            images = _forgetting(self.images[target_id])
            yield (
                target_id,
                name,
                kpack.spooled_kpack(self.spool, images, group, [target_id], self.scheme),
            )


def _forgetting(images: Sequence[kpack.NewKpackImage]) -> Iterator[kpack.NewKpackImage]:
    for image in images:
        yield image
        image.content.source.forget()


def _target_id(found: FoundContainer, image: FoundImage) -> str:
    """Return the target ID as a runtime spells it; raise UnsupportedError if none requests it."""
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


def _split_tree(
    run: _Splitting, folder: OutputFolder, tree: FileTree | FolderTree, *, in_parts: bool
) -> list[SplitPart]:
    """Write the parts of a file or folder; return none if there is no code for kpack archives."""
    name = run.path.name if run.is_file else os.path.basename(os.path.realpath(run.path))
    group = run.group or _safe(name)
    host = f"{name}_host/" if in_parts else ""
    writer = FolderWriter(tree, folder, host)
    archives = f"{kpack.FOLDER}/{kpack.archive_name(group, PLACEHOLDER)}"
    if isinstance(tree, FileTree) and recognise(tree.source.data) is FileFormat.ZIP:
        message = "is a zip file, but no wheel; unpack it, and split the folder"
        raise UsageError(f"'{run.path}' {message}")
    writer.rewrite(lambda location, file: run.plan(location, file.name, "", archives))
    if not run.images:
        if run.is_file and run.left and not run.others:
            message = "cannot be split: it holds HIP code that is not linked into an ELF program "
            raise UnsupportedError(message + "or library", path=run.path)
        return []
    writer.copy_kept()
    path, size = (Path(name), writer.size) if run.is_file else (Path(host), 0)
    parts = [SplitPart(path, None, size, run.left.total())]
    for target_id, inner, made in run.archives(group):
        if any(file.name == inner for file in tree.files):
            message = "is there already; give another group"
            raise UsageError(f"'{tree.path(inner)}' {message}")
        path = Path(f"{name}_{_safe(target_id)}", inner) if in_parts else Path(inner)
        if in_parts:
            folder.write(str(path), made)
        else:
            writer.add(inner, made)
        parts.append(SplitPart(path, target_id, made.size, len(run.images[target_id])))
    writer.finish()
    return parts


def _split_wheel(run: _Splitting, folder: OutputFolder, options: WheelOptions) -> list[SplitPart]:
    with WheelTree(run.path) as tree:
        own = WheelName.parse(run.path.name)
        wheels = DeviceWheels(tree, own, options.prefix, options.requires)
        group = run.group or in_file_name(wheels.name)
        root = _overlay_root(tree, options.overlay_root)
        writer = WheelWriter(tree, run.spool)
        archives = f"{kpack.FOLDER}/{kpack.archive_name(group, PLACEHOLDER)}"

        def plan(location: Location, file: TreeFile) -> FilePlan | None:
            planned = run.plan(location, tree.installed(file), root, archives)
            if planned is not None and installed_path(file.name) is None:
                message = "cannot be split: it is installed outside of the folder of packages"
                raise UnsupportedError(message, path=location.label)
            return planned

        writer.rewrite(plan)
        bundles: dict[str, dict[str, FilePlan]] = defaultdict(dict)
        images: Counter[str] = Counter()
        for target_id, inner, made in run.archives(group):
            bundle = target_id.partition(":")[0]
            bundles[bundle][posixpath.join(root, inner)] = made
            images[bundle] += len(run.images[target_id])
        parts = []
        for bundle, files in bundles.items():
            name, wheel = wheels.plan(bundle, files, run.spool)
            parts.append(SplitPart(Path(name), bundle, folder.write(name, wheel), images[bundle]))
        if parts:
            writer.put(*wheels.host_metadata(list(bundles)))
            writer.finish()
            size = folder.write(run.path.name, writer.plan())
            parts.insert(0, SplitPart(Path(run.path.name), None, size, run.left.total()))
        return parts


def _overlay_root(tree: WheelTree, given: str | None) -> str:
    """Return the folder for the archives; "" for that of packages. Raise UsageError."""
    if given is not None:
        root = posixpath.normpath(given)
        if root.startswith(("/", "..")) or not (
            root == "." or any(f.name.startswith(f"{root}/") for f in tree.files)
        ):
            raise UsageError(
                f"the overlay root '{given}' is no folder of '{tree.label}'; "
                "name one of its packages"
            )
        return "" if root == "." else root
    firsts = {f.name.partition("/")[0] for f in tree.files if "/" in f.name}
    folders = sorted(f for f in firsts if not f.endswith((".dist-info", ".data", ".libs")))
    if len(folders) != 1:
        found = ", ".join(folders) or "none"
        message = f"expected one package in '{tree.label}', found {found}; give the overlay root"
        raise UsageError(f"{message}, the folder that is to have {kpack.FOLDER}")
    return folders[0]
