"""The records of each pass's output: its manifest on disk, and those in a ``CacheDir``.

::

                         is it current?  <-- .k.gfx906.co.manifest --> its dependencies
    k.gfx906.co  <------ fetch / store <---> CacheDir: <key>.manifest/<name>.json
                                                       <result>  (the file, as SCons keeps it)

A ``CacheDir`` lookup has two steps, as in ccache and Bazel. The key, known before the compile,
selects the manifests of all results stored with it. The manifest whose inputs are unchanged names
the result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from offload_tool.clang.driver import query_front_end
from offload_tool.errors import OffloadError
from offload_tool.io.file_digests import identity
from offload_tool.manifest import manifest_path
from offload_tool.manifest.include_search import Lookups
from offload_tool.manifest.key import Key
from offload_tool.manifest.manifest import (
    Inputs,
    PassRecord,
    State,
    digest_of_parts,
    read_record,
    write_record,
)
from offload_tool.manifest.pass_run import PassRun
from offload_tool.passes.compile_pass import CompilePass
from offload_tool.scons import compat
from offload_tool.scons.state.node_resolver import (
    DIGESTS,
    FlagArgs,
    NodeResolver,
    depfile_of,
    nodes_of,
    path_of,
)
from offload_tool.scons.types import Node

_MOST_RESULTS = 200
"""Limit of results examined for one key, newest first; more only cost time."""
_NO_RESULT = PassRecord(Key(), {}, Lookups(), "")


class PassRecords(PassRun):
    """The manifest of one output, and the decisions based on it."""

    resolver: NodeResolver

    def __init__(self, node: Node, job: CompilePass, command: str, flags: FlagArgs) -> None:
        super().__init__(NodeResolver(node, job, command, flags), DIGESTS)
        self.job = job
        self.command = command
        self.is_fetched = False
        self.is_known_current = False
        """The last decision: of `is_current`, or True after a compile or fetch."""
        self._node = node

    def identity(self) -> str:
        """Return a digest that changes when a file that the pass reads or may read is replaced."""
        names = self.stored_inputs() or self.resolver.reachable
        return digest_of_parts([identity(name) for name in names])

    def stored_inputs(self) -> list[str]:
        """Return the names of the files that the last compile read, as far as known."""
        return list(self.record.inputs) if self.record is not None else []

    def known_nodes(self) -> list[Any]:
        """Return the nodes of the project's files that the last compile read."""
        if self.record is None:
            return []
        inputs: Mapping[str, str] = self.record.inputs
        if isinstance(inputs, Inputs):
            outside = inputs.outside
            built = DIGESTS.memoize(
                (outside, "folders"), lambda: any(map(compat.builds_in, outside.folders))
            )
            if not built:
                inputs = inputs.own
        return nodes_of(self._node, inputs)

    def renew_copies(self) -> None:
        """Update changed copies of files that the last compile read."""
        if compat.is_interactive():
            self._forget_last_build()
            self.resolver.renew_copies(self.stored_inputs())

    def _forget_last_build(self) -> None:
        if compat.is_interactive():
            self.record = None
            DIGESTS.clear_listings()
            query_front_end.cache_clear()  # installations may have changed since the last build

    # -- a compile -------------------------------------------------------------------------

    def is_current(self) -> bool:
        """Return True if a compile would write the same output now."""
        self._forget_last_build()
        self.is_known_current = super().is_current()
        return self.is_known_current

    def has_other_files(self) -> bool:
        """Return True if output or inputs are not those of the last compile, by their content.

        A worker thread may call it before SCons has visited the node, so it computes no signature.
        """
        record = self.record
        if record is None:
            return True
        files = {name: DIGESTS.digest(name) for name in record.key.files}
        output = self._node.get_internal_path()
        judgement = self.judge(record, record.key._replace(files=files), output)
        return judgement.state is not State.CURRENT

    def begin_compile(self) -> None:
        """Record the start of the compile, and remove an earlier manifest."""
        with suppress(OSError):  # a half-written one must not pass for this compile's
            Path(manifest_path(self._node.get_internal_path())).unlink(missing_ok=True)
        self.begin(depfile_of(self._node), self.resolver.key(self.record))
        self.stages = None

    def finish_compile(self) -> None:
        """Record what the compile has read and written; errors as of `PassRun`."""
        made = self.finish()
        compat.replace_implicit(self._node, nodes_of(self._node, made.inputs))
        if compat.has_more_actions(self._node):
            self.record = made
        else:
            self._save_current(made)

    def record_post_actions(self) -> None:
        """Record the output as the user's actions after the compile have left it."""
        record = self.record
        if record is not None and compat.has_more_actions(self._node):
            digest = record.output and DIGESTS.digest(path_of(self._node))
            self._save_current(record._replace(output=digest))

    def _save_current(self, record: PassRecord) -> None:
        self.save(record)
        self.is_known_current = self.is_known_current or compat.does_execute()

    # -- CacheDir ----------------------------------------------------------------------------

    def result_name(self) -> str:
        """Return the result's name in a ``CacheDir``; without a result, one that has no entry."""
        record = self.record
        if record is None or not record.output:
            return digest_of_parts(["none", self._node.get_internal_path()])
        return record.result

    def fetch(self, retrieve: Callable[[], Any]) -> bool:
        """Fetch the output by `retrieve`, if there is one of these inputs, and check its digest."""
        cache = self._cache()
        if cache is None:
            return False
        record = self._find(cache)
        # The record on disk may name another result in the cache.
        self.record = record or _NO_RESULT
        is_there = retrieve()
        self.record = record
        if not is_there or record is None:
            return False
        if not compat.does_execute():
            return True
        output = path_of(self._node)
        if DIGESTS.digest(output) != record.output:
            Path(output).unlink(missing_ok=True)
            if not compat.cache_is_readonly():
                Path(compat.cache_file(self._node)).unlink(missing_ok=True)
            self.record = None
            return False
        self.add_note("a CacheDir had the result")
        self._save_current(record._replace(why=self.reason))
        compat.replace_implicit(self._node, nodes_of(self._node, record.inputs))
        return True

    def store(self, push: Callable[[], Any]) -> Any:
        """Store the output by `push`, and its record, if its dependencies are certain."""
        cache, record = self._cache(), self.record
        may_write = compat.does_execute() and not compat.cache_is_readonly()
        if cache is None or record is None or not may_write:
            return None
        if not (record.output and record.is_sure):
            return None
        pushed = push()
        file = self._folder(cache, record.key) / f"{record.name}.json"
        with suppress(OSError, OffloadError):  # e.g. a full disk: ignored as in SCons's own cache
            if not file.exists():
                file.parent.mkdir(parents=True, exist_ok=True)
                write_record(str(file), record._replace(why=None), DIGESTS, None)
        return pushed

    def _cache(self) -> Any:
        if self.resolver.writes_more:
            return None  # a cache entry holds only one output
        cache = self._node.get_build_env().get_CacheDir()
        return cache if cache.is_enabled() else None

    def _folder(self, cache: Any, key: Key) -> Path:
        name = digest_of_parts(key)
        return Path(compat.cache_folder(cache, name), f"{name}.manifest")

    def _find(self, cache: Any) -> PassRecord | None:
        key = self.resolver.key(self.record)
        try:
            files = list(self._folder(cache, key).iterdir())
            files.sort(key=lambda file: file.stat().st_mtime_ns, reverse=True)
        except OSError:
            self.add_note("no result of this command is in the CacheDir")
            return None
        read: list[str] | None = None
        nearest: tuple[int, str] | None = None
        for file in files[:_MOST_RESULTS]:
            record = read_record(str(file), DIGESTS)
            if record is None:
                continue
            self.resolver.copy_to_variants(record)
            judgement = self.judge(record, key)
            if judgement.state is State.OUTDATED:
                others = [n for n, digest in record.inputs.items() if DIGESTS.digest(n) != digest]
                reason = str(judgement.reason)
                nearest = min(nearest or (len(others) + 1, ""), (len(others), reason))
                continue
            if judgement.state is State.CURRENT:
                return record
            read = read or self.resolver.preprocess()
            surer = self.confirmed(record, judgement, read)
            if surer is not None:
                return surer
        if nearest is not None:
            files_of = f"{nearest[0]} other file{'s' * (nearest[0] != 1)}"
            self.add_note(f"the nearest result in the CacheDir has {files_of}: {nearest[1]}")
        return None
