"""``offload-tool bundler``: a drop-in for clang-offload-bundler 22.1.8.

The checks run in that program's order, with its messages. Where it loses data, crashes or leaks
memory, the operations raise an error instead.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from offload_tool.cli.llvm.option_parser import CommandLine, Option, help_text, parse, run_drop_in
from offload_tool.cli.printing import print_lines, print_text
from offload_tool.containers.entries import OpenedBundle
from offload_tool.errors import OffloadError, UsageError
from offload_tool.formats.magic import BUNDLE as MAGIC
from offload_tool.formats.targets.bundle_entry_id import (
    BundleEntryID,
    OffloadKind,
    check_hosts,
    read_targets,
    written_by_llvm,
)
from offload_tool.io import STDIN, STDOUT, InputFile
from offload_tool.operations.bundle import Compression, write_bundle
from offload_tool.operations.unbundle import MissingEntriesError, list_entry_ids, unbundle_file

if TYPE_CHECKING:
    from offload_tool.formats.bundle.compressed import CompressionReport

_SECTION = MAGIC.decode()
_UNCOMPRESSED_REPORTED = 8  # bytes; LLVM does not report shorter files
_IGNORE = "OFFLOAD_BUNDLER_IGNORE_ENV_VAR"
_LEVEL = "OFFLOAD_BUNDLER_COMPRESSION_LEVEL"
_VERSION = "COMPRESSED_BUNDLE_FORMAT_VERSION"
_DEFAULT_VERSION = 3

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

_OPTIONS = (
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
    Option("unbundle", "flag", "Unbundle bundled file into several output files.", bucket=739),
    Option("verbose", "flag", "Print debug information.", bucket=2898),
)

BUNDLER_COMMAND_LINE = CommandLine(
    overview=_OVERVIEW,
    category="clang-offload-bundler options",
    version="offload-tool bundler 0.1.0 (behaves as clang-offload-bundler 22.1.8)",
    options=_OPTIONS,
)


def run_bundler(
    tool: str, arguments: Sequence[str], environ: Mapping[str, str], *, keep_equal: bool = False
) -> int:
    """Run the command; return 0 or 1. `tool` is for messages, `keep_equal` as in `replace_file`."""
    return run_drop_in(
        tool, lambda: _Bundler(tool, arguments, environ, keep_equal=keep_equal).run()
    )


class _Bundler:
    def __init__(
        self, tool: str, arguments: Sequence[str], environ: Mapping[str, str], *, keep_equal: bool
    ) -> None:
        self.tool = tool
        self.keep_equal = keep_equal
        self.values = values = parse(tool, BUNDLER_COMMAND_LINE, arguments)
        self.type = values.text("type") or ""
        self.targets = values.texts("targets")
        self.unbundle = values.flag("unbundle")
        self.verbose = values.flag("verbose", lookup(environ, "OFFLOAD_BUNDLER_VERBOSE") == "1")
        self.compress = values.flag("compress", lookup(environ, "OFFLOAD_BUNDLER_COMPRESS") == "1")
        level, level_warning = compression_level(environ)
        self.level = values.number("compression-level", level)
        self.version, version_warning = compressed_format_version(environ)
        self.warnings = [text for text in (level_warning, version_warning) if text]
        self.inputs = values.texts("input") or values.texts("inputs")
        self.outputs = values.texts("output") or values.texts("outputs")

    def run(self) -> None:
        if self.values.flag("h"):
            print_text(help_text(self.tool, BUNDLER_COMMAND_LINE, listed=True), sys.stdout)
            return
        print_lines(self.warnings)
        self._check_spellings()
        if self.values.flag("list"):
            self._list()
            return
        self._check_counts()
        targets = read_targets(self.targets, warn=self.warn)
        check_hosts(targets, bundling=not self.unbundle)
        if not self.unbundle:
            self._bundle(targets)
        elif self.type == "a":
            self._unbundle_archive(targets)
        else:
            self._unbundle(targets)

    def warn(self, text: str) -> None:
        print_lines([f"{self.tool}: warning: {text}"])

    # ---- the checks, in LLVM's order ------------------------------------------------

    def _check_spellings(self) -> None:
        for name in ("input", "output"):
            old = self.values.texts(f"{name}s")
            if old and self.values.texts(name):
                raise UsageError(
                    f"-{name}s and -{name} cannot be used together, use only -{name} instead"
                )
            if old:
                self.warn(f"-{name}s is deprecated, use -{name} instead")

    def _check_counts(self) -> None:
        inputs, outputs, targets = len(self.inputs), len(self.outputs), len(self.targets)
        unbundle, archive = self.unbundle, self.type == "a"
        checking = self.values.flag("check-input-archive")
        _refuse(
            (checking and not unbundle, "-check-input-archive cannot be used while bundling"),
            (
                checking and not archive,
                "-check-input-archive can only be used for unbundling archives (-type=a)",
            ),
            (not outputs, "no output file specified!"),
            (not targets, "for the --targets option: must be specified at least once!"),
            (unbundle and inputs != 1, "only one input file supported in unbundling mode"),
            (
                unbundle and outputs != targets,
                "number of output files and targets should match in unbundling mode",
            ),
            (not unbundle and archive, "Archive files are only supported for unbundling"),
            (not unbundle and outputs != 1, "only one output file supported in bundling mode"),
            (
                not unbundle and inputs != targets,
                "number of input files and targets should match in bundling mode",
            ),
        )

    # ---- the three jobs -------------------------------------------------------------

    def _list(self) -> None:
        _refuse(
            (self.unbundle, "-unbundle and -list cannot be used together"),
            (len(self.inputs) != 1, "only one input file supported for -list"),
            (bool(self.outputs), "-outputs option is invalid for -list"),
            (bool(self.targets), "-targets option is invalid for -list"),
        )
        file = _readable(self.inputs[0])
        # LLVM reads archives with the handler of object files, which finds no bundle in one.
        file_type = "o" if self.type == "a" else self.type
        opened = self._report_opened if self.verbose else None
        ids = list_entry_ids(file, file_type=file_type, opened=opened)
        print_lines(ids, sys.stdout)

    def _bundle(self, targets: list[BundleEntryID]) -> None:
        items = [(t, _readable(f)) for t, f in zip(targets, self.inputs, strict=True)]
        output = _writable(self.outputs[0])
        hosts = [f for t, f in items if t.kind == OffloadKind.HOST]
        if self.values.flag("###") and hosts and self._is_object(hosts[0]):
            self._print_adding(targets)
            return
        compression = Compression(level=self.level, version=self.version)
        report = write_bundle(
            items,
            output,
            file_type=self.type,
            alignment=self.values.number("bundle-align", 1),
            compression=compression if self.compress else None,
            keep_equal=self.keep_equal,
        )
        if report is not None and self.verbose:
            print_lines(describe_compression(report))

    def _unbundle(self, targets: list[BundleEntryID]) -> None:
        files = [_writable(output) for output in self.outputs]
        file = _readable(self.inputs[0])
        if self.values.flag("###") and self._is_object(file):
            self._print_removing(targets)
            return

        def unbundle(wanted: Iterable[BundleEntryID]) -> None:
            unbundle_file(
                file,
                dict(zip(wanted, files, strict=True)),
                file_type=self.type,
                allow_missing=self.values.flag("allow-missing-bundles"),
                hip_openmp=self.values.flag("hip-openmp-compatible"),
                keep_equal=self.keep_equal,
                opened=self._report_opened if self.verbose else None,
            )

        try:
            try:
                unbundle(targets)
            except MissingEntriesError:  # LLVM may have written the given spellings
                pairs = zip(self.targets, targets, strict=True)
                as_llvm = [written_by_llvm(*pair) for pair in pairs]
                if as_llvm == targets or len({*as_llvm}) < len(targets):
                    raise
                unbundle(as_llvm)
        except MissingEntriesError as error:
            raise OffloadError(f"Can't find bundles for {_listed(error.missing)}") from error

    def _unbundle_archive(self, targets: list[BundleEntryID]) -> None:
        from offload_tool.operations.unarchive import (
            ArchiveOptions,
            MissingCodeObjectError,
            NotAnArchiveError,
            unbundle_archive,
        )

        file = _readable(self.inputs[0])
        files = [_writable(output) for output in self.outputs]
        options = ArchiveOptions(
            allow_missing=self.values.flag("allow-missing-bundles"),
            hip_openmp=self.values.flag("hip-openmp-compatible"),
            check=self.values.flag("check-input-archive"),
        )
        try:
            unbundle_archive(
                file,
                dict(zip(targets, files, strict=True)),
                options=options,
                keep_equal=self.keep_equal,
                opened=self._report_member if self.verbose else None,
                warn=self.warn,
            )
        except NotAnArchiveError as error:
            raise OffloadError("file too small to be an archive") from error
        except MissingCodeObjectError as error:
            raise OffloadError(
                f"no compatible code object found for the target '{error.target}' in "
                f"heterogeneous archive library: {self.inputs[0]}"
            ) from error

    def _report_member(self, opened: OpenedBundle) -> None:
        if not opened.entries:
            print_lines([f"'{opened.content.path}': no bundle, skipped"])
        self._report_opened(opened)

    def _report_opened(self, opened: OpenedBundle) -> None:
        reports = [report for report in opened.reports if report]
        for report in reports:
            print_lines(describe_decompression(report))
        if not reports and len(opened.content) >= _UNCOMPRESSED_REPORTED:
            print_lines(["Uncompressed bundle."])

    # ---- -###: the llvm-objcopy commands that our edits of object files replace --------

    def _is_object(self, file: str) -> bool:
        if self.type != "o":
            return False
        from offload_tool.formats.bundle.object_file import is_object_file  # rarely needed

        with InputFile(file) as source:
            return is_object_file(source.data) is not None

    def _print_adding(self, targets: list[BundleEntryID]) -> None:
        args = ["llvm-objcopy"]
        host = ""
        for target, file in zip(targets, self.inputs, strict=True):
            name, content = f"{_SECTION}{target}", file
            if target.kind == OffloadKind.HOST:
                host, content = file, _temporary()
            args.append(f"--add-section={name}={content}")
            args.append(f"--set-section-flags={name}=readonly,exclude")
        args += ["--", host, self.outputs[0]]
        print_lines([" ".join(f'"{arg}"' for arg in args)])

    def _print_removing(self, targets: list[BundleEntryID]) -> None:
        if any(target.kind == OffloadKind.HOST for target in targets):
            args = ["llvm-objcopy", "--regex", f"--remove-section={_SECTION}.*", "--"]
            args += [self.inputs[0], _temporary()]
            print_lines([" ".join(f'"{arg}"' for arg in args)])


def _refuse(*checks: tuple[bool, str]) -> None:
    """Raise the first message whose condition is true."""
    for wrong, text in checks:
        if wrong:
            raise UsageError(text)


def _temporary() -> str:
    """Return a name like those of LLVM's temporary files."""
    from offload_tool.io.temporary_directory import system_temp_folder

    return f"{system_temp_folder()}/clang-offload-bundler-{os.urandom(3).hex()}.tmp"


