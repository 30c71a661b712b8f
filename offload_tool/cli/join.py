"""``offload-tool join HOST [PART]... -o OUT``: join device code with its host."""

from __future__ import annotations

import argparse
import sys

from offload_tool.cli.printing import print_lines
from offload_tool.util.escape import printable


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser of ``offload-tool``."""
    parser = commands.add_parser(
        "join",
        help="put the device code that 'split' took out back into programs and libraries",
        description="Write a program or library that contains the code of its kpack archives as "
        "fat binaries. For a folder or a host wheel, do so for all programs and "
        "libraries in it; the joined wheel has no extras for device code. The "
        "command finds archives by the markers, as the runtime does, and among the "
        "given files. It also reads hosts that AMD's splitter made.",
    )
    parser.add_argument("host", metavar="HOST", help="a program, library, folder or wheel")
    parser.add_argument(
        "parts",
        nargs="*",
        metavar="PART",
        help="kpack archives; for a wheel, the wheels of its device code; for a folder, "
        "folders to copy over it",
    )
    parser.add_argument("-o", dest="output", required=True, metavar="OUT", help="the output")


def run(options: argparse.Namespace) -> int:
    """Write the joined file; print a summary."""
    from offload_tool.operations.join import join_file

    report = join_file(options.host, options.parts, options.output)
    text = f"{options.output}: {report.images} device images in {report.files} files"
    print_lines([printable(text)], sys.stdout)
    return 0
