"""``offload-tool split PATH -o DIR`` and ``join HOST [PART]... -o OUT``: separate device code."""

from __future__ import annotations

import argparse
import sys

from offload_tool.cli.arguments import Commands, add_each, add_output
from offload_tool.cli.printing import print_lines, print_report
from offload_tool.util.escape import printable


def add_split(commands: Commands) -> None:
    """Add the command to the parser of ``offload-tool``."""
    parser = commands.add_parser(
        "split",
        help="move device code out of programs and libraries, into one file for each target ID",
        description="Move the HIP code of a linked ELF program or library, or of all of them in a "
        "folder or wheel, into kpack archives, one for each target ID. ROCm's runtime (7.14 and "
        "later) finds an archive by a marker in the program. For a file or a folder, DIR gets the "
        "changed files and a folder .kpack. For a wheel, DIR gets the wheel of the host, with "
        "extras, and a wheel for each processor. Runtimes load CUDA and OpenMP code only from the "
        "program itself; if there is no other code, DIR gets a folder for each target ID, with the "
        "output of 'thin' for it.",
    )
    parser.add_argument("file", metavar="PATH", help="a program, library, folder or wheel")
    add_output(parser, "DIR", "the folder")
    parser.add_argument(
        "--group",
        metavar="NAME",
        help="name archives NAME_TARGET.kpack (default: the name of the input)",
    )
    parser.add_argument(
        "--compression",
        choices=("zstd-per-kernel", "none"),
        default="zstd-per-kernel",
        help="the compression of the archives (default: %(default)s)",
    )
    parser.add_argument(
        "--parts",
        action="store_true",
        help="for a folder: write NAME_host, and NAME_TARGET for each target, to be "
        "copied over each other",
    )
    wheels = parser.add_argument_group("of a wheel")
    wheels.add_argument(
        "--device-prefix",
        metavar="NAME",
        help="name wheels of device code NAME-TARGET (default: the wheel's name and '-device')",
    )
    wheels.add_argument(
        "--overlay-root",
        metavar="FOLDER",
        help="the folder in the wheel for .kpack (default: its only package)",
    )
    text = "a requirement of the wheels of device code; @GFXARCH@ stands for the target"
    add_each(wheels, "--device-requires", "REQUIREMENT", text)


def run_split(options: argparse.Namespace) -> int:
    """Write the parts; print a line for each."""
    from offload_tool.operations.split import WheelOptions, split_file

    wheel = WheelOptions(options.device_prefix, options.overlay_root, options.device_requires)
    report = split_file(
        options.file,
        options.output,
        group=options.group,
        scheme=options.compression,
        in_parts=options.parts,
        wheel=None if wheel == WheelOptions(None, None, []) else wheel,
    )
    lines = []
    for part in report.parts:
        size = f"{part.size:,} bytes" if part.size else "folder"
        what = "host" if part.target_id is None else f"{part.target_id}, {part.images} images"
        lines.append(printable(f"{part.path}: {size}, {what}"))
    print_lines(lines, sys.stdout)
    print_lines(
        printable(
            f"offload-tool: note: {name} keeps its {count} device images, which no runtime would "
            "load from elsewhere"
        )
        for name, count in report.left
    )
    return 0


def add_join(commands: Commands) -> None:
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
    add_output(parser, "OUT", "the output")


def run_join(options: argparse.Namespace) -> int:
    """Write the joined file; print a summary."""
    from offload_tool.operations.join import join_file

    report = join_file(options.host, options.parts, options.output)
    text = f"{options.output}: {report.images} device images in {report.files} files"
    print_report([printable(text)], options.output)
    return 0
