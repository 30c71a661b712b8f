"""Command lines of LLVM's tools: the syntax, the messages, the help text.

For commands that replace an LLVM tool. A tool describes its options in a
`CommandLine`; `parse` does the rest, to the byte as LLVM 22.1.8 does:

- one dash or two for every option; names are complete, never abbreviated;
- ``-option=value`` or ``-option value``; a flag takes a value only after ``=``;
- a scalar given again replaces the first, a list grows; elements may be empty;
- one-letter flags can be grouped (``-hh``);
- arguments after ``--`` are not options; ``@FILE`` stands for the arguments in FILE;
- every wrong argument is reported, not only the first; ``--help`` ends the parsing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

from offload_tool.cli.printing import print_lines, print_text
from offload_tool.errors import OffloadError, UsageError
from offload_tool.util.frozen import frozen

if TYPE_CHECKING:
    _Default = TypeVar("_Default", bound=int | None)

OptionType: TypeAlias = (
    'Literal["flag", "string", "list", "commalist", "uint", "int", "enum", "information"]'
)
Visibility: TypeAlias = 'Literal["shown", "hidden", "never"]'
Value: TypeAlias = "bool | int | str"

_FLAG_VALUES = {
    **dict.fromkeys(("", "true", "TRUE", "True", "1"), True),
    **dict.fromkeys(("false", "FALSE", "False", "0"), False),
}
_INTEGER = r"(-?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0o?([0-7]+)|([1-9][0-9]*|0))"
_BASES = (16, 2, 8, 10)
_RANGES = {"uint": (0, 2**32 - 1, "uint"), "int": (-(2**31), 2**31 - 1, "integer")}
_MAX_DIGITS = 100  # more than any number in range has, without leading zeros
_VALUE_NAMES = {"uint": "uint", "int": "int", "enum": "value"}


@frozen
class Option:
    """One option of a tool."""

    name: str
    """Without dashes."""
    option_type: OptionType
    """``information`` marks an option that prints a text and ends the program."""
    help: str
    """Further lines are indented below the first."""
    value_name: str = ""
    """Placeholder for the value in the help text; default: that of the option's type."""
    visibility: Visibility = "shown"
    """In help texts: always, only with ``--help-hidden``, or never (nor as a suggestion)."""
    required: bool = False
    choices: tuple[tuple[str, str], ...] = ()
    """Each value of an enum, with its help text."""
    bucket: int = 0
    """Among equally near names, LLVM suggests the one in the lower hash bucket (of 4096)."""

    @property
    def takes_value(self) -> bool:
        """Whether the option requires a value."""
        return self.option_type not in {"flag", "information"}

    @property
    def dashed(self) -> str:
        """The name as messages show it."""
        return _dashed(self.name)


@frozen
class CommandLine:
    """A tool's options and positional arguments, with their help text."""

    overview: str
    category: str
    """Heading of the tool's own options in the help text."""
    version: str
    options: tuple[Option, ...]
    least: int = 0
    """Number of positional arguments that the tool needs."""
    most: int | None = 0
    """Number of positional arguments that it accepts; None: any number."""
    usage: str = ""
    """Text for them in the usage line."""


class Values:
    """Parsed arguments: each option's values in order."""

    def __init__(self) -> None:
        self.positionals: list[str] = []
        self.by_name: dict[str, list[Value]] = {}

    def flag(self, name: str, default: bool = False) -> bool:
        """Return the value of a flag, or `default` if it was not given."""
        value = self._last(name)
        return value if isinstance(value, bool) else default

    def number(self, name: str, default: _Default) -> int | _Default:
        """Return the value of an integer, or `default` if it was not given."""
        value = self._last(name)
        return value if isinstance(value, int) else default

    def text(self, name: str) -> str | None:
        """Return the value of a string or an enum, or None if it was not given."""
        value = self._last(name)
        return value if isinstance(value, str) else None

    def texts(self, name: str) -> tuple[str, ...]:
        """Return the elements of a list; none if it was not given."""
        return tuple(value for value in self.by_name.get(name, ()) if isinstance(value, str))

    def _last(self, name: str) -> Value | None:
        values = self.by_name.get(name)
        return values[-1] if values else None


class ParsingEnded(Exception):  # noqa: N818 - a requested text is no error
    """A command line ends the tool: it is wrong (status 1), or requests a text (status 0).

    `lines` are for standard error, unchanged: errors, also those before the request for a text.
    They hold bytes that are not UTF-8 as surrogates, as ``sys.argv`` does. `text` is for standard
    output; without one, the command line is wrong.
    """

    def __init__(self, lines: Iterable[str], text: str = "") -> None:
        self.lines = tuple(lines)
        self.text = text
        super().__init__("\n".join(self.lines))


def run_drop_in(
    tool: str, run: Callable[[], None], described: Callable[[OffloadError], str] = str
) -> int:
    """Run a command that parses its command line; return 0, or 1 after printing `described`."""
    try:
        run()
    except ParsingEnded as end:
        print_lines(end.lines)
        if end.text:
            print_text(end.text, sys.stdout)
        return int(not end.text)
    except OffloadError as error:
        print_lines([f"{tool}: error: {described(error)}"])
        return 1
    return 0


