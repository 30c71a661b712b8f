"""The nodes of this tool's outputs: SCons files that decide whether they are current.

Every output compares content, its inputs' and its own, whatever the ``Decider``. A file that was
truncated, left incomplete by a killed build, or replaced is rebuilt. The outputs of compiler passes
have a manifest, which also selects entries of a ``CacheDir``: see `pass_state`.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from SCons.Node.FS import File

from offload_tool.errors import OffloadError
from offload_tool.io import replace_file
from offload_tool.io.file_digests import DigestCache, content_of
from offload_tool.manifest import manifest_path
from offload_tool.manifest.key import Part
from offload_tool.scons import compat
from offload_tool.scons.state.node_info import records_of
from offload_tool.scons.types import Node


class Input(File):  # type: ignore[misc]
    """A dependency of an output, built here or not; its modification time is not sufficient.

    SCons trusts its stored signature while the time, in whole seconds, is unchanged; but archives
    may unpack all releases with one time. This class also compares the stat(), whose ctime users
    cannot set: see `file_digests`.
    """

    __slots__ = ()
    NodeInfo = compat.StatInfo

    def srcnode(self) -> Any:
        """Return the node of this file in the source folder, which may have SCons's own class."""
        return compat.source_node(self)

    def visited(self) -> None:
        """Store the file's signature and its stat()."""
        super().visited()
        compat.store_stat(self)

    def get_stat(self) -> tuple[int, ...]:
        """Return the stat() that SCons stores in the field of this name."""
        return compat.file_stat_of(self)

    def get_stored_info(self) -> Any:
        """Return what SCons has stored, with room for the stat()."""
        return compat.add_stat(super().get_stored_info())

    def get_max_drift_csig(self) -> str | None:
        """Return the stored digest of an old file, if it was not changed."""
        known: str | None = super().get_max_drift_csig() if compat.has_stored_stat(self) else None
        return known or None  # SCons 4.6 compares with None

    def changed_timestamp_newer(
        self, target: Node, prev_ni: Any, repo_node: Node | None = None
    ) -> bool:
        """Return True if this file is newer than the target, or its content has changed."""
        other = compat.has_other_content(self, prev_ni)
        return bool(super().changed_timestamp_newer(target, prev_ni, repo_node)) or other

    def changed_timestamp_match(
        self, target: Node, prev_ni: Any, repo_node: Node | None = None
    ) -> bool:
        """Return True if this file's time or content has changed."""
        other = compat.has_other_content(self, prev_ni)
        return bool(super().changed_timestamp_match(target, prev_ni, repo_node)) or other


class PlainOutput(Input):
    """The output of an SCons builder for this tool: a program, an object of a C source.

    Its ``Decider`` applies, except to dependencies built in this run, whose time may be equal. The
    leftovers of a killed build do not count as its output.
    """

    __slots__ = ()

    def scan(self) -> None:
        """Find the file's dependencies, and compare the stat() of each from now on."""
        if not compat.was_scanned(self):
            super().scan()
            for child in self.children(scan=False):
                compat.adopt_input(child, Input)

    def changed(self, node: Node | None = None, allowcache: bool = False) -> bool:
        """Return True if the ``Decider`` does, or if a dependency built in this run changed."""
        if compat.other_was_built(self, node):
            return True
        return bool(super().changed(node, allowcache))

    def is_up_to_date(self) -> bool:
        """Return True if the file is current and was not modified."""
        current = bool(super().is_up_to_date())
        return current and not (self.exists() and compat.was_damaged(self))


def adopt_plain(nodes: Iterable[Node]) -> None:
    """Make SCons's own builders rebuild modified outputs."""
    for node in nodes:
        compat.adopt(node, PlainOutput)


class Output(PlainOutput):
    """The output of an action of this tool, or a link of its outputs."""

    __slots__ = ()

    def changed(self, node: Node | None = None, allowcache: bool = False) -> bool:
        """Return True if the action or the content of a dependency has changed."""
        return compat.content_changed(self, node, remember=allowcache)

    def retrieve_from_cache(self) -> bool:
        """Fetch the file from a ``CacheDir`` if the entry matches its stored digest."""
        if not super().retrieve_from_cache():
            return False
        if not compat.does_execute() or self.nocache:
            return True
        digest_file = _digest_file(self)
        if digest_file is not None and content_of(str(digest_file)) == _digest(self).encode():
            return True
        Path(self.get_internal_path()).unlink(missing_ok=True)
        if digest_file is not None and not compat.cache_is_readonly():
            digest_file.with_suffix("").unlink(missing_ok=True)
        return False

    def push_to_cache(self) -> Any:
        """Store the file in a ``CacheDir``, with its digest."""
        pushed = super().push_to_cache()
        digest_file = None if self.nocache or compat.cache_is_readonly() else _digest_file(self)
        if digest_file is not None and digest_file.parent.is_dir():
            with suppress(OffloadError), replace_file(digest_file) as out:  # as SCons, which warns
                out.write(_digest(self).encode())
        return pushed


class PassOutput(Output):
    """The output of a compiler pass, with a manifest."""

    __slots__ = ()

    def is_up_to_date(self) -> bool:
        """Return True if, by the manifest, a compile would write this file again."""
        if compat.was_released(self):
            return records_of(self).is_known_current
        File.is_up_to_date(self)  # computes the dependencies' signatures, which are stored later
        return records_of(self).is_current()

    def explain(self) -> Any:
        """Return why the pass runs, for ``--debug=explain``."""
        reason = records_of(self).reason
        if not self.exists() or reason is None or reason.subject == Part.COMMAND:
            return super().explain()  # shows both commands
        return f"rebuilding `{self}' because {reason}\n"

    def get_cachedir_bsig(self) -> str:
        """Return the name of the result in a ``CacheDir``, derived from the files actually read."""
        return records_of(self).result_name()

    def retrieve_from_cache(self) -> bool:
        """Fetch the result from a ``CacheDir`` if it has one of exactly these inputs."""
        if self.nocache or not self.is_derived():
            return False
        records = records_of(self)
        records.is_fetched = records.fetch(lambda: File.retrieve_from_cache(self))
        return records.is_fetched

    def set_noclean(self, noclean: bool = True) -> None:
        """Keep the manifest with the output: ``env.NoClean``."""
        super().set_noclean(noclean)
        compat.forget_cleaning(self, [manifest_path(self.get_internal_path())])

    def built(self) -> None:
        """Record the output as the user's post-actions have left it."""
        records_of(self).record_post_actions()
        super().built()

    def push_to_cache(self) -> Any:
        """Store the result in a ``CacheDir``, with its manifest."""
        if self.nocache:
            return None
        records_of(self).record_post_actions()  # SCons calls `built` later
        return records_of(self).store(lambda: File.push_to_cache(self))

    def visited(self) -> None:
        """Store the result with ``--cache-populate``."""
        super().visited()
        if compat.cache_is_forced() and not self.nocache:
            records_of(self).store(lambda: None)


def _digest_file(node: Node) -> Path | None:
    file = compat.cache_file(node)
    return Path(f"{file}.digest") if file else None


def _digest(node: Node) -> str:
    return DigestCache().digest(node.get_internal_path())
