"""``offload-tool packager``: a drop-in for llvm-offload-binary 22.1.8, on request for 23.1.4.

That program's older name is clang-offload-packager. The command follows 23 if the invoked name ends
in ``-23``, or with ``--llvm=23``. The checks run in LLVM's order, with its messages; ours add the
file if these do not name it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from offload_tool.cli.llvm.option_parser import CommandLine, Option, help_text, parse, run_drop_in
from offload_tool.cli.printing import print_lines, print_text
from offload_tool.errors import ContentError, OffloadError, UsageError
from offload_tool.io import STDIN, STDOUT
from offload_tool.util.frozen import frozen

if TYPE_CHECKING:
    from offload_tool.formats.offload_binary import Dialect
    from offload_tool.operations.package import Generation, PackagedImage
    from offload_tool.operations.unpackage import ImageFilter

PACKAGER_COMMAND_LINE = CommandLine(
    overview="A utility for bundling several object files into a single binary.\n"
    "The output binary can then be embedded into the host section table\n"
    "to create a fatbinary containing offloading code.",
    category="llvm-offload-binary options",
    version="offload-tool packager 0.1.0 (behaves as llvm-offload-binary 22.1.8)",
    options=(
        Option("archive", "flag", "Write extracted files to a static archive", bucket=209),
        Option(
            "image",
            "list",
            "List of key and value arguments. Required keywords are 'file' and 'triple'.",
            value_name="<key>=<value>,...",
            bucket=3038,
        ),
        Option("o", "string", "Write output to <file>.", value_name="file", bucket=1627),
        Option(  # ours, so in none of LLVM's help texts
            "kind-numbering",
            "enum",
            "Numbers of the offload kinds",
            visibility="never",
            choices=(("llvm22", "HIP is 4"), ("documented", "HIP is 3, as in LLVM 15")),
        ),
        Option(  # ours too
            "llvm",
            "enum",
            "Whose llvm-offload-binary to be",
            visibility="never",
            choices=(("22", "LLVM 22's"), ("23", "LLVM 23's")),
        ),
    ),
    most=1,
    usage="Extract from <file>.",
)

_OLD_NAME = "clang-offload-packager"
_DEPRECATED = "warning: 'clang-offload-packager' is deprecated. Use 'llvm-offload-binary' instead."
_INVALID = "Invalid data was encountered while parsing the file"
_CUT_SHORT = "The end of the file was unexpectedly encountered"


def run_packager(
    tool: str, arguments: Sequence[str], _: Mapping[str, str], *, keep_equal: bool = False
) -> int:
    """Run the command; return 0 or 1. `tool` is for messages, `keep_equal` as in `replace_file`."""
    return run_drop_in(tool, lambda: _run(tool, arguments, keep_equal=keep_equal), _described)


def _run(tool: str, arguments: Sequence[str], *, keep_equal: bool) -> None:
    values = parse(tool, PACKAGER_COMMAND_LINE, arguments)
    if _stem(tool).endswith(_OLD_NAME):
        print_lines([_DEPRECATED])
    output, inputs = values.text("o") or "", values.positionals
    given_input = inputs[0] if inputs else ""
    if values.flag("h") or not (output or given_input):
        print_text(help_text(tool, PACKAGER_COMMAND_LINE, listed=True), sys.stdout)
        return
    if output and given_input:
        raise UsageError(
            "Packaging to an output file and extracting from an input file are mutually exclusive."
        )
    dialect: Dialect | None = values.text("kind-numbering")  # type: ignore[assignment]
    generation = _generation(tool, values.text("llvm"))
    images = [_Image.read(text) for text in values.texts("image")]

    def warn(text: str) -> None:
        print_lines([f"{tool}: warning: {text}"])

    if output:
        from offload_tool.operations.package import package_images

        package_images(
            [packaged for image in images for packaged in image.packaged()],
            STDOUT if output == "-" else output,
            dialect=dialect or "llvm22",
            generation=generation,
            keep_equal=keep_equal,
            warn=warn,
        )
        return
    from offload_tool.operations.unpackage import ExtractOptions, extract_images

    archive = values.flag("archive")
    extract_images(
        STDIN if given_input == "-" else given_input,
        [image.filter(generation, archive=archive) for image in images],
        options=ExtractOptions(
            given_input, archive=archive, padding=False, dialect=dialect, generation=generation
        ),
        keep_equal=keep_equal,
        warn=warn,
        extracted=_print_extracted if generation == 23 else None,
    )


def _generation(tool: str, wanted: str | None) -> Generation:
    if wanted is not None:
        return 23 if wanted == "23" else 22
    if "-" not in _stem(tool):
        return 22
    import re

    number = re.search(r"-([0-9]+)", _stem(tool))
    return 23 if number is not None and int(number[1]) >= 23 else 22


def _described(error: OffloadError) -> str:
    """Return an error's text: LLVM's message, then the exact cause in the file."""
    if not isinstance(error, ContentError):
        return str(error)
    from offload_tool.formats.offload_binary import OffloadBinaryError, OffloadBinaryVersionError

    if not isinstance(error, (OffloadBinaryError, OffloadBinaryVersionError)):
        return str(error)
    cut_short = isinstance(error, OffloadBinaryError) and error.cut_short
    general = _CUT_SHORT if cut_short else _INVALID
    return f"'{error.path}': {general}: offset {error.offset:#x}, {error.field}: {error.message}"


def _print_extracted(name: str) -> None:
    print_lines([f"Extracted: {name}"], sys.stdout)


def _stem(tool: str) -> str:
    name = tool.rpartition("/")[2]
    return name.rpartition(".")[0] if "." in name else name


@frozen
class _Image:
    text: str
    strings: dict[str, str]
    """Without `file` and `kind`."""
    keys: tuple[str, ...]
    """All keys, in the order of first use."""
    file: str | None
    kind: str | None

    @classmethod
    def read(cls, text: str) -> _Image:
        """Parse `text` at commas, then at the first ``=``; an empty part is the empty key."""
        values: dict[str, list[str]] = {}
        for part in text.split(","):
            key, _, value = part.partition("=")
            values.setdefault(key, []).append(value)
        joined = {key: ",".join(parts) for key, parts in values.items()}
        file, kind = joined.pop("file", None), joined.pop("kind", None)
        return cls(text, joined, tuple(values), file, kind)

    def packaged(self) -> list[PackagedImage]:
        """Return the images to package, one for each file; raise UsageError if there is none."""
        from offload_tool.operations.package import PackagedImage

        if self.file is None:
            raise UsageError("'file' is a required image arguments")
        kind = "none" if self.kind is None else self.kind
        return [
            PackagedImage(STDIN if file == "-" else file, self.strings, kind, keys=self.keys)
            for file in self.file.split(",")
        ]

    def filter(self, generation: Generation, *, archive: bool) -> ImageFilter:
        from offload_tool.operations.unpackage import ImageFilter

        strings = dict(self.strings)
        member = strings.pop("member", None) if generation == 23 else None
        output = STDOUT if self.file == "-" and not archive else self.file
        return ImageFilter(strings, self.kind, output, self.text, member)
