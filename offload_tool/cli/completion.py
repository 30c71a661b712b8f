"""``offload-tool completion SHELL``: the script that completes command lines in a shell."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

from offload_tool.cli._output import print_text

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

__all__ = ["add", "run"]

_SHELLS = ("bash", "fish", "zsh")


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser of ``offload-tool``."""
    parser = commands.add_parser(
        "completion",
        help="print a shell's completion script",
        description="Print the script with which a shell completes the commands, options, files "
        "and target IDs of offload-tool.",
        epilog="It needs shtab: pip install 'offload-tool[completion]'. Put the script where the "
        "shell looks: for bash ~/.local/share/bash-completion/completions/offload-tool, for fish "
        "~/.config/fish/completions/offload-tool.fish, for zsh _offload-tool in one of $fpath.",
        allow_abbrev=False,
    )
    parser.add_argument("shell", choices=_SHELLS, metavar="SHELL", help=", ".join(_SHELLS))
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the script.

    :raises UsageError: shtab, which writes it, is not installed.
    """
    from offload_tool.errors import UsageError

    try:
        import shtab
    except ImportError as error:
        raise UsageError(
            "completion scripts need shtab, which is not installed: "
            "pip install 'offload-tool[completion]'"
        ) from error
    from offload_tool.cli._whole_parser import whole_parser

    parser = whole_parser()
    for each in _parsers(parser):
        _prepare(each, options.shell)
    script = shtab.complete(parser, shell=options.shell)
    if options.shell == "bash":
        script += _BASH_EQUALS
    elif options.shell == "fish":
        script = _FISH_LONG.sub(" -o ", script)
    print_text(f"{script}\n", sys.stdout)
    return 0


_NO_FILES = frozenset(
    {
        *("--bundle-align", "--compression-level", "--cuid", "--host-triple", "--image"),
        *("--scheduler", "--target", "--targets", "--triple"),
    }
)
"""Options whose values are no files, and not one of a few words."""
_FISH_LONG = re.compile(r" -s (?=\S\S)")
"""shtab writes -type as it writes -t; fish has another word for options of LLVM's sort."""
_FISH_FILE = "(__fish_complete_path (commandline -ct | string replace -r '^--?[^=]+=' ''))"
"""As shtab's own, but for the option that stands before ``=`` in the same word."""
_BASH_EQUALS = """

# Bash takes --option=value for three words; with two, values complete after "=" as well.
_offload_tool() {
  local -a words=()
  local i current=$COMP_CWORD
  for i in "${!COMP_WORDS[@]}"; do
    if [[ ${COMP_WORDS[i]} == "=" && ${COMP_WORDS[i-1]} == -* ]]; then
      if (( i < COMP_CWORD )); then
        (( current -= 1 ))
      elif (( i == COMP_CWORD )); then
        words+=("")
      fi
    else
      words+=("${COMP_WORDS[i]}")
    fi
  done
  local COMP_CWORD=$current
  local -a COMP_WORDS=("${words[@]}")
  _shtab_offload_tool "$@"
}
complete -o bashdefault -F _offload_tool offload-tool"""


def _parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yield a parser and all of its commands'."""
    import argparse

    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from _parsers(inner)


def _prepare(parser: argparse.ArgumentParser, shell: str) -> None:
    """Set what completes each value; write options as the shell's own functions want them."""
    import argparse

    parser.description = None  # the line in the list of commands is shorter
    for action in parser._actions:
        if "-###" in action.option_strings:
            action.help = argparse.SUPPRESS  # a comment, in all shells
        elif action.nargs != 0:
            _complete_value(action)
            if shell == "zsh":  # its functions read --option=value only if told to
                action.option_strings = [
                    f"{name}=" if len(name) > len("-o") else name for name in action.option_strings
                ]


def _complete_value(action: argparse.Action) -> None:
    import shtab

    from offload_tool.formats.target.processors import PROCESSORS

    if action.metavar in {"ID", "target ID"}:
        action.choices = list(PROCESSORS)
    elif action.metavar == "DIR":
        action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
    elif action.choices is None and _NO_FILES.isdisjoint(action.option_strings):
        action.complete = {**shtab.FILE, "fish": _FISH_FILE}  # type: ignore[attr-defined]
