"""Check libraries before a release: an image for each target, with the same kernels in each.

A library is a file with device images: in a folder, in a zip file, or a member of an archive. A
runtime chooses among the images of each container. The offload binaries of one section hold one
image each and count as one container. A host program whose device code is in kpack archives is
checked with the images that it gets from them; an archive in a folder is checked alone.

Every run checks whether images hide one another's kernels: a runtime loads only one of two
images for the same target in a container.

Siblings are targets with the same device code, of which a shared image would save bytes::

    container 1    gfx1030: code A    gfx1031: code A    gfx1100: code B
    container 2    gfx1030: code C    gfx1031: code C'   gfx1100: code D
    siblings       gfx1030, gfx1031: the same code in 1 of 2 containers

Code is the part of an image that a device loads (`kernel_info.reader`), so the processor's number
and name in headers and metadata do not count. HIP's runtime accepts an image for the device's own
processor, or for a generic one that covers it.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, combinations, groupby, product
from typing import TypeAlias

from offload_tool.containers.file_format import FileFormat
from offload_tool.containers.find import FoundContainer, find_containers
from offload_tool.containers.walk import member_path
from offload_tool.errors import ContentError, OffloadError
from offload_tool.formats.kernel import Kernel
from offload_tool.formats.kernel_info.reader import read_machine_code
from offload_tool.formats.objects.elf.reader import is_elf
from offload_tool.formats.targets.bundle_entry_id import BundleEntryID, OffloadKind
from offload_tool.formats.targets.compatibility import GENERIC_OF, SPIRV_PROCESSOR
from offload_tool.formats.targets.processors import find_processor
from offload_tool.io import StrPath
from offload_tool.operations.list_images import kernels_of
from offload_tool.operations.match import (
    Candidates,
    Device,
    candidates_of,
    is_linked_for,
    links_sources,
    loaded,
    unserved,
)
from offload_tool.util.frozen import frozen

_Skipped: TypeAlias = "Callable[[OffloadError], None] | None"
_Note: TypeAlias = Callable[[str], None]

_NAMED = 3  # number of kernels that a fault names; it counts the others
_SINGLE = (FileFormat.CODE_OBJECT, FileFormat.KPACK)


@frozen
class Rule:
    """Requirements on libraries."""

    paths: tuple[str, ...] = ("*",)
    """Shell patterns for the libraries' names; ``*`` also matches slashes."""
    targets: tuple[Device, ...] = ()
    """Every container must have an image for each of these devices."""
    same_kernels: bool = False
    """Whether the images of a container must have the same kernels. Only images that `targets`
    load are compared; without targets, all are."""
    no_spills: bool = False
    """Whether no kernel may spill registers."""
    max_size: int | None = None
    """Limit in bytes for the images of a library, as stored (compressed if they are)."""


@frozen
class Fault:
    """One fault of one library."""

    library: str
    """File, with the member in parentheses; the given path if it has no libraries."""
    message: str

    def __str__(self) -> str:
        return f"{self.library}: {self.message}"


@dataclass(slots=True)
class _Container:
    """A container, from which a runtime chooses images."""

    name: str
    entries: list[tuple[BundleEntryID, bool]] = field(default_factory=list)
    linked: Candidates = ()
    sources: tuple[Candidates, ...] = ()
    kernels: dict[int, tuple[Kernel, ...]] = field(default_factory=dict)
    """By the index of the image; images that list no kernels are absent."""
    single: FileFormat | None = None
    """The format of a file for one target; missing targets are faults of its host programs."""

    @property
    def targets(self) -> list[str]:
        return [_target(entry) for entry, _ in self.entries if entry.kind != OffloadKind.HOST]

    def served(self, device: Device) -> set[Device]:
        """Return the devices of that name that load an image of it, or need none of it."""
        if is_linked_for(self.linked, device):
            return {device}
        served = {one for one, found in loaded(tuple(self.entries), device).items() if found}
        return served or ({device} if links_sources(self.sources, device) else set())


