"""Join split device code with its host: the inverse of splitting.

::

    DIR/libx.so, DIR/.kpack/...            ->  libx.so with a bundle for each key of its wrappers
    folder, and folders to be laid over    ->  folder: its libraries so, and without archives
    wheel of the host, those of its code   ->  wheel, without the extras for device code

Lookup follows the runtime: by the paths of a library's marker, which are compared with the
archives' names, and by its keys. A bundle has an empty host entry, and an image for each
target ID, uncompressed, as clang writes it. It is appended to the file (see `segments`), because
splitting leaves no space for it.

Joining rejects hosts whose code is missing, and archives with code that no host refers to.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from offload_tool.containers.file_format import FileFormat, recognise
from offload_tool.containers.kpack import entry_id_of, neighbouring_archives
from offload_tool.containers.walk import Location
from offload_tool.errors import (
    FileError,
    FormatError,
    NoContainerError,
    UnsupportedError,
    UsageError,
)
from offload_tool.formats.bundle.binary import plan_bundle
from offload_tool.formats.hip_fatbin import ALIGNMENT, WRAPPER_SECTION
from offload_tool.formats.kpack import archive as kpack
from offload_tool.formats.kpack.marker import (
    PLACEHOLDER,
    KpackMarker,
    LinkedWrappers,
    plan_unmarked,
    read_marker,
)
from offload_tool.formats.objects.elf.reader import ET_REL, ElfTables, read_elf_tables
from offload_tool.formats.targets.bundle_entry_id import BundleEntryID, OffloadKind
from offload_tool.formats.wheel import WheelName, header, is_wheel, without_headers
from offload_tool.io import FileRange, InputFile, StrPath
from offload_tool.io.spool import Spool
from offload_tool.io.write_plan import FilePlan, Part
from offload_tool.operations.split_wheel import DeviceWheels, device_headers
from offload_tool.operations.tree import (
    NOTHING,
    FolderTree,
    FolderWriter,
    Tree,
    TreeFile,
    TreeWriter,
    WheelTree,
    WheelWriter,
    check_outside,
    rewritten,
)

_HOSTS = {62: "x86_64", 183: "aarch64", 21: "powerpc64le", 243: "riscv64", 258: "loongarch64"}
_EXTRA = re.compile(r"^Provides-Extra: device-(?!all$)(\S+)$", re.MULTILINE)


class JoinReport(NamedTuple):
    """Result of joining."""

    files: int
    """Programs and libraries whose code was restored."""
    images: int
    """Device images in these files."""


def join_file(
    host: StrPath, parts: Sequence[StrPath], output: StrPath, *, keep_equal: bool = False
) -> JoinReport:
    """Write the program, library, folder or wheel `host` with its device code to `output`.

    `parts` are kpack archives; for a folder, folders to be laid over it; for a wheel, the wheels of
    its device code. Archives at the paths in the markers need not be given. `keep_equal` leaves an
    equal file untouched.

    :raises NoContainerError: the host refers to no device code.
    :raises FormatError: a file is broken, or code that the host refers to is missing.
    :raises UnsupportedError: the host cannot be joined safely.
    :raises UsageError: a part is of the wrong kind, or has code that the host does not refer to.
    :raises FileError: a file cannot be read or written.
    """
    is_folder = os.path.isdir(host)
    is_whl = not is_folder and is_wheel(host)
    for part in parts:
        if is_folder and not os.path.isdir(part):
            raise UsageError(
                f"'{part}' is no folder, as what is laid over a folder must be; give a folder"
            )
        if is_whl and not is_wheel(part):
            raise UsageError(
                f"'{part}' is not a wheel, and only wheels can be joined with a wheel; give a wheel"
            )
    for folder in (host, *parts) if is_folder else ():
        check_outside(output, folder, "joined")
    with ExitStack() as stack:
        joining = _Joining(host, stack, stack.enter_context(Spool()))
        with rewritten(host, output, joining.spool, keep_equal=keep_equal) as writer:
            if isinstance(writer, FolderWriter):
                joining.folders(writer, parts)
            elif isinstance(writer, WheelWriter):
                joining.wheels(writer, parts)
            else:
                joining.program(writer, parts)
        return JoinReport(joining.files, joining.images)


class _Archive:
    def __init__(self, name: str, location: Location, *, anywhere: bool) -> None:
        self.name = name
        """The name that markers' paths are compared with."""
        self.anywhere = anywhere
        """Whether only the last part of its name counts: it was given as a single file."""
        self.location = location
        self.archive: kpack.KpackArchive = kpack.read_kpack(
            location.source.data, path=location.label
        )
        self.images = kpack.images_by_key(self.archive)
        self.requested: set[str] = set()

    def target_ids(self, pattern: str) -> tuple[str, ...]:
        """Return the target IDs for which a marker's path names this archive."""
        name = self.name
        if self.anywhere:
            pattern, name = posixpath.basename(pattern), posixpath.basename(name)
        before, found, after = pattern.partition(PLACEHOLDER)
        if not found:
            return self.archive.target_ids if name == pattern else ()
        whole = re.fullmatch(f"{re.escape(before)}(.+){re.escape(after)}", name)
        return (whole[1],) if whole and whole[1] in self.archive.target_ids else ()


