"""``offload-tool archive -o OUT.a NAME... [--restat]``."""

from __future__ import annotations

import argparse

from offload_tool.cli.printing import print_lines


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser of ``offload-tool``."""
    parser = commands.add_parser(
        "archive",
        help="write an archive of files, for example a heterogeneous device archive of bundles",
        description="Write an archive with a symbol index. Members have the names of the files, "
        "without folders. The same files and names always give the same bytes.",
    )
    parser.add_argument("-o", dest="output", required=True, metavar="OUT.a", help="the archive")
    parser.add_argument("files", nargs="+", metavar="NAME", help="a file")
    parser.add_argument(
        "--restat", action="store_true", help="do not write OUT.a if its bytes would not change"
    )


def run(options: argparse.Namespace) -> int:
    """Write the archive."""
    from pathlib import PurePath

    from offload_tool.operations.archive import create_archive

    create_archive(
        [(PurePath(file).name, file) for file in options.files],
        options.output,
        keep_equal=options.restat,
        warn=lambda text: print_lines([f"offload-tool: warning: {text}"]),
    )
    return 0
