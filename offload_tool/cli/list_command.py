"""``offload-tool list FILE... [--json]``: the device images in any file."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from typing import TYPE_CHECKING

from offload_tool.cli.terminal import print_problems, printable
from offload_tool.errors import UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from offload_tool.errors import OffloadError
    from offload_tool.operations.listing import DeviceImage

__all__ = ["add", "run"]

_WIDE = 10_000  # columns, where no terminal says how many: lines in a pipe are not cut


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser of ``offload-tool``."""
    parser = commands.add_parser(
        "list",
        help="list the device images in files",
        description="List the device images in bundles, offload binaries and archives of them, "
        "in ELF and COFF objects, programs and libraries that embed them, and in all such files "
        "of a folder or zip file (a wheel).",
        epilog="Files without images in a folder or zip file are passed over; broken ones are "
        "reported after everything else was listed, with exit status 1.",
        allow_abbrev=False,
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="a file, folder or zip file")
    parser.add_argument(
        "--target",
        action="append",
        default=[],
        metavar="ID",
        help="list only what a device with this target ID (gfx90a:xnack+) or bundle entry ID "
        "would load, and why; may be given several times",
    )
    parser.add_argument("--json", action="store_true", help="print a JSON list, for programs")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the images of all files, or an error and nothing."""
    from offload_tool.operations.listing import iter_images
    from offload_tool.operations.matching import Device

    problems: list[OffloadError] = []
    devices = [Device.parse(text) for text in options.target]
    listed = [
        (file, list(iter_images(file, devices, skipped=problems.append))) for file in options.files
    ]
    images = [image for _, found in listed for image in found]
    if options.json:
        print(json.dumps([_row(image) for image in images], indent=2))
    else:
        _print_tables(listed)
    return print_problems(problems)


def _row(image: DeviceImage) -> dict[str, object]:
    loads = [
        {"device": device, "rule": load.rule, "reason": load.reason} for device, load in image.loads
    ]
    return {**dataclasses.asdict(image), "loads": loads}


def _print_tables(listed: Sequence[tuple[str, list[DeviceImage]]]) -> None:
    # Imported here: half of a command's start-up time, and only a table needs it.
    try:
        from rich.console import Console
    except ImportError as error:  # a copy of this package within a project
        raise UsageError("tables need the package 'rich'; install it, or use --json") from error

    console = Console(width=None if sys.stdout.isatty() else _WIDE, highlight=False)
    for file, found in listed:
        _print(console, _image_table(file, found))
        print(f"  {_summary(found)}")
    images = [image for _, found in listed for image in found]
    if len({image.target_id for image in _device(images)}) < len(_device(images)):
        print()
        _print(console, _totals_table(images))


def _print(console: Console, table: Table) -> None:
    with console.capture() as captured:
        console.print(table)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))


def _image_table(file: str, images: Sequence[DeviceImage]) -> Table:
    several = len({(image.file, image.index) for image in images}) > 1
    places = [_place(file, image) for image in images]
    packed = _has_compressed(images)
    described = any(image.image_kind for image in images)
    total = sum(image.stored_size for image in _device(images))
    table = _new_table(file)
    columns = {
        "in": any(places),
        "#": several,
        "target ID": True,
        "covers": any(image.covers for image in images),
        "kind": True,
        "image": described,
        "triple": True,
        "offset": True,
        "size (bytes)": True,
        "compressed": packed,
        "share": True,
        "loaded by": any(image.loads for image in images),
    }
    right = {"#", "offset", "size (bytes)", "compressed", "share"}
    for name, shown in columns.items():
        if shown:
            table.add_column(
                name,
                justify="right" if name in right else "left",
                style="cyan" if name == "target ID" else None,
            )
    for place, image in zip(places, images, strict=True):
        cells = (
            place,
            str(image.index),
            image.target_id or "-",
            " ".join(image.covers),
            image.kind,
            image.image_kind or "-",
            image.triple,
            "-" if image.offset is None else f"{image.offset:#x}",
            f"{image.size:,}",
            f"{image.stored_size:,}",
            "" if image.kind == "host" else _share(image.stored_size, total),
            "; ".join(f"{device}: {load.rule}, {load.reason}" for device, load in image.loads),
        )
        row = zip(cells, columns.values(), strict=True)
        table.add_row(*(_text(cell) for cell, shown in row if shown))
    return table


def _totals_table(images: Sequence[DeviceImage]) -> Table:
    table = _new_table("per target ID")
    table.add_column("target ID", style="cyan")
    table.add_column("images", justify="right")
    table.add_column("size (bytes)", justify="right")
    packed = _has_compressed(images)
    if packed:
        table.add_column("compressed", justify="right")
    table.add_column("share", justify="right")
    groups: dict[str, list[DeviceImage]] = {}
    for image in _device(images):
        groups.setdefault(image.target_id or "-", []).append(image)
    stored = {name: sum(image.stored_size for image in group) for name, group in groups.items()}
    for name in sorted(groups, key=lambda name: (-stored[name], name)):
        cells = [
            name,
            f"{len(groups[name]):,}",
            f"{sum(image.size for image in groups[name]):,}",
            *([f"{stored[name]:,}"] if packed else []),
            _share(stored[name], sum(stored.values())),
        ]
        table.add_row(*(_text(cell) for cell in cells))
    return table


def _new_table(title: str) -> Table:
    from rich import box
    from rich.table import Table

    return Table(title=_text(title), title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)


def _summary(images: Sequence[DeviceImage]) -> str:
    device = _device(images)
    plural = "" if len(device) == 1 else "s"
    text = f"{len(device)} device image{plural}, {sum(image.size for image in device):,} bytes"
    if _has_compressed(device):
        text += f", {sum(image.stored_size for image in device):,} compressed"
    return text


def _device(images: Sequence[DeviceImage]) -> list[DeviceImage]:
    return [image for image in images if image.kind != "host"]


def _has_compressed(images: Sequence[DeviceImage]) -> bool:
    return any(image.stored_size != image.size for image in images)


def _place(file: str, image: DeviceImage) -> str:
    """Say where in `file` the image is: a file of a folder, a member."""
    inner = [] if image.file == file else [os.path.relpath(image.file, file)]
    inner += [image.member] if image.member else []
    return "(".join(inner) + ")" * (len(inner) - 1)


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


def _text(cell: str) -> Text:
    from rich.text import Text

    return Text(printable(cell))  # a plain string would be read as markup
