"""The engine of a pass: whether its output is current, and the record of a run.

::

    is_current -- yes --> the output stays
        | no
      begin --> the pass runs --> finish --> save

A `Resolver` says what the pass is made of. Commands have plain paths (`output_state`); SCons has
nodes, variant folders and Repositories (`offload_tool.scons.state`).
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from offload_tool.clang.argument_files import all_args, include_folders, unlisted_by
from offload_tool.errors import OffloadError
from offload_tool.io.file_digests import DigestCache
from offload_tool.manifest import manifest_path
from offload_tool.manifest.include_search import Lookups, expected_lookups
from offload_tool.manifest.key import Key, Reason
from offload_tool.manifest.manifest import (
    Judgement,
    PassRecord,
    State,
    files_in_order,
    judge,
    read_record,
    record_pass_result,
    same_folders,
    write_record,
)
from offload_tool.manifest.race_check import Start

if TYPE_CHECKING:
    from offload_tool.manifest.cut_off import Stages


class Resolver(ABC):
    """What one pass is made of, and how its names become files."""

    with_identity = False
    """The output holds the inode numbers of the files that were read."""
    reads_headers = True
    """Its compiler has a preprocessor and a depfile."""

    @property
    @abstractmethod
    def args(self) -> Sequence[str]:
        """The arguments of its command, with response files unread."""

    @property
    @abstractmethod
    def output(self) -> str:
        """The name of the output."""

    @property
    def kept_output(self) -> str | None:
        """The output that must be unchanged; None if it is part of another file."""
        return self.output

    @property
    def is_recordable(self) -> bool:
        """Whether its inputs and outputs can be known."""
        return True

    @property
    def may_write(self) -> bool:
        """Whether manifests may be written."""
        return True

    @abstractmethod
    def key(self, record: PassRecord | None) -> Key:
        """Return what is known before the pass runs; `record` is that of its last run."""

    @abstractmethod
    def inputs_before(self) -> Iterable[str]:
        """Return the inputs that are known before it runs."""

    @abstractmethod
    def files_read(self) -> list[str]:
        """Return the files that it has just read; raise CompilerError without a usable depfile."""

    @abstractmethod
    def preprocess(self) -> list[str] | None:
        """Return the files that it would read now; None if they are not known."""

    @abstractmethod
    def search_path(self) -> tuple[str, ...]:
        """Return the folders in which it searches for headers; () if they are not known."""

    def present_search_path(self, _record: PassRecord) -> tuple[str, ...]:
        """Return the search path as it is before a run, to compare it with that of the record."""
        return self.search_path()

    def expected(self, record: PassRecord | None) -> tuple[PassRecord | None, Key]:
        """Return the record of the last run, with names as they are here, and the present key."""
        return record, self.key(record)

    def side_outputs(self) -> dict[str, str]:
        """Return the digest of each further output; "" if other passes write it, too."""
        return {}


class PassRun:
    """The state of one pass, and its record."""

    start: Start
    """The state of files when the run began; set by `begin`."""

    def __init__(self, resolver: Resolver, digests: DigestCache) -> None:
        self.resolver = resolver
        self.reason: Reason | None = None
        self.unknown_input = ""
        """The file due to which the assembler may have read unknown files."""
        self._digests = digests
        self._record: PassRecord | None = None
        self._before: PassRecord | None = None
        """The record that was judged."""
        self._key: Key | None = None
        """The key that was judged, or that of the beginning."""
        self.stages: Stages | None = None
        """The stages of a run, which have begun."""

    @property
    def record(self) -> PassRecord | None:
        """The record of the last run; None without a valid one."""
        if self._record is None:
            output = self.resolver.output
            self._record = read_record(manifest_path(output), self._digests, output)
        return self._record

    @record.setter
    def record(self, record: PassRecord | None) -> None:
        self._record = record

    def inputs(self) -> list[str]:
        """Return the names of all inputs of the last run."""
        record = self.record
        return [] if record is None else [*files_in_order(record), *record.key.files]

    def add_note(self, text: str) -> None:
        """Add to the reason why the pass runs."""
        if self.reason is not None:
            self.reason = self.reason._replace(note=f"{self.reason.note}; {text}")

    # -- the verdict -----------------------------------------------------------------------

    def is_current(self) -> bool:
        """Return True if a run would write the same output now."""
        self._before = self.record
        record, self._key = self.resolver.expected(self._before)
        judgement = self.judge(record, self._key, self.resolver.kept_output)
        if judgement.state is State.UNSURE and record is not None:
            surer = self.confirmed(record, judgement, self.resolver.preprocess())
            if surer is not None:
                with suppress(OffloadError):  # e.g. a full disk: the next run queries again
                    self.save(surer)
                return True
        self.reason = judgement.reason
        return judgement.state is State.CURRENT

    def judge(self, record: PassRecord | None, key: Key, output: str | None = None) -> Judgement:
        """Return the verdict on a record: see `manifest.judge`."""
        resolver = self.resolver
        search_path = record and partial(resolver.present_search_path, record)
        return judge(record, key, self._digests, output, search_path=search_path)

    def confirmed(
        self, record: PassRecord, judgement: Judgement, read: list[str] | None
    ) -> PassRecord | None:
        """Return an unsure record if the preprocessor has `read` the same files; else None."""
        if read is None or {*read} != {*record.inputs}:
            return None
        if judgement.search_path_changed:
            lookups = self._lookups(read)
            folders = same_folders(lookups.folders, self._digests)
            return record._replace(lookups=lookups, same_folders=folders)
        present = tuple(sorted({*record.lookups.present, *judgement.appeared}))
        return record._replace(lookups=record.lookups._replace(present=present))

    # -- a run -----------------------------------------------------------------------------

    def begin(self, marker: str, key: Key | None = None) -> Start:
        """Record the start of a run; raise FileError. A `key` replaces the judged one, if any."""
        record, named = self.record, self.resolver.inputs_before()
        expected = dict.fromkeys([*named, *(record.inputs if record is not None else ())])
        searched = record.lookups.folders if record is not None else ()
        flagged = include_folders(all_args(self.resolver.args))
        folders = dict.fromkeys([*flagged, *map(os.path.dirname, expected), *searched])
        digests = {name: self._digests.digest(name) for name in expected}
        start = Start.now(marker, folders, digests)
        self.start = start
        self._key = key or self._key or self.resolver.key(record)
        return start

    @property
    def is_key_unchanged(self) -> bool:
        """Whether the judged record has the present key."""
        return self._before is not None and self._before.key == self._key

    def begin_stages(self, stages: Stages, *, keeps_output: bool = True) -> None:
        """Start the stages; the output is made anew unless it `keeps_output`."""
        record = self._before
        is_unchanged = (
            keeps_output
            and record is not None
            and self.is_key_unchanged
            and self._digests.digest(self.resolver.output) == record.output != ""
        )
        stages.begin(record, self.resolver.args, is_unchanged=is_unchanged)
        self.stages = stages

    def finish(self) -> PassRecord:
        """Return the record of the run, not saved yet; errors are those of `files_read`."""
        from offload_tool.manifest.source_text import assembler_include  # not if all is current

        resolver = self.resolver
        key, read = resolver.key(self._before), resolver.files_read()
        record = record_pass_result(
            key if self._key is None else key.since(self._key),
            *(read, self._lookups(read), resolver.output, self.start, self._digests),
            with_identity=resolver.with_identity,
        )
        if self.stages is not None and self._before is not None:
            self.stages.check(self._before.output, record.output, resolver.output)
        if resolver.reads_headers:
            self.unknown_input = assembler_include(read, resolver.args)
        is_known = resolver.is_recordable and not self.unknown_input
        is_known = is_known and not unlisted_by(resolver.args)
        side_outputs = resolver.side_outputs()
        bitcode = ""
        if self.stages is not None and is_known and not side_outputs:
            bitcode = self.stages.bitcode()
        record = record._replace(
            output=record.output if is_known else "",
            side_outputs=side_outputs,
            why=self.reason,
            bitcode=bitcode,
        )
        before = self._before
        if before is None or not (before.has_bitcode and record.has_bitcode):
            return record  # the backend may have printed messages
        is_same = resolver.kept_output is None or before.output == record.output
        return record.after(before) if is_same else record

    def save(self, record: PassRecord) -> None:
        """Write the manifest; raise FileError if it cannot be written."""
        self._record, output = record, self.resolver.output
        if self.resolver.may_write:
            write_record(manifest_path(output), record, self._digests, output)

    def _lookups(self, read: list[str]) -> Lookups:
        if not self.resolver.reads_headers:
            return Lookups()
        folders = self.resolver.search_path()
        found = expected_lookups(read, folders, self.resolver.args, self._digests)
        return found if folders else found._replace(unknown=True)
