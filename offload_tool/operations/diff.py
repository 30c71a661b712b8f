"""Compare two builds: targets and kernels that were added, removed or changed.

Libraries are matched by their names relative to the given path (two files are always matched), and
images by their targets. Kernels are matched by name, without the parts that compilers derive from
the build folder. Images are compared by the code and data that a device loads, so symbols, paths
and debug information do not count. Kernels are compared by their instructions too, byte by byte.
"""

from __future__ import annotations

import filecmp
import hashlib
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from offload_tool.containers.find import FoundContainer, find_containers
from offload_tool.errors import OffloadError
from offload_tool.formats.cuda.ptx import ptx_statements
from offload_tool.formats.kernel import Kernel, stable_name
from offload_tool.formats.kernel_info.reader import read_machine_code
from offload_tool.formats.objects.elf.reader import is_elf_header
from offload_tool.io import StrPath
from offload_tool.operations.list_images import kernels_of

ADDED, REMOVED, CHANGED = "added", "removed", "changed"
_DIGEST_SIZE = 16


class TargetSums(NamedTuple):
    """Sums over all images for one target in one library."""

    images: int
    loaded: int
    """Bytes of code and data that a device loads; for PTX, of its statements; for images that
    list no kernels, all bytes."""
    kernels: int


class TargetChange(NamedTuple):
    """A target whose images in a library differ between the builds."""

    library: str
    """Empty if two files were compared."""
    target: str
    """Target ID, or the triple if the images have none."""
    change: str
    """``added``, ``removed`` or ``changed``."""
    before: TargetSums | None
    after: TargetSums | None

    @property
    def grown(self) -> int:
        """Bytes."""
        return (self.after.loaded if self.after else 0) - (self.before.loaded if self.before else 0)


class KernelChange(NamedTuple):
    """A kernel that was added, removed or changed."""

    library: str
    target: str
    change: str
    before: Kernel | None
    after: Kernel | None

    @property
    def name(self) -> str:
        """The new name, or the old one if the kernel was removed."""
        kernel = self.after or self.before
        return kernel.name if kernel else ""

    @property
    def grown(self) -> int:
        """Bytes of its code."""
        sizes = [(kernel and kernel.code_size) or 0 for kernel in (self.before, self.after)]
        return sizes[1] - sizes[0]

    @property
    def fields(self) -> tuple[str, ...]:
        """Fields that differ, without the name; empty if only instructions differ."""
        if self.before is None or self.after is None:
            return ()
        names = Kernel._fields[1:]
        pairs = zip(names, self.before[1:], self.after[1:], strict=True)
        return tuple(name for name, before, after in pairs if before != after)


class Comparison(NamedTuple):
    """The changes beyond the tolerance, largest first."""

    targets: tuple[TargetChange, ...]
    kernels: tuple[KernelChange, ...]

    @property
    def is_equal(self) -> bool:
        """Whether nothing changed."""
        return not self.targets and not self.kernels


class _MeasuredKernel(NamedTuple):
    kernel: Kernel
    code: bytes
    """A digest of the instructions; empty if they are unknown."""

    @property
    def needs(self) -> tuple[object, ...]:
        return (*self.kernel[1:], self.code)


@dataclass(slots=True)
class _TargetContent:
    """The images of one library for one target, in one of the builds."""

    images: int = 0
    loaded: int = 0
    contents: Counter[bytes] = field(default_factory=Counter)
    """Digests of the code and data that a device loads, one for each image."""
    kernels: dict[str, list[_MeasuredKernel]] = field(default_factory=lambda: defaultdict(list))
    """By their stable names; a file may have several static kernels of one name."""

    @property
    def sums(self) -> TargetSums:
        return TargetSums(self.images, self.loaded, sum(map(len, self.kernels.values())))

    def add(self, content: memoryview, kernels: Sequence[Kernel], *, path: StrPath) -> None:
        """Add an image and its kernels, named `path`; raise FormatError."""
        code: Mapping[str, memoryview] = {}
        parts: list[memoryview] = []
        if is_elf_header(content):
            code, parts = read_machine_code(content, path=path)
        else:
            text = ptx_statements(content).decode("utf-8", "surrogateescape")
            parts = [memoryview(stable_name(text).encode("utf-8", "surrogateescape"))]
        self.images += 1
        self.loaded += sum(map(len, parts))
        self.contents[_digest(parts)] += 1
        for kernel in kernels:
            digest = _digest([code[kernel.name]]) if kernel.name in code else b""
            self.kernels[stable_name(kernel.name)].append(_MeasuredKernel(kernel, digest))


_NO_IMAGES = "'{}': there are no device images"
_Build = dict[tuple[str, str], _TargetContent]
_Skipped: TypeAlias = "Callable[[OffloadError], None] | None"
_Note: TypeAlias = "Callable[[str], None] | None"


