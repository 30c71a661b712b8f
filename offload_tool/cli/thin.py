"""``offload-tool thin PATH --keep ID... -o OUT``: remove images for other devices from a file."""

from __future__ import annotations

import argparse
import sys

from offload_tool.cli.printing import print_lines


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser of ``offload-tool``."""
    parser = commands.add_parser(
        "thin",
        help="remove the device images that the given targets do not load",
        description="Copy a bundle, offload binary, archive, or an ELF file that embeds "
        "one of these, with only the images that the given devices would load. From "
        "each bundle, that is the image with exactly the device's ID; else the "
        "compatible image that sets the most features; else generic code for the AMD "
        "processor; else SPIR-V for HIP. For NVIDIA GPUs, it is the nearest cubin "
        "and all PTX. If an ID leaves a feature open, the images with that feature "
        "on and off stay, too. Host entries stay. A program or library keeps its "
        "layout in memory and becomes smaller on disk. A PE file is refused. In a "
        "folder or wheel, all files are thinned, and RECORD is updated; a signed "
        "wheel is refused. Files and members that contain only code for other "
        "devices are left out, or are removed if OUT is the input.",
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
        help="also remove CUDA's PTX and code for linking if there is a cubin to load; "
        "newer GPUs cannot run the output",
    )
    parser.add_argument(
        "-o", dest="output", required=True, metavar="OUT", help="the output; may be an input"
    )


def run(options: argparse.Namespace) -> int:
    """Write the file; print the bytes saved."""
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