def _readable(name: str) -> str:
    return STDIN if name == "-" else name


def _writable(name: str) -> str:
    return STDOUT if name == "-" else name


def _listed(names: Sequence[str]) -> str:
    """Join names as LLVM does: A; A and B; A, B, and C; sorted bytewise."""
    first, *others = sorted(names, key=os.fsencode)
    if not others:
        return first
    return ", ".join([first, *others[:-1]]) + (", and " if others[1:] else " and ") + others[-1]


# ---- compression: settings of the environment, and reports of -verbose ----------------


def compressed_format_version(environ: Mapping[str, str]) -> tuple[int, str | None]:
    """Return the version to write, and the warning to print if the variable is unusable."""
    text = lookup(environ, _VERSION)
    if text is None:
        return _DEFAULT_VERSION, None
    number = _parse(text, 0, 0xFFFF)
    if number in (2, 3):
        return number, None
    hint = "" if number is None else " Valid values are 2 or 3."
    default = f"Using default version {_DEFAULT_VERSION}."
    return _DEFAULT_VERSION, f"Warning: Invalid value for {_VERSION}: {text}.{hint} {default}"


def compression_level(environ: Mapping[str, str]) -> tuple[int | None, str | None]:
    """Return the level (None: the default), and the warning if the variable is unusable."""
    text = lookup(environ, _LEVEL)
    if text is None:
        return None, None
    level = _parse(text, -(1 << 31), (1 << 31) - 1)
    warning = f"Warning: Invalid value for {_LEVEL}: {text}. Ignoring it."
    return level, warning if level is None else None


