"""``offload-tool diff A B``: changes in device code between two builds."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from offload_tool.cli.arguments import Commands, add_json, add_tolerance
from offload_tool.cli.printing import print_lines, print_notes, print_problems, print_text
from offload_tool.cli.tables import Sheet, print_sheet
from offload_tool.errors import OffloadError

if TYPE_CHECKING:
    from offload_tool.operations.diff import KernelChange, TargetChange

_NUMBERS = frozenset({"images", "kernels", "before", "after", "grown"})
_LESS_NEEDED = ("kernels", "images", "before", "after", "needs", "library", "grown", "change")


def add_diff(commands: Commands) -> None:
    """Add the command to the parser of ``offload-tool``."""
    parser = commands.add_parser(
        "diff",
        help="print what changed in device code between two builds",
        description="Compare the device images of two files, folders or zip files. The command "
        "prints targets and kernels that were added, were removed, changed their "
        "size, or need other amounts of registers and memory; the largest changes "
        "come first. It ignores symbols, paths and debug information.",
        epilog="The exit status is 0 if nothing changed beyond the tolerance, else 1.",
    )
    parser.add_argument("before", metavar="A", help="a file, folder or zip file of the first build")
    parser.add_argument(
        "after", metavar="B", help="the file, folder or zip file of the second build"
    )
    add_tolerance(parser)
    add_json(parser, "object", "diff.schema.json")


def run_diff(options: argparse.Namespace) -> int:
    """Print the changes, then the files that cannot be read."""
    from offload_tool.operations.diff import compare_builds

    problems: list[OffloadError] = []
    notes: list[str] = []
    found = compare_builds(
        [(options.before, options.after)],
        tolerance=options.tolerance,
        skipped=problems.append,
        notes=notes.append,
    )
    if options.json:
        changes = {
            "targets": [_change(row) for row in found.targets],
            "kernels": [_change(row) for row in found.kernels],
        }
        print_text(json.dumps(changes, indent=2) + "\n", sys.stdout)
    elif found.is_equal:
        print_lines(["nothing changed"], sys.stdout)
    else:
        if found.targets:
            print_sheet(_target_table(found.targets))
        if found.kernels:
            print_sheet(_kernel_table(found.kernels))
    print_notes(notes)
    return print_problems(problems) or int(not found.is_equal)


def _change(row: TargetChange | KernelChange) -> dict[str, object]:
    return {
        **{key: getattr(row, key) for key in ("library", "target", "change")},
        "before": row.before and row.before._asdict(),
        "after": row.after and row.after._asdict(),
    }


def _target_table(rows: Sequence[TargetChange]) -> Sheet:
    cells = [
        (
            row.library,
            row.target,
            row.change,
            _step(row.before and row.before.images, row.after and row.after.images),
            _step(row.before and row.before.kernels, row.after and row.after.kernels),
            f"{row.before.loaded:,}" if row.before else "",
            f"{row.after.loaded:,}" if row.after else "",
            f"{row.grown:+,}",
        )
        for row in rows
    ]
    columns = ("library", "target ID", "change", "images", "kernels", "before", "after", "grown")
    return _sheet("targets: bytes that a device loads", columns, cells)


def _kernel_table(rows: Sequence[KernelChange]) -> Sheet:
    cells = [
        (
            row.library,
            row.target,
            row.change,
            _size(row.before and row.before.code_size),
            _size(row.after and row.after.code_size),
            f"{row.grown:+,}" if row.grown else "",
            _needs(row),
            row.name,
        )
        for row in rows
    ]
    columns = ("library", "target ID", "change", "before", "after", "grown", "needs", "kernel")
    return _sheet("kernels: bytes of code", columns, cells)


def _sheet(title: str, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Sheet:
    named = any(row[0] for row in rows)  # two files are compared without a library name
    sheet = Sheet(title, columns, rows, _NUMBERS, _LESS_NEEDED)
    return sheet.showing(named or name != "library" for name in columns)


def _needs(row: KernelChange) -> str:
    fields = [name for name in row.fields if name != "code_size"]
    if row.change == "changed" and not row.fields:
        return "other instructions"
    return ", ".join(
        f"{name} {_step(getattr(row.before, name), getattr(row.after, name))}" for name in fields
    )


def _step(before: int | None, after: int | None) -> str:
    was, now = _size(before), _size(after)
    return was if was == now else f"{was or '-'} to {now or '-'}"


def _size(number: int | None) -> str:
    return "" if number is None else f"{number:,}"
