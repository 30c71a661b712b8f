"""``offload-tool list FILE... [--kernels] [--json]``: list device images in any file, and kernels.

``list.schema.json`` describes the output of ``--json``; ``--schema`` prints it. For
``--kernels``, ``kernels.schema.json`` does; ``--kernels-schema`` prints it.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from offload_tool.cli.arguments import Commands, add_each, add_json, add_schema
from offload_tool.cli.printing import print_json_list, print_lines, print_notes, print_problems
from offload_tool.cli.tables import Sheet, print_sheet
from offload_tool.errors import OffloadError, UsageError
from offload_tool.formats.kernel import waves_per_simd
from offload_tool.operations.kernel_table import COLUMNS, LOCATION_KEYS, WAVES, demangled_names

if TYPE_CHECKING:
    from offload_tool.operations.extract import ExtractedImage
    from offload_tool.operations.list_images import DeviceImage, ImageKernels

_T = TypeVar("_T")
_NUMBERS = frozenset({"#", "offset", "images", "size (bytes)", "compressed", "share"})
_LESS_NEEDED = (
    *("#", "triple", "offset", "share", "image", "kind", "images", "compressed"),
    *("covers", "in", "loaded by", "size (bytes)"),
)
KERNELS_LESS_NEEDED = (
    *("#", "wave", "group", "AGPRs", "SGPRs", "SGPR spills", WAVES, "LDS", "scratch", "in"),
    *("VGPR spills", "VGPRs", "code (bytes)", "target ID"),
)


def add_list(commands: Commands) -> None:
    """Add the command to the parser of ``offload-tool``."""
    parser = commands.add_parser(
        "list",
        help="list the device images in files",
        description="List the device images in bundles, offload binaries and archives of them, "
        "in ELF and COFF objects, programs and libraries that embed them, and in all such files "
        "of a folder or zip file (a wheel).",
        epilog="In a folder or zip file, the command skips files without images. It lists "
        "broken files last, and then exits with status 1.",
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="a file, folder or zip file")
    text = "list only the images that a device with this target ID (gfx90a:xnack+) or bundle entry "
    add_each(parser, "--target", "ID", text + "ID would load, and why; can be repeated")
    add_json(parser, schema="list.schema.json")
    parser.add_argument(
        "--kernels",
        action="store_true",
        help="list the kernels of each image with their code size, registers, memory and spills",
    )
    parser.add_argument(
        "--demangle",
        action="store_true",
        help="with --kernels, print demangled C++ names (by llvm-cxxfilt or c++filt)",
    )
    kernels = "the output of --kernels --json"
    add_schema(parser, "--kernels-schema", "kernels.schema.json", kernels)
    parser.add_argument(
        "--scan",
        action="store_true",
        help="search whole files for containers by their magic, not only the places that "
        "runtimes read",
    )


def run_list(options: argparse.Namespace) -> int:
    """Print the images of all readable files, then the errors of the others."""
    if options.demangle and not options.kernels:
        raise UsageError("--demangle is about the names of kernels; give it with --kernels")
    from offload_tool.operations.list_images import iter_images, iter_kernels

    problems: list[OffloadError] = []
    notes: list[str] = []
    if options.kernels:
        _print_kernels(options, _read_all(iter_kernels, options, problems, notes))
    else:
        _print_images(options, _read_all(iter_images, options, problems, notes))
    print_notes(notes)
    return print_problems(problems)


def _read_all(
    read: Callable[..., Iterable[_T]],
    options: argparse.Namespace,
    problems: list[OffloadError],
    notes: list[str],
) -> list[tuple[str, list[_T]]]:
    """Return each readable file with the results of `read`; raise the error of a single file."""
    from offload_tool.operations.match import Device

    devices: Sequence[Device] = [Device.parse(text) for text in options.target]
    listed = []
    for file in options.files:
        found = read(
            file, devices=devices, skipped=problems.append, strays=notes.append, scan=options.scan
        )
        try:
            listed.append((file, list(found)))
        except OffloadError as error:
            if len(options.files) == 1:
                print_notes(notes)  # may be the only information about the file
                raise
            problems.append(error)
    return listed


def _print_images(
    options: argparse.Namespace, listed: Sequence[tuple[str, list[DeviceImage]]]
) -> None:
    images = [image for _, found in listed for image in found]
    if options.json:
        print_json_list(map(json_row, images), indent=2)
        return
    for file, found in listed:
        print_sheet(_image_table(file, found))
        print_lines([f"  {_summary(found)}"], sys.stdout)
    device = _counted(images)
    if len({image.target_id for image in device}) < len(device):
        print_lines([""], sys.stdout)
        print_sheet(_totals_table(images))


def json_row(image: DeviceImage | ExtractedImage) -> dict[str, object]:
    """Return an image as an object of JSON."""
    from offload_tool.util.frozen import as_dict

    loads = [
        {"device": device, "rule": load.rule, "reason": load.reason} for device, load in image.loads
    ]
    return {**as_dict(image), "loads": loads}


def _image_table(file: str, images: Sequence[DeviceImage]) -> Sheet:
    several = len({(image.file, image.index) for image in images}) > 1
    locations = [_location(file, image) for image in images]
    total = sum(image.stored_size for image in images if not image.is_host)
    columns = {
        "in": any(locations),
        "#": several,
        "target ID": True,
        "covers": any(image.covers for image in images),
        "kind": True,
        "image": any(image.image_kind for image in images),
        "triple": True,
        "offset": True,
        "size (bytes)": True,
        "compressed": _has_compressed(images),
        "share": True,
        "loaded by": any(image.loads for image in images),
    }
    rows = []
    for location, image in zip(locations, images, strict=True):
        cells = (
            location,
            str(image.index),
            image.target_id or "-",
            " ".join(image.covers),
            image.kind,
            image.image_kind or "-",
            image.triple,
            "-" if image.offset is None else f"{image.offset:#x}",
            f"{image.size:,}",
            f"{image.stored_size:,}",
            "" if image.is_host else _share(image.stored_size, total),
            "; ".join(f"{device}: {load.rule}, {load.reason}" for device, load in image.loads),
        )
        rows.append(cells)
    sheet = Sheet(file, tuple(columns), rows, _NUMBERS, _LESS_NEEDED)
    return sheet.showing(columns.values())


def _totals_table(images: Sequence[DeviceImage]) -> Sheet:
    groups: dict[str, list[DeviceImage]] = {}
    for image in _counted(images):
        groups.setdefault(image.target_id or "-", []).append(image)
    stored = {name: sum(image.stored_size for image in group) for name, group in groups.items()}
    total = sum(stored.values())
    rows = [
        (
            name,
            f"{len(groups[name]):,}",
            f"{sum(image.size for image in groups[name]):,}",
            f"{stored[name]:,}",
            _share(stored[name], total),
        )
        for name in sorted(groups, key=lambda name: (-stored[name], name))
    ]
    names = ("target ID", "images", "size (bytes)", "compressed", "share")
    sheet = Sheet("per target ID", names, rows, _NUMBERS, _LESS_NEEDED)
    return sheet.showing(name != "compressed" or _has_compressed(images) for name in names)


def _summary(images: Sequence[DeviceImage]) -> str:
    device = _counted(images)
    plural = "" if len(device) == 1 else "s"
    text = f"{len(device)} device image{plural}, {sum(image.size for image in device):,} bytes"
    if _has_compressed(device):
        text += f", {sum(image.stored_size for image in device):,} compressed"
    return text


def _counted(images: Sequence[DeviceImage]) -> list[DeviceImage]:
    from offload_tool.operations.list_images import counted

    return [image for image in counted(images) if not image.is_host]


def _has_compressed(images: Sequence[DeviceImage]) -> bool:
    # A host program's images in other files take no bytes of it.
    return any(i.stored_size not in (0, i.size) for i in images if i.container != "kpack-marker")


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


# ---- --kernels ---------------------------------------------------------------------


def _print_kernels(
    options: argparse.Namespace, listed: Sequence[tuple[str, list[ImageKernels]]]
) -> None:
    images = [image for _, found in listed for image in found]
    names = None
    if options.demangle:
        names = demangled_names(kernel.name for image in images for kernel in image.kernels)
    if options.json:
        print_json_list(_kernel_rows(images, names))  # one per line
        return
    for file, found in listed:
        print_sheet(_kernel_table(file, found, names))
        print_lines([f"  {_kernel_summary(found)}"], sys.stdout)


def _kernel_rows(
    images: Iterable[ImageKernels], names: Mapping[str, str] | None
) -> Iterator[dict[str, object]]:
    for found in images:
        location = {key: getattr(found.image, key) for key in LOCATION_KEYS}
        for kernel in found.kernels:
            name, *needs = kernel
            yield {
                **location,
                "kernel": name,
                "demangled": None if names is None else names[name],
                **dict(zip(kernel._fields[1:], needs, strict=True)),
            }


def _kernel_table(
    file: str, images: Sequence[ImageKernels], names: Mapping[str, str] | None
) -> Sheet:
    rows = []
    for found in images:
        image = found.image
        location = (_location(file, image), str(image.index), image.target_id or "-")
        for kernel in found.kernels:
            needs = [getattr(kernel, field) for field in COLUMNS.values()]
            cells = (*needs, waves_per_simd(kernel, image.target_id))
            name = kernel.name if names is None else names[kernel.name]
            rows.append((*location, *("" if n is None else f"{n:,}" for n in cells), name))
    columns = ("in", "#", "target ID", *COLUMNS, WAVES, "kernel")
    # Leave out columns without values, and location columns with one value.
    is_shown = [len({row[at] for row in rows} | {""}) > 1 for at in range(len(columns))]
    is_shown[1] = len({(found.image.file, found.image.index) for found in images}) > 1
    numbers = frozenset(("#", *COLUMNS, WAVES))
    return Sheet(file, columns, rows, numbers, KERNELS_LESS_NEEDED).showing(is_shown)


def _kernel_summary(images: Sequence[ImageKernels]) -> str:
    kernels = [kernel for found in images for kernel in found.kernels]
    text = f"{_count(len(kernels), 'kernel')} in {_count(len(images), 'device image')}"
    spilling = sum(bool(kernel.vgpr_spills or kernel.sgpr_spills) for kernel in kernels)
    return f"{text}; {_count(spilling, 'kernel')} with spilled registers" if spilling else text


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("" if number == 1 else "s")


def _location(file: str, image: DeviceImage) -> str:
    """Return the location of the image in `file`: a file of a folder, a member."""
    inner = [] if image.file == file else [os.path.relpath(image.file, file)]
    inner += [image.member] if image.member else []
    return "(".join(inner) + ")" * (len(inner) - 1)
