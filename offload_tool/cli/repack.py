"""``offload-tool repack FILE -o OUT``: change a bundle's compression, version or alignment."""

from __future__ import annotations

import argparse

from offload_tool.errors import UsageError


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser of ``offload-tool``."""
    parser = commands.add_parser(
        "repack",
        help="write a bundle with another compression, version or alignment",
        description="Write all entries of one bundle, plain or compressed, to a new bundle, "
        "plain or compressed.",
    )
    parser.add_argument("file", metavar="FILE", help="a bundle of the binary layout")
    parser.add_argument("-o", dest="output", required=True, metavar="OUT", help="the new bundle")
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
    parser.add_argument(
        "--restat", action="store_true", help="do not write OUT if its bytes would not change"
    )


def run(options: argparse.Namespace) -> int:
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
