"""``offload-tool report PATH... -o REPORT.html``: write a page on sizes, kernels and changes."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from offload_tool.cli.arguments import add_tolerance
from offload_tool.cli.printing import print_problems
from offload_tool.errors import OffloadError, UnsupportedError, UsageError
from offload_tool.io import replace_file

if TYPE_CHECKING:
    from offload_tool.operations.diff import Comparison
    from offload_tool.operations.kernel_table import KernelColumns
    from offload_tool.operations.list_images import DeviceImage


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser of ``offload-tool``."""
    parser = commands.add_parser(
        "report",
        help="write an HTML page with the sizes of device code, all kernels, and changes",
        description="Write one self-contained HTML page. It has the sizes of all device images "
        "by target ID, file, member and container, as tables and as a chart; a table "
        "of all kernels with their resources, and each kernel's targets side by "
        "side; and the changes, with --compare.",
        epilog="The page needs plotly and itables: pip install plotly itables. In a folder or "
        "zip file, the command skips files without images. The page names broken "
        "files, and images with broken metadata; then the exit status is 1.",
    )
    parser.add_argument(
        "paths",
        nargs="+",
        metavar="PATH",
        help="a file, folder or zip file; in a folder, the page names intermediate files "
        "of a build, whose images are all in later files, but does not count them",
    )
    parser.add_argument("-o", "--output", required=True, metavar="HTML", help="the page to write")
    parser.add_argument(
        "--compare",
        action="append",
        default=[],
        metavar="OLD",
        help="also show the changes since this file, folder or zip file of an earlier "
        "build, as offload-tool diff does; if there are several PATHs, give one for "
        "each, in the same order",
    )
    add_tolerance(parser)
    parser.add_argument(
        "--demangle",
        action="store_true",
        help="show demangled names of kernels (by llvm-cxxfilt or c++filt)",
    )


def run(options: argparse.Namespace) -> int:
    """Write the page; on an error, write nothing."""
    # Imported here: no other command needs them.
    from offload_tool.operations.kernel_table import KernelColumns
    from offload_tool.operations.list_images import kernels_of
    from offload_tool.operations.size_report import Intermediates, images_under, summarise
    from offload_tool.report import Content, render_page
    from offload_tool.report.libraries import load_libraries

    if options.compare and len(options.compare) != len(options.paths):
        raise UsageError(
            f"--compare is given once for each PATH, in their order; found {len(options.compare)} "
            f"of {len(options.paths)}"
        )
    if options.tolerance and not options.compare:
        raise UsageError("--tolerance is about a comparison; give it with --compare")
    libraries = load_libraries()
    problems: list[OffloadError] = []  # unreadable files
    broken: list[OffloadError] = []  # images with broken kernel metadata
    unread: list[str] = []
    kernels = KernelColumns()
    named = {os.fspath(path) for path in options.paths}
    parts = Intermediates()

    def no_kernels(error: OffloadError) -> None:
        unread.append(str(error))
        if not isinstance(error, UnsupportedError):  # images of unsupported kinds count by size
            broken.append(error)

    def read_images() -> Iterator[DeviceImage]:
        for image, source, found in images_under(options.paths, skipped=problems.append):
            listed = kernels_of(source, found, skipped=no_kernels, silent=unread.append)
            kernels.add(image, listed or ())
            if image.file not in named:
                parts.add(image, source, found)
            yield image

    images = [*read_images()]
    if intermediates := parts.files():
        dropped = {*intermediates}
        images = [image for image in images if image.file not in dropped]
        kernels = kernels.without(dropped)
    broken[:0] = problems
    uncompared: list[str] = []
    changes = _changes(options, broken, uncompared) if options.compare else None
    content = Content(
        options.paths,
        summarise(images),
        kernels,
        options.compare,
        changes,
        _demangled(kernels, changes) if options.demangle else {},
        {
            "Not counted, because broken or unreadable": [*map(str, problems)],
            "Not counted, because later files of the build have the same images": intermediates,
            "Images that list no kernels, or none that can be read": unread,
            "Compared by size alone, or not at all": uncompared,
        },
    )
    with replace_file(options.output) as output:
        for piece in render_page(content, libraries):
            output.write(piece.encode())
    return print_problems(broken)


def _changes(
    options: argparse.Namespace, broken: list[OffloadError], unread: list[str]
) -> Comparison:
    """Compare the builds; errors of the newer ones were reported before."""
    from offload_tool.operations.diff import compare_builds

    known = set(map(str, broken))

    def skipped(error: OffloadError) -> None:
        unread.append(str(error))
        if not isinstance(error, UnsupportedError) and str(error) not in known:
            known.add(str(error))
            broken.append(error)

    pairs = list(zip(options.compare, options.paths, strict=True))
    return compare_builds(pairs, tolerance=options.tolerance, skipped=skipped, notes=unread.append)


def _demangled(kernels: KernelColumns, changes: Comparison | None) -> dict[str, str]:
    from offload_tool.operations.kernel_table import demangled_names

    rows = changes.kernels if changes else ()
    changed = (kernel.name for row in rows for kernel in (row.before, row.after) if kernel)
    return demangled_names([*kernels.names, *changed])
