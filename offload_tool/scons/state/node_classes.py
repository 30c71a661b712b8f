"""The nodes of this tool's outputs: SCons files that decide whether they are current.

Every output compares content, its inputs' and its own, whatever the ``Decider``. A file that was
truncated, left incomplete by a killed build, or replaced is rebuilt. The outputs of compiler passes
have a manifest, which also selects entries of a ``CacheDir``: see `pass_state`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import SCons.CacheDir
import SCons.Environment
import SCons.Node
import SCons.Util
from SCons.Node.FS import Entry, File, FileNodeInfo

from offload_tool.errors import OffloadError
from offload_tool.io import replace_file
from offload_tool.io.file_digests import DigestCache, content_of, file_stat_from, is_cacheable
from offload_tool.manifest import manifest_path
from offload_tool.manifest.key import Part
from offload_tool.scons import compat
from offload_tool.scons.state.node_info import info_of, records_of
from offload_tool.scons.state.scanner import files_of_plain_command
from offload_tool.scons.types import Node

_STAT = "offload stat"


class StatInfo(FileNodeInfo):  # type: ignore[misc]
    """SCons's information on a file, and the stat() to which its digest belongs.

    ``.sconsign.dblite`` has this module's name: SCons builds a folder again if it cannot import it.
    """

    __slots__ = ("stat",)
    stat: tuple[int, ...]
    field_list: ClassVar[list[str]] = [*FileNodeInfo.field_list, "stat"]


def _with_stat(info: FileNodeInfo) -> StatInfo:
    if isinstance(info, StatInfo):
        return info
    made = StatInfo()
    made.merge(info)
    return made


def adopt(node: Any, node_class: type) -> None:
    """Assign one of our classes to a file node, as SCons does with entries that become files."""
    if type(node) is Entry:  # SCons has not determined its type yet
        node.disambiguate()
    if type(node) is File or issubclass(node_class, type(node)):
        node.__class__ = node_class
        if node.ninfo is not None:
            node.ninfo = _with_stat(node.ninfo)


class Input(File):  # type: ignore[misc]
    """A dependency of an output, built here or not; its stat() decides whether it is read again.

    SCons trusts the stored signature of files that are two days old, while their time, in whole
    seconds, is unchanged; but archives may unpack all releases with one time. This class trusts it
    at once, while the stat() is unchanged, whose ctime users cannot set: see `file_digests`.
    """

    __slots__ = ()
    NodeInfo = StatInfo

    def srcnode(self) -> Any:
        """Return the node of this file in the source folder, which may have SCons's own class."""
        folders = self.dir.srcdir_list()
        if not folders:
            return self
        found = folders[0].Entry(self.name)
        found.must_be_same(File)
        return found

    def visited(self) -> None:
        """Store the file's signature and its stat()."""
        super().visited()
        self.get_ninfo().stat = self.get_stat()

    def get_stat(self) -> tuple[int, ...]:
        """Return the stat() that SCons stores in the field of this name.

        It is () without a file, and for one that could be written again in the same tick. SCons
        forgets it together with its own stat(). `get_csig` calls this before it reads the file.
        """
        if _STAT not in self._memo:
            found = self.rfile().stat()  # cached: SCons needs it anyway
            status = () if found is None else file_stat_from(found)
            self._memo[_STAT] = tuple(status) if status and is_cacheable(status) else ()
        known: tuple[int, ...] = self._memo[_STAT]
        return known

    def get_stored_info(self) -> Any:
        """Return what SCons has stored, with room for the stat()."""
        entry = super().get_stored_info()
        if hasattr(entry, "ninfo"):  # not for files of Configure checks
            entry.ninfo = _with_stat(entry.ninfo)
        return entry

    def get_max_drift_csig(self) -> str | None:
        """Return the stored digest if the file was not changed; None with ``--max-drift=-1``."""
        known, status = getattr(self.get_stored_info(), "ninfo", None), self.get_stat()
        if self.fs.max_drift < 0 or not status or getattr(known, "stat", None) != status:
            return None
        return getattr(known, "csig", None) or None  # SCons 4.6 compares with None

    def changed_timestamp_newer(
        self, target: Node, prev_ni: Any, repo_node: Node | None = None
    ) -> bool:
        """Return True if this file is newer than the target, or its content has changed."""
        other = self._has_other_content(prev_ni)
        return bool(super().changed_timestamp_newer(target, prev_ni, repo_node)) or other

    def changed_timestamp_match(
        self, target: Node, prev_ni: Any, repo_node: Node | None = None
    ) -> bool:
        """Return True if this file's time or content has changed."""
        other = self._has_other_content(prev_ni)
        return bool(super().changed_timestamp_match(target, prev_ni, repo_node)) or other

    def _has_other_content(self, before: Any) -> bool:
        """Return True if the content is not `before`; store its digest in the node."""
        then, status = getattr(before, "csig", None), self.get_stat()
        if then and status and getattr(before, "stat", None) == status:
            known = self.get_ninfo()
            known.csig = getattr(known, "csig", then)
        return bool(self.get_csig() != then and then is not None)


def _adopt_input(node: Any) -> None:
    """Assign our class to a dependency, whose signature may rely on the time alone."""
    if type(node) not in {Entry, File}:
        return
    adopt(node.srcnode(), Input)
    adopt(node, Input)
    known = node.get_ninfo()
    if hasattr(known, "csig"):
        del known.csig
    if hasattr(known, "size"):  # SCons has visited it
        node.get_csig()
        known.stat = node.get_stat()


