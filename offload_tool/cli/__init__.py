"""The command line: ``offload-tool COMMAND ...`` or ``python -m offload_tool COMMAND ...``."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from pathlib import PurePath
from typing import TYPE_CHECKING

from offload_tool.errors import OffloadError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]


_DROP_INS = {
    "bundler": ("clang-offload-bundler",),
    "packager": ("llvm-offload-binary", "clang-offload-packager"),
    "wrapper": ("llvm-offload-wrapper", "clang-offload-wrapper"),
}
"""Commands with the command line of one of LLVM's tools, by that tool's names.

They can also be called by that name, through a link to ``offload-tool``.
"""
_COMMANDS = ("list", "extract", "match", "thin", "merge", "report", "embed", "archive", "dist")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; give its exit status: 0, 1 for an error, 2 for wrong usage."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        status = _run_drop_in(words, sys.argv[0] if arguments is None else "")
        if status is None:
            status = _run(words)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader (head, a pager) has seen enough; the interpreter must not try again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return status


def _run_drop_in(words: list[str], invoked: str) -> int | None:
    """Run a drop-in, if the first word or the name by which we were called is one's."""
    name = PurePath(invoked).name
    for command, tools in _DROP_INS.items():
        if name.startswith(tools):
            return _drop_in(command, invoked, words)
        if words[:2] == [command, "--restat"]:  # ours, and so outside of what the tool knows
            from offload_tool.files import keeping_equal

            with keeping_equal():
                return _drop_in(command, f"offload-tool {command}", words[2:])
        if words[:1] == [command]:
            return _drop_in(command, f"offload-tool {command}", words[1:])
    if words[:1] == ["compile"]:  # it reads its command line itself, to start fast
        return _drop_in("compile", "offload-tool compile", words[1:])
    return None


def _drop_in(command: str, tool: str, words: list[str]) -> int:
    module = importlib.import_module(f"offload_tool.cli.{command}_command")
    status: int = getattr(module, f"run_{command}")(tool, words, os.environ)
    return status


def _run(words: list[str]) -> int:
    parser = _parser(words[0] if words else "")
    options = parser.parse_args(words)
    try:
        status: int = options.run(options)
    except OffloadError as error:
        print(f"{parser.prog}: error: {error}", file=sys.stderr)
        return 1
    return status


class _Version(argparse.Action):
    """Prints the installed version; looked up only when asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        import importlib.metadata  # slow, and rarely needed

        print(f"{parser.prog} {importlib.metadata.version('offload-tool')}")
        parser.exit()


def _parser(command: str) -> argparse.ArgumentParser:
    """Give the parser of all commands; of one alone, which starts faster, if `command` is one."""
    parser = argparse.ArgumentParser(
        prog="offload-tool",
        description="GPU offload bundles: make them, take them apart, see what is in a file.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in (command,) if command in _COMMANDS else _COMMANDS:
        importlib.import_module(f"offload_tool.cli.{name}_command").add(commands)
    if command in _COMMANDS:
        return parser
    commands.add_parser(
        "compile", help="compile a source for one target ID, or for the host", add_help=False
    )
    commands.add_parser(
        "bundler", help="bundle and unbundle files, as clang-offload-bundler does", add_help=False
    )
    commands.add_parser(
        "packager", help="package and extract images, as llvm-offload-binary does", add_help=False
    )
    commands.add_parser(
        "wrapper", help="register device images, as llvm-offload-wrapper does", add_help=False
    )
    return parser