def lookup(environ: Mapping[str, str], name: str) -> str | None:
    """Return a variable's value; None if it is unset, or all are ignored."""
    return None if environ.get(_IGNORE) == "1" else environ.get(name)


def _parse(text: str, least: int, most: int) -> int | None:
    # At most 20 digits: longer numbers are out of range, and int() rejects thousands of digits.
    import re  # rarely needed: few users set a variable

    number = re.fullmatch(r"(-?)0*([0-9]{1,20})", text, re.ASCII)
    if number is None or (number[1] and least == 0):  # unsigned numbers have no sign, not even -0
        return None
    value = int(number[1] + number[2])
    return value if least <= value <= most else None


def describe_compression(report: CompressionReport) -> list[str]:
    """Return the lines that clang-offload-bundler prints after compressing."""
    header = report.header
    return [
        f"Compressed bundle format version: {header.version}",
        f"Total file size (including headers): {header.total_size:,} bytes",
        f"Compression method used: {header.method}",
        f"Compression level: {report.level}",
        f"Binary size before compression: {header.uncompressed_size:,} bytes",
        f"Binary size after compression: {report.payload_size:,} bytes",
        *_rates(report, "Compression"),
        f"Truncated MD5 hash: {_hex(header.hash)}",
    ]


def describe_decompression(report: CompressionReport) -> list[str]:
    """Return the lines that clang-offload-bundler prints after decompressing, with equal hashes."""
    header = report.header
    total = header.total_size
    return [
        f"Compressed bundle format version: {header.version}",
        *([] if total is None else [f"Total file size (from header): {total:,} bytes"]),
        f"Decompression method: {header.method}",
        f"Size before decompression: {report.payload_size:,} bytes",
        f"Size after decompression: {header.uncompressed_size:,} bytes",
        *_rates(report, "Decompression"),
        f"Stored hash: {_hex(header.hash)}",
        f"Recalculated hash: {_hex(header.hash)}",
        "Hashes match: Yes",
    ]


def _rates(report: CompressionReport, work: str) -> list[str]:
    before, after = report.header.uncompressed_size, report.payload_size
    speed = before / (1 << 20) / max(report.seconds, 1e-9)
    ratio = 100 * after / before if before else 0.0
    return [
        f"Compression rate: {before / after:.2f}",
        f"Compression ratio: {ratio:.2f}%",
        f"{work} speed: {speed:.2f} MB/s",
    ]


def _hex(value: int) -> str:
    return f"{value:#016x}"  # 16 characters with the prefix, as LLVM pads it
