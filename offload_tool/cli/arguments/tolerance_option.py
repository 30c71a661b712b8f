"""The option ``--tolerance`` of the commands that compare builds."""

from __future__ import annotations

import argparse
import math


def add_tolerance(parser: argparse.ArgumentParser) -> None:
    """Add the option."""
    parser.add_argument(
        "--tolerance",
        type=_percent,
        default=0.0,
        metavar="PERCENT",
        help="how far a number may be from what it was without being a change (0); above 0, other "
        "instructions of the same size are none either",
    )


def _percent(text: str) -> float:
    try:
        number = float(text.removesuffix("%"))
    except ValueError:
        number = -1
    if not math.isfinite(number) or number < 0:
        raise argparse.ArgumentTypeError(f"expected percent, such as 2.5, found {text!r}")
    return number
