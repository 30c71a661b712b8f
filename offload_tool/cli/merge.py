"""``offload-tool merge A B... -o OUT``: merge builds of different targets into one file."""

from __future__ import annotations

import argparse


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser of ``offload-tool``."""
    parser = commands.add_parser(
        "merge",
        help="merge the files of builds for different targets into one",
        description="Merge bundles, offload binaries, CUDA fat binaries, or archives of these "
        "(member by member) that were built from the same sources for different "
        "targets. The output is that of one build for all targets: the host entry, "
        "which must be the same in all files, and then the images in the order of "
        "their target IDs. No target may be in two files.",
    )
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="two or more files of the same format"
    )
    parser.add_argument(
        "-o", dest="output", required=True, metavar="OUT", help="the output; may be an input"
    )


def run(options: argparse.Namespace) -> int:
    """Write the merged file."""
    from offload_tool.operations.merge import merge_files

    merge_files(options.files, options.output)
    return 0
