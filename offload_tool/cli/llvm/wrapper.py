"""``offload-tool wrapper``: a drop-in for llvm-offload-wrapper 22.1.8 and its predecessor.

The checks run in the order of those programs, with their messages. Invoked by one of their names,
the command writes bitcode whatever the output's name, as they do; as ``offload-tool wrapper``, it
writes an object to an output named ``.o``. ``-`` is standard output, and a message about the output
names it.

The options select one of the two tools, else the name does (`choose_tool`). Modules of the older
one fit objects of a current clang, too. ``--llvm=15``, or a name of the tool that ends in ``-15``,
selects the layout of that version, which clang used up to version 20. ``--llvm=23``, or a name that
ends in ``-23``, selects LLVM 23's modules.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from offload_tool.cli.llvm.option_parser import (
    CommandLine,
    Option,
    expanded,
    help_text,
    parse,
    run_drop_in,
)
from offload_tool.cli.printing import print_lines, print_text
from offload_tool.errors import UsageError
from offload_tool.io import STDIN, STDOUT, InputFile

if TYPE_CHECKING:
    from offload_tool.formats.registration_ir import Generation

_LLVMS_NAMES = ("llvm-offload-wrapper", "clang-offload-wrapper")
_OLDER_TOOL = "clang-offload-wrapper"
_OLDER_OPTIONS = frozenset({"target", "offload-arch", "add-omp-offload-notes", "save-temps"})
_FIRST_OF_22 = 20
"""The first clang whose objects have ``llvm_offload_entries``."""


def _command_line(
    version: str, kinds: Sequence[tuple[str, str]], more: Sequence[Option]
) -> CommandLine:
    choices = [("openmp", "OpenMP"), ("cuda", "CUDA"), ("hip", "HIP"), *kinds]
    return CommandLine(
        overview="Generate runtime registration code for a device binary image",
        category="llvm-offload-wrapper options",
        version=f"offload-tool wrapper 0.1.0 (behaves as llvm-offload-wrapper {version})",
        options=(
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
        least=1,
        most=None,
        usage="Wrap input from <file>",
    )


_RELOCATABLE = "Wrap for a relocatable offloading application (OpenMP only)"
WRAPPER_COMMAND_LINE = _command_line("22.1.8", (), ())
WRAPPER_23_COMMAND_LINE = _command_line(
    "23.1.4", [("sycl", "SYCL")], [Option("relocatable", "flag", _RELOCATABLE)]
)

OLDER_WRAPPER_COMMAND_LINE = CommandLine(
    overview="A tool to create a wrapper bitcode for offload target binaries. Takes offload\n"
    "target binaries as input and produces bitcode file containing target binaries packaged\n"
    "as data and initialization code which registers target binaries in offload runtime.",
    category="clang-offload-wrapper options",
    version="offload-tool wrapper 0.1.0 (behaves as clang-offload-wrapper 15.0.6)",
    options=(
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
    least=1,
    most=None,
    usage="<input files>",
)


def choose_tool(tool: str, args: Sequence[str]) -> tuple[CommandLine, Generation]:
    """Return the valid options and LLVM version for the invoked name and arguments."""
    name = os.path.basename(tool)
    given = {}
    for arg, following in zip(args, (*args[1:], ""), strict=False):
        if arg == "--":
            break
        if arg.startswith("-"):
            option, _, value = arg.lstrip("-").partition("=")
            given[option] = value or following
    number = re.search(r"-([0-9]+)(\.|$)", name)
    wanted = given.get("llvm", number[1] if number else "22")
    version = int(wanted) if wanted.isdigit() else 22  # the parser rejects other values
    is_older = not _OLDER_OPTIONS.isdisjoint(given) or name.startswith(_OLDER_TOOL)
    if is_older and "kind" not in given:
        return OLDER_WRAPPER_COMMAND_LINE, 15 if version < _FIRST_OF_22 else 22
    if version >= 23:
        return WRAPPER_23_COMMAND_LINE, 23
    return WRAPPER_COMMAND_LINE, 22


def run_wrapper(
    tool: str, arguments: Sequence[str], _: Mapping[str, str], *, keep_equal: bool = False
) -> int:
    """Run the command; return 0 or 1. `tool` is for messages, `keep_equal` as in `replace_file`."""
    return run_drop_in(tool, lambda: _wrap(tool, arguments, keep_equal=keep_equal))


def _wrap(tool: str, arguments: Sequence[str], *, keep_equal: bool) -> None:
    from offload_tool.formats.targets.triple import fields, is_known_arch
    from offload_tool.operations.wrap import WrapOptions, wrap_images

    args = expanded(arguments)
    command_line, generation = choose_tool(tool, args)
    values = parse(tool, command_line, args)
    if values.flag("h"):
        print_text(help_text(tool, command_line), sys.stdout)
        return
    is_older = command_line is OLDER_WRAPPER_COMMAND_LINE
    kind = values.text("kind") or "openmp"
    triple, output = values.text("target" if is_older else "triple"), values.text("o")
    if kind == "sycl":
        raise UsageError("--kind=sycl: images of SYCL are not wrapped here; use LLVM's own program")
    if is_older and not is_known_arch(fields(triple or "")[0]):
        raise UsageError(f"'{triple}': unsupported target triple")
    images = [STDIN if name == "-" else name for name in values.positionals]
    if not output:
        for image in images:
            InputFile(image).close()  # an image that cannot be read comes first
        raise UsageError("no output file; give one with -o FILE")
    wrap_images(
        images,
        STDOUT if output == "-" else output,
        kind=kind,  # type: ignore[arg-type] # one of the choices
        triple=triple,
        options=WrapOptions(
            generation,
            is_relocatable=values.flag("relocatable"),
            target_ids=values.texts("offload-arch"),
            add_notes=values.flag("add-omp-offload-notes"),
            as_object=False if os.path.basename(tool).startswith(_LLVMS_NAMES) else None,
        ),
        keep_equal=keep_equal,
        warn=lambda text: print_lines([f"{tool}: warning: {text}"]),
    )
