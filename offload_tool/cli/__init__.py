"""The command line: ``offload-tool COMMAND ...`` or ``python -m offload_tool COMMAND ...``."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from offload_tool.cli import list_command
from offload_tool.errors import OffloadError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; give its exit status: 0, 1 for an error, 2 for wrong usage."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        status: int = options.run(options)
        sys.stdout.flush()
    except OffloadError as error:
        print(f"{parser.prog}: error: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader (head, a pager) has seen enough; the interpreter must not try again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return status


class _Version(argparse.Action):
    """Prints the installed version; looked up only when asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        import importlib.metadata  # slow, and rarely needed

        print(f"{parser.prog} {importlib.metadata.version('offload-tool')}")
        parser.exit()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="offload-tool",
        description="GPU offload bundles: see what is in a file.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    list_command.add(commands)
    return parser