def compare_builds(
    pairs: Sequence[tuple[StrPath, StrPath]],
    *,
    tolerance: float = 0,
    skipped: _Skipped = None,
    notes: _Note = None,
) -> Comparison:
    """Compare the device images of pairs of files, folders or zip files: of the old build, the new.

    With several pairs, a library's name begins with the second path of its pair. Numbers that
    differ by at most `tolerance` percent count as equal. With any tolerance, so do different
    instructions and data of the same size. `notes` is called for images that list no kernels,
    which are compared by size, and for a build without images. For `skipped`, see
    `list_images.iter_images`; files and images passed to it are compared by size as well. Files
    with equal bytes are equal, whatever they contain.

    :raises ContentError: see `list_images`; or an image's metadata cannot be read.
    :raises FileError: one of them cannot be read.
    """
    targets: list[TargetChange] = []
    kernels: list[KernelChange] = []
    for before, after in pairs:
        are_equal = False
        with suppress(OSError):  # reading the file that it is about reports it
            if os.path.isfile(before) and os.path.isfile(after):
                are_equal = filecmp.cmp(before, after, shallow=False)
        if are_equal:
            _check_images(before, skipped, notes)
            continue
        old, new = (_read_build(path, skipped, notes) for path in (before, after))
        for library, target in sorted(old.keys() | new.keys()):
            was, now = old.get((library, target)), new.get((library, target))
            if len(pairs) > 1:
                key = (f"{after}: {library}" if library else str(after), target)
            else:
                key = (library, target)
            if change := _target_change(key, was, now, tolerance):
                targets.append(change)
            if was is not None and now is not None:  # else, all came or went with the target
                kernels += _changed_kernels(was, now, key, tolerance)
        del old, new  # of the kernels of several pairs, one pair's are in memory
    targets.sort(key=lambda row: (-abs(row.grown), row.library, row.target))
    kernels.sort(
        key=lambda row: (-abs(row.grown), -len(row.fields), row.library, row.target, row.name)
    )
    return Comparison(tuple(targets), tuple(kernels))


def _check_images(path: StrPath, skipped: _Skipped, notes: _Note) -> None:
    """Report unreadable files and the lack of images, as `_read_build` does."""
    count = sum(len(found.device_images) for found in find_containers(path, skipped=skipped))
    if not count and notes is not None:
        notes(_NO_IMAGES.format(path))


def _read_build(path: StrPath, skipped: _Skipped, notes: _Note) -> _Build:
    build: _Build = defaultdict(_TargetContent)
    for found in find_containers(path, skipped=skipped):
        for image in found.device_images:
            content = build[_library(path, found), image.target_id or image.triple]
            kernels = kernels_of(image, found, skipped=skipped, silent=notes)
            if kernels is None:
                content.images += 1
                content.loaded += image.size
            else:
                content.add(image.content.view(), kernels, path=found.label)
    if not build and notes is not None:
        notes(_NO_IMAGES.format(path))
    return build


def _library(path: StrPath, found: FoundContainer) -> str:
    """Return a library's name relative to `path`; a folder and a wheel of it use the same names."""
    inner = os.path.relpath(found.path, path) if found.path != str(path) else ""
    if inner and found.member is not None:
        return f"{inner}({found.member})"
    return inner or found.member or ""


def _digest(parts: Iterable[memoryview]) -> bytes:
    state = hashlib.blake2b(digest_size=_DIGEST_SIZE)
    for part in parts:
        state.update(part)
    return state.digest()


def _target_change(
    key: tuple[str, str], was: _TargetContent | None, now: _TargetContent | None, tolerance: float
) -> TargetChange | None:
    if was is None:
        return TargetChange(*key, ADDED, None, now.sums if now else None)
    if now is None:
        return TargetChange(*key, REMOVED, was.sums, None)
    before, after = was.sums, now.sums
    is_near = before.images == after.images and _is_near(before.loaded, after.loaded, tolerance)
    if is_near and (tolerance or was.contents == now.contents):
        return None
    return TargetChange(*key, CHANGED, before, after)


def _changed_kernels(
    was: _TargetContent, now: _TargetContent, key: tuple[str, str], tolerance: float
) -> Iterator[KernelChange]:
    """Yield the changed kernels of one target; `key` is the names of library and target."""
    for name in sorted(was.kernels.keys() | now.kernels.keys()):
        before, after = _without_equal(was.kernels.get(name, []), now.kernels.get(name, []))
        for one, other in zip(before, after, strict=False):
            if not _is_same(one, other, tolerance):
                yield KernelChange(*key, CHANGED, one.kernel, other.kernel)
        for one in before[len(after) :]:
            yield KernelChange(*key, REMOVED, one.kernel, None)
        for other in after[len(before) :]:
            yield KernelChange(*key, ADDED, None, other.kernel)


def _without_equal(
    before: Sequence[_MeasuredKernel], after: Sequence[_MeasuredKernel]
) -> tuple[list[_MeasuredKernel], list[_MeasuredKernel]]:
    """Return kernels of one name without those that are equal to one in the other build."""
    common = Counter(one.needs for one in before) & Counter(one.needs for one in after)
    rest = []
    for side in (before, after):
        left = common.copy()
        kept = []
        for one in side:
            if left[one.needs] > 0:
                left[one.needs] -= 1
            else:
                kept.append(one)
        rest.append(kept)
    return rest[0], rest[1]


def _is_same(one: _MeasuredKernel, other: _MeasuredKernel, tolerance: float) -> bool:
    if not tolerance:
        return one.needs == other.needs
    pairs = zip(one.kernel[1:], other.kernel[1:], strict=True)
    return all(_is_near(before, after, tolerance) for before, after in pairs)


def _is_near(before: object, after: object, tolerance: float) -> bool:
    if not isinstance(before, int) or not isinstance(after, int):
        return before == after
    return abs(after - before) * 100 <= tolerance * before
