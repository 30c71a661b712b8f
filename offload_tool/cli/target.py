"""``offload-tool target ID [DEVICE]``: explain a target ID, and whether a device loads its code."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from offload_tool.cli.printing import print_lines
from offload_tool.formats.targets.bundle_entry_id import BundleEntryID, OffloadKind
from offload_tool.formats.targets.compatibility import find_fit, why_not
from offload_tool.formats.targets.processors import find_processor
from offload_tool.formats.targets.target_id import TargetID


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
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


def run(options: argparse.Namespace) -> int:
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
    if fit is None:
        line = f"{options.device} does not load code for {target}: {why_not(code, device)}"
    else:
        line = f"{options.device} loads code for {target} ({fit.rule}: {fit.reason})"
    print_lines([line], sys.stdout)
    return int(fit is None)


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