@dataclass(slots=True)
class _Library:
    """The facts kept about a file after its images were read."""

    label: str
    is_given: bool
    """Whether it is the file at a given path, not in a folder, zip file or archive."""
    rules: list[Rule]
    size: int = 0
    containers: dict[object, _Container] = field(default_factory=dict)
    faulty: list[str] = field(default_factory=list)
    """Faults found while the file was read."""

    def add(self, found: FoundContainer, skipped: _Skipped, note: _Note) -> None:
        self.size += _stored(found)
        if found.is_stub:
            return
        is_part = found.container is FileFormat.OFFLOAD_BINARY
        key = found.section if is_part else found.index
        name = f"{found.container.value} {found.index}"
        container = self.containers.setdefault(key, _Container(name))
        is_single = found.container in _SINGLE and not self.is_given
        container.single = found.container if is_single else None
        self.faulty += found.faults
        first = len(container.entries)
        entries = candidates_of(found.images)
        container.linked = candidates_of(found.linked)
        container.sources = tuple(map(candidates_of, found.sources))
        container.entries += entries
        targets = Counter(map(_loaded_as, (entry for entry, _ in entries)))
        wanted = any(rule.same_kernels or rule.no_spills for rule in self.rules)
        for at, image in enumerate(found.images):
            if image.is_host:
                continue
            if wanted or is_part or targets[_loaded_as(image.entry_id)] > 1:
                kernels = kernels_of(image, found, skipped=skipped, silent=note)
                if kernels is not None:
                    container.kernels[first + at] = kernels

    def faults(self) -> Iterator[str]:
        """Yield the faults under all rules that apply to the library."""
        yield from self.faulty
        for container in self.containers.values():
            yield from _hidden_kernels(container)
        for rule in self.rules:
            for device in rule.targets:
                yield from self._lacking_image(device)
            for container in self.containers.values():
                yield from _different_kernels(container, rule) if rule.same_kernels else ()
                yield from _spilling_kernels(container, rule) if rule.no_spills else ()
            if rule.max_size is not None and self.size > rule.max_size:
                yield f"device images take {self.size:,} bytes, more than {rule.max_size:,}"

    def note_unchecked(self, note: _Note) -> None:
        """Report what was not checked."""
        if not self.rules:
            note(f"'{self.label}': no rule is about it")
        if not any(rule.no_spills for rule in self.rules):
            return
        images = (image for found in self.containers.values() for image in found.kernels.values())
        unknown = sum(k.vgpr_spills is None and k.sgpr_spills is None for k in chain(*images))
        if unknown:
            note(f"'{self.label}': {unknown:,} kernels do not say whether they spill registers")

    @property
    def single(self) -> FileFormat | None:
        """The format of its containers, if missing targets are faults of its host programs."""
        formats = {container.single for container in self.containers.values()}
        return None if None in formats else next(one for one in _SINGLE if one in formats)

    def _lacking_image(self, device: Device) -> Iterator[str]:
        containers = self.containers.values()
        every = [found for found in containers if found.targets and not found.single]
        lacking = [found for found in every if unserved(device, found.served(device))]
        if not lacking and (every or any(found.single for found in containers)):
            return
        text = _no_image(unserved(device, lacking[0].served(device) if lacking else ()))
        if 0 < len(lacking) < len(every):
            text += f" in {len(lacking)} of {len(every)} containers, {lacking[0].name} the first"
        present = dict.fromkeys(target for found in lacking for target in found.targets)
        yield f"{text}; there are {', '.join(present) or 'none'}"


def check_libraries(
    paths: Iterable[StrPath],
    rules: Sequence[Rule],
    *,
    skipped: _Skipped = None,
    notes: _Note | None = None,
) -> Iterator[Fault]:
    """Yield the faults of the libraries in files, folders and zip files at `paths`, in their order.

    A path without any library is a fault, and so is a rule that applies to none. Code objects
    outside of containers are checked together: one of them must have an image for each target.
    Programs in zip files can use the kpack archives of all these zip files, as if they were one
    folder; so can the wheels of a folder. Archives that no program refers to are checked
    together: one of them must have an image for each target. `notes` is called for libraries
    without a rule, and for images that list no kernels if a rule needs kernels. For `skipped`,
    see `offload_tool.operations.list_images.iter_images`.

    :raises ContentError: see `list_images`; or an image's metadata cannot be read.
    :raises FileError: a path cannot be read.
    """
    note = notes or (lambda _: None)
    used: set[int] = set()
    alone: list[_Library] | None = []  # kpack archives, while nothing else was found
    codes: list[_Library] = []
    given = [str(path) for path in paths]
    label = ", ".join(given)
    files = [path for path in given if not os.path.isdir(path)]
    for path in given:
        empty = True
        others = [other for other in files if other != path]
        for library in _libraries(path, rules, used, others, skipped, note):
            empty = False
            if library.single is FileFormat.CODE_OBJECT:
                codes.append(library)
            elif alone is not None:
                alone = [*alone, library] if library.single else None
            library.note_unchecked(note)
            yield from (Fault(library.label, message) for message in library.faults())
        if empty:
            yield Fault(path, "there are no device images")
    yield from _check_together(label, codes, "code objects")
    if alone:
        if any(rule.targets for library in alone for rule in library.rules):
            note(
                f"'{label}': {len(alone):,} kpack archives and no program that looks for them; "
                "whether each program gets its code was not judged"
            )
        yield from _check_together(label, alone, "kpack archives")
    for at, rule in enumerate(rules):
        if at not in used:
            yield Fault(label, f"there is no library {' or '.join(rule.paths)}")


