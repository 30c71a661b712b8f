"""All command lines as one parser: to be described and completed, not to read words with.

`offload_tool.cli.main` gives some commands their own readers: ``compile`` starts faster with
one, and the drop-ins read as LLVM's tools do. Here these have subparsers like the others, so
that shell completion, the reference and the tests know of every option there is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from offload_tool.cli._parser import SELF_READING, Commands, make_parser
from offload_tool.cli.arguments.launch_options import launch_parser
from offload_tool.cli.compile import compile_parser
from offload_tool.cli.llvm.bundler_options import BUNDLER_COMMAND_LINE
from offload_tool.cli.llvm.option_parser import CommandLine, Option
from offload_tool.cli.llvm.packager import PACKAGER_COMMAND_LINE
from offload_tool.cli.llvm.wrapper_options import OLDER_WRAPPER_COMMAND_LINE, WRAPPER_COMMAND_LINE
from offload_tool.containers.open_bundle import FILE_TYPES

if TYPE_CHECKING:
    import argparse

_DROP_INS: dict[str, tuple[CommandLine, ...]] = {
    "bundler": (BUNDLER_COMMAND_LINE,),
    "packager": (PACKAGER_COMMAND_LINE,),
    "wrapper": (WRAPPER_COMMAND_LINE, OLDER_WRAPPER_COMMAND_LINE),
}
"""With a second command line, the options of both."""


def whole_parser() -> argparse.ArgumentParser:
    """Return the parser; every action of every subparser has the option strings that are read."""
    return make_parser("", _add_self_reading)


def _add_self_reading(commands: Commands) -> None:
    compiling = compile_parser("offload-tool compile")
    commands.add_parser(
        "compile",
        help=SELF_READING["compile"],
        parents=[compiling],
        add_help=False,
        usage=compiling.usage,
        description=compiling.description,
        epilog=compiling.epilog,
    )
    launching = launch_parser("offload-tool launch")
    commands.add_parser(
        "launch",
        help=SELF_READING["launch"],
        parents=[launching],
        add_help=False,
        usage=launching.usage,
        description=launching.description,
        epilog=launching.epilog,
    )
    for name, command_lines in _DROP_INS.items():
        _add_drop_in(commands, name, command_lines)


def _add_drop_in(commands: Commands, name: str, command_lines: tuple[CommandLine, ...]) -> None:
    parser = commands.add_parser(
        name,
        help=SELF_READING[name],
        add_help=False,
        description=" ".join(command_lines[0].overview.split()),
        epilog="Each option is read with one dash or two; -option=value or -option value; @FILE "
        "stands for the arguments in FILE.",
    )
    parser.add_argument(
        "--restat",
        action="store_true",
        help="as the first word: leave the outputs untouched where their bytes are equal",
    )
    for option in _options(command_lines):
        _add_option(parser, option)
    parser.add_argument("-help", "--help", action="help", help="display available options")
    parser.add_argument(
        "-version", "--version", action="version", help="display the version of this program"
    )
    taken = command_lines[0].positionals
    if taken.maximum != 0:
        parser.add_argument("files", nargs="*", metavar="FILE", help=taken.usage)


def _options(command_lines: tuple[CommandLine, ...]) -> Iterator[Option]:
    seen = {"h"}  # what argparse adds, too
    for command_line in command_lines:
        for option in command_line.options:
            if option.name not in seen:
                seen.add(option.name)
                yield option


def _add_option(parser: argparse.ArgumentParser, option: Option) -> None:
    names = [f"-{option.name}"]
    if len(option.name) > 1:
        names.append(f"--{option.name}")
    text = " ".join(option.help.split()).replace("%", "%%")
    if not option.takes_value:
        parser.add_argument(*names, action="store_true", help=text)
        return
    parser.add_argument(
        *names,
        metavar=option.value_name or None,
        choices=_choices(option),
        help=text,
    )


def _choices(option: Option) -> list[str] | None:
    if option.name == "type":  # the bundler's, which checks it after everything else
        return [*FILE_TYPES, "a"]
    return [choice for choice, _ in option.choices] or None