_GENERIC = (
    Option("h", "flag", "Alias for -help", visibility="never"),
    Option("help", "information", "Display available options (--help-hidden for more)", bucket=114),
    Option(
        "help-hidden",
        "information",
        "Display all available options",
        visibility="hidden",
        bucket=558,
    ),
    Option(
        "help-list",
        "information",
        "Display list of available options (--help-list-hidden for more)",
        bucket=1459,
    ),
    Option(
        "help-list-hidden",
        "information",
        "Display list of all available options",
        visibility="hidden",
        bucket=2440,
    ),
    # These two are accepted and ignored, as in the tools of LLVM 22.
    Option(
        "print-all-options",
        "flag",
        "Print all option values after command line parsing",
        visibility="hidden",
        bucket=3894,
    ),
    Option(
        "print-options",
        "flag",
        "Print non-default options after command line parsing",
        visibility="hidden",
        bucket=3206,
    ),
    Option("version", "information", "Display the version of this program", bucket=1285),
)


def parse(tool: str, command_line: CommandLine, arguments: Sequence[str]) -> Values:
    """Parse `arguments` for the tool of this name; raise ParsingEnded with a message or text."""
    return _CommandLineParser(tool, command_line).parse(expanded(arguments))


def expanded(arguments: Sequence[str]) -> list[str]:
    """Return arguments with response files expanded; raise ParsingEnded for a broken one."""
    if not any(arg.startswith("@") for arg in arguments):
        return [*arguments]
    from offload_tool.clang.response_file import expand_response_files  # rarely needed

    try:
        return expand_response_files(arguments)
    except UsageError as error:
        raise ParsingEnded([str(error)]) from error


class _CommandLineParser:
    """Parses one command line; `errors` holds the lines for standard error so far."""

    def __init__(self, tool: str, command_line: CommandLine) -> None:
        self.tool = tool
        self.command_line = command_line
        self.options = {option.name: option for option in (*command_line.options, *_GENERIC)}
        self.values = Values()
        self.errors: list[str] = []

    def parse(self, args: list[str]) -> Values:
        remaining = iter(args)
        for arg in remaining:
            if arg == "--":
                for rest in remaining:
                    self._positional(rest)
            elif arg == "-" or not arg.startswith("-"):
                self._positional(arg)
            else:
                self._option(arg, remaining)
        self._check_counts()
        if self.errors:
            raise ParsingEnded(self.errors)
        return self.values

    def _positional(self, arg: str) -> None:
        if self.command_line.most == 0:
            self._unknown(arg)
        else:
            self.values.positionals.append(arg)

    def _option(self, arg: str, remaining: Iterator[str]) -> None:
        undashed = arg[2:] if arg.startswith("--") else arg[1:]
        name, equals, text = undashed.partition("=")
        option = self.options.get(name)
        given = text if equals else None
        if option is None:
            option, undashed, given = self._group(undashed)
        if option is None:
            self._unknown(arg, self._nearest(undashed))
        elif option.option_type == "information" and given is None:
            raise ParsingEnded(self.errors, self._information(name))
        else:
            self._occurrence(option, given, remaining)

    def _information(self, name: str) -> str:
        if name == "version":
            return f"{self.command_line.version}\n"
        listed, hidden = "list" in name, "hidden" in name
        return help_text(self.tool, self.command_line, listed=listed, hidden=hidden)

    def _group(self, argument: str) -> tuple[Option | None, str, str | None]:
        """Parse grouped one-letter flags; return the last's option, name and value, or the rest."""
        while option := self.options.get(argument[:1]):
            rest = argument[1:]
            if not rest or rest.startswith("="):
                return option, option.name, rest[1:] if rest else None
            if option.takes_value:
                self._wrong(option, "may not occur within a group!")
                return None, option.name, None
            self._occurrence(option, None, iter(()))
            argument = rest
        return None, argument, None

    def _occurrence(self, option: Option, given: str | None, remaining: Iterator[str]) -> None:
        if option.option_type == "information":
            self._wrong(option, f"does not allow a value! '{given}' specified.")
            return
        if option.takes_value and given is None:
            given = next(remaining, None)
            if given is None:
                self._wrong(option, "requires a value!")
                return
        values = self.values.by_name.setdefault(option.name, [])
        try:
            values += _converted(option, given or "")
        except ValueError as error:
            self._wrong(option, str(error))

    def _check_counts(self) -> None:
        least, most = self.command_line.least, self.command_line.most
        count = len(self.values.positionals)
        see = f"See: {self.tool} --help"
        if count < least:
            plural = "s" if least > 1 else ""
            self._error("Not enough positional command line arguments specified!")
            self.errors.append(f"Must specify at least {least} positional argument{plural}: {see}")
        elif most is not None and count > most:
            self._error("Too many positional arguments specified!")
            self.errors.append(f"Can specify at most {most} positional arguments: {see}")
        for option in self.command_line.options:
            if option.required and option.name not in self.values.by_name:
                self._wrong(option, "must be specified at least once!")

    def _nearest(self, argument: str) -> str:
        """Return the most similar option, with the user's value."""
        name, _, value = argument.partition("=")
        candidates = [option for option in self.options.values() if option.visibility != "never"]
        # Text after "=" counts as part of the name if the option allows no value.
        nearest = min(
            candidates,
            key=lambda option: (
                _distance(option.name, argument if option.option_type == "information" else name),
                option.bucket,
            ),
        )
        if value and nearest.option_type != "information":
            return _dashed(f"{nearest.name}={value}")
        return nearest.dashed

    def _unknown(self, arg: str, nearest: str | None = None) -> None:
        self._error(f"Unknown command line argument '{arg}'.  Try: '{self.tool} --help'")
        if nearest is not None:
            self._error(f"Did you mean '{nearest}'?")

    def _wrong(self, option: Option, problem: str) -> None:
        self._error(f"for the {option.dashed} option: {problem}")

    def _error(self, text: str) -> None:
        self.errors.append(f"{os.path.basename(self.tool)}: {text}")


