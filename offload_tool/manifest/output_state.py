"""The manifest of a command's one output: whether it is current, and its inputs.

It is for build tools that run one command per output, and compare times. Their "changed" inputs may
have the old content (a touched file, a branch that was switched twice), and the output may be
damaged. `manifest` has the rules; `offload-tool compile` adds::

    key      the command, the compiler's identity, variables that clang reads, the directory
    inputs   the depfile's files, host IR, device libraries, files that flags name
    lookups  failed lookups: see `include_search`

Some commands have no manifest, and always run: see `OutputManifest`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress

from offload_tool.clang.argument_files import (
    all_args,
    finds_libraries,
    include_folders,
    options_of,
    possible_files,
)
from offload_tool.clang.environment import RESULT_VARIABLES, processor_of
from offload_tool.clang.options import (
    DEPFILE,
    ELSEWHERE,
    LIBRARY,
    LINKER,
    SIBLING,
    does,
)
from offload_tool.errors import OffloadError
from offload_tool.formats.magic import THIN_ARCHIVE
from offload_tool.io.file_digests import Fingerprints, content_of
from offload_tool.manifest import Work, manifest_path
from offload_tool.manifest.include_search import Lookups
from offload_tool.manifest.inputs import PassReads, confirmed_by, general_args, reads_of
from offload_tool.manifest.key import Key, Part, Reason
from offload_tool.manifest.manifest import (
    PassRecord,
    State,
    files_in_order,
    judge,
    read_record,
    record_pass_result,
    write_record,
)
from offload_tool.manifest.race_check import Start
from offload_tool.toolchain.identity import configuring_files

WRITES_FILES = SIBLING | ELSEWHERE | LINKER | DEPFILE
"""Options with further outputs, or with outputs that several runs share."""


class OutputManifest:
    """The manifest of the output of one command."""

    def __init__(self, work: Work, prints: Fingerprints | None = None) -> None:
        """Read the last record; `prints` are the known digests."""
        self._work = work
        self._prints = prints or Fingerprints()
        self._reads: PassReads | None = None
        """The files and lookups of the run."""
        self.last_record = read_record(self._path, self._prints, work.output)
        """The record of the last run."""
        self._reason: Reason | None = None

    @property
    def _path(self) -> str:
        return manifest_path(self._work.output)

    @property
    def _has_record(self) -> bool:
        """Return whether all inputs and outputs are known.

        They are not with further outputs, or with libraries that a linker searches for.
        """
        args = all_args(self._work.command)
        if not self._work.names_all_inputs or any(does(arg, WRITES_FILES) for arg in args):
            return False
        if finds_libraries(args):
            return False
        return self._work.preprocess is not None or not any(does(arg, LIBRARY) for arg in args)

    def _named_files(self) -> list[str]:
        args = options_of(self._work.command)
        own = {self._work.output, *self._work.inputs}
        general = general_args(self._work.command, own)
        named = (*possible_files(args), *configuring_files(general, self._work.environment))
        return [name for name in dict.fromkeys(named) if name not in own and os.path.isfile(name)]

    def _key(self, read: Iterable[str], named: Sequence[str]) -> Key:
        work = self._work
        variables = {name: work.environment.get(name, "") for name in RESULT_VARIABLES}
        tells = work.surroundings().embeds_folder
        folder = [os.getcwd(), work.environment.get("PWD", "")] if tells else []
        parts: dict[str, str] = {
            Part.COMMAND: json.dumps([*work.command]),
            Part.COMPILER: work.compiler,
            Part.VERSION: work.version(),
            Part.VARIABLES: json.dumps(variables),
            Part.NAMED_FILES: json.dumps(named),
            Part.FOLDER: json.dumps(folder),
            Part.PROCESSOR: processor_of(all_args(work.command)),
            Part.LIBRARIES: json.dumps(work.libraries),
            Part.IDENTITY: json.dumps(_inodes(read) if work.by_inode else []),
        }
        return Key(parts)

    def files_if_current(self) -> list[str] | None:
        """Return the inputs of the output if it is current, else None."""
        record = self.last_record
        if record is None or not self._has_record:
            return None
        key = self._key(record.inputs, self._named_files())
        judgement = judge(record, key, self._prints, self._work.output)
        self._reason = judgement.reason
        if judgement.state is State.UNSURE and self._work.preprocess is not None:
            read, more = self._work.preprocess(), self._all_inputs(())
            surer = confirmed_by(read, record, judgement, self._prints, self._reads_of, more)
            if surer is None:
                return None
            self._write(surer)
            return files_in_order(surer)
        return files_in_order(record) if judgement.state is State.CURRENT else None

    def is_unchanged(self) -> bool:
        """Return whether the output, the command and all files that it names are unchanged."""
        record = self.last_record
        if record is None or not self._has_record or not record.output:
            return False
        named = self._named_files()
        return (
            self._prints.digest(self._work.output) == record.output
            and self._key(record.inputs, named) == record.key
            and all(self._prints.digest(name) == record.inputs.get(name) for name in named)
        )

    def begin(self, marker: str) -> Start:
        """Return the start of the run, with its inputs and search directories as far as known.

        :raises FileError: the file `marker` cannot be written.
        """
        record = self.last_record
        known = record.inputs if record is not None else ()
        searched = record.lookups.folders if record is not None else ()
        files = dict.fromkeys([*self._work.inputs, *self._named_files(), *known])
        flagged = include_folders(all_args(self._work.command))
        folders = dict.fromkeys([*flagged, *map(os.path.dirname, files), *searched])
        return Start.now(marker, files, folders)

    def prepare(self) -> None:
        """Run the queries in parallel with the command."""
        self._work.surroundings()
        self._work.version()

    def files_read(self) -> list[str]:
        """Return the files that the run has read.

        :raises FileError: it wrote no depfile.
        :raises CompilerError: its depfile does not name the source.
        """
        listed = self._work.files_read()
        if self._work.preprocess is None:
            return self._all_inputs(listed)
        self._reads = self._reads_of(listed)
        return self._all_inputs(self._reads.files)

    def finish(self, read: Sequence[str], start: Start, bitcode: str = "") -> None:
        """Record the inputs and output of the run that began at `start`.

        `bitcode` is the digest of the bitcode from which the output was made, if it was.
        """
        work = self._work
        if not self._has_record:
            self.remove()
            return
        begins = (content_of(name, len(THIN_ARCHIVE)) for name in read)
        if work.preprocess is None and THIN_ARCHIVE in begins:
            return  # the members that were read are not known
        if self._reads is not None and self._reads.unknown_input:
            self.remove()
            return
        lookups = Lookups() if self._reads is None else self._reads.lookups
        key = self._key(read, self._named_files())
        output, prints = work.output, self._prints
        made = record_pass_result(key, read, lookups, output, start, prints)
        if self._reads is None:
            bitcode = ""
        self._write(made._replace(why=self._reason, bitcode=bitcode))

    def _reads_of(self, listed: Sequence[str]) -> PassReads:
        folders = self._work.surroundings().folders
        return reads_of(listed, folders, self._work.command, self._prints)

    def remove(self) -> None:
        """Remove the manifest."""
        with suppress(OSError):
            os.unlink(self._path)

    def _all_inputs(self, read: Iterable[str]) -> list[str]:
        """Return all inputs, given those that the compiler lists."""
        work = self._work
        found = [*read, *work.inputs, *work.libraries, *self._named_files()]
        return list(dict.fromkeys(found))

    def _write(self, record: PassRecord) -> None:
        try:
            write_record(self._path, record, self._prints, self._work.output)
        except OffloadError:  # such as a full disk: the output is still right
            self.remove()


def _inodes(names: Iterable[str]) -> list[str]:
    found = []
    for name in sorted(names):
        with suppress(OSError):
            status = os.stat(name)
            found.append(f"{name} {status.st_dev} {status.st_ino}")
    return found
