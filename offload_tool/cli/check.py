"""``offload-tool check PATH... --targets ID,ID``: check libraries before a release."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from offload_tool.cli.arguments import Commands, add_each
from offload_tool.cli.printing import print_lines, print_notes, print_problems
from offload_tool.errors import OffloadError, UsageError
from offload_tool.formats.targets.target_id import split_list
from offload_tool.io import InputFile, StrPath
from offload_tool.io.limits import read_size

if TYPE_CHECKING:
    from offload_tool.operations.check import Rule

_KEYS = ("paths", "targets", "same-kernels", "no-spills", "max-size")
"""The keys of a rule in a file of rules."""


def add_check(commands: Commands) -> None:
    """Add the command to the parser of ``offload-tool``."""
    parser = commands.add_parser(
        "check",
        help="check libraries: images for all targets, with the same kernels",
        description="Check each library in files, folders and zip files. Each of its containers "
        "must have an image for every target, as the runtimes choose images, and no image may hide "
        "kernels of another one. The command prints one line for each fault.",
        epilog="The exit status is 0 if there is no fault, else 1. A path without device images is "
        "a fault. A TOML file can hold rules for many libraries; see the reference of commands.",
    )
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a file, folder or zip file")
    text = "target IDs (gfx90a:xnack+) or bundle entry IDs that must have an image"
    add_each(parser, "--targets", "ID,ID", text)
    parser.add_argument(
        "--same-kernels",
        action="store_true",
        help="the images for these targets (without --targets: all images) must have the "
        "same kernels",
    )
    parser.add_argument(
        "--no-spills", action="store_true", help="no kernel of these images may spill registers"
    )
    parser.add_argument(
        "--max-size",
        metavar="SIZE",
        help="the maximum size of all device images in a library, such as 512M",
    )
    parser.add_argument(
        "--siblings",
        action="store_true",
        help="also print which targets have the same code, and how many bytes one image "
        "for all of them would save; this is no fault",
    )
    add_each(parser, "--rules", "TOML", "a file with rules for libraries, selected by name")


def run_check(options: argparse.Namespace) -> int:
    """Print a line for each fault, then the files that cannot be read."""
    from offload_tool.operations.check import check_libraries, find_siblings

    problems: list[OffloadError] = []
    notes: list[str] = []
    faults = 0
    for fault in check_libraries(
        options.paths, _rules(options), skipped=problems.append, notes=notes.append
    ):
        print_lines([str(fault)], sys.stdout)
        faults += 1
    if options.siblings:
        for path in options.paths:  # unreadable files were reported above
            for siblings in find_siblings(path, skipped=lambda _: None):
                print_lines([str(siblings)], sys.stdout)
    print_notes(notes)
    return print_problems(problems) or int(faults > 0)


def _rules(options: argparse.Namespace) -> list[Rule]:
    from offload_tool.operations.check import Rule
    from offload_tool.operations.match import Device

    target_ids: list[str] = []
    for text in options.targets:
        found = split_list(text)
        if not found:  # perhaps from an empty variable: nothing would be checked
            raise UsageError(f"--targets: expected target IDs with commas, found {text!r}")
        target_ids += found
    targets = tuple(map(Device.parse, target_ids))
    size = None if options.max_size is None else read_size(options.max_size, "--max-size")
    given = Rule(
        targets=targets,
        same_kernels=options.same_kernels,
        no_spills=options.no_spills,
        max_size=size,
    )
    rules = [rule for path in options.rules for rule in read_rules(path)]
    return rules if rules and given == Rule() else [given, *rules]


# ---- --rules -------------------------------------------------------------------------


def read_rules(path: StrPath) -> list[Rule]:
    """Read the rules in the TOML file at `path`.

    ::

        [[rule]]
        paths = ["lib/libfoo.so", "*.hsaco"]    # patterns for names relative to the PATH given
        targets = ["gfx90a", "gfx942"]
        same-kernels = true
        no-spills = true
        max-size = "50M"                        # or a number of bytes

    :raises UsageError: the file is not TOML, or a rule is invalid.
    :raises FileError: the file cannot be read.
    """
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    with InputFile(path) as source:
        content = bytes(source.data)
    try:
        tables = tomllib.loads(content.decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(
            f"'{path}': expected TOML: {error}; docs/checking.md has an example"
        ) from error
    rules = tables.get("rule")
    if list(tables) != ["rule"] or not isinstance(rules, list) or not rules:
        found = ", ".join(tables) or "nothing"
        raise UsageError(f"'{path}': expected tables [[rule]] and nothing else, found {found}")
    read = []
    for number, table in enumerate(rules, 1):
        try:
            read.append(_rule(table))
        except OffloadError as error:
            raise UsageError(f"'{path}', rule {number}: {error}") from error
    return read


def _rule(table: object) -> Rule:
    """Return the rule of one table ``[[rule]]``; raise UsageError or TargetIDError."""
    from offload_tool.operations.check import Rule
    from offload_tool.operations.match import Device

    if not isinstance(table, dict):
        raise UsageError(f"expected a table, found {table!r:.40}")
    if unknown := sorted(table.keys() - set(_KEYS)):
        raise UsageError(f"expected the keys {', '.join(_KEYS)}, found {', '.join(unknown)}")
    paths = _texts(table, "paths")
    if not paths:
        raise UsageError("expected paths, a list of patterns for the names of libraries")
    targets = tuple(map(Device.parse, _texts(table, "targets")))
    size = table.get("max-size")
    if isinstance(size, str):
        size = read_size(size, "max-size")
    if size is not None and (not isinstance(size, int) or isinstance(size, bool) or size < 0):
        raise UsageError(f"expected a number of bytes, or '50M', for max-size, found {size!r:.40}")
    return Rule(paths, targets, _flag(table, "same-kernels"), _flag(table, "no-spills"), size)


def _texts(table: Mapping[str, object], key: str) -> tuple[str, ...]:
    found = table.get(key, [])
    if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
        raise UsageError(f"expected a list of strings for {key}, found {found!r:.40}")
    return tuple(found)


def _flag(table: Mapping[str, object], key: str) -> bool:
    found = table.get(key, False)
    if not isinstance(found, bool):
        raise UsageError(f"expected true or false for {key}, found {found!r:.40}")
    return found
