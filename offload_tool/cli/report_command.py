"""``offload-tool report PATH... -o REPORT.html``: a page that shows where the bytes are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from offload_tool.cli.terminal import print_problems
from offload_tool.errors import UsageError

if TYPE_CHECKING:
    import argparse

    from offload_tool.errors import OffloadError

__all__ = ["add", "run"]


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser of ``offload-tool``."""
    parser = commands.add_parser(
        "report",
        help="write an HTML page that shows where the bytes are",
        description="Write one self-contained HTML page with the sizes of all device images: "
        "per target ID, file, member and container, as tables and as a picture.",
        epilog="The picture needs plotly: pip install 'offload-tool[report]'. Files without images "
        "in a folder or zip file are passed over; broken ones are named on the page and reported "
        "after it was written, with exit status 1.",
        allow_abbrev=False,
    )
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a file, folder or zip file")
    parser.add_argument("-o", "--output", required=True, metavar="HTML", help="the page to write")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write the page, or an error and nothing."""
    # Imported here: no other command needs them.
    from offload_tool.cli.report_page import render_page
    from offload_tool.files import replace_file
    from offload_tool.operations.reporting import collect_images, summarise

    library = _plotting_library()
    problems: list[OffloadError] = []
    images = collect_images(options.paths, skipped=problems.append)
    page = render_page(options.paths, summarise(images), problems, library=library)
    with replace_file(options.output) as output:
        output.write(page.encode())
    return print_problems(problems)


def _plotting_library() -> str:
    """Give the source of plotly.js, as the optional package plotly brings it."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise UsageError(
            "the picture of a report needs plotly, which is not installed: "
            "pip install 'offload-tool[report]'"
        ) from error
    source: str = get_plotlyjs()
    return source