def _libraries(
    path: str,
    rules: Sequence[Rule],
    used: set[int],
    others: Sequence[str],
    skipped: _Skipped,
    note: _Note,
) -> Iterator[_Library]:
    """Yield each library under `path`, read as a whole; add its rules' numbers to `used`."""
    links = _links(path) if any(rule.paths != Rule().paths for rule in rules) else {}
    containers = find_containers(path, skipped=skipped, markers=True, overlay=others)
    for (file, label), group in groupby(containers, lambda found: (found.path, _label_of(found))):
        # Rules name libraries relative to the path: ``lib/x.so``, ``x.whl(lib/x.so)``.
        inner = os.path.basename(path) if file == path else os.path.relpath(file, path)
        names = [
            name + label.removeprefix(file)
            for name in (inner, *links.get(os.path.realpath(file), ()))
        ]
        numbers = [
            at
            for at, rule in enumerate(rules)
            if any(fnmatch.fnmatchcase(*each) for each in product(names, rule.paths))
        ]
        used.update(numbers)
        library = _Library(label, label == path, [rules[at] for at in numbers])
        for found in group:
            library.add(found, skipped, note)
        yield library


def _links(folder: str) -> dict[str, list[str]]:
    """Return the names of the links in a folder, by the real path of the file they lead to."""
    names: defaultdict[str, list[str]] = defaultdict(list)
    for parent, _, files in os.walk(folder):
        for path in (os.path.join(parent, name) for name in files):
            if os.path.islink(path):
                names[os.path.realpath(path)].append(os.path.relpath(path, folder))
    return names


def _check_together(label: str, files: Sequence[_Library], what: str) -> Iterator[Fault]:
    """Check single-target files: one of them must have code for each device."""
    devices = {rule.paths: rule.targets for library in files for rule in library.rules}
    for paths, targets in devices.items():
        found = [library for library in files if any(r.paths == paths for r in library.rules)]
        containers = [each for library in found for each in library.containers.values()]
        present = sorted({_target(entry) for each in containers for entry, _ in each.entries})
        for device in targets:
            served = set().union(*(each.served(device) for each in containers))
            if lacking := unserved(device, served):
                text = f"{_no_image(lacking)} in any of {len(found):,} {what}"
                yield Fault(label, f"{text}; there are {', '.join(present) or 'none'}")


def _label_of(found: FoundContainer) -> str:
    """Return the label of a library; a kpack archive is one library, whatever keys it has."""
    names = found.location.names[: -1 if found.container is FileFormat.KPACK else None]
    return f"{found.path}({member_path(names)})" if names else found.path


def _stored(found: FoundContainer) -> int:
    if found.container is FileFormat.COMPRESSED_BUNDLE:
        return found.size
    if found.container is FileFormat.KPACK_MARKER:  # the images are in other files
        return 0
    return sum(image.content.size for image in found.device_images)


def _loaded_as(entry: BundleEntryID) -> tuple[str, str]:
    """Return a key; a device loads only one of the images with equal keys."""
    kind = OffloadKind.HIP if entry.kind in OffloadKind.ANY_HIP else entry.kind
    return kind, entry.target_id


def _hidden_kernels(container: _Container) -> Iterator[str]:
    seen: dict[tuple[str, str], set[str]] = defaultdict(set)
    for at, kernels in container.kernels.items():
        entry, _ = container.entries[at]
        names = {kernel.name for kernel in kernels}
        twice = sorted(names & seen[_loaded_as(entry)])
        seen[_loaded_as(entry)] |= names
        if twice:
            yield (
                f"{container.name}: another image for {_target(entry)} has "
                f"{_listed(twice)}, too: one of them is hidden"
            )


def _different_kernels(container: _Container, rule: Rule) -> Iterator[str]:
    compared: dict[str, set[str]] = defaultdict(set)
    for target, kernels in _ruled_images(container, rule):
        compared[target] |= {kernel.name for kernel in kernels}
    every = set().union(*compared.values())
    for target, names in compared.items():
        if lacking := sorted(every - names):
            yield f"{container.name}: {target} has no {_listed(lacking)}, which another target has"


def _spilling_kernels(container: _Container, rule: Rule) -> Iterator[str]:
    for target, kernels in _ruled_images(container, rule):
        for kernel in kernels:
            counts = {"VGPRs": kernel.vgpr_spills or 0, "SGPRs": kernel.sgpr_spills or 0}
            if spilled := " and ".join(f"{n:,} {what}" for what, n in counts.items() if n):
                yield f"{container.name}: {target} spills {spilled} in kernel '{kernel.name}'"


