"""``offload-tool extract FILE [--target ID]... -o DIR``: write the device images as files."""

from __future__ import annotations

import argparse
import sys

from offload_tool.cli.arguments import CHOICE, Commands, add_each, add_json, add_output
from offload_tool.cli.printing import print_json_list, print_lines, print_problems
from offload_tool.errors import OffloadError
from offload_tool.util.escape import printable


def add_extract(commands: Commands) -> None:
    """Add the command to the parser of ``offload-tool``."""
    parser = commands.add_parser(
        "extract",
        help="write the device images of a file into a folder",
        description="Write the device images of any file that 'list' reads into a folder, and "
        "print the written files. With --target, write only the image of each bundle "
        f"or offload binary that such a device would load, and print why: {CHOICE} "
        "Individually compressed images are decompressed.",
    )
    parser.add_argument("file", metavar="FILE", help="a file, folder or zip file")
    text = "a target ID (gfx90a:xnack+) or a bundle entry ID; may be given several times"
    add_each(parser, "--target", "ID", text)
    add_output(parser, "DIR", "the folder")
    add_json(parser)


def run_extract(options: argparse.Namespace) -> int:
    """Write the images; print their file names."""
    from offload_tool.operations.extract import extract_device_images
    from offload_tool.operations.match import Device

    problems: list[OffloadError] = []
    devices = [Device.parse(text) for text in options.target]
    images = extract_device_images(
        options.file, options.output, devices=devices, skipped=problems.append
    )
    if options.json:
        from offload_tool.cli.list import json_row  # other output does not need it

        rows = ({**json_row(image), "path": str(image.path)} for image in images)
        print_json_list(rows, indent=2)
    else:
        print_lines((printable(str(image.path)) for image in images), sys.stdout)
        print_lines(
            printable(f"offload-tool: note: {device} loads {load}")
            for device, load in dict.fromkeys(pair for image in images for pair in image.loads)
            if not load.is_native
        )
    return print_problems(problems)