class _Joining:
    def __init__(self, host: StrPath, stack: ExitStack, spool: Spool) -> None:
        self.host = host
        self.stack = stack
        self.spool = spool
        self.archives: dict[str, _Archive] = {}
        self.files = self.images = 0

    def add(self, name: str, location: Location, *, anywhere: bool = False) -> None:
        if name in self.archives:
            raise UsageError(f"'{name}' is there twice; give each file once")
        self.archives[name] = _Archive(name, location, anywhere=anywhere)

    def _check_requested(self) -> None:
        for found in self.archives.values():
            for image in found.archive.images:
                if image.key not in found.requested:
                    message = f"has code for {image.key!r}, which no library asks for"
                    raise UsageError(f"'{found.location.label}' {message}")

    def plan(self, location: Location, name: str) -> FilePlan | None:
        if (tables := _tables_of(location)) is None:
            return None
        wrappers = LinkedWrappers(tables)
        marked = [row.is_marked for row in wrappers.rows]
        if not any(marked):
            return None
        if not all(marked):
            message = "cannot be joined: some of its device code is in it already"
            raise UnsupportedError(message, path=location.label)
        starts: dict[str, int] = {}
        parts: list[FilePlan | int] = []
        position = 0
        keys = []
        for row in wrappers.rows:
            at = wrappers.pointers.offset(row.target)
            marker, _ = read_marker(tables.data, path=location.label, offset=at)
            key = kpack.kernel_key(marker.kernel_name, row.wrapper.number)
            keys.append(key)
            if key not in starts:
                bundle = self._bundle(location, name, marker, key, tables.header.e_machine)
                starts[key] = position
                gap = -bundle.size % ALIGNMENT
                parts += [bundle, gap]
                position += bundle.size + gap
        self.files += 1
        return plan_unmarked(wrappers, FilePlan.of(parts), [starts[key] for key in keys]).bound(
            location.source
        )

    def _bundle(
        self, location: Location, name: str, marker: KpackMarker, key: str, machine: int
    ) -> FilePlan:
        found: dict[str, tuple[_Archive, kpack.KpackImage]] = {}
        for path in marker.search_paths:
            pattern = posixpath.normpath(posixpath.join(posixpath.dirname(name), path))
            for archive in self.archives.values():
                wanted = archive.target_ids(pattern)
                for image in archive.images.get(key, ()):
                    if image.target_id in wanted:
                        archive.requested.add(key)
                        found.setdefault(image.target_id, (archive, image))
        if not found:
            paths = ", ".join(marker.search_paths)
            message = f"expected code for {key!r} in {paths}, found none; give its archives"
            raise FormatError(message, path=location.label)
        host = BundleEntryID(OffloadKind.HOST, f"{_HOSTS[machine]}-unknown-linux-gnu", "")
        rows: list[tuple[str, Part]] = [(str(host), b"")]
        for target_id, (archive, image) in sorted(found.items()):
            rows.append((str(entry_id_of(target_id)), self._content(archive, image)))
        self.images += len(found)
        return plan_bundle(rows, ALIGNMENT)

    def _content(self, archive: _Archive, image: kpack.KpackImage) -> FileRange:
        source = archive.location.source
        if not image.is_compressed:
            return source.range(image.offset, image.size)
        data = kpack.unpacked_kpack_image(source.data, image, path=archive.location.label)
        content = self.spool.append(lambda out: out.write(data))
        source.forget()
        return content

    def _open_archives(self, tree: Tree) -> set[str]:
        names = set()
        for file in tree.files:
            if file.kind == "file" and file.name.endswith(kpack.SUFFIX):
                location = self.stack.enter_context(tree.open(file))
                if location is not None and recognise(location.source.data) is FileFormat.KPACK:
                    self.add(tree.installed(file), location)
                    names.add(file.name)
        return names

    def _rewrite(self, writer: TreeWriter, left_out: set[str]) -> None:
        """Rewrite all files of a tree; raise NoContainerError if no file refers to device code."""

        def plan(location: Location, file: TreeFile) -> FilePlan | None:
            if file.name in left_out:
                return NOTHING
            return self.plan(location, writer.tree.installed(file))

        writer.rewrite(plan)
        self._check_files()

    def _check_files(self) -> None:
        if not self.files:
            message = "expected a program or library whose device code is in kpack archives, found "
            raise NoContainerError(message + "none", path=self.host)

    def program(self, writer: TreeWriter, parts: Sequence[StrPath]) -> None:
        name = os.path.realpath(self.host)
        for part in parts:
            archive = self.stack.enter_context(InputFile(part))
            self.add(os.path.realpath(part), Location.of(archive, str(part)), anywhere=True)

        def plan(location: Location, _: TreeFile) -> FilePlan | None:
            tables = _tables_of(location)
            for path in () if tables is None else neighbouring_archives(tables, name):
                if path not in self.archives:
                    source = self.stack.enter_context(InputFile(path))
                    self.add(path, Location.of(source, path))
            return self.plan(location, name)

        writer.rewrite(plan)
        self._check_files()
        for found in self.archives.values():
            if found.anywhere and not found.requested:
                raise UsageError(
                    f"'{found.location.label}' has no code that '{self.host}' asks for; "
                    "give the parts that one run of 'split' wrote"
                )

    def folders(self, writer: FolderWriter, parts: Sequence[StrPath]) -> None:
        """Write a folder merged with `parts`; raise FileError if two have one file."""
        trees = [writer.tree, *map(FolderTree, parts)]
        archives = [self._open_archives(tree) for tree in trees]
        rest = [
            [file for file in tree.files if file.name not in names]
            for tree, names in zip(trees, archives, strict=True)
        ]
        emptied = {posixpath.dirname(name) for names in archives for name in names}
        emptied -= {posixpath.dirname(file.name) for files in rest for file in files}
        self._rewrite(writer, archives[0])
        self._check_requested()
        writer.kept = [f for f in writer.kept if f.kind != "folder" or f.name not in emptied]
        there = {file.name: file.kind for file in rest[0]}
        for tree, files in zip(trees[1:], rest[1:], strict=True):
            other = FolderWriter(tree, writer.folder)
            for file in files:
                kind = there.get(file.name)
                if kind is None:
                    there[file.name] = file.kind
                    if file.kind != "folder" or file.name not in emptied:
                        other.keep(file)
                elif not kind == file.kind == "folder":
                    message = f"is in the host's folder, too, as a {kind}; "
                    message += "give the parts that one run of 'split' wrote"
                    raise FileError(tree.path(file.name), message)
            other.copy_kept()

    def wheels(self, writer: WheelWriter, parts: Sequence[StrPath]) -> None:
        """Write the wheel of a host, merged with the wheels of its code."""
        host = DeviceWheels(writer.tree, WheelName.parse(Path(self.host).name))
        names = self._open_archives(writer.tree)
        bundles = _EXTRA.findall(host.metadata.decode("utf-8", "replace").replace("\r\n", "\n"))
        prefixes = {}
        others: list[tuple[WheelTree, TreeFile]] = []
        for part in parts:
            tree = self.stack.enter_context(WheelTree(part))
            name = WheelName.parse(Path(part).name)
            device = DeviceWheels(tree, name)
            wanted = header(device.metadata, "Requires-Dist", path=device.label)
            bundle = next((b for b in bundles if device.name.endswith(f"-{b}")), None)
            if bundle is None or wanted != f"{host.name} == {host.version}":
                message = f"is not a wheel of device code of {host.name} {host.version}"
                raise UsageError(f"'{part}' {message}")
            prefixes[bundle] = device.name.removesuffix(f"-{bundle}")
            archives = self._open_archives(tree)
            inside = (f for f in tree.files if f.name not in archives and f.kind == "file")
            others += [(tree, f) for f in inside if not f.name.startswith(f"{name.dist_info}/")]
        if missing := [bundle for bundle in bundles if bundle not in prefixes]:
            message = f"asks for device code of {', '.join(missing)}, too; give these wheels"
            raise UsageError(f"'{self.host}' {message}")
        self._rewrite(writer, names)
        self._check_requested()
        for tree, file in others:
            with tree.open(file, always=True) as location:
                if location is not None:
                    content = location.source.range(0, len(location.source))
                    writer.add(file.name, FilePlan.of([content]))
        if bundles:
            rows = device_headers(prefixes[bundles[0]], host.version, bundles)
            data = without_headers(host.metadata, rows, path=host.label)
            writer.put(host.file, FilePlan.of([data]))


def _tables_of(location: Location) -> ElfTables | None:
    """Return the tables of a linked ELF file with wrappers; None for other files."""
    if recognise(location.source.data) is not FileFormat.ELF:
        return None
    tables = read_elf_tables(location.source.data, path=location.label)
    is_host = WRAPPER_SECTION.encode() in tables.names and tables.header.e_type != ET_REL
    return tables if is_host else None
