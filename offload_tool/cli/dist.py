"""``offload-tool dist init``: compile on other machines, by sccache-dist."""

from __future__ import annotations

import argparse
import os
import sys

from offload_tool.cli.arguments import Commands, add_output
from offload_tool.cli.printing import print_lines

_MEGABYTE = 1_000_000


def add_dist(commands: Commands) -> None:
    """Add the command to the parser of ``offload-tool``."""
    parser = commands.add_parser(
        "dist",
        help="compile on other machines",
        description="Compile HIP device code on an sccache-dist cluster.",
    )
    steps = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    init = steps.add_parser(
        "init",
        help="pack the compiler and make the folder for OFFLOAD_DIST",
        description="Pack the compiler, and make the folder that OFFLOAD_DIST names.",
    )
    init.add_argument("--scheduler", required=True, metavar="URL", help="http://HOST:PORT")
    init.add_argument(
        "--token-file", required=True, metavar="F", help="the file with the clients' token"
    )
    add_output(init, "DIR", "the folder to make")
    init.add_argument("--clang", metavar="C", help="the compiler (default: that of builds)")


def run_dist(options: argparse.Namespace) -> int:
    """Create the folder; print how to use it."""
    from offload_tool.passes.choose_compiler import find_toolchain
    from offload_tool.sccache_dist.config import read_token, set_up

    token = read_token(options.token_file)
    toolchain = find_toolchain(clang=options.clang)
    size = set_up(options.output, options.scheduler, token, toolchain)
    folder = os.path.relpath(os.path.abspath(options.output))
    lines = [
        f"{toolchain}: packed, {size / _MEGABYTE:.0f} MB",
        f"check the scheduler: env $(cat {folder}/env) sccache --dist-status",
        f"use it: OFFLOAD_DIST={folder} in an SConstruct, or in the shell for 'compile', 'launch'",
    ]
    print_lines(lines, sys.stdout)
    return 0
