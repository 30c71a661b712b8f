"""``offload-tool bundler``: a drop-in for clang-offload-bundler 22.1.8.

The checks stand in the order in which that program does them, with its messages. Where
it loses data, crashes or leaks memory, the operations refuse with a reason instead.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from offload_tool.cli.llvm.bundler_compression import (
    compressed_format_version,
    compression_level,
    describe_compression,
    describe_decompression,
    lookup,
)
from offload_tool.cli.llvm.bundler_options import BundlerArguments, parse_bundler_arguments
from offload_tool.cli.llvm.drop_in import run_drop_in
from offload_tool.cli.printing.lines import print_lines
from offload_tool.containers.open_bundle import OpenedBundle
from offload_tool.errors import OffloadError, UsageError
from offload_tool.formats.magic import BUNDLE as MAGIC
from offload_tool.formats.target.bundle_entry_id import (
    BundleEntryID,
    OffloadKind,
    check_hosts,
    read_targets,
    written_by_llvm,
)
from offload_tool.io import STDIN, STDOUT, InputFile
from offload_tool.operations.bundle import Compression, write_bundle
from offload_tool.operations.unbundle import (
    MissingEntriesError,
    list_entry_ids,
    unbundle_file,
)

if TYPE_CHECKING:
    from offload_tool.formats.bundle.compressed import CompressionReport

_SECTION = MAGIC.decode()
_UNCOMPRESSED_REPORTED = 8  # bytes; LLVM says nothing about shorter files


def run_bundler(
    tool: str, arguments: Sequence[str], environ: Mapping[str, str], *, keep_equal: bool = False
) -> int:
    """Run the command; `tool` is the name for messages. Give the exit status, 0 or 1.

    With `keep_equal`, outputs that already have the very bytes are left untouched.
    """
    return run_drop_in(
        tool,
        lambda: parse_bundler_arguments(tool, arguments),
        lambda given: _Bundler(tool, given, environ, keep_equal=keep_equal).run(),
    )


class _Bundler:
    """One run: what was asked for, after the environment had its say."""

    def __init__(
        self,
        tool: str,
        given: BundlerArguments,
        environ: Mapping[str, str],
        *,
        keep_equal: bool,
    ) -> None:
        self.tool = tool
        self.keep_equal = keep_equal
        self.given = given
        self.verbose = _switch(given.verbose, environ, "OFFLOAD_BUNDLER_VERBOSE")
        self.compress = _switch(given.compress, environ, "OFFLOAD_BUNDLER_COMPRESS")
        level, level_warning = compression_level(environ)
        self.level = level if given.compression_level is None else given.compression_level
        self.version, version_warning = compressed_format_version(environ)
        self.warnings = [text for text in (level_warning, version_warning) if text]
        self.inputs = given.input or given.inputs
        self.outputs = given.output or given.outputs

    def run(self) -> None:
        print_lines(self.warnings)
        self._check_spellings()
        if self.given.list:
            self._list()
            return
        self._check_counts()
        targets = self._targets()
        if not self.given.unbundle:
            self._bundle(targets)
        elif self.given.type == "a":
            self._unbundle_archive(targets)
        else:
            self._unbundle(targets)

    def warn(self, text: str) -> None:
        print_lines([f"{self.tool}: warning: {text}"])

    def report(self, lines: Iterable[str]) -> None:
        if self.verbose:
            print_lines(lines)

    # ---- the checks, in LLVM's order ------------------------------------------------

    def _check_spellings(self) -> None:
        given = self.given
        for name, new, old in (
            ("input", given.input, given.inputs),
            ("output", given.output, given.outputs),
        ):
            if new and old:
                raise UsageError(
                    f"-{name}s and -{name} cannot be used together, use only -{name} instead"
                )
            if old:
                self.warn(f"-{name}s is deprecated, use -{name} instead")

    def _check_counts(self) -> None:
        given, inputs, outputs = self.given, len(self.inputs), len(self.outputs)
        targets, unbundle, archive = len(given.targets), given.unbundle, given.type == "a"
        checking = given.check_input_archive
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

    def _targets(self) -> list[BundleEntryID]:
        """Read ``-targets``; check their composition and how many of them are the host."""
        ids = read_targets(self.given.targets, warn=self.warn)
        check_hosts(ids, bundling=not self.given.unbundle)
        return ids

    # ---- the three jobs -------------------------------------------------------------

    def _list(self) -> None:
        _refuse(
            (self.given.unbundle, "-unbundle and -list cannot be used together"),
            (len(self.inputs) != 1, "only one input file supported for -list"),
            (bool(self.outputs), "-outputs option is invalid for -list"),
            (bool(self.given.targets), "-targets option is invalid for -list"),
        )
        file = _readable(self.inputs[0])
        # LLVM reads archives with the handler of object files, which finds nothing in one.
        file_type = "o" if self.given.type == "a" else self.given.type
        opened = self._report_opened if self.verbose else None
        ids = list_entry_ids(file, file_type=file_type, opened=opened)
        print_lines(ids, sys.stdout)

    def _bundle(self, targets: list[BundleEntryID]) -> None:
        items = [(t, _readable(f)) for t, f in zip(targets, self.inputs, strict=True)]
        output = _writable(self.outputs[0])
        hosts = [f for t, f in items if t.kind == OffloadKind.HOST]
        if self.given.print_commands and hosts and self._is_object(hosts[0]):
            self._print_adding(targets)
            return
        compression = Compression(level=self.level, version=self.version)
        report = write_bundle(
            items,
            output,
            file_type=self.given.type,
            alignment=self.given.bundle_align,
            compression=compression if self.compress else None,
            keep_equal=self.keep_equal,
        )
        if report is not None:
            self.report(describe_compression(report))

    def _unbundle(self, targets: list[BundleEntryID]) -> None:
        files = [_writable(output) for output in self.outputs]
        file = _readable(self.inputs[0])
        if self.given.print_commands and self._is_object(file):
            self._print_removing(targets)
            return

        def unbundle(wanted: Iterable[BundleEntryID]) -> None:
            unbundle_file(
                file,
                dict(zip(wanted, files, strict=True)),
                file_type=self.given.type,
                allow_missing=self.given.allow_missing_bundles,
                hip_openmp=self.given.hip_openmp_compatible,
                keep_equal=self.keep_equal,
                opened=self._report_opened if self.verbose else None,
            )

        try:
            try:
                unbundle(targets)
            except MissingEntriesError:  # LLVM may have written the file with the same words
                pairs = zip(self.given.targets, targets, strict=True)
                as_llvm = [written_by_llvm(*pair) for pair in pairs]
                if as_llvm == targets or len({*as_llvm}) < len(targets):
                    raise
                unbundle(as_llvm)
        except MissingEntriesError as error:
            raise OffloadError(f"Can't find bundles for {_listed(error.missing)}") from error

    def _unbundle_archive(self, targets: list[BundleEntryID]) -> None:
        from offload_tool.operations.unarchive import (
            MissingCodeObjectError,
            NotAnArchiveError,
            unbundle_archive,
        )

        file = _readable(self.inputs[0])
        files = [_writable(output) for output in self.outputs]
        try:
            unbundle_archive(
                file,
                dict(zip(targets, files, strict=True)),
                allow_missing=self.given.allow_missing_bundles,
                hip_openmp=self.given.hip_openmp_compatible,
                check=self.given.check_input_archive,
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
            self.report([f"'{opened.content.path}': no bundle, skipped"])
        self._report_opened(opened)

    def _report_opened(self, opened: OpenedBundle) -> None:
        reports: list[CompressionReport] = [c.report for c in opened.containers if c.report]
        for report in reports:
            self.report(describe_decompression(report))
        if not reports and len(opened.content) >= _UNCOMPRESSED_REPORTED:
            self.report(["Uncompressed bundle."])

    # ---- -###: the llvm-objcopy commands in whose place we edit object files ----------

    def _is_object(self, file: str) -> bool:
        if self.given.type != "o":
            return False
        from offload_tool.formats.bundle.object_file import is_object_file  # rarely needed

        with InputFile(file) as source:
            return is_object_file(source.data) is not None

    def _print_adding(self, targets: list[BundleEntryID]) -> None:
        words = ["llvm-objcopy"]
        host = ""
        for target, file in zip(targets, self.inputs, strict=True):
            name = f"{_SECTION}{target}"
            if target.kind == OffloadKind.HOST:
                host, file = file, _temporary()
            words.append(f"--add-section={name}={file}")
            words.append(f"--set-section-flags={name}=readonly,exclude")
        words += ["--", host, self.outputs[0]]
        print_lines([" ".join(f'"{word}"' for word in words)])

    def _print_removing(self, targets: list[BundleEntryID]) -> None:
        if any(target.kind == OffloadKind.HOST for target in targets):
            words = ["llvm-objcopy", "--regex", f"--remove-section={_SECTION}.*", "--"]
            words += [self.inputs[0], _temporary()]
            print_lines([" ".join(f'"{word}"' for word in words)])


def _refuse(*checks: tuple[bool, str]) -> None:
    """Raise the first message whose condition is true."""
    for wrong, text in checks:
        if wrong:
            raise UsageError(text)


def _temporary() -> str:
    """Return a name such as LLVM gives its temporary files."""
    from offload_tool.io.temporary_directory import usual_folder

    return f"{usual_folder()}/clang-offload-bundler-{os.urandom(3).hex()}.tmp"


def _switch(given: bool | None, environ: Mapping[str, str], name: str) -> bool:
    return lookup(environ, name) == "1" if given is None else given


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
