"""Options shared by several commands: ``-o``, ``--restat``, ``--json`` and ``--tolerance``."""

from __future__ import annotations

import argparse
import math
import sys
from typing import TypeAlias

from offload_tool.cli.printing import print_text

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
"""Commands of ``offload-tool``, to which a module adds its own."""
CHOICE = (
    "the image with exactly that ID; else the compatible image that sets the most features; else "
    "generic code for the AMD processor; else SPIR-V for HIP. NVIDIA GPUs load the nearest cubin, "
    "else PTX."
)
"""The code that a device loads, for descriptions of commands."""


class _Schema(argparse.Action):
    """Prints the schema file in this folder that ``const`` names, and exits."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        """Print the schema, and exit with status 0."""
        from pathlib import Path

        text = (Path(__file__).parent / str(self.const)).read_text(encoding="utf-8")
        print_text(text, sys.stdout)
        parser.exit()


def add_json(parser: argparse.ArgumentParser, what: str = "list", schema: str = "") -> None:
    """Add ``--json``, which prints `what`, and ``--schema`` if a file describes that."""
    parser.add_argument("--json", action="store_true", help=f"print a JSON {what}, for programs")
    if schema:
        add_schema(parser, "--schema", schema, f"that {what}")


def add_schema(parser: argparse.ArgumentParser, option: str, file: str, what: str) -> None:
    """Add an option that prints the schema `file` of this folder, which describes `what`."""
    text = f"print the JSON schema of {what} and exit"
    parser.add_argument(option, action=_Schema, nargs=0, const=file, help=text)


def add_each(parser: argparse._ActionsContainer, option: str, value: str, text: str) -> None:
    """Add an option that may be given several times, with one `value` each."""
    parser.add_argument(option, action="append", default=[], metavar=value, help=text)


def add_output(parser: argparse.ArgumentParser, name: str, text: str) -> None:
    """Add the option ``-o``, with `name` for its value and `text` for its help."""
    parser.add_argument("-o", dest="output", required=True, metavar=name, help=text)


def add_restat(parser: argparse.ArgumentParser, name: str) -> None:
    """Add the option; `name` is that of the output."""
    text = f"do not write {name} if its bytes would not change"
    parser.add_argument("--restat", action="store_true", help=text)


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
