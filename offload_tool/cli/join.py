"""``offload-tool join HOST [PART]... -o OUT``: join device code with its host."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser of ``offload-tool``."""
    parser = commands.add_parser(
        "join",
        help="put what 'split' has put apart together again",
        description="Write a program or library with the code of its kpack archives in it, as fat "
        "binaries; so for all in a folder, or in the wheel of a host, which loses the extras for "
        "device code. Archives are found by the markers, as the runtime finds them, and among "
        "those that are given. A host that AMD's splitter has made is taken, too.",
    )
    parser.add_argument("host", metavar="HOST", help="a program, library, folder or wheel")
    parser.add_argument(
        "parts",
        nargs="*",
        metavar="PART",
        help="kpack archives; of a wheel those of its device code; of a folder, folders to be laid "
        "over it",
    )
    parser.add_argument("-o", dest="output", required=True, metavar="OUT", help="the output")


def run(options: argparse.Namespace) -> int:
    """Write the joined file; print a summary."""
    from offload_tool.cli.printing import print_lines
    from offload_tool.operations.join import join_file
    from offload_tool.util.escape import printable

    report = join_file(options.host, options.parts, options.output)
    text = f"{options.output}: {report.images} device images in {report.files} files"
    print_lines([printable(text)], sys.stdout)
    return 0
