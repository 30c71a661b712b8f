"""``offload-tool why OUTPUT...``: print the inputs of an output, and whether it is current.

The command reads the output's manifest (`offload_tool.manifest.manifest`) and checks the files.
It cannot detect a changed command line or compiler; only the build can.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from offload_tool.cli.arguments import Commands
from offload_tool.cli.printing import print_lines
from offload_tool.errors import UsageError
from offload_tool.manifest.key import Cause

if TYPE_CHECKING:
    from offload_tool.io.file_digests import DigestCache
    from offload_tool.manifest.manifest import PassRecord

_NAMED = 10
"""Number of files to name; the others are counted."""


def add_why(commands: Commands) -> None:
    """Add the command to the parser of ``offload-tool``."""
    parser = commands.add_parser(
        "why",
        help="print the inputs of an output, and why it was compiled",
        description="For each output of a compile by SCons or by 'offload-tool compile', and "
        "for each pass of an object of 'offload-tool launch', print why it was compiled the last "
        "time, its input files, whether it is current, and what would make it stale.",
        epilog="The exit status is 1 if an output is not current.",
    )
    parser.add_argument(
        "outputs", nargs="+", metavar="OUTPUT", help="an output, such as build/k.gfx942.co"
    )


def run_why(options: argparse.Namespace) -> int:
    """Print the record of each output; return 1 if one is not current."""
    started = Path.cwd()
    is_current = True
    for name in options.outputs:
        path = started / name
        try:
            is_now, lines = _explanation(name, path)
        finally:
            os.chdir(started)
        print_lines(lines, sys.stdout)
        is_current = is_current and is_now
    return int(not is_current)


def _explanation(name: str, path: Path) -> tuple[bool, list[str]]:
    """Return whether an output is current, and the text to print."""
    from offload_tool.io.file_digests import DigestCache
    from offload_tool.manifest import manifest_path
    from offload_tool.manifest.manifest import read_output_record, read_record

    digests = DigestCache()
    manifest = manifest_path(str(path))
    record = read_record(manifest, digests, str(path))
    if record is not None:
        return _verdict(name, record, path, digests, str(path))
    launched = read_output_record(manifest, digests, str(path))
    if launched is None:
        raise UsageError(
            f"'{name}': no manifest ({manifest_path(name)}) of this version is there; name an "
            "output that SCons, 'offload-tool compile' or 'offload-tool launch' has compiled for a "
            "target or the host"
        )
    found = digests.digest(str(path))
    if found != launched.output:
        return False, [f"{name}: stale: {(Cause.OUTPUT if found else Cause.MISSING).value}"]
    verdicts = [
        _verdict(f"{name}: {target}", record, path, digests, None)
        for target, record in launched.passes.items()
    ]
    return all(is_current for is_current, _ in verdicts), [
        x for _, lines in verdicts for x in lines
    ]


def _verdict(
    name: str, record: PassRecord, path: Path, digests: DigestCache, output: str | None
) -> tuple[bool, list[str]]:
    """Return whether a pass is current, and the text to print; `output` is its own file."""
    from offload_tool.manifest.manifest import State, judge

    os.chdir(_folder_of(record, path))
    key = record.key._replace(files={n: digests.digest(n) for n in record.key.files})
    judgement = judge(record, key, digests, output)
    verdict = {
        State.CURRENT: "current",
        State.OUTDATED: f"stale: {judgement.reason}",
        State.UNSURE: f"not sure: {judgement.reason}; the next build asks the preprocessor",
    }[judgement.state]
    why = f"  compiled because: {record.why or 'it was not recorded'}"
    return judgement.state is State.CURRENT, [f"{name}: {verdict}", why, *_named_inputs(record)]


def _folder_of(record: PassRecord, path: Path) -> Path:
    """Return the build's folder: the one with most of the files that the record names."""
    names = [name for name in record.inputs if not os.path.isabs(name)]
    folders = [Path.cwd(), *Path(os.path.realpath(path)).parents]
    found = {folder: sum(os.path.exists(folder / name) for name in names) for folder in folders}
    return max(folders, key=lambda folder: found[folder])


def _named_inputs(record: PassRecord) -> Iterator[str]:
    from offload_tool.manifest.include_search import is_outside

    own = [name for name in record.inputs if not is_outside(name)]
    for what, names in (("made of", own), ("flags name", [*record.key.files])):
        if names:
            more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
            yield f"  {what}: {', '.join(names[:_NAMED])}{more}"
    yield f"  and of {len(record.inputs) - len(own):,} files outside of the build's folder"
    yield (
        "  stale if: one of these files, the command, the compiler or a variable that it reads "
        "changes,"
    )
    lookups = record.lookups
    number = len(lookups.names) + len(lookups.outside)
    yield (
        f"  or a file appears under one of {number:,} names in {len(lookups.folders):,} folders "
        "where the compiler looks for headers"
    )
