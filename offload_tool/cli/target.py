"""``offload-tool target ID [DEVICE]``: explain a target ID, and whether a device loads its code."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from offload_tool.cli.printing import print_lines

if TYPE_CHECKING:
    import argparse

    from offload_tool.formats.target.target_id import TargetID


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
    target = _target_id(options.id)
    if options.device is None:
        print_lines(_description(target), sys.stdout)
        return 0
    from offload_tool.formats.target.bundle_entry_id import BundleEntryID, OffloadKind
    from offload_tool.formats.target.compatibility import find_fit, why_not
    from offload_tool.operations.match import Device

    kind = OffloadKind.HIPV4 if target.triple.startswith("amdgcn") else "cuda"
    code = BundleEntryID(kind, target.triple, str(target))
    device = Device.parse(options.device).asks(code)
    fit = find_fit(code, device)
    if fit is None:
        reason = why_not(code, device)
        print_lines([f"{options.device} does not load code for {target}: {reason}"], sys.stdout)
        return 1
    print_lines(
        [f"{options.device} loads code for {target} ({fit.rule}: {fit.reason})"], sys.stdout
    )
    return 0


def _target_id(text: str) -> TargetID:
    from offload_tool.formats.target.bundle_entry_id import BundleEntryID
    from offload_tool.formats.target.target_id import TargetID

    return TargetID.parse(BundleEntryID.asked(text).target_id if text.count("-") > 2 else text)


def _description(target: TargetID) -> Iterator[str]:
    from offload_tool.formats.target.processors import find_processor

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
