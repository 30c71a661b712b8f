"""Options shared by several commands: schemas, ``--tolerance``, and resource limits."""

from __future__ import annotations

import argparse
import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from offload_tool.cli.printing import print_text
from offload_tool.io.limits import Budget, Limits, limited, read_size

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

CHOICE = (
    "the image with exactly that ID; else the compatible image that sets the most features; else "
    "generic code for the AMD processor; else SPIR-V for HIP. NVIDIA GPUs load the nearest cubin, "
    "else PTX."
)
"""The code that a device loads, for descriptions of commands."""
_OUTSIDE = (
    ("thin_outside", "allow thin archives to name files outside of their folder"),
    ("kpack_outside", "allow kpack markers to name archives that are not beside their program"),
)
_OPTIONS = (
    (
        "unpacked",
        "SIZE",
        "decompress at most SIZE bytes more than 100 times the files (default: 1G)",
    ),
    ("written", "SIZE", "write at most SIZE bytes more than 16 times the input (default: 1G)"),
    ("reread", "SIZE", "read at most SIZE bytes again, more than 8 times the input (default: 8M)"),
    ("members", "N", "read at most N members, files and images (default: 2,000,000)"),
    ("depth", "N", "read at most N levels of files inside files (default: 8)"),
)


class SchemaAction(argparse.Action):
    """Prints the schema file in this folder that ``const`` names, and exits."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        """Print the schema, and exit with status 0."""
        text = (Path(__file__).parent / str(self.const)).read_text(encoding="utf-8")
        print_text(text, sys.stdout)
        parser.exit()


def add_tolerance(parser: argparse.ArgumentParser) -> None:
    """Add the option."""
    parser.add_argument(
        "--tolerance",
        type=_percent,
        default=0.0,
        metavar="PERCENT",
        help="ignore changes of numbers up to this percentage (default: 0); above 0, also "
        "ignore changed instructions of the same size",
    )


def _percent(text: str) -> float:
    try:
        number = float(text.removesuffix("%"))
    except ValueError:
        number = -1
    if not math.isfinite(number) or number < 0:
        raise argparse.ArgumentTypeError(f"expected percent, such as 2.5, found {text!r}")
    return number


def add_limits(parser: argparse.ArgumentParser) -> None:
    """Add the options to a command that reads untrusted files."""
    group = parser.add_argument_group(
        "limits", "of this run; also OFFLOAD_MAX_..., OFFLOAD_..._OUTSIDE; see docs/untrusted.md"
    )
    for name, metavar, text in _OPTIONS:
        group.add_argument(f"--max-{name}", metavar=metavar, help=text)
    for name, text in _OUTSIDE:
        group.add_argument(f"--{name.replace('_', '-')}", action="store_true", help=text)


def with_limits(options: argparse.Namespace) -> AbstractContextManager[Budget]:
    """Return a block with the limits of the options, or of the environment where none is given.

    :raises UsageError: an option or variable is not a size.
    """
    limits = Limits.of(os.environ)
    changes: dict[str, Any] = {}
    for name, _, _ in _OPTIONS:
        text = getattr(options, f"max_{name}", None)
        if text is not None:
            changes[name] = read_size(text, f"--max-{name}")
    for name, _ in _OUTSIDE:
        if getattr(options, name, False):
            changes[name] = True
    return limited(Budget(limits._replace(**changes)))
