"""Commands that write one container of others: ``thin``, ``merge``, ``repack`` and ``archive``."""

from __future__ import annotations

import argparse

from offload_tool.cli.arguments import Commands, add_output, add_restat
from offload_tool.cli.printing import print_lines, print_report
from offload_tool.errors import UsageError


def add_thin(commands: Commands) -> None:
    """Add the command to the parser of ``offload-tool``."""
    parser = commands.add_parser(
        "thin",
        help="remove the device images that the given targets do not load",
        description="Copy a bundle, offload binary, archive, or an ELF file that embeds one of "
        "these, with only the images that the given devices would load. From each bundle, that is "
        "the image with exactly the device's ID; else the compatible image that sets the most "
        "features; else generic code for the AMD processor; else SPIR-V for HIP. For NVIDIA GPUs, "
        "it is the nearest cubin and all PTX. If an ID leaves a feature open, the images with that "
        "feature on and off stay, too. Host entries stay. A program or library keeps its layout in "
        "memory and becomes smaller on disk. A PE file is refused. In a folder or wheel, all files "
        "are thinned, and RECORD is updated; a signed wheel is refused. Files and members that "
        "contain only code for other devices are left out, or are removed if OUT is the input.",
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
    add_output(parser, "OUT", "the output; may be an input")


def run_thin(options: argparse.Namespace) -> int:
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
    print_report(lines, options.output)
    return 0


def add_merge(commands: Commands) -> None:
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
    add_output(parser, "OUT", "the output; may be an input")


def run_merge(options: argparse.Namespace) -> int:
    """Write the merged file."""
    from offload_tool.operations.merge import merge_files

    merge_files(options.files, options.output)
    return 0


def add_repack(commands: Commands) -> None:
    """Add the command to the parser of ``offload-tool``."""
    parser = commands.add_parser(
        "repack",
        help="write a bundle with another compression, version or alignment",
        description="Write all entries of one bundle, plain or compressed, to a new bundle, "
        "plain or compressed.",
    )
    parser.add_argument("file", metavar="FILE", help="a bundle of the binary layout")
    add_output(parser, "OUT", "the new bundle")
    parser.add_argument(
        "--compress", choices=("zstd", "zlib"), help="the compression (default: none)"
    )
    parser.add_argument("--level", type=int, metavar="N", help="compression level")
    parser.add_argument(
        "--version",
        type=int,
        choices=(2, 3),
        dest="header",
        help="the version of the compressed bundle's header (default: 3); older runtimes "
        "read only 2",
    )
    parser.add_argument(
        "--align",
        type=int,
        default=4096,
        metavar="BYTES",
        help="the alignment of each entry (default: 4096)",
    )
    add_restat(parser, "OUT")


def run_repack(options: argparse.Namespace) -> int:
    """Write the bundle."""
    from offload_tool.operations.bundle import Compression, repack_bundle

    if options.compress is None and (options.level, options.header) != (None, None):
        raise UsageError("--level and --version are of compressed bundles; give --compress, too")
    compression = None
    if options.compress is not None:
        compression = Compression(options.compress, options.level, options.header or 3)
    repack_bundle(
        options.file,
        options.output,
        compression=compression,
        alignment=options.align,
        keep_equal=options.restat,
    )
    return 0


def add_archive(commands: Commands) -> None:
    """Add the command to the parser of ``offload-tool``."""
    parser = commands.add_parser(
        "archive",
        help="write an archive of files, for example a heterogeneous device archive of bundles",
        description="Write an archive with a symbol index. Members have the names of the files, "
        "without folders. The same files and names always give the same bytes.",
    )
    add_output(parser, "OUT.a", "the archive")
    parser.add_argument("files", nargs="+", metavar="NAME", help="a file")
    add_restat(parser, "OUT.a")


def run_archive(options: argparse.Namespace) -> int:
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
