"""``offload-tool match FILE ID`` and ``target ID [DEVICE]``: which code a device loads, and why."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from offload_tool.cli.arguments import CHOICE, Commands, add_json
from offload_tool.cli.printing import print_json_list, print_lines, print_problems
from offload_tool.errors import OffloadError
from offload_tool.formats.targets.bundle_entry_id import BundleEntryID, OffloadKind
from offload_tool.formats.targets.compatibility import find_fit
from offload_tool.formats.targets.processors import find_processor
from offload_tool.formats.targets.target_id import TargetID
from offload_tool.util.escape import printable
from offload_tool.util.frozen import as_dict

if TYPE_CHECKING:
    from offload_tool.operations.match import Match


def add_match(commands: Commands) -> None:
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
    add_json(parser)


def run_match(options: argparse.Namespace) -> int:
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


def add_target(commands: Commands) -> None:
    """Add the command to the parser of ``offload-tool``."""
    parser = commands.add_parser(
        "target",
        help="print what a target ID means, and whether a device loads its code",
        description="Print the canonical form of a target ID, alone or in a bundle entry ID, and "
        "the properties of its processor. With DEVICE, print whether a device with "
        "that target ID loads code for ID.",
        epilog="The exit status is 1 if DEVICE does not load code for ID.",
    )
    parser.add_argument("id", metavar="ID", help="a target ID or a bundle entry ID")
    parser.add_argument("device", metavar="DEVICE", nargs="?", help="the target ID of a device")


def run_target(options: argparse.Namespace) -> int:
    """Print the explanation; return 1 if the device does not load the code."""
    is_entry = options.id.count("-") > 2
    text = BundleEntryID.parse_any_kind(options.id).target_id if is_entry else options.id
    target = TargetID.parse(text)
    if options.device is None:
        print_lines(_description(target), sys.stdout)
        return 0
    from offload_tool.operations.match import Device

    kind = OffloadKind.HIPV4 if target.triple.startswith("amdgcn") else "cuda"
    code = BundleEntryID(kind, target.triple, str(target))
    device = Device.parse(options.device).entry_id_for(code)
    fit = find_fit(code, device)
    if isinstance(fit, str):
        line = f"{options.device} does not load code for {target}: {fit}"
    else:
        line = f"{options.device} loads code for {target} ({fit.rule}: {fit.reason})"
    print_lines([line], sys.stdout)
    return int(isinstance(fit, str))


def _description(target: TargetID) -> Iterator[str]:
    processor = find_processor(target.processor)
    yield f"target ID   {target}"
    yield f"triple      {target.triple.rstrip('-')}"
    yield f"processor   {target.processor}"
    if processor is None:
        return
    for name, values in (
        ("also known as", processor.alternative_names),
        ("features", processor.features),
        ("covers", processor.covers),
    ):
        if values:
            yield f"{name:<11} {', '.join(values)}"
    if processor.mach is not None:
        yield f"ELF mach    {processor.mach:#x}"
