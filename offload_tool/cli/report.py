"""``offload-tool report PATH... -o REPORT.html``: write a page on sizes, kernels and changes."""

from __future__ import annotations

import argparse
from functools import partial

from offload_tool.cli.arguments import Commands, add_each, add_tolerance
from offload_tool.cli.printing import print_problems
from offload_tool.errors import OffloadError, UnsupportedError, UsageError
from offload_tool.io import replace_file


def add_report(commands: Commands) -> None:
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
    text = "also show the changes since this file, folder or zip file of an earlier build, as "
    text += (
        "offload-tool diff does; if there are several PATHs, give one for each, in the same order"
    )
    add_each(parser, "--compare", "OLD", text)
    add_tolerance(parser)
    parser.add_argument(
        "--demangle",
        action="store_true",
        help="show demangled names of kernels (by llvm-cxxfilt or c++filt)",
    )


def run_report(options: argparse.Namespace) -> int:
    """Write the page; on an error, write nothing."""
    # Imported here: no other command needs them.
    from offload_tool.operations.diff import compare_builds
    from offload_tool.operations.kernel_table import KernelColumns, demangled_names
    from offload_tool.operations.list_images import kernels_of
    from offload_tool.operations.size_report import Intermediates, images_under, summarise
    from offload_tool.report import Content, load_libraries, render_page

    if options.compare and len(options.compare) != len(options.paths):
        raise UsageError(
            f"--compare is given once for each PATH, in their order; found {len(options.compare)} "
            f"of {len(options.paths)}"
        )
    if options.tolerance and not options.compare:
        raise UsageError("--tolerance is about a comparison; give it with --compare")
    libraries = load_libraries()
    files: list[OffloadError] = []  # unreadable ones
    broken: dict[str, OffloadError] = {}  # images with broken kernel metadata, by message
    unread: list[str] = []
    uncompared: list[str] = []

    def note(lines: list[str], error: OffloadError) -> None:
        lines.append(str(error))
        if not isinstance(error, UnsupportedError):  # images of unsupported kinds count by size
            broken[str(error)] = error

    kernels, images, parts = KernelColumns(), [], Intermediates()
    for image, source, found in images_under(options.paths, skipped=files.append):
        listed = kernels_of(source, found, skipped=partial(note, unread), silent=unread.append)
        kernels.add(image, listed or ())
        images.append(image)
        if image.file not in options.paths:
            parts.add(image, source, found)
    intermediates = parts.files()
    kernels = kernels.without({*intermediates})
    changes = options.compare and compare_builds(
        [*zip(options.compare, options.paths, strict=True)],
        tolerance=options.tolerance,
        skipped=partial(note, uncompared),
        notes=uncompared.append,
    )
    changed = [row.name for row in changes.kernels] if changes else []
    content = Content(
        options.paths,
        summarise([image for image in images if image.file not in intermediates]),
        kernels,
        options.compare,
        changes or None,
        demangled_names([*kernels.names, *changed]) if options.demangle else {},
        {
            "Not counted, because broken or unreadable": [*map(str, files)],
            "Not counted, because later files of the build have the same images": intermediates,
            "Images that list no kernels, or none that can be read": unread,
            "Compared by size alone, or not at all": uncompared,
        },
    )
    with replace_file(options.output) as output:
        for piece in render_page(content, libraries):
            output.write(piece.encode())
    return print_problems([*{**{str(error): error for error in files}, **broken}.values()])
