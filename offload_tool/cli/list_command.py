"""``offload-tool list FILE... [--json]``: the device images in any file.

What ``--json`` prints is described by ``list.schema.json``, which ``--schema`` prints.
"""

from __future__ import annotations

import argparse
import dataclasses
import io
import itertools
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from offload_tool.cli.terminal import print_lines, print_problems, print_text, printable
from offload_tool.errors import OffloadError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from offload_tool.operations.listing import DeviceImage
    from offload_tool.operations.matching import Device

__all__ = ["add", "run"]

_MOST_NOTES = 20
_MOST_RULED = 2000
"""Rows of a table up to which rich measures and rules it; that takes 1 ms a row."""
_ROWS_AT_ONCE = 256
_NUMBERS = frozenset({"#", "offset", "images", "size (bytes)", "compressed", "share"})
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
    parser.add_argument(
        "--schema", action=_Schema, nargs=0, help="print the JSON schema of that list and exit"
    )
    parser.add_argument(
        "--scan",
        action="store_true",
        help="look for containers anywhere in files, by their magic, not only where runtimes do",
    )
    parser.set_defaults(run=run)


class _Schema(argparse.Action):
    """Prints the schema, without any file to list."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        text = Path(__file__).with_name("list.schema.json").read_text(encoding="utf-8")
        print_text(text, sys.stdout)
        parser.exit()


def run(options: argparse.Namespace) -> int:
    """Print the images of all files that can be read, then what is wrong with the others."""
    from offload_tool.operations.matching import Device

    problems: list[OffloadError] = []
    notes: list[str] = []
    devices = [Device.parse(text) for text in options.target]
    listed = []
    for file in options.files:
        try:
            listed.append((file, _images(file, devices, options, problems, notes)))
        except OffloadError as error:
            if len(options.files) == 1:
                raise
            problems.append(error)
    images = [image for _, found in listed for image in found]
    if options.json:
        _print_json(images)
    else:
        _print_tables(listed)
    print_lines(f"offload-tool: note: {note}" for note in notes[:_MOST_NOTES])
    if len(notes) > _MOST_NOTES:
        print_lines([f"offload-tool: note: and {len(notes) - _MOST_NOTES} more such places"])
    return print_problems(problems)


def _images(
    file: str,
    devices: Sequence[Device],
    options: argparse.Namespace,
    problems: list[OffloadError],
    notes: list[str],
) -> list[DeviceImage]:
    from offload_tool.operations.listing import iter_images

    found = iter_images(
        file, devices=devices, skipped=problems.append, strays=notes.append, scan=options.scan
    )
    return list(found)


def _print_json(images: Sequence[DeviceImage]) -> None:
    """Print a list as `json.dumps` gives it, of which never all is in memory."""
    for start in range(0, len(images), _ROWS_AT_ONCE):
        rows = [json.dumps(_row(i), indent=2) for i in images[start : start + _ROWS_AT_ONCE]]
        text = ",\n".join(rows).replace("\n", "\n  ")
        print_text(f"{',' if start else '['}\n  {text}", sys.stdout)
    print_text("\n]\n" if images else "[]\n", sys.stdout)


def _row(image: DeviceImage) -> dict[str, object]:
    loads = [
        {"device": device, "rule": load.rule, "reason": load.reason} for device, load in image.loads
    ]
    return {**dataclasses.asdict(image), "loads": loads}


def _print_tables(listed: Sequence[tuple[str, list[DeviceImage]]]) -> None:
    for file, found in listed:
        _print(_image_table(file, found))
        print_lines([f"  {_summary(found)}"], sys.stdout)
    images = [image for _, found in listed for image in found]
    if len({image.target_id for image in _device(images)}) < len(_device(images)):
        print_lines([""], sys.stdout)
        _print(_totals_table(images))


class _Sheet(NamedTuple):
    """Text in columns."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]


def _print(table: _Sheet) -> None:
    if len(table.rows) > _MOST_RULED:
        _print_plain(table)
        return
    # Imported here: half of a command's start-up time, and only a table needs it.
    try:
        from rich.console import Console
    except ImportError as error:  # a copy of this package within a project
        raise UsageError("tables need the package 'rich'; install it, or use --json") from error

    is_terminal = sys.stdout.isatty()
    width = None if is_terminal else _WIDE
    # Not its own way to the stream, which is that of the one printer.
    kept = io.StringIO()
    Console(file=kept, force_terminal=is_terminal, width=width, highlight=False).print(
        _ruled(table)
    )
    lines = (line.rstrip() for line in kept.getvalue().splitlines())
    print_text("\n".join([*lines, ""]), sys.stdout)


def _ruled(table: _Sheet) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    def text(cell: str) -> Text:
        return Text(printable(cell))  # a plain string would be read as markup

    made = Table(
        title=text(table.title), title_justify="left", title_style="bold", box=box.SIMPLE_HEAD
    )
    for name in table.columns:
        made.add_column(
            name,
            justify="right" if name in _NUMBERS else "left",
            style="cyan" if name == "target ID" else None,
        )
    for row in table.rows:
        made.add_row(*map(text, row))
    return made


def _print_plain(table: _Sheet) -> None:
    """Print columns that are as wide as their widest cell, without any more art."""
    rows = [table.columns, *(tuple(map(printable, row)) for row in table.rows)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = [">" if name in _NUMBERS else "<" for name in table.columns]
    form = "  ".join(f"{{:{side}{width}}}" for side, width in zip(sides, widths, strict=True))
    print_lines(["", table.title, ""], sys.stdout)
    print_lines((f"  {form.format(*row)}".rstrip() for row in rows), sys.stdout)
    print_lines([""], sys.stdout)


def _image_table(file: str, images: Sequence[DeviceImage]) -> _Sheet:
    several = len({(image.file, image.index) for image in images}) > 1
    places = [_place(file, image) for image in images]
    total = sum(image.stored_size for image in _device(images))
    columns = {
        "in": any(places),
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
        rows.append(tuple(itertools.compress(cells, columns.values())))
    return _Sheet(file, tuple(itertools.compress(columns, columns.values())), rows)


def _totals_table(images: Sequence[DeviceImage]) -> _Sheet:
    packed = _has_compressed(images)
    groups: dict[str, list[DeviceImage]] = {}
    for image in _device(images):
        groups.setdefault(image.target_id or "-", []).append(image)
    stored = {name: sum(image.stored_size for image in group) for name, group in groups.items()}
    total = sum(stored.values())
    rows = [
        (
            name,
            f"{len(groups[name]):,}",
            f"{sum(image.size for image in groups[name]):,}",
            *([f"{stored[name]:,}"] if packed else []),
            _share(stored[name], total),
        )
        for name in sorted(groups, key=lambda name: (-stored[name], name))
    ]
    names = ["target ID", "images", "size (bytes)", *(["compressed"] if packed else []), "share"]
    return _Sheet("per target ID", tuple(names), rows)


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