def _ruled_images(container: _Container, rule: Rule) -> Iterator[tuple[str, tuple[Kernel, ...]]]:
    candidates = tuple(container.entries)
    loads = (at for device in rule.targets for at in loaded(candidates, device).values())
    served = set(chain.from_iterable(loads))
    for at, kernels in container.kernels.items():
        if at in served or not rule.targets:
            yield _target(container.entries[at][0]), kernels


def _no_image(devices: Iterable[Device]) -> str:
    return f"no image for {', '.join(device.text for device in devices)}"


def _target(entry: BundleEntryID) -> str:
    return entry.target_id or entry.triple


def _listed(names: Sequence[str]) -> str:
    text = ", ".join(f"'{name}'" for name in names[:_NAMED])
    rest = len(names) - _NAMED
    more = f" and {rest:,} more" if rest > 0 else ""
    return f"kernel{'s' if len(names) > 1 else ''} {text}{more}"


# -- siblings ----------------------------------------------------------------------------


@frozen
class Siblings:
    """Targets that have the same code in at least one container of a file."""

    path: str
    targets: tuple[str, ...]
    equal: int
    """Number of containers in which all these targets have the same code."""
    containers: int
    """Number of containers with images for at least two of these targets."""
    equal_saves: int
    """Bytes saved by a shared image in the containers with the same code."""
    generic: str
    """The generic processor that covers all of these targets; empty if there is none."""
    generic_saves: int
    """Bytes saved by one image of the largest one's size in all containers."""

    def __str__(self) -> str:
        text = (
            f"{self.path}: {', '.join(self.targets)}: the same code in {self.equal:,} of "
            f"{self.containers:,} containers; one image there would save {self.equal_saves:,} bytes"
        )
        if self.generic:
            text += f", {self.generic} in place of all about {self.generic_saves:,}"
        return text


def find_siblings(path: StrPath, *, skipped: _Skipped = None) -> Iterator[Siblings]:
    """Yield the siblings among the targets of each file; raise ContentError or FileError."""
    by_file: defaultdict[str, dict[object, dict[str, tuple[bytes, int]]]] = defaultdict(dict)
    for found in find_containers(path, skipped=skipped):
        if images := _code_of(found, skipped):
            is_part = len(images) == 1 and found.section  # offload binaries with one image each
            key = found.section if is_part else found.index
            by_file[found.label].setdefault(key, {}).update(images)
    for name, containers in by_file.items():
        yield from _siblings_of(name, list(containers.values()))


def _code_of(found: FoundContainer, skipped: _Skipped) -> dict[str, tuple[bytes, int]]:
    """Return a code digest and the size in bytes of each target's image."""
    codes = {}
    for image in found.images:
        if image.is_host or image.entry_id.target_id in ("", SPIRV_PROCESSOR):
            continue
        try:
            data = image.content.view()
            if not is_elf(data):
                continue
            digest = hashlib.blake2b()
            _, loaded = read_machine_code(data, path=found.label)
            for part in loaded:
                digest.update(len(part).to_bytes(8, "little"))
                digest.update(part)
        except ContentError as error:
            if skipped is None:
                raise
            skipped(error)
            continue
        codes[image.entry_id.target_id] = digest.digest(), image.content.size
    return codes


def _siblings_of(path: str, containers: list[dict[str, tuple[bytes, int]]]) -> Iterator[Siblings]:
    for group in _groups(containers):
        sizes = [[codes[t][1] for t in group if t in codes] for codes in containers]
        same = [len({codes[t][0] for t in group if t in codes}) == 1 for codes in containers]
        several = [at for at, found in enumerate(sizes) if len(found) > 1]
        equal = [at for at in several if same[at]]
        yield Siblings(
            path,
            group,
            len(equal),
            len(several),
            sum(sum(sizes[at]) - max(sizes[at]) for at in equal),
            _generic_of(group),
            sum(sum(sizes[at]) - max(sizes[at]) for at in several),
        )


def _groups(containers: list[dict[str, tuple[bytes, int]]]) -> list[tuple[str, ...]]:
    group_of: dict[str, set[str]] = {}
    for codes in containers:
        alike = defaultdict(set)
        for target, (digest, _) in codes.items():
            alike[digest].add(target)
        for targets in alike.values():
            for one, other in combinations(targets, 2):
                merged = group_of.get(one, {one}) | group_of.get(other, {other})
                group_of.update(dict.fromkeys(merged, merged))
    return sorted({tuple(sorted(group)) for group in group_of.values()})


def _generic_of(targets: tuple[str, ...]) -> str:
    """Return the generic processor for all targets; "" if there is none or they set features."""
    names = set()
    for target in targets:
        processor = find_processor(target)
        generic = None if processor is None else GENERIC_OF.get(processor.name)
        names.add(generic.name if generic is not None else "")
    return names.pop() if len(names) == 1 else ""