class PlainOutput(Input):
    """The output of an SCons builder for this tool: a program, an object of a C source.

    Its ``Decider`` applies, except to dependencies built in this run, whose time may be equal. The
    leftovers of a killed build do not count as its output.
    """

    __slots__ = ()

    def scan(self) -> None:
        """Find the file's dependencies, and compare the stat() of each from now on."""
        if self.implicit is None:
            self.find_implicit()
            if info_of(self).flags:
                self.add_to_implicit(files_of_plain_command(self))
            for child in self.children(scan=False):
                _adopt_input(child)

    def find_implicit(self) -> None:
        """Find the files that the command reads, by SCons's own scan."""
        super().scan()

    def changed(self, node: Any = None, allowcache: bool = False) -> bool:
        """Return True if the ``Decider`` does, or if a dependency built in this run changed.

        Deciders that compare times miss that, since SCons stores whole seconds. They come second:
        they may overwrite the child's signature with the stored one.
        """
        before = _digests_before((node or self).get_stored_info().binfo)
        was_built = any(
            digest and child.get_state() == SCons.Node.executed and child.get_csig() != digest
            for child, digest in zip(self.children(), before, strict=False)
        )
        return was_built or bool(super().changed(node, allowcache))

    def is_up_to_date(self) -> bool:
        """Return True if the file is current and was not modified."""
        current = bool(super().is_up_to_date())
        return current and not (self.exists() and self._was_damaged())

    def _was_damaged(self) -> bool:
        """Return True if the file is not what SCons has stored, whose times are whole seconds."""
        if self.get_state() == SCons.Node.executed and compat.does_execute():
            return False  # SCons still has what was stored before this run
        digest = getattr(self.get_stored_info().ninfo, "csig", None)
        return digest is not None and bool(self.get_csig() != digest)

    def retrieve_from_cache(self) -> bool:
        """Fetch the file from a ``CacheDir`` if the entry matches its stored digest."""
        if not super().retrieve_from_cache():
            return False
        if not compat.does_execute():
            return True
        entry = compat.cache_file(self)
        if content_of(f"{entry}.digest") == _digest(self).encode():
            return True
        Path(self.get_internal_path()).unlink(missing_ok=True)
        if not compat.cache_is_readonly():
            Path(entry).unlink(missing_ok=True)
        return False

    def push_to_cache(self) -> Any:
        """Store the file in a ``CacheDir``, with its digest, unless the entry has one."""
        entry = "" if self.nocache or compat.cache_is_readonly() else compat.cache_file(self)
        digest_file = f"{entry}.digest"
        is_known = os.path.exists(entry) and os.path.exists(digest_file)
        pushed = super().push_to_cache()
        if entry and not is_known and os.path.isdir(os.path.dirname(entry)):
            with suppress(OffloadError), replace_file(digest_file) as out:  # as SCons, which warns
                out.write(_digest(self).encode())
        return pushed

    def visited(self) -> None:
        """Store the file's signature, and with ``--cache-populate`` the file in a ``CacheDir``."""
        is_built = self.executor is None  # SCons has released it, and called `push_to_cache`
        if SCons.CacheDir.cache_force and not is_built and compat.does_execute() and self.exists():
            self.push_to_cache()
        super().visited()


def _digests_before(info: Any) -> list[str | None]:
    before = (*info.bsourcesigs, *info.bdependsigs, *info.bimplicitsigs)
    return [getattr(known, "csig", None) for known in before]


def adopt_plain(nodes: Iterable[Node], flags: str = "") -> None:
    """Make SCons's own builders rebuild modified outputs, and find files that `flags` name."""
    for node in nodes:
        adopt(node, PlainOutput)
        info_of(node).flags = flags


class Output(PlainOutput):
    """The output of an action of this tool, or a link of its outputs."""

    __slots__ = ()

    def changed(self, node: Any = None, allowcache: bool = False) -> bool:
        """Return True if the action or the content of a dependency has changed.

        This is `SCons.Node.Node.changed` with digests for each child, whatever the Decider. `node`
        has the stored information if it is another: this file in a Repository.
        """
        if node is None and "changed" in self._memo:
            return bool(self._memo["changed"])
        info = (node or self).get_stored_info().binfo
        # No early exit: each child's signature must be computed before it is stored.
        now = [child.get_csig() for child in self.children()]
        signature = SCons.Util.hash_signature(self.get_executor().get_contents())
        found = now != _digests_before(info) or bool(info.bactsig != signature)
        if allowcache:
            self._memo["changed"] = found
        return found


class PassOutput(Output):
    """The output of a compiler pass, with a manifest."""

    __slots__ = ()

    def find_implicit(self) -> None:
        """Find the files that the last compile read: SCons's scan would also look at sources."""
        compat.replace_implicit(self, [])
        scanner = self.get_target_scanner()
        if scanner:
            env = self.get_build_env()
            path = scanner.path(env, self.cwd, [self], self.sources)
            self.add_to_implicit(scanner(self, env, path))

    def is_up_to_date(self) -> bool:
        """Return True if, by the manifest, a compile would write this file again."""
        if self.released_target_info:
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
        kept = manifest_path(self.get_internal_path())
        files = SCons.Environment.CleanTargets.get(self, [])
        files[:] = [file for file in files if file.get_internal_path() != kept]

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


def _digest(node: Node) -> str:
    return DigestCache().digest(node.get_internal_path())
