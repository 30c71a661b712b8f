"""``offload-tool match FILE ID``: print the images that a device would load."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from offload_tool.cli.arguments import CHOICE
from offload_tool.cli.printing import print_json_list, print_lines, print_problems
from offload_tool.errors import OffloadError
from offload_tool.util.escape import printable
from offload_tool.util.frozen import as_dict

if TYPE_CHECKING:
    from offload_tool.operations.match import Match


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser of ``offload-tool``."""
    parser = commands.add_parser(
        "match",
        help="print which images of a file a device would load",
        description="For each bundle and offload binary in a file, print the image that a device "
        f"would load and why, or why there is none. A device loads {CHOICE} The relocatable CUDA "
        "code of a program's sources is left out for a device with an image that is linked of it.",
        epilog="The exit status is 0 if each of them has such an image, else 1.",
    )
    parser.add_argument("file", metavar="FILE", help="a file, folder or zip file")
    parser.add_argument("id", metavar="ID", help="a target ID or a bundle entry ID")
    parser.add_argument("--json", action="store_true", help="print a JSON list, for programs")


def run(options: argparse.Namespace) -> int:
    """Print one line for each container, and the reasons if no image fits."""
    from offload_tool.operations.match import Device, match_images

    problems: list[OffloadError] = []
    device = Device.parse(options.id)
    matches = list(match_images(options.file, device, skipped=problems.append))
    if options.json:
        print_json_list(map(_row, matches), indent=2)
    else:
        print_lines((printable(line) for match in matches for line in _lines(match)), sys.stdout)
        if not matches:
            print_lines([f"{options.file}: no device images"], sys.stdout)
    status = print_problems(problems)
    return status if matches and all(match.ids for match in matches) else 1


def _row(match: Match) -> dict[str, object]:
    loads = [as_dict(load) for load in match.loads]
    return {**as_dict(match), "loads": loads, "reasons": dict(match.reasons)}


def _lines(match: Match) -> list[str]:
    where = match.file if match.member is None else f"{match.file}({match.member})"
    if match.ids:
        text = ", ".join(map(str, match.loads))
        return [f"{where}, {match.container} {match.index}: {text}"]
    lines = [f"{where}, {match.container} {match.index}: no image"]
    lines += (f"  {entry_id}: {reason}" for entry_id, reason in match.reasons)
    return lines
