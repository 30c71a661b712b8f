"""The parser of the commands that are read with argparse, which the others start without."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn, TypeAlias

from offload_tool.cli.arguments.limit_options import add_limits, with_limits
from offload_tool.cli.printing.lines import print_lines, print_text
from offload_tool.errors import OffloadError

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

_READING = (
    *("list", "extract", "match", "thin", "split", "join", "merge", "check", "diff", "report"),
    "embed",
)
"""Commands that read files of which nobody may know where they come from."""
_COMMANDS = (*_READING, "repack", "target", "why", "doctor", "archive", "dist")
_REMOVED = {
    "completion": "use shtab: shtab --shell=bash --prog=offload-tool "
    "offload_tool.cli.arguments.whole_parser.whole_parser (or zsh)",
}
"""Commands that are gone, and what to do instead."""
SELF_READING = {
    "compile": "compile a source for one target ID, or for the host",
    "launch": "run a compiler's command, a compile for several targets as one pass for each",
    "bundler": "bundle and unbundle files, as clang-offload-bundler does",
    "packager": "package and extract images, as llvm-offload-binary does",
    "wrapper": "register device images, as llvm-offload-wrapper does",
}
"""Commands that read their command lines themselves, with their lines in the help."""


def run_command(words: Sequence[str]) -> int:
    """Read the words and run the command that they name; return its exit status."""
    parser = make_parser(words[0] if words else "", _add_names)
    if words and words[0] in _REMOVED:
        parser.error(f"{words[0]}: the command is gone; {_REMOVED[words[0]]}")
    options = parser.parse_args(words)
    try:
        with with_limits(options):
            status: int = options.run(options)
    except OffloadError as error:
        print_lines([f"{parser.prog}: error: {error}"])
        return 1
    return status


class _Parser(argparse.ArgumentParser):
    """Prints errors by the one printer: words of the command line can be names."""

    def print_help(self, file: object = None) -> None:  # noqa: ARG002 - it is asked for
        print_text(self.format_help(), sys.stdout)

    def error(self, message: str) -> NoReturn:
        print_text(self.format_usage(), sys.stderr)
        print_lines([f"{self.prog}: error: {message}"])
        self.exit(2)


class _Version(argparse.Action):
    """Prints the installed version; looked up only when asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        import importlib.metadata  # slow, and rarely needed

        print_lines([f"{parser.prog} {importlib.metadata.version('offload-tool')}"], sys.stdout)
        parser.exit()


def make_parser(command: str, add_others: Callable[[Commands], None]) -> argparse.ArgumentParser:
    """Return the parser of all commands; of one alone, which starts faster, if `command` is one.

    `add_others` adds those that read their command lines themselves.
    """
    parser: argparse.ArgumentParser = _Parser(
        prog="offload-tool",
        description="GPU offload bundles: make them, take them apart, see what is in a file.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in (command,) if command in _COMMANDS else _COMMANDS:
        importlib.import_module(f"offload_tool.cli.{name}").add(commands)
        if name in _READING:
            add_limits(commands.choices[name])
    if command not in _COMMANDS:
        add_others(commands)
    return parser


def _add_names(commands: Commands) -> None:
    for name, text in SELF_READING.items():
        commands.add_parser(name, help=text, add_help=False)
