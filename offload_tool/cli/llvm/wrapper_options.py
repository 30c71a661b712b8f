"""The options of ``offload-tool wrapper``: three generations of LLVM's tool.

Which of them a command line is for, its options tell (`is_older`). What the older one's makes is
for objects of a current clang all the same. ``--llvm=15``, or a name of the tool that ends in
``-15``, asks for the layout of its time, which clang used up to version 19. ``--llvm=23``, or a
name that ends in ``-23``, asks for what LLVM 23's makes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

from offload_tool.cli.llvm.option_parser import (
    CommandLine,
    Information,
    Option,
    Positionals,
    expanded,
    help_text,
    parse,
)
from offload_tool.errors import UsageError
from offload_tool.util.frozen import frozen

if TYPE_CHECKING:
    from offload_tool.formats.registration_ir import Generation, RegisteredKind

_OLDER_TOOL = "clang-offload-wrapper"
_OLDER_OPTIONS = frozenset({"target", "offload-arch", "add-omp-offload-notes", "save-temps"})
_NUMBERED = re.compile(r"-([0-9]+)(\.|$)")
_FIRST_OF_23 = 23
_FIRST_OF_22 = 20
"""The first clang whose objects have ``llvm_offload_entries``."""

_SYCL = "sycl"


def _command_line(
    version: str, kinds: Sequence[tuple[str, str]], more: Sequence[Option]
) -> CommandLine:
    choices = [("openmp", "OpenMP"), ("cuda", "CUDA"), ("hip", "HIP"), *kinds]
    return CommandLine(
        overview="Generate runtime registration code for a device binary image",
        category="llvm-offload-wrapper options",
        version=f"offload-tool wrapper 0.1.0 (behaves as llvm-offload-wrapper {version})",
        options=(
            Option("h", "flag", "Alias for -help", visibility="never"),
            Option(
                "kind",
                "enum",
                "Wrap for offload kind:",
                required=True,
                choices=tuple((kind, f"Wrap {name} binaries") for kind, name in choices),
                bucket=2725,
            ),
            Option("o", "string", "Write output to <file>.", value_name="file", bucket=1627),
            *more,
            Option("triple", "string", "Target triple for the wrapper module", bucket=216),
            Option(  # ours
                "llvm",
                "enum",
                "Whose llvm-offload-wrapper to be",
                visibility="never",
                choices=(("22", "LLVM 22's"), ("23", "LLVM 23's")),
            ),
        ),
        positionals=Positionals(1, None, "Wrap input from <file>"),
    )


_RELOCATABLE = "Wrap for a relocatable offloading application (OpenMP only)"
WRAPPER_COMMAND_LINE = _command_line("22.1.8", (), ())
WRAPPER_23_COMMAND_LINE = _command_line(
    "23.1.4", [(_SYCL, "SYCL")], [Option("relocatable", "flag", _RELOCATABLE)]
)

OLDER_WRAPPER_COMMAND_LINE = CommandLine(
    overview="A tool to create a wrapper bitcode for offload target binaries. Takes offload\n"
    "target binaries as input and produces bitcode file containing target binaries packaged\n"
    "as data and initialization code which registers target binaries in offload runtime.",
    category="clang-offload-wrapper options",
    version="offload-tool wrapper 0.1.0 (behaves as clang-offload-wrapper 15.0.6)",
    options=(
        Option("h", "flag", "Alias for -help", visibility="never"),
        Option(
            "add-omp-offload-notes",
            "flag",
            "Add LLVMOMPOFFLOAD ELF notes to ELF device images.",
            visibility="never",
        ),
        Option("o", "string", "Output filename", value_name="filename", required=True, bucket=1627),
        Option(
            "offload-arch",
            "list",
            "Target ID of the input file that follows",
            value_name="target ID",
        ),
        Option("save-temps", "flag", "Accepted: there are no temporaries", visibility="never"),
        Option(  # ours
            "llvm",
            "enum",
            "Whose objects the module is for",
            visibility="never",
            choices=(("15", "clang 15's to 19's"), ("22", "those of clang 20 and later")),
        ),
        Option(
            "target",
            "string",
            "Target triple for the output module",
            value_name="triple",
            required=True,
        ),
    ),
    positionals=Positionals(1, None, "<input files>"),
)


@frozen
class WrapperArguments:
    """A wrapper command line as given; nothing beyond its syntax is checked."""

    kind: RegisteredKind
    is_older: bool
    """Whether it is clang-offload-wrapper's."""
    generation: Generation
    """Of the module."""
    triple: str | None
    output: str | None
    inputs: tuple[str, ...]
    target_ids: tuple[str, ...]
    add_notes: bool
    is_relocatable: bool = False


def is_older(tool: str, words: Sequence[str]) -> bool:
    """Return whether a command line is for clang-offload-wrapper 15: by an option, or its name."""
    names = set()
    for word in words:
        if word == "--":
            break
        if word.startswith("-"):
            names.add(word.lstrip("-").partition("=")[0])
    if "kind" in names:
        return False
    return bool(names & _OLDER_OPTIONS) or PurePath(tool).name.startswith(_OLDER_TOOL)


def _generation(tool: str, words: Sequence[str], *, older: bool) -> Generation:
    """Return whose module a command line asks for: by ``--llvm``, or the number in the name."""
    number = _NUMBERED.search(PurePath(tool).name)
    wanted = number[1] if number is not None else "22"
    for word, behind in zip(words, (*words[1:], ""), strict=False):
        if word == "--":
            break
        name, _, value = word.lstrip("-").partition("=")
        if word.startswith("-") and name == "llvm":
            wanted = value or behind
    if not wanted.isdigit():  # the parser refuses it
        return 22
    if older:
        return 15 if int(wanted) < _FIRST_OF_22 else 22
    return 23 if int(wanted) >= _FIRST_OF_23 else 22


def parse_wrapper_arguments(tool: str, arguments: Sequence[str]) -> WrapperArguments | Information:
    """Read a command line; `tool` is the name that the user invoked.

    Where it asks for a text (``--help``, ``-h``, ``--version``), return that instead.

    :raises LlvmUsageError: the option parser of the tool that it is for refuses it.
    """
    words = expanded(arguments)
    older = is_older(tool, words)
    generation = _generation(tool, words, older=older)
    newer = WRAPPER_23_COMMAND_LINE if generation == 23 else WRAPPER_COMMAND_LINE
    command_line = OLDER_WRAPPER_COMMAND_LINE if older else newer
    values = parse(tool, command_line, words)
    if isinstance(values, Information):
        return values
    if values.flag("h"):
        return Information(help_text(tool, command_line))
    kind = values.text("kind")
    if kind == _SYCL:
        raise UsageError("--kind=sycl: images of SYCL are not wrapped here; use LLVM's own program")
    return WrapperArguments(
        kind="hip" if kind == "hip" else "cuda" if kind == "cuda" else "openmp",
        is_older=older,
        generation=generation,
        triple=values.text("target" if older else "triple"),
        output=values.text("o"),
        inputs=tuple(values.positionals),
        target_ids=values.texts("offload-arch"),
        add_notes=bool(values.flag("add-omp-offload-notes")),
        is_relocatable=bool(values.flag("relocatable")),
    )
