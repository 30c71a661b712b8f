"""``offload-tool thin PATH --keep ID... -o OUT``: remove images for other devices from a file."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser of ``offload-tool``."""
    parser = commands.add_parser(
        "thin",
        help="take the images of other targets out of a file",
        description="Write a bundle, offload binary, archive, or ELF or COFF file that embeds one "
        "of these with only the images that the devices to keep would load: in each bundle the "
        "image of a device's very ID, else the compatible one that sets the most features, else "
        "generic code that covers an AMD GPU, else for HIP SPIR-V; for NVIDIA's GPUs the nearest "
        "cubin, and all PTX. What a device may load that has "
        "the features set which its ID leaves open stays beside these. Host "
        "entries stay. A program or library stays as it is in memory and becomes smaller on disk; "
        "a PE file keeps its size, with zeros where images were, and loses its signature's worth. "
        "Of a folder or wheel, every file is thinned, and RECORD says what changed; what is signed "
        "is refused. A file or member that is nothing but code for other devices is left out; in "
        "place, it is removed.",
    )
    parser.add_argument("file", metavar="PATH", help="a file, folder or wheel")
    parser.add_argument(
        "--keep",
        action="extend",
        nargs="+",
        required=True,
        metavar="ID",
        help="target IDs (gfx90a:xnack+) or bundle entry IDs",
    )
    parser.add_argument(
        "--no-ptx",
        action="store_true",
        help="take out PTX of CUDA, and code for linking, where a cubin is loaded: newer devices "
        "cannot run what is left",
    )
    parser.add_argument(
        "-o", dest="output", required=True, metavar="OUT", help="the output; may be an input"
    )


def run(options: argparse.Namespace) -> int:
    """Write the file; print the bytes saved."""
    from offload_tool.cli.printing import print_lines
    from offload_tool.operations.match import Device
    from offload_tool.operations.thin import thin_file

    devices = [Device.parse(text) for text in options.keep]
    report = thin_file(options.file, options.output, keep=devices, keep_ptx=not options.no_ptx)
    before, after = report.size_before, report.size_after
    part = f" ({100 * after / before:.1f} %)" if before else ""
    images = f"{report.kept} of {report.kept + report.removed} device images kept"
    lines = [f"{options.output}: {before:,} -> {after:,} bytes{part}, {images}"]
    lines += (f"  {device} loads {load}" for device, load in report.loads if not load.is_native)
    lines += (
        f"  {section}: all {count} device images stay: what is around them may count their bytes"
        for section, count in report.untouched
    )
    if report.left_out:
        lines.append(f"  {len(report.left_out)} files left out, with images of other targets alone")
    print_lines(lines, sys.stdout)
    return 0
