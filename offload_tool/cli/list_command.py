"""``offload-tool list FILE... [--json]``: the device images in any file."""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from offload_tool.operations.listing import DeviceImage

__all__ = ["add", "run"]

_WIDE = 10_000  # columns, where no terminal says how many: lines in a pipe are not cut


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser of ``offload-tool``."""
    parser = commands.add_parser(
        "list",
        help="list the device images in files",
        description="List the device images in bundles, and in ELF objects, programs and "
        "libraries that embed bundles.",
        allow_abbrev=False,
    )
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--json", action="store_true", help="print a JSON list, for programs")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the images of all files, or an error and nothing."""
    from offload_tool.operations.listing import list_images

    listed = [(file, list_images(file)) for file in options.files]
    if options.json:
        images = [dataclasses.asdict(image) for _, found in listed for image in found]
        print(json.dumps(images, indent=2))
    else:
        for file, found in listed:
            _print_table(file, found)
    return 0


def _print_table(file: str, images: list[DeviceImage]) -> None:
    # Imported here: half of a command's start-up time, and only a table needs it.
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(file), title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    several = len({image.index for image in images}) > 1
    if several:
        table.add_column("#", justify="right")
    table.add_column("target ID", style="cyan")
    table.add_column("kind")
    table.add_column("triple")
    table.add_column("offset", justify="right")
    table.add_column("size (bytes)", justify="right")
    for image in images:
        cells = [
            image.target_id or "-",
            image.kind,
            image.triple,
            "" if image.offset is None else f"{image.offset:#x}",
            f"{image.size:,}",
        ]
        row = [str(image.index), *cells] if several else cells
        table.add_row(*(Text(_printable(cell)) for cell in row))
    console = Console(width=None if sys.stdout.isatty() else _WIDE, highlight=False)
    with console.capture() as captured:
        console.print(table)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))
    device = [image for image in images if image.kind != "host"]
    total = sum(image.size for image in device)
    plural = "" if len(device) == 1 else "s"
    console.print(Text(f"  {len(device)} device image{plural}, {total:,} bytes"))


def _printable(text: str) -> str:
    """Show control characters of a hostile ID as escapes instead of sending them on."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
