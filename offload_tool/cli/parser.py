"""The parser of all commands, and the run of commands that it parses.

`offload_tool.cli.main` runs some commands with their own parsers: ``compile`` and ``launch`` start
faster with one, and the drop-ins parse as LLVM's tools do. These have subparsers here as well, so
that help, shell completion, the reference and the tests cover every option.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from offload_tool.cli.printing import print_error, print_lines, print_text
from offload_tool.errors import OffloadError

if TYPE_CHECKING:
    from offload_tool.cli.arguments import Commands
    from offload_tool.cli.llvm.option_parser import CommandLine, Option

_COMMANDS = (
    *("list", "extract", "match", "thin", "split", "join", "merge", "check", "diff", "report"),
    *("embed", "repack", "target", "why", "doctor", "archive", "dist"),
)
_MODULES = {
    **dict.fromkeys(("thin", "merge", "repack", "archive"), "rewrite"),
    "join": "split",
    "target": "match",
}
"""Modules of commands that are not in one of their own name."""
_SELF_READING = {
    "compile": "compile a source for one target ID, or for the host",
    "launch": "run a compiler's command, with one pass for each target",
    "bundler": "bundle and unbundle files, as clang-offload-bundler does",
    "packager": "package and extract images, as llvm-offload-binary does",
    "wrapper": "register device images, as llvm-offload-wrapper does",
}
"""Commands that parse their own command lines, with their lines in the help."""


def run_command(args: Sequence[str]) -> int:
    """Parse the arguments and run their command; return its exit status."""
    parser = _make_parser(args[0] if args else "")
    options = parser.parse_args(args)
    try:
        status: int = options.run(options)
    except OffloadError as error:
        print_error(parser.prog, error)
        return 1
    return status


class _Parser(argparse.ArgumentParser):
    """Prints errors by `printing`, because arguments can contain file names."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    def print_help(self, file: object = None) -> None:  # noqa: ARG002 - always stdout
        print_text(self.format_help(), sys.stdout)

    def error(self, message: str) -> NoReturn:
        print_text(self.format_usage(), sys.stderr)
        print_lines([f"{self.prog}: error: {message}"])
        self.exit(2)


class _Version(argparse.Action):
    """Prints the installed version, which it looks up only on request."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        import importlib.metadata  # slow to import, and rarely needed

        print_lines([f"{parser.prog} {importlib.metadata.version('offload-tool')}"], sys.stdout)
        parser.exit()


def whole_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands; its actions have all valid option strings."""
    return _make_parser("")


def _make_parser(command: str) -> argparse.ArgumentParser:
    """Return the parser of all commands; of `command` alone if it is one, to start faster."""
    parser: argparse.ArgumentParser = _Parser(
        prog="offload-tool",
        description="Make, read and change GPU offload bundles, and the programs and libraries "
        "that contain device code.",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in (command,) if command in _COMMANDS else _COMMANDS:
        module = importlib.import_module(f"offload_tool.cli.{_MODULES.get(name, name)}")
        getattr(module, f"add_{name}")(commands)
        commands.choices[name].set_defaults(run=getattr(module, f"run_{name}"))
    if command not in _COMMANDS:
        _add_self_reading(commands)
    return parser


def _add_self_reading(commands: Commands) -> None:
    from offload_tool.cli.compile import compile_parser
    from offload_tool.cli.launch import launch_parser
    from offload_tool.cli.llvm.bundler import BUNDLER_COMMAND_LINE
    from offload_tool.cli.llvm.packager import PACKAGER_COMMAND_LINE
    from offload_tool.cli.llvm.wrapper import OLDER_WRAPPER_COMMAND_LINE, WRAPPER_COMMAND_LINE

    for name, make in (("compile", compile_parser), ("launch", launch_parser)):
        own = make(f"offload-tool {name}")
        commands.add_parser(
            name,
            help=_SELF_READING[name],
            parents=[own],
            add_help=False,
            usage=own.usage,
            description=own.description,
            epilog=own.epilog,
        )
    _add_drop_in(commands, "bundler", (BUNDLER_COMMAND_LINE,))
    _add_drop_in(commands, "packager", (PACKAGER_COMMAND_LINE,))
    _add_drop_in(commands, "wrapper", (WRAPPER_COMMAND_LINE, OLDER_WRAPPER_COMMAND_LINE))


def _add_drop_in(commands: Commands, name: str, command_lines: tuple[CommandLine, ...]) -> None:
    parser = commands.add_parser(
        name,
        help=_SELF_READING[name],
        add_help=False,
        description=" ".join(command_lines[0].overview.split()),
        epilog="Options can have one dash or two, and values as -option=value or -option "
        "value. @FILE stands for the arguments in FILE.",
    )
    parser.add_argument(
        "--restat",
        action="store_true",
        help="as the first word: do not write outputs whose bytes would not change",
    )
    options: dict[str, Option] = {}
    for command_line in command_lines:
        for option in command_line.options:
            options.setdefault(option.name, option)
    for option in options.values():
        _add_option(parser, option)
    parser.add_argument("-help", "--help", action="help", help="display available options")
    parser.add_argument(
        "-version", "--version", action="version", help="display the version of this program"
    )
    if command_lines[0].most != 0:
        parser.add_argument("files", nargs="*", metavar="FILE", help=command_lines[0].usage)


def _add_option(parser: argparse.ArgumentParser, option: Option) -> None:
    names = [f"-{option.name}"]
    if len(option.name) > 1:
        names.append(f"--{option.name}")
    text = " ".join(option.help.split()).replace("%", "%%")
    if not option.takes_value:
        parser.add_argument(*names, action="store_true", help=text)
        return
    choices = [choice for choice, _ in option.choices] or None
    if option.name == "type":  # the bundler's, which checks it last
        from offload_tool.containers.entries import FILE_TYPES

        choices = [*FILE_TYPES, "a"]
    parser.add_argument(*names, metavar=option.value_name or None, choices=choices, help=text)
