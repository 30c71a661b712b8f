"""The options of ``offload-tool bundler``: those of clang-offload-bundler 22.1.8."""

from __future__ import annotations

from collections.abc import Sequence

from offload_tool.cli.llvm.option_parser import CommandLine, Information, Option, help_text, parse
from offload_tool.util.frozen import frozen

_OVERVIEW = (
    "A tool to bundle several input files of the specified type <type> \n"
    "referring to the same source file but different targets into a single \n"
    "one. The resulting file can also be unbundled into different files by \n"
    "this tool if -unbundle is provided."
)

_TYPES = """\
Type of the files to be bundled/unbundled.
Current supported types are:
  i    - cpp-output
  ii   - c++-cpp-output
  cui  - cuda-cpp-output
  hipi - hip-cpp-output
  d    - dependency
  ll   - llvm
  bc   - llvm-bc
  s    - assembler
  o    - object
  a    - archive of objects
  gch  - precompiled-header
  ast  - clang AST file"""

BUNDLER_OPTIONS: tuple[Option, ...] = (
    Option("h", "flag", "Alias for -help", visibility="never"),
    Option(
        "###",
        "flag",
        "Print any external commands that are to be executed instead of actually "
        "executing them - for testing purposes.",
        bucket=1590,
    ),
    Option(
        "allow-missing-bundles",
        "flag",
        "Create empty files if bundles are missing when unbundling.",
        bucket=1547,
    ),
    Option("bundle-align", "uint", "Alignment of bundle for binary files", bucket=3472),
    Option(
        "check-input-archive",
        "flag",
        "Check if input heterogeneous archive is valid in terms of TargetID rules.",
        bucket=481,
    ),
    Option("compress", "flag", "Compress output file when bundling.", bucket=4085),
    Option(
        "compression-level",
        "int",
        "Specify the compression level (integer)",
        value_name="n",
        bucket=1510,
    ),
    Option(
        "hip-openmp-compatible",
        "flag",
        "Treat hip and hipv4 offload kinds as compatible with openmp kind, and vice versa.",
        bucket=3782,
    ),
    Option(
        "input",
        "list",
        "Input file. Can be specified multiple times for multiple input files.",
        bucket=3353,
    ),
    Option("inputs", "commalist", "[<input file>,...] (deprecated)", bucket=2780),
    Option("list", "flag", "List bundle IDs in the bundled file.", bucket=148),
    Option(
        "output",
        "list",
        "Output file. Can be specified multiple times for multiple output files.",
        bucket=638,
    ),
    Option("outputs", "commalist", "[<output file>,...] (deprecated)", bucket=3726),
    Option("targets", "commalist", "[<offload kind>-<target triple>,...]", bucket=2951),
    Option("type", "string", _TYPES, required=True, bucket=1639),
    Option(
        "unbundle",
        "flag",
        "Unbundle bundled file into several output files.",
        bucket=739,
    ),
    Option("verbose", "flag", "Print debug information.", bucket=2898),
)

BUNDLER_COMMAND_LINE = CommandLine(
    overview=_OVERVIEW,
    category="clang-offload-bundler options",
    version="offload-tool bundler 0.1.0 (behaves as clang-offload-bundler 22.1.8)",
    options=BUNDLER_OPTIONS,
)


@frozen
class BundlerArguments:
    """A bundler command line as given; nothing beyond its syntax is checked."""

    type: str
    targets: tuple[str, ...]
    input: tuple[str, ...]
    inputs: tuple[str, ...]
    """The deprecated spelling; empty if it was not used. `outputs` likewise."""
    output: tuple[str, ...]
    outputs: tuple[str, ...]
    unbundle: bool
    list: bool
    allow_missing_bundles: bool
    bundle_align: int
    check_input_archive: bool
    hip_openmp_compatible: bool
    compress: bool | None
    """None: not given, so that the environment decides; the next two likewise."""
    compression_level: int | None
    verbose: bool | None
    print_commands: bool
    """``-###``"""


def parse_bundler_arguments(tool: str, arguments: Sequence[str]) -> BundlerArguments | Information:
    """Read a command line; `tool` is the name that the user invoked.

    Where it asks for a text (``--help``, ``-h``, ``--version``), return that instead.

    :raises LlvmUsageError: clang-offload-bundler's option parser refuses it.
    """
    values = parse(tool, BUNDLER_COMMAND_LINE, arguments)
    if isinstance(values, Information):
        return values
    if values.flag("h"):
        return Information(help_text(tool, BUNDLER_COMMAND_LINE, listed=True))
    alignment = values.number("bundle-align")
    return BundlerArguments(
        type=values.text("type") or "",
        targets=values.texts("targets"),
        input=values.texts("input"),
        inputs=values.texts("inputs"),
        output=values.texts("output"),
        outputs=values.texts("outputs"),
        unbundle=bool(values.flag("unbundle")),
        list=bool(values.flag("list")),
        allow_missing_bundles=bool(values.flag("allow-missing-bundles")),
        bundle_align=1 if alignment is None else alignment,
        check_input_archive=bool(values.flag("check-input-archive")),
        hip_openmp_compatible=bool(values.flag("hip-openmp-compatible")),
        compress=values.flag("compress"),
        compression_level=values.number("compression-level"),
        verbose=values.flag("verbose"),
        print_commands=bool(values.flag("###")),
    )