def _converted(option: Option, text: str) -> list[Value]:
    """Return the values of `option` in `text`; raise ValueError if the text is invalid."""
    if option.option_type == "flag":
        if text not in _FLAG_VALUES:
            raise ValueError(f"'{text}' is invalid value for boolean argument! Try 0 or 1")
        return [_FLAG_VALUES[text]]
    if option.option_type in _RANGES:
        return [_integer(text, *_RANGES[option.option_type])]
    if option.option_type == "enum" and text not in dict(option.choices):
        raise ValueError(f"Cannot find option named '{text}'!")
    return [*text.split(",")] if option.option_type == "commalist" else [text]


def _integer(text: str, low: int, high: int, type_name: str) -> int:
    import re  # rarely needed: most command lines have no numbers

    if found := re.fullmatch(_INTEGER, text):
        digits = found.groups()[1:]
        written, base = next(pair for pair in zip(digits, _BASES, strict=True) if pair[0])
        significant = written.lstrip("0") or "0"
        # int() rejects thousands of decimal digits with its own message.
        if len(significant) <= _MAX_DIGITS:
            number = int(significant, base)
            number = -number if found[1] else number
            if low <= number <= high:
                return number
    raise ValueError(f"'{text}' value invalid for {type_name} argument!")


def _dashed(name: str) -> str:
    return f"--{name}" if len(name) > 1 else f"-{name}"


def _distance(name: str, arg: str) -> int:
    """Return the edit distance in bytes between `arg` and `name`."""
    row = list(range(len(name) + 1))
    for above, byte in enumerate(os.fsencode(arg)):
        corner, row[0] = above, above + 1
        for column, expected in enumerate(os.fsencode(name), 1):
            best = min(corner + (byte != expected), row[column] + 1, row[column - 1] + 1)
            corner, row[column] = row[column], best
    return row[-1]


def help_text(
    tool: str, command_line: CommandLine, *, listed: bool = False, hidden: bool = False
) -> str:
    """Return the text of ``--help``; `listed` and `hidden` as in ``--help-list-hidden``."""
    visible = {"shown", "hidden"} if hidden else {"shown"}
    groups = {"Generic Options": _GENERIC, command_line.category: command_line.options}
    shown = {
        heading: sorted((o for o in options if o.visibility in visible), key=lambda o: o.name)
        for heading, options in groups.items()
    }
    every = sorted((o for options in shown.values() for o in options), key=lambda o: o.name)
    if listed and not hidden:  # a list omits the option that prints it
        every = [option for option in every if option.name != "help-list"]
    width = max(len(head) for option in every for head, _ in _rows(option))
    usage = " ".join(filter(None, ["[options]", command_line.usage]))
    lines = [f"OVERVIEW: {command_line.overview}", ""]
    lines += [f"USAGE: {os.path.basename(tool)} {usage}", "", "OPTIONS:"]
    if listed:
        lines += _described(every, width)
    else:
        for heading, options in shown.items():
            lines += ["", f"{heading}:", "", *_described(options, width)]
    return "\n".join(lines) + "\n"


def _described(options: Iterable[Option], width: int) -> Iterator[str]:
    for option in options:
        for head, text in _rows(option):
            first, *more = text.split("\n")
            yield f"{head:<{width}} - {first}"
            yield from (f"{'':<{width}}   {line}" for line in more)


def _rows(option: Option) -> Iterator[tuple[str, str]]:
    value = option.value_name or _VALUE_NAMES.get(option.option_type, "string")
    if not option.takes_value:
        value = ""
    elif len(option.name) == 1:
        value = f" <{value}>"
    else:
        value = f"=<{value}>"
    yield f"  {option.dashed}{value}", option.help
    for choice, text in option.choices:
        yield f"    ={choice}", f"  {text}"
