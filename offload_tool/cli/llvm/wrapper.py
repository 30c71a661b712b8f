"""``offload-tool wrapper``: a drop-in for llvm-offload-wrapper 22.1.8 and its predecessor.

The checks stand in the order in which those programs do them, with their messages. Called by
one of their names, it writes bitcode whatever the output is called, as they do; as
``offload-tool wrapper``, an output named ``.o`` is an object. ``-`` is standard output, a message
about the output names it, and the older one's modules are for objects of a current clang.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from offload_tool.cli.llvm.drop_in import run_drop_in
from offload_tool.cli.llvm.wrapper_options import WrapperArguments, parse_wrapper_arguments
from offload_tool.cli.printing.lines import print_lines
from offload_tool.errors import UsageError
from offload_tool.io import STDIN, STDOUT

_LLVMS_NAMES = ("llvm-offload-wrapper", "clang-offload-wrapper")


def run_wrapper(
    tool: str, arguments: Sequence[str], _: Mapping[str, str], *, keep_equal: bool = False
) -> int:
    """Run the command; `tool` is the name for messages. Give the exit status, 0 or 1.

    No environment variable matters. With `keep_equal`, an output that already has the very bytes
    is left untouched.
    """
    return run_drop_in(
        tool,
        lambda: parse_wrapper_arguments(tool, arguments),
        lambda given: _wrap(tool, given, keep_equal=keep_equal),
    )


def _wrap(tool: str, given: WrapperArguments, *, keep_equal: bool) -> None:
    from offload_tool.formats.target.triple import fields, is_known_arch
    from offload_tool.operations.wrap import check_readable, wrap_images

    if given.is_older and not is_known_arch(fields(given.triple or "")[0]):
        raise UsageError(f"'{given.triple}': unsupported target triple")
    images = [STDIN if name == "-" else name for name in given.inputs]
    if not given.output:
        check_readable(images)
        raise UsageError("no output file; give one with -o FILE")
    wrap_images(
        images,
        STDOUT if given.output == "-" else given.output,
        kind=given.kind,
        triple=given.triple,
        target_ids=given.target_ids or None,
        generation=given.generation,
        is_relocatable=given.is_relocatable,
        as_object=False if tool.rpartition("/")[2].startswith(_LLVMS_NAMES) else None,
        add_notes=given.add_notes,
        keep_equal=keep_equal,
        warn=lambda text: print_lines([f"{tool}: warning: {text}"]),
    )
