"""What commands print besides their results."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TextIO

    from offload_tool.errors import OffloadError

__all__ = ["print_lines", "print_problems", "printable"]


def printable(text: str) -> str:
    """Show control characters of a hostile name as escapes instead of sending them on."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def print_lines(lines: Iterable[str], stream: TextIO | None = None) -> None:
    """Print lines, to standard error unless told; names that are no Unicode as they are."""
    out = (stream or sys.stderr).buffer
    for line in lines:
        out.write(os.fsencode(f"{line}\n"))
    out.flush()


def print_problems(problems: Iterable[OffloadError]) -> int:
    """Print errors that did not end the command; give its exit status."""
    status = 0
    for problem in problems:
        print(f"offload-tool: error: {problem}", file=sys.stderr)
        status = 1
    return status
