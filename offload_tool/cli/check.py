"""``offload-tool check PATH... --targets ID,ID``: a gate for libraries, before they are shipped."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from offload_tool.cli.printing.lines import print_lines, print_notes, print_problems
from offload_tool.errors import OffloadError, UsageError
from offload_tool.io.limits import read_size

if TYPE_CHECKING:
    import argparse

    from offload_tool.operations.check import Rule


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser of ``offload-tool``."""
    parser = commands.add_parser(
        "check",
        help="judge libraries: images for all targets, the same kernels in each",
        description="Judge each library in files, folders and zip files: whether it has an image "
        "for every target, as the runtimes choose them, in each container, and whether no image "
        "hides another one's kernels. A fault is one line.",
        epilog="The exit status is 0 if there is no fault, else 1. A path without device images "
        "is a fault. Rules for many libraries are in a TOML file; see the reference of commands.",
        allow_abbrev=False,
    )
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a file, folder or zip file")
    parser.add_argument(
        "--targets",
        action="append",
        default=[],
        metavar="ID,ID",
        help="target IDs (gfx90a:xnack+) or bundle entry IDs for which there must be an image",
    )
    parser.add_argument(
        "--same-kernels",
        action="store_true",
        help="the images for these targets, or without --targets all, must have the same kernels",
    )
    parser.add_argument(
        "--no-spills", action="store_true", help="no kernel of them may spill registers"
    )
    parser.add_argument(
        "--max-size",
        metavar="SIZE",
        help="bytes that the device images of a library may take in it (512M)",
    )
    parser.add_argument(
        "--siblings",
        action="store_true",
        help="also print which targets have the same code, and what one image in their place "
        "would save; no fault",
    )
    parser.add_argument(
        "--rules", metavar="TOML", help="a file with rules, each for libraries of some names"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print a line for each fault; then what could not be read."""
    from offload_tool.operations.check import check_libraries

    problems: list[OffloadError] = []
    notes: list[str] = []
    faults = 0
    for fault in check_libraries(
        options.paths, _rules(options), skipped=problems.append, notes=notes.append
    ):
        print_lines([str(fault)], sys.stdout)
        faults += 1
    if options.siblings:
        from offload_tool.operations.siblings import find_siblings

        for path in options.paths:  # what cannot be read was told of above
            for siblings in find_siblings(path, skipped=lambda error: None):  # noqa: ARG005
                print_lines([str(siblings)], sys.stdout)
    print_notes(notes)
    return print_problems(problems) or int(faults > 0)


def _rules(options: argparse.Namespace) -> list[Rule]:
    from offload_tool.cli.check_rules import read_rules
    from offload_tool.formats.target.target_id import split_list
    from offload_tool.operations.check import Rule
    from offload_tool.operations.match import Device

    words: list[str] = []
    for text in options.targets:
        found = split_list(text)
        if not found:  # of a variable that is empty, perhaps: no gate at all
            raise UsageError(f"--targets: expected target IDs with commas, found {text!r}")
        words += found
    targets = tuple(map(Device.parse, words))
    size = None if options.max_size is None else read_size(options.max_size, "--max-size")
    given = Rule(
        targets=targets,
        same_kernels=options.same_kernels,
        no_spills=options.no_spills,
        max_size=size,
    )
    rules = read_rules(options.rules) if options.rules else []
    return rules if rules and given == Rule() else [given, *rules]
