"""What the drop-ins for LLVM's tools have in common: their texts, errors and exit statuses."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from offload_tool.cli.llvm.option_parser import Information, LlvmUsageError
from offload_tool.cli.printing.lines import print_lines, print_text
from offload_tool.errors import OffloadError

if TYPE_CHECKING:
    _Parsed = TypeVar("_Parsed")


def give(text: str) -> None:
    """Write a text that was asked for; names that are not Unicode as they are."""
    print_text(text, sys.stdout)


def run_drop_in(
    tool: str,
    parse: Callable[[], _Parsed | Information],
    run: Callable[[_Parsed], None],
    described: Callable[[OffloadError], str] = str,
) -> int:
    """Read the command line and run it; return the exit status, 0 or 1."""
    try:
        parsed = parse()
        if isinstance(parsed, Information):
            print_lines(parsed.warnings)
            give(parsed.text)
        else:
            run(parsed)
    except LlvmUsageError as error:
        print_lines(error.lines)
        return error.exit_status
    except OffloadError as error:
        print_lines([f"{tool}: error: {described(error)}"])
        return 1
    return 0
